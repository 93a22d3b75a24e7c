"""The studio's page: served on this machine."""

from __future__ import annotations

import ipaddress
import os
import signal
import socket
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gradio as gr
from gradio.utils import get_upload_folder
from starlette.middleware import Middleware

from app.limits import Limits
from app.live.background import Background
from app.live.boards.lazy import Lazy
from app.live.session import Sessions
from app.live.worker import LocalRunner, RemoteRunner
from app.runs.run_store import RunStore
from app.server import endpoints
from app.server.compressed import Compressed
from app.server.host_guard import HostGuard
from app.server.page import Page, add_interfaces
from app.server.prefix import Prefix
from app.server.tools import PATH, check_installed, mend
from app.shared import StudioState
from app.ui import page as assembly
from app.ui.style import theme
from engine.backbones import MESHES, PICTURES, current_name, load, makes_meshes, named_in
from engine.core import Backbone
from engine.errors import MissingWeights, NotSupported
from engine.files import clean, home
from engine.machine import device_of
from engine.networks.weights import MODELS
from engine.tuning.auto import resolve
from engine.tuning.prepare import prepare, to_stderr_once, tune

FIRST_PORT = 7860
PORTS_TRIED = 100
VISITORS = 100  # most visitors whose page state Gradio keeps
FAREWELL = 20.0  # seconds that a run may take to end when the studio is interrupted


def build(
    backbone: Backbone,
    mesh: Lazy | None = None,
    sessions: Sessions | None = None,
    local: bool = False,
    weights: Path | None = None,
    examples: Path | None = None,
    run_store: RunStore | None = None,
    runner: LocalRunner | RemoteRunner | None = None,
    any_model: bool = False,
    api_key: str = "",
    background: Background | None = None,
) -> Page:
    """The page for a loaded picture model and a mesh model that is loaded when first needed (default: the shipped one).

    local   : only this machine can open the page, so visitors may import models from its folders
    weights : folder of the picture model (None: the shipped one), for its card
    examples: folder of the examples that this machine made (None: a new page shows none)
    run_store : stores finished runs (default: the user's runs), with the limits of the page; runner : decodes
    any_model: its images API answers to any model name; api_key : what its requests must carry, "" = nothing
    background: begins its tasks once the page is served (default: never)
    """
    mesh = mesh or mesh_model()
    run_store = run_store or RunStore(home() / "runs", Limits())
    limits, sessions = run_store.limits, sessions or visitors()
    background = background or Background(sessions)
    studio = StudioState(backbone, mesh, sessions, local, weights, examples, run_store, runner or LocalRunner(), background)
    with Page(title="Foretoken", analytics_enabled=False, fill_width=True, delete_cache=limits.leftovers) as page:
        assembly.build(page, studio)
        endpoints.build(page, studio)
        add_interfaces(page, studio, lambda caller: forget(page, caller), api_key, any_model)

        def leave(request: gr.Request) -> None:
            sessions.leave(request.session_hash)
            forget(page, request.session_hash)

        page.unload(leave)
    sessions.count_also(lambda: queue_length(page))
    return page


def queue_length(page: gr.Blocks) -> int:
    """Number of requests for the engine in Gradio's queue."""
    queue = page._queue.event_queue_per_concurrency_id.get("engine")
    return len(queue.queue) if queue else 0


def forget(page: gr.Blocks, visitor: str) -> None:
    """Frees Gradio's state of a closed page: a megabyte of its last values, which Gradio itself never frees."""
    state = page.state_holder
    with state.lock:
        state.session_data.pop(visitor, None)
        state.time_last_used.pop(visitor, None)


def visitors(limits: Limits | None = None) -> Sessions:
    """New sessions, whose files are stored where Gradio can serve them."""
    return Sessions(folder=get_upload_folder(), idle=(limits or Limits()).idle)


def mesh_model(name: str = MESHES, path: str | None = None, device: str = "auto", weights: str = "auto") -> Lazy:
    """The model of the Mesh tab. path: its folder (default: the shipped one)."""

    def read() -> Backbone:
        if not path and not lazy.is_present:
            raise MissingWeights(
                "lowpoly's weights are not in this checkout. Train them with 'python launch.py train lowpoly'; until then, files can "
                "only be viewed."
            )
        return load(name, path, device_of(device), weights=weights)

    lazy = Lazy(name, Path(path) if path else MODELS / MESHES, read)
    return lazy


