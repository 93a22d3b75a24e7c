"""The page: header and the tabs of ui.TABS, served on this machine."""

from __future__ import annotations

import importlib
import os
import socket

import gradio as gr
import torch

from app.session import Sessions
from app.ui import TABS, header, theme
from app.ui.place import Place
from engine.backbones import load
from engine.core import Backbone
from engine.errors import NotSupported

FIRST_PORT = 7860
PORTS_TRIED = 100


def build(backbone: Backbone) -> gr.Blocks:
    """The page for a loaded model."""
    with gr.Blocks(title="Foretoken", analytics_enabled=False, fill_width=True) as page:
        place = Place(page, backbone, Sessions())
        header.build(backbone)
        with gr.Tabs(elem_id="tabs"):
            for name, module in TABS.items():
                with gr.Tab(name, id=name.lower()):
                    importlib.import_module(module).build(place)
    return page


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
) -> None:
    """Serves the studio until it is interrupted. A port in use is no reason to stop: the next free one is taken and said."""
    leave_a_core(device)
    model = load(backbone, path, device, dtype)
    wanted = FIRST_PORT if port is None else port
    found = free_port(host, wanted)
    if found != wanted:
        print(f"Port {wanted} is in use; the studio takes {found}.", flush=True)
    page = build(model)
    page.queue(default_concurrency_limit=4, api_open=False)
    print(f"Foretoken studio: http://{host}:{found}", flush=True)
    page.launch(
        server_name=host, server_port=found, inbrowser=open_browser, quiet=True, share=False, show_error=True, ssr_mode=False,
        theme=theme.theme(), css=theme.css(), head=theme.HEAD, footer_links=[], run_history=False, enable_monitoring=False,
        mcp_server=False, pwa=False,
    )  # fmt: skip
