"""Records the race that a shared page shows to those who wait: `python -m assets.examples.recorded`, from the root of the checkout."""

from __future__ import annotations

import gradio as gr
import torch

from app import recorded, studio
from app.boards.picture import Board
from app.session import Sessions
from app.stream import Throttle, updates
from app.ui import image_tab
from app.ui.method_menu import PLAIN, start_values
from app.ui.place import Place
from engine.core import Prompt
from engine.loading import load
from engine.machine import facts

SEED = 7


def main() -> None:
    """Races plain decoding against the tab's favourite on its first prompt, once unmeasured and once for the record."""
    torch.set_num_threads(1)
    model = load("pictogram")
    with gr.Blocks(analytics_enabled=False) as page, gr.Tabs(), gr.Tab("Image") as where:
        tab = image_tab.ImageTab(Place(page, where, model, studio.mesh_model(), Sessions()))
    prompt = Prompt(image_tab.EXAMPLES[0], seed=SEED, size=128, sampling=model.sampling)
    _, knobs = start_values(image_tab.FAVOURITE, model.suits)
    panels: dict = {}
    for _ in range(2):
        runs = tab.start_runs("recorder", 0, model, prompt, [(image_tab.FAVOURITE, knobs), (PLAIN, {})])
        boards = [Board(run) for run in runs]
        for run in runs:
            run.stopped = False  # it belongs to no visitor
        for changed in updates(boards, Throttle(1.0)):
            panels |= tab.draw(boards, changed)
    recorded.write(panels, prompt.text, f"one thread of {facts()['processor']}")


if __name__ == "__main__":
    main()