def models_of(name: str, path: str | None) -> tuple[tuple[str, str | None], tuple[str, str | None]]:
    """(name, folder) of the picture model and of the mesh model, one of them as requested: a folder's card, or the checkpoint in it, says
    which kind it is."""
    if path:
        name = named_in(Path(path))
    name = current_name(name)
    return ((PICTURES, None), (name, path)) if makes_meshes(name) else ((name, path), (MESHES, None))


def free_port(host: str, wanted: int) -> int:
    """The first free port from the wanted one upwards; raises NotSupported if a hundred are in use."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for port in range(wanted, min(wanted + PORTS_TRIED, 65536)):
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
            except OSError:
                continue
            return port
    raise NotSupported(f"No port from {wanted} to {wanted + PORTS_TRIED - 1} is free on {host}. Choose another with --port.")


def is_local(host: str) -> bool:
    """True if only this machine can reach the host."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def spare_core() -> int:
    """Maximum threads of a pass in a server. One core stays free for the server and the browser: a pass with fewer threads is faster than
    one whose threads wait for a busy core."""
    return max(1, (os.cpu_count() or 2) - 1)


def launch(
    backbone: str = "pictogram",
    path: str | None = None,
    device: str = "auto",
    port: int | None = None,
    host: str = "127.0.0.1",
    open_browser: bool = True,
    dtype: str = "auto",
    mesh_path: str | None = None,
    allowed_hosts: Iterable[str] = (),
    data: Path | None = None,
    limits: Limits | None = None,
    gpu: Callable[..., Any] | None = None,
    mcp: bool = False,
    any_model: bool = False,
    root_path: str | None = None,
    api_key: str = "",
    weights: str = "auto",
) -> None:
    """Serves the studio until it is interrupted. If a port is in use, it takes the next free one and prints it.

    backbone, path : the model of the Image tab or of the Mesh tab, by name or by folder; mesh_path : a folder for the Mesh tab only
    allowed_hosts  : host names that requests may use, besides loopback and `host`; "*" allows all
    data, limits   : folder of finished runs (default: the user's runs), and limits on stored runs and uploads
    gpu            : ZeroGPU's decorator, see app/live/worker.py
    mcp            : the endpoints are also tools for MCP clients; raises NotSupported without the package
    any_model      : the images API answers to any model name
    api_key        : what requests of the API must carry; "" = nothing
    root_path      : path under which a proxy serves the studio, such as "/foretoken"
    weights        : of the named model, see `engine.backbones.load`
    """
    os.environ.setdefault("MPLBACKEND", "agg")  # else Gradio's first update looks it up, which imports pyplot for seconds
    if mcp:
        check_installed()
    device = device_of(device)
    run_store = RunStore(data or home() / "runs", limits or Limits())
    clean(run_store.folder)
    run_store.prune()
    (picture_name, picture_path), (mesh_name, mesh_folder) = models_of(backbone, path)
    is_mesh = (mesh_name, mesh_folder) != (MESHES, None)  # the named model makes meshes
    mesh_folder = mesh_path or mesh_folder
    with own_folder():
        form = "auto" if is_mesh else weights
        model = prepare(picture_name, picture_path, device, dtype, spare_core(), weights=form, measures=False)
        chosen_port = free_port(host, FIRST_PORT if port is None else port)
        if chosen_port != (port or FIRST_PORT):
            print(f"Port {port or FIRST_PORT} is in use; the studio uses {chosen_port}.", flush=True)
        runner = None
        if gpu:  # the models above are for drawing; the worker has its own
            models = [load(picture_name, picture_path, "cuda", dtype), load(mesh_name, mesh_folder, "cuda")]
            runner = RemoteRunner({each.name: each for each in models}, gpu)
        sessions = visitors(run_store.limits)
        background = Background(sessions)
        background.add(lambda: measure(model, lambda other: load(picture_name, picture_path, device, other), dtype))
        local = is_local(host) and not tuple(allowed_hosts) and not run_store.limits.shared
        weights = Path(picture_path) if picture_path else None
        mesh = mesh_model(mesh_name, mesh_folder, device, weights if is_mesh else "auto")
        page = build(model, mesh, sessions, local, weights, home() / "examples", run_store, runner, any_model, api_key, background)
        print(f"Foretoken studio: {address(host, chosen_port)}\n{storage_note(run_store)}", flush=True)
        serve_page(page, host, chosen_port, allowed_hosts, open_browser, run_store.limits, mcp, root_path)
        background.start()
        if mcp:
            print(f"MCP: {address(host, chosen_port)}{PATH}", flush=True)
        wait_for_interrupt()
        sessions.close()
        sessions.wait_until_free(FAREWELL)
        page.close(verbose=False)


