"""The Models tab: cards, their speeds and methods, and the import of a checkpoint, in the browser and without one."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import gradio as gr
import pytest
from PIL import Image
from playwright.sync_api import expect

from app.server import studio
from app.ui.tabs import cards, model_cards, models_tab, speeds
from app.ui.tabs.cards import Card, abilities, methods
from app.ui.tabs.speeds import Speed, runs_of_model, saved_runs, speed
from engine.backbones import imported_folders
from engine.converting import convert
from engine.drafters.feature_draft import weights_file
from engine.machine import processor
from tests.engine.backbones import tiny
from tests.engine.backbones.tiny import save_tokenizer
from tests.engine.backbones.tiny_originals import save_bpt


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Janus in the format of transformers."""
    folder = tmp_path_factory.mktemp("downloads") / "Tiny-Janus"
    tiny.janus_model().save_pretrained(folder)
    save_tokenizer(folder)
    (folder / "README.md").write_text("---\nlicense: <b>mine</b>\n---\n")
    return folder


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A separate data folder."""
    monkeypatch.setenv("FORETOKEN_HOME", str(tmp_path))
    return tmp_path


def run_folder(runs: Path, name: str, **changes: object) -> Path:
    """A saved run of Janus at 50 tokens per second."""
    settings = {
        "backbone": "janus", "weights": "abc", "method": "ar", "preset": None, "finished": True,
        "totals": {"tokens_per_second": 50.0}, "machine": {"processor": processor()},
    }  # fmt: skip
    folder = runs / name
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps(settings | changes))
    Image.new("RGB", (8, 8), "red").save(folder / "result.png")
    return folder


# --- speeds -----------------------------------------------------------------------------------------------------------


def test_speeds_come_from_finished_runs_of_this_processor(tmp_path: Path) -> None:
    run_folder(tmp_path, "1")
    run_folder(tmp_path, "2", totals={"tokens_per_second": 70.0})
    run_folder(tmp_path, "3", method="sjd", totals={"tokens_per_second": 90.0})
    run_folder(tmp_path, "4", method="sjdpp", totals={"tokens_per_second": 120.0})
    run_folder(tmp_path, "5", finished=False, totals={"tokens_per_second": 9000.0})
    run_folder(tmp_path, "6", machine={"processor": "another"}, totals={"tokens_per_second": 9000.0})
    run_folder(tmp_path, "7", weights="other", totals={"tokens_per_second": 9000.0})
    (run_folder(tmp_path, "8") / "run.json").write_text("{")
    (run_folder(tmp_path, "9") / "run.json").write_text("{}")
    runs = runs_of_model(saved_runs(tmp_path), "janus", "abc")
    assert [each.folder.name for each in runs] == ["4", "3", "2", "1"]
    assert speed(runs) == Speed(4, 60.0, "sjdpp", 120.0)


def test_without_runs_nothing_is_claimed(tmp_path: Path) -> None:
    assert saved_runs(tmp_path / "nowhere") == [] and speed([]) is None
    assert model_cards.speed_text(None) == "not yet measured here"
    assert model_cards.speed_text(Speed(1, 50.0)) == "50 tokens/s plain (1 run here)"
    assert "120 tokens/s with SJD++ (4 runs here)" in model_cards.speed_text(Speed(4, 60.0, "sjdpp", 120.0))


def test_only_the_newest_runs_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speeds, "NEWEST", 2)
    for i in range(5):
        run_folder(tmp_path, str(i))
    assert [each.folder.name for each in saved_runs(tmp_path)] == ["4", "3"]


# --- cards ------------------------------------------------------------------------------------------------------------


def test_methods_that_lack_something_name_the_recipe(tmp_path: Path) -> None:
    works, lacks = methods(abilities(tmp_path, cards.PICTURES), "pictogram")
    assert "SJD++" in works and "ZipAR" in works and "EAGLE-2" not in works
    commands = {lack.title: lack.command for lack in lacks}
    assert commands["EAGLE-2"] == "python launch.py train feature-draft --backbone pictogram"
    assert commands["MuLo-SD"] == "" and all(lack.needs for lack in lacks)
    assert {lack.title: lack.needs for lack in lacks}["XSpecMesh"] == "a mesh model"  # no recipe trains heads for pictures
    weights_file(tmp_path).touch()
    assert "EAGLE-2" in methods(abilities(tmp_path, cards.PICTURES), "pictogram")[0]


def test_the_methods_on_a_card_are_those_that_the_model_runs(picto, picto_folder: Path) -> None:
    """The files next to the weights agree with the loaded model."""
    assert methods(abilities(picto_folder, cards.PICTURES, True), "pictogram") == methods(picto.capabilities, "pictogram")


def test_a_card_leads_to_its_tab_and_shows_commands_in_a_fold_only(picto_folder: Path) -> None:
    card = cards.shipped_card("pictogram", picto_folder, [], True)
    html = model_cards.card_html(card)
    seen = re.sub(r"<details.*?</details>", "", html)
    assert "launch.py" not in seen and 'data-tab="Image"' in seen and "python launch.py image" in html
    other = model_cards.card_html(replace(card, state="ready"))
    assert "data-tab" not in other and f"To use {card.name}, restart it with this model" in other
    assert "restart it" not in html


def test_an_imported_model_shows_its_newest_pictures_and_its_speed(checkpoint: Path, data: Path) -> None:
    list(convert(checkpoint))
    weights = json.loads((imported_folders()[0] / "card.json").read_text())["weights_hash"]
    for i in range(4):
        run_folder(data / "runs", str(i), weights=weights)
    run_folder(data / "runs", "9", weights="another Janus")
    card = cards.imported_card(imported_folders()[0], saved_runs(data / "runs"), weights)
    assert card.state == "in use" and card.speed == Speed(4, 50.0)
    assert [path.parent.name for path in card.pictures] == ["3", "2", "1"]
    html = model_cards.card_html(card)
    assert html.count("data:image/jpeg") == 3 and str(data) not in html
    assert "&lt;b&gt;mine&lt;/b&gt;" in html and "<b>mine" not in html  # a card may come from anywhere


def test_an_imported_model_of_meshes_names_its_recipe(data: Path, tmp_path: Path) -> None:
    list(convert(Path(save_bpt(tmp_path / "Tiny-BPT.pt"))))
    lacks = {lack.title: lack.command for lack in cards.imported_card(imported_folders()[0], [], None).lacks}
    assert lacks["XSpecMesh"] == "python launch.py train mesh-heads --backbone Tiny-BPT"
    assert not any(command for method, command in lacks.items() if "XSpecMesh" not in method)


def test_a_damaged_card_is_a_sentence(checkpoint: Path, data: Path) -> None:
    list(convert(checkpoint))
    (imported_folders()[0] / "card.json").write_text("{")
    html = model_cards.card_html(cards.imported_card(imported_folders()[0], [], None))
    assert "card.json is not JSON" in html and str(data) not in html and "models remove Tiny-Janus" in html


def test_a_picture_that_is_gone_breaks_nothing(tmp_path: Path) -> None:
    card = Card("a", "", "imported", "", "", None, (), (), "", pictures=(tmp_path / "gone.png",))
    assert 'src=""' in model_cards.card_html(card)


def test_the_page_names_no_folder_of_this_machine(picto, picto_folder: Path) -> None:
    page = studio.build(picto, local=True).get_config_file()
    shown = json.dumps([c["props"].get("value") for c in page["components"]])
    assert str(picto_folder) not in shown and str(picto_folder.parent) not in shown


def test_the_card_of_the_loaded_model_is_that_of_its_folder(picto, picto_folder: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(picto_folder, tmp_path / "mine")
    card = json.loads((folder / "card.json").read_text())
    (folder / "card.json").write_text(json.dumps(card | {"licence": "a licence of my own"}))
    for weights, expected in ((folder, True), (None, False)):
        page = studio.build(picto, weights=weights).get_config_file()
        assert ("a licence of my own" in json.dumps([c["props"].get("value") for c in page["components"]])) == expected


# --- import -----------------------------------------------------------------------------------------------------------


def components(page: gr.Blocks) -> set[str]:
    """Element ids on a page."""
    return {c["props"].get("elem_id") for c in page.get_config_file()["components"]}


def test_folders_are_read_only_where_nobody_else_reaches_the_studio(picto) -> None:
    assert "import-path" in components(studio.build(picto, local=True))
    assert "import-path" not in components(studio.build(picto))
    known = {
        host: studio.is_local(host) for host in ("127.0.0.1", "localhost", "::1", "0.0.0.0", "::", "192.168.0.7", "studio.example", "")
    }
    assert [host for host, local in known.items() if local] == ["127.0.0.1", "localhost", "::1"]


@pytest.mark.parametrize("text", [None, "", "  ", 3, "a\0b", "\udcff", "x" * 5000, ["a"]])
def test_a_path_that_is_none_is_a_sentence(text: object) -> None:
    assert "not the path of a file or folder" in models_tab.describe(text)
    assert [("not the path" in each) for each in models_tab.add(text)] == [True]


def test_the_import_says_what_it_is_how_far_and_how_to_use_it(checkpoint: Path, data: Path) -> None:
    assert "0.3 million parameters" in models_tab.describe(str(checkpoint)) and imported_folders() == []
    updates = list(models_tab.add(f" '{checkpoint}' "))
    assert model_cards.KEEPS in updates[-1] and "start it with this one: python launch.py --backbone Tiny-Janus" in updates[-1]
    assert 'value="100"' in updates[-1] and [path.name for path in imported_folders()] == ["Tiny-Janus"]
    assert "There is no file or folder" in models_tab.describe("/nowhere/at/all") and "/nowhere" not in models_tab.describe(
        "/nowhere/at/all"
    )


@pytest.mark.browser
def test_cards_fit_a_desktop_and_a_phone(open_page) -> None:
    for width, height, most in ((1366, 1000, 2200), (390, 844, 4200)):
        page = open_page(width, height)
        page.get_by_role("tab", name="Models").click()
        page.wait_for_selector('.ft-model[data-model="lowpoly"]')
        assert page.evaluate("document.documentElement.scrollWidth") == width
        assert page.evaluate("document.documentElement.scrollHeight") < most
        assert page.locator(".ft-model").first.get_attribute("data-model") == "pictogram"
        broken = "[...document.querySelectorAll('.ft-model img')].filter(i => !i.complete || !i.naturalWidth).length"
        page.wait_for_function(f"{broken} === 0")
        page.get_by_text("words it knows").click()
        page.wait_for_selector(".ft-model >> text=sunflower")
        again = "cards.innerHTML = cards.innerHTML.replaceAll(' open=', ' data-was=')"
        page.locator(":has(> .ft-model)").evaluate(f"(cards) => {{ {again}; }}")
        page.wait_for_selector(".ft-model [data-was] >> text=sunflower")  # drawn anew, and still open
    page.click('.ft-model[data-model="lowpoly"] [data-tab=Mesh]')
    expect(page.get_by_role("tab", name="Mesh", exact=True)).to_have_attribute("aria-selected", "true")


@pytest.mark.browser
def test_a_checkpoint_is_imported_in_the_page(open_page, served, checkpoint: Path, tmp_path: Path) -> None:
    mine = Path(shutil.copytree(checkpoint, tmp_path / "My-Janus"))
    page = open_page()
    page.get_by_role("tab", name="Models").click()
    field = page.locator("#import-path :is(textarea, input)")
    field.fill("/nowhere/nothing")
    page.click("#import-look")
    page.wait_for_selector(".ft-import-status[data-kind=error]:visible >> text=There is no file or folder nothing")
    field.fill(str(mine))
    page.click("#import-look")
    page.wait_for_selector(".ft-import-status:visible >> text=0.3 million parameters")
    page.click("#import-go")
    page.wait_for_selector(".ft-import-status >> text=My-Janus has been imported")
    page.wait_for_selector('.ft-model[data-model="My-Janus"] >> text=No picture yet')
    assert (served.home / "models" / "My-Janus" / "model.safetensors").exists()
    shutil.rmtree(served.home / "models")
