"""The page: header and the tabs of ui.TABS, served on this machine."""

from __future__ import annotations

import importlib
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
from engine.backbones import load
from engine.core import Backbone
from engine.errors import MissingWeights, NotSupported
from engine.files import clean, clean_scratch, home
from engine.networks.weights import MODELS, read_card

FIRST_PORT = 7860
PORTS_TRIED = 100
VISITORS = 100  # of whom Gradio remembers what their pages look like
STALE = (3600, 86_400)  # seconds: how often, and how old, files are deleted that no visitor's farewell took along
FAREWELL = 20.0  # seconds that a run gets to end when the studio is interrupted
CHECKPOINT = "janus"  # the backbone whose folders are as their makers publish them
PICTURES, MESHES = "pictogram", ("lowpoly", "lowpoly_lora")  # what the tabs show unless they are told otherwise: the first of them


def build(backbone: Backbone, mesh: Lazy | None = None, sessions: Sessions | None = None) -> gr.Blocks:
    """The page for a loaded model of pictures, and one of meshes that is loaded when it is needed (default: the shipped one)."""
    mesh = mesh or mesh_model()
    sessions = sessions or visitors()
    with gr.Blocks(title="Foretoken", analytics_enabled=False, fill_width=True, delete_cache=STALE) as page:
        header.build(backbone, mesh)
        with gr.Tabs(elem_id="tabs"):
            for name, module in TABS.items():
                with gr.Tab(name, id=name.lower()) as tab:
                    importlib.import_module(module).build(Place(page, tab, backbone, mesh, sessions))

        def leave(request: gr.Request) -> None:
            sessions.leave(request.session_hash)
            forget(page, request.session_hash)

        page.unload(leave)
    return page


def forget(page: gr.Blocks, visitor: str) -> None:
    """Lets go of what Gradio remembers of a page that was closed: a megabyte of its last values, which it would keep for good."""
    held = page.state_holder
    with held.lock:
        held.session_data.pop(visitor, None)
        held.time_last_used.pop(visitor, None)


def visitors() -> Sessions:
    """Nobody yet. Their files lie where Gradio can serve them from."""
    return Sessions(folder=get_upload_folder())


def mesh_model(name: str = MESHES[0], path: str | None = None, device: str = "cpu") -> Lazy:
    """The model of the Mesh tab. path: its folder (default: the shipped one)."""

    def read() -> Backbone:
        if not path and not lazy.here:
            raise MissingWeights(
                "lowpoly's weights are not in this checkout yet. Train them with 'python launch.py train lowpoly'; until then files can be "
                "looked at."
            )
        return load(name, path, device)

    lazy = Lazy(name, Path(path) if path else MODELS / MESHES[0], read)
    return lazy


def models_of(name: str, path: str | None) -> tuple[tuple[str, str | None], tuple[str, str | None]]:
    """(name, folder) of the models for pictures and for meshes, of which one was asked for: a folder's card says which kind it is. Without
    a card it is a checkpoint as it was downloaded."""
    if path:
        card = Path(path) / "card.json"
        name = str(read_card(Path(path)).get("name", name)) if card.exists() else CHECKPOINT
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


def leave_a_core(device: str) -> None:
    """Keeps one core for the server and the browser: threads of a pass that wait for a busy core cost more than they bring."""
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
    """Serves the studio until it is interrupted. A port in use is no reason to stop: the next free one is taken and said.

    backbone, path : the model of the Image tab or of the Mesh tab, by name or by folder; mesh_path : a folder for the Mesh tab alone
    allowed_hosts  : names by which the studio may be asked for, beside loopback and `host`; "*" allows all
    """
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
    """The same for models that are known by name and folder."""
    (picture_name, picture_path), (mesh_name, found_path) = models
    model = load(picture_name, picture_path, device, dtype)
    mesh = mesh_model(mesh_name, mesh_path or found_path, device)
    wanted = FIRST_PORT if port is None else port
    found = free_port(host, wanted)
    if found != wanted:
        print(f"Port {wanted} is in use; the studio takes {found}.", flush=True)
    sessions = visitors()
    page = build(model, mesh, sessions)
    print(f"Foretoken studio: {address(host, found)}\nRuns are kept in {home() / 'runs'}.", flush=True)
    open_to(page, host, found, allowed_hosts, open_browser)
    wait_for_interrupt()
    sessions.close()
    sessions.wait_until_free(FAREWELL)
    page.close(verbose=False)


@contextmanager
def own_folder() -> Iterator[None]:
    """A folder for what visitors send and are offered, which goes in the end: Gradio's own is shared with all other programs that use it.
    $GRADIO_TEMP_DIR names another one, which stays."""
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
    """Where a browser on this machine finds the studio."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def open_to(page: gr.Blocks, host: str, port: int, allowed_hosts: Iterable[str] = (), open_browser: bool = False) -> str:
    """Serves a page from threads of its own; returns its address."""
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
    """Returns when the process is asked to end, by Ctrl-C or a signal. A second Ctrl-C ends it at once."""
    asked = threading.Event()
    kinds = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(kind, lambda *_: asked.set()) for kind in kinds]
    while not asked.wait(0.5):  # Windows hears no signal in an endless wait
        pass
    for kind, handler in zip(kinds, before, strict=True):
        signal.signal(kind, handler)
