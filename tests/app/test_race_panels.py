"""A panel below a race needs only its two files and its entry in its tab's table."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import gradio as gr
import pytest

from app.live.boards.lazy import Lazy
from app.live.boards.picture import Board
from app.live.session import Sessions
from app.shared import StudioState
from app.ui import picture_side, race_panels
from app.ui.panels.race import RacePanel, RacePanels
from app.ui.tab_context import TabContext
from app.ui.tabs.image_tab import PictureRace
from app.ui.tabs.race import EndedRace, RaceRequest, RaceTab
from engine import assets
from engine.core import Prompt
from engine.methods import find
from engine.run import generate

TOY_PY = """
from pathlib import Path

from app.ui.panels import panel
from app.ui import picture_side, race_panels
from app.ui.panels.race import RacePanel


def build(elem_id):
    return panel("toy", None, '<p class="toy"></p>', elem_id=elem_id, folder=Path(__file__).parent)


PANEL = RacePanel("toy", build, {"state": "empty"}, live_value=lambda frame: {"state": frame.state, "steps": frame.fast.count},
                  end_value=lambda frame: {"state": "done", "made": frame.caption["seed"]})
"""
TOY_JS = """
const word = element.querySelector(".toy");
const draw = () => { word.textContent = props.value?.steps ?? ""; };
watch("value", draw);
draw();
"""


@pytest.fixture
def toy(tmp_path: Path) -> RacePanel:
    """A panel whose two files are not part of the studio."""
    (tmp_path / "toy.py").write_text(TOY_PY, encoding="utf-8")
    (tmp_path / "toy.js").write_text(TOY_JS, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("toy", tmp_path / "toy.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.PANEL


@pytest.fixture
def listed(toy, monkeypatch) -> RacePanels:
    """The Image tab's table with one more entry."""
    table = RacePanels("", (*race_panels.PICTURES.entries, toy))
    for module in (race_panels, picture_side):
        monkeypatch.setattr(module, "PICTURES", table)
    monkeypatch.setattr(PictureRace, "below", table)
    return table


def test_a_panel_of_two_files_and_a_line_is_on_the_page_in_the_frames_and_in_the_replay(picto, listed, tmp_path):
    with gr.Blocks() as page, gr.Tabs(), gr.Tab("Image") as own:
        missing = Lazy("lowpoly", assets.models() / "nowhere", lambda: None)
        context = TabContext(page, own, StudioState(picto, missing, Sessions()))
        subject = PictureRace(context)
        tab = RaceTab(context, subject)
        tab.wire()
    on_page = {each["props"].get("elem_id"): each["props"] for each in page.get_config_file()["components"]}
    assert "steps" in on_page["toy"]["js_on_load"] and '"toy"' in on_page["live"]["js_on_load"]
    assert listed.idle_values()["toy"] == {"state": "empty"}  # at the start of a run
    method, values = find("sjd")
    prompt = Prompt("a red apple", seed=5, size=64)
    board, request = Board(generate(picto, method, prompt, values)), RaceRequest(picto, prompt, {})
    for step in board.run:
        board.add(step)
        assert subject.draw([board], {0}, request)["toy"] == {"state": "done" if board.run.finished else "running", "steps": board.count}
    ended = subject.end_panels([board])
    assert ended["toy"] == {"state": "done", "made": "5"}
    text = tab.common_files(EndedRace(1, [board], ended, "", request), "race")["html"](tmp_path / "race.html").read_text(encoding="utf-8")
    assert 'boot("toy"' in text and 'boot("trace"' in text and 'boot("runs"' not in text


def test_a_new_run_leaves_the_table_of_runs_alone():
    assert "runs" not in race_panels.PICTURES.idle_values() and "quality" in race_panels.MESHES.idle_values()
