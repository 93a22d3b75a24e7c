"""The studio's page: a header and the tabs of ui.TABS, served on this machine."""

from __future__ import annotations

import importlib
import ipaddress
import os
import signal
import socket
import tempfile
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import gradio as gr
import torch
from gradio.utils import get_upload_folder
from starlette.middleware import Middleware

from app.boards.lazy import Lazy
from app.door import Door
from app.session import Sessions
from app.ui import TABS, header, theme
from app.ui.place import Place
from app.uploads import BYTES
from engine.backbones import load, named_in
from engine.core import Backbone
from engine.errors import MissingWeights, NotSupported
from engine.files import clean, clean_scratch, home
from engine.networks.weights import MODELS

FIRST_PORT = 7860
PORTS_TRIED = 100
VISITORS = 100  # most visitors whose page state Gradio keeps
STALE = (3600, 86_400)  # seconds: how often Gradio deletes leftover files, and how old they must be
FAREWELL = 20.0  # seconds that a run has to end when the studio is interrupted
PICTURES, MESHES = "pictogram", ("lowpoly", "lowpoly_lora", "bpt")  # the models of the tabs; the first of MESHES is the default


def build(
    backbone: Backbone,
    mesh: Lazy | None = None,
    sessions: Sessions | None = None,
    local: bool = False,
    weights: Path | None = None,
    examples: Path | None = None,
) -> gr.Blocks:
    """The page for a loaded picture model and a mesh model that is loaded when it is needed (default: the shipped one).

    local   : only this machine can open the page, so it may import models from folders that a visitor names
    weights : the folder of the picture model (None: the shipped one), for its card
    examples: where the race is kept that a new page shows (None: it shows none)
    """
    mesh = mesh or mesh_model()
    sessions = sessions or visitors()
    with gr.Blocks(title="Foretoken", analytics_enabled=False, fill_width=True, delete_cache=STALE) as page:
        header.build(backbone, mesh)
        with gr.Tabs(elem_id="tabs"):
            for name, module in TABS.items():
                with gr.Tab(name, id=name.lower()) as tab:
                    importlib.import_module(module).build(Place(page, tab, backbone, mesh, sessions, local, weights, examples))

        def leave(request: gr.Request) -> None:
            sessions.leave(request.session_hash)
            forget(page, request.session_hash)

        page.unload(leave)
    return page


def forget(page: gr.Blocks, visitor: str) -> None:
    """Frees what Gradio keeps of a closed page: a megabyte of its last values, which it would never free."""
    held = page.state_holder
    with held.lock:
        held.session_data.pop(visitor, None)
        held.time_last_used.pop(visitor, None)


def visitors() -> Sessions:
    """An empty set of visits, whose files are stored where Gradio can serve them."""
    return Sessions(folder=get_upload_folder())


def mesh_model(name: str = MESHES[0], path: str | None = None, device: str = "cpu") -> Lazy:
    """The model of the Mesh tab. path: its folder (default: the shipped one)."""

    def read() -> Backbone:
        if not path and not lazy.here:
            raise MissingWeights(
                "lowpoly's weights are not in this checkout. Train them with 'python launch.py train lowpoly'; until then, files can "
                "only be viewed."
            )
        return load(name, path, device)

    lazy = Lazy(name, Path(path) if path else MODELS / MESHES[0], read)
    return lazy


def models_of(name: str, path: str | None) -> tuple[tuple[str, str | None], tuple[str, str | None]]:
    """(name, folder) of the picture model and of the mesh model, one of them as requested: a folder's card, or the checkpoint in it, says
    which kind it is."""
    if path:
        name = named_in(Path(path))
    return ((PICTURES, None), (name, path)) if name in MESHES else ((name, path), (MESHES[0], None))


