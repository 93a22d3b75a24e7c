"""A small page with the mesh panel, which grows the still life without a model."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import gradio as gr

from app.server.studio import free_port
from app.ui.panels import mesh
from app.ui.panels.mesh import Side
from app.ui.style import theme
from tests.app.still_life import cloud, side, surfaces, waiting

GROWN = {"plain": 300, "accelerated": 634}  # faces at the end of a growth
UPDATES = 16
HALF = GROWN["accelerated"] // 2


def ask(text: str) -> dict:
    """Parse a line like "plain=40 accelerated=90 ghost=8 state=done points=1"."""
    words = dict(pair.split("=") for pair in text.split())
    shown = {n: side(n, int(words[n]), int(words.get("ghost", 0)), words.get("state", "running")) for n in mesh.SIDES if n in words}
    if "surfaces" in words:
        shown["accelerated"].surfaces = surfaces(int(words["accelerated"]))
    if "classical" in words:
        only = {mesh.CLASSICAL: surfaces(0)[mesh.CLASSICAL]}
        shown["plain"] = Side(title="Classical surface", state="done", counters={"seconds": 1.5}, surfaces=only, shows=mesh.CLASSICAL)
    return mesh.encode(shown or {"accelerated": Side.empty("XSpecMesh", "Press Generate.")}, cloud() if "points" in words else None)


def grow() -> Iterator[tuple[dict, dict]]:
    """Grows both sides, with drafts ahead, and waits at half. The other tab's panel gets the same values."""
    goes_on.clear()
    for update in range(1, UPDATES + 1):
        state = "done" if update == UPDATES else "running"
        ghosts = {"plain": 0, "accelerated": 0 if state == "done" else 6}
        value = mesh.encode({n: side(n, GROWN[n] * update // UPDATES, ghosts[n], state) for n in mesh.SIDES}, cloud())
        yield value, value
        if update == UPDATES // 2:
            goes_on.wait(60)
        time.sleep(0.08)


goes_on = threading.Event()


def page() -> gr.Blocks:
    """A panel, a second one in an unopened tab, a text field for commands, and a growing mesh."""
    with gr.Blocks(analytics_enabled=False, fill_width=True) as blocks:
        with gr.Tabs():
            with gr.Tab("First"):
                panel = mesh.build(waiting())
            with gr.Tab("Late"):
                late = mesh.build(waiting(), "late")
        line = gr.Textbox(elem_id="line", label="Show")
        button, on = gr.Button("Grow", elem_id="grow"), gr.Button("Go on", elem_id="on")
        line.submit(ask, line, panel, show_progress="hidden")
        button.click(grow, None, [panel, late], show_progress="hidden")
        on.click(goes_on.set, None, None, queue=False)
    return blocks


def serve(port: int) -> None:
    """Serves the page until it is interrupted."""
    address = free_port("127.0.0.1", port)
    print(f"http://127.0.0.1:{address}", flush=True)
    page().launch(
        server_port=address, quiet=True, ssr_mode=False, theme=theme.theme(), css=theme.css(), head=theme.HEAD, footer_links=[],
        run_history=False,
    )  # fmt: skip
