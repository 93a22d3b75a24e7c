"""The page builds every tab, sends no requests to other hosts, and finds a free port."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from types import SimpleNamespace

import gradio as gr
import pytest
import torch
from safetensors.torch import save_file

from app.live.session import Sessions
from app.server import studio
from app.shared import StudioState
from app.ui import TABS
from app.ui.style import theme
from app.ui.tab_context import TabContext
from app.ui.tabs import image_tab
from app.ui.tabs.race import RaceTab
from engine.errors import MissingWeights, NotSupported


def test_every_tab_is_on_the_page(picto):
    config = studio.build(picto).get_config_file()
    labels = {c["props"].get("label") for c in config["components"] if c["type"] == "tabitem"}
    assert labels == set(TABS)


def test_no_two_components_have_the_same_id(picto):
    ids = [c["props"].get("elem_id") for c in studio.build(picto).config["components"]]
    twice = {i for i in ids if i and ids.count(i) > 1}
    assert not twice


def test_generate_shares_one_slot_and_knobs_do_not_wait_for_it(picto):
    page = studio.build(picto, local=True)
    queued = [f for f in page.fns.values() if f.queue and f.name != "leave"]  # a closing page waits for nothing
    alone = {("engine", 1), ("reading", 1), ("importing", 1), ("drawing", 1), ("race", 1)}
    assert {(f.concurrency_id, f.concurrency_limit) for f in queued} == alone
    assert len([f for f in page.fns.values() if not f.queue]) > 5
    public = {f.api_name for f in page.fns.values() if f.api_visibility != "private"}
    assert public == {"generate_image", "generate_mesh"}


def test_a_waiting_call_of_another_program_is_counted_although_it_has_no_ticket_yet(picto, tmp_path):
    sessions = Sessions(folder=tmp_path)
    page = studio.build(picto, sessions=sessions)
    page.queue()
    call = next(f for f in page.fns.values() if f.api_name == "generate_image")
    page._queue.create_event_queue_for_fn(call)
    assert sessions.waiting() == 0
    page._queue.event_queue_per_concurrency_id[call.concurrency_id].queue.append(object())
    assert sessions.waiting() == 1
    for visitor in "ab":
        sessions.enter(visitor)
    assert sessions.waiting() == 2


def test_a_port_in_use_is_passed_over():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert port < studio.free_port("127.0.0.1", port) <= port + 20


def test_no_free_port_is_a_sentence():
    with pytest.raises(NotSupported, match="--port"):
        studio.free_port("203.0.113.1", 7860)  # not an address of this machine


def test_a_folder_without_a_card_is_a_checkpoint_as_it_was_downloaded(tmp_path, picto_folder):
    save_file({"weight": torch.ones(2)}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text('{"model_type": "janus"}')
    assert studio.models_of("pictogram", str(tmp_path))[0] == ("janus", str(tmp_path))
    assert studio.models_of("pictogram", str(picto_folder))[0] == ("pictogram", str(picto_folder))
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(MissingWeights, match="holds no weights"):
        studio.launch("pictogram", str(tmp_path), port=7999, open_browser=False)


def test_the_studio_has_a_folder_of_its_own_that_goes_with_it(monkeypatch, tmp_path):
    monkeypatch.delenv("GRADIO_TEMP_DIR", raising=False)
    with studio.own_folder():
        folder = studio.visitors().folder("a").parent
        assert folder.is_dir() and folder == Path(os.environ["GRADIO_TEMP_DIR"])
    assert not folder.exists() and "GRADIO_TEMP_DIR" not in os.environ
    monkeypatch.setenv("GRADIO_TEMP_DIR", str(tmp_path))
    with studio.own_folder():
        assert studio.visitors().folder("a").parent == tmp_path
    assert tmp_path.exists()


@pytest.mark.parametrize("place", ["history", "download"])
def test_a_full_disk_costs_neither_the_picture_nor_the_rest(picto, tmp_path, monkeypatch, place):
    def full(*_, **__):
        raise OSError(28, "No space left on device", "/home/someone/runs/x.png")

    monkeypatch.setenv("FORETOKEN_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(image_tab.history, {"history": "save", "download": "picture_with_settings"}[place], full)
    with gr.Blocks(analytics_enabled=False) as page, gr.Tabs(), gr.Tab("Image") as where:
        context = TabContext(page, where, StudioState(picto, studio.mesh_model(), Sessions(folder=tmp_path)))
        tab = RaceTab(context, image_tab.PictureRace(context))
        tab.wire()
    user = SimpleNamespace(session_hash="a")
    settings = {"values": {"size": "64 px"}}
    screens = list(
        tab.run(tab.queue.enter(user, True)[0], "a cat", [], 7, "ar", {"values": {}}, settings, False, "ar", {"values": {}}, user)
    )
    assert screens[-1]["right"]["value"]["state"] == "done"
    left = dict(zip(("messages", *tab.queue.offers), tab.queue.deliver(user), strict=True))
    assert place in left["messages"][0]["text"] and "No space left" in left["messages"][0]["text"]
    assert left["download"].interactive == (place == "history")
    assert not tab.sessions.is_busy("a")


def test_fonts_and_styles_come_from_this_machine():
    look = theme.theme()
    assert look._stylesheets == []
    assert "//" not in theme.css().replace("http://www.w3.org/2000/svg", "")