def free_port(host: str, wanted: int) -> int:
    """The first free port from the wanted one upwards; raises NotSupported if a hundred are taken."""
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
    """Whether only this machine reaches a host."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def leave_a_core(device: str) -> None:
    """Leaves one core to the server and the browser: a pass whose threads wait for a busy core is slower than one with fewer threads."""
    if device == "cpu":
        torch.set_num_threads(max(1, min(torch.get_num_threads(), (os.cpu_count() or 2) - 1)))


def launch(
    backbone: str = "pictogram",
    path: str | None = None,
    device: str = "cpu",
    port: int | None = None,
    host: str = "127.0.0.1",
    open_browser: bool = True,
    dtype: str = "auto",
    mesh_path: str | None = None,
    allowed_hosts: Iterable[str] = (),
) -> None:
    """Serves the studio until it is interrupted. If a port is in use, it takes the next free one and prints it.

    backbone, path : the model of the Image tab or of the Mesh tab, by name or by folder; mesh_path : a folder for the Mesh tab only
    allowed_hosts  : host names that requests may use, besides loopback and `host`; "*" allows all
    """
    os.environ.setdefault("MPLBACKEND", "agg")  # else Gradio's first update asks which one is in use, which imports pyplot for seconds
    leave_a_core(device)
    clean_scratch()
    clean(home() / "runs")
    with own_folder():
        _serve(models_of(backbone, path), device, port, host, open_browser, dtype, mesh_path, allowed_hosts)


def _serve(
    models: tuple[tuple[str, str | None], tuple[str, str | None]],
    device: str,
    port: int | None,
    host: str,
    open_browser: bool,
    dtype: str,
    mesh_path: str | None,
    allowed_hosts: Iterable[str],
) -> None:
    """Loads the models and serves the studio until it is interrupted."""
    (picture_name, picture_path), (mesh_name, found_path) = models
    model = load(picture_name, picture_path, device, dtype)
    mesh = mesh_model(mesh_name, mesh_path or found_path, device)
    wanted = FIRST_PORT if port is None else port
    found = free_port(host, wanted)
    if found != wanted:
        print(f"Port {wanted} is in use; the studio uses {found}.", flush=True)
    sessions = visitors()
    page = build(
        model,
        mesh,
        sessions,
        is_local(host) and not tuple(allowed_hosts),
        Path(picture_path) if picture_path else None,
        home() / "examples",
    )
    print(f"Foretoken studio: {address(host, found)}\nRuns are saved in {home() / 'runs'}.", flush=True)
    open_to(page, host, found, allowed_hosts, open_browser)
    wait_for_interrupt()
    sessions.close()
    sessions.wait_until_free(FAREWELL)
    page.close(verbose=False)


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


def open_to(page: gr.Blocks, host: str, port: int, allowed_hosts: Iterable[str] = (), open_browser: bool = False) -> str:
    """Serves a page from its own threads; returns its URL."""
    page.queue(default_concurrency_limit=4, api_open=False)
    door = Middleware(Door, host=host, allowed=tuple(allowed_hosts), largest=BYTES)
    _, here, _ = page.launch(
        server_name=host, server_port=port, inbrowser=open_browser, quiet=True, share=False, show_error=True, ssr_mode=False,
        theme=theme.theme(), css=theme.css(), head=theme.HEAD, footer_links=[], run_history=False, enable_monitoring=False,
        mcp_server=False, pwa=False, prevent_thread_lock=True, max_file_size=BYTES, state_session_capacity=VISITORS,
        app_kwargs={"middleware": [door]},
    )  # fmt: skip
    return here


def wait_for_interrupt() -> None:
    """Returns when Ctrl-C or a signal asks the process to end. A second Ctrl-C ends it at once."""
    asked = threading.Event()
    kinds = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(kind, lambda *_: asked.set()) for kind in kinds]
    while not asked.wait(0.5):  # Windows handles no signal during an endless wait
        pass
    for kind, handler in zip(kinds, before, strict=True):
        signal.signal(kind, handler)