def measure(model: Backbone, load_as: Callable[[str], Backbone], dtype: str) -> None:
    """Measures threads and dtypes once, and what the next start needs if it takes another dtype. load_as : the model in another dtype"""
    tuned = tune(model, load_as, dtype, spare_core())
    if tuned is not model:
        resolve(tuned, to_stderr_once)


@contextmanager
def own_folder() -> Iterator[None]:
    """A folder for uploads and downloads, deleted at the end: Gradio's default folder is shared with all other programs that use Gradio.
    $GRADIO_TEMP_DIR names another folder, which is kept."""
    if "GRADIO_TEMP_DIR" in os.environ:
        yield
        return
    with tempfile.TemporaryDirectory(prefix=f"foretoken-{os.getpid()}-", ignore_cleanup_errors=True) as folder:
        os.environ["GRADIO_TEMP_DIR"] = folder
        try:
            yield
        finally:
            del os.environ["GRADIO_TEMP_DIR"]


def address(host: str, port: int) -> str:
    """The studio's URL for a browser on this machine."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def storage_note(run_store: RunStore) -> str:
    """Sentence about the storage of finished runs."""
    if not run_store.limits.runs:
        return "Runs are not saved."
    size = run_store.limits.run_bytes / 2**30
    return f"Runs are saved in {run_store.folder}, at most {run_store.limits.runs:,} or {size:g} GiB; then the oldest are deleted."


def serve_page(
    page: Page,
    host: str,
    port: int,
    allowed_hosts: Iterable[str] = (),
    open_browser: bool = False,
    limits: Limits | None = None,
    mcp: bool = False,
    root_path: str | None = None,
) -> str:
    """Serves a page from its own threads; returns its URL.

    mcp : its endpoints are also tools for MCP clients; root_path : path under which a proxy serves it (None: $GRADIO_ROOT_PATH)
    """
    limits = limits or Limits()
    page.queue(default_concurrency_limit=4, api_open=False, max_size=limits.waiting)
    guard = Middleware(HostGuard, host=host, allowed=tuple(allowed_hosts), largest=limits.upload, public=limits.shared)
    outer = os.environ.get("GRADIO_ROOT_PATH", "") if root_path is None else root_path
    _, url, _ = page.launch(
        server_name=host, server_port=port, inbrowser=open_browser, quiet=True, share=False, show_error=True, ssr_mode=False,
        theme=theme.theme(), css=theme.css(), head=theme.HEAD + theme.EXAMPLE, footer_links=[], run_history=False, enable_monitoring=False,
        mcp_server=mcp, pwa=True, favicon_path=str(theme.ICON), prevent_thread_lock=True, max_file_size=limits.upload,
        state_session_capacity=VISITORS, _frontend=False,  # else Gradio requests its own page first, and can time out on a busy machine
        root_path=outer, app_kwargs={
            "middleware": [Middleware(Prefix, root_path=outer), guard, Middleware(Compressed)],
            "routes": list(page.routes),
            "exception_handlers": {404: page.answer_unrouted, 405: page.answer_unrouted},
        },
    )  # fmt: skip
    if mcp:
        mend(page.mcp_server_obj)
    return url


def wait_for_interrupt() -> None:
    """Returns when Ctrl-C or a signal asks the process to end. A second Ctrl-C ends it at once."""
    interrupted = threading.Event()
    kinds = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(kind, lambda *_: interrupted.set()) for kind in kinds]
    while not interrupted.wait(0.5):  # Windows handles no signal during an endless wait
        pass
    for kind, handler in zip(kinds, before, strict=True):
        signal.signal(kind, handler)
