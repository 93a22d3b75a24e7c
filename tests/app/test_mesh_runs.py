"""Traces of a run on the Mesh tab: the table, the replay, the larger files, and the wait for a file."""

from __future__ import annotations

import json

import numpy as np
import pytest
from playwright.sync_api import expect

from app.requests import meshes
from engine.mesh.read import read
from tests.app.race_page import FACES, VIEW, drag, finish, move, small, take
from tests.app.test_mesh_tab import open_mesh as open_mesh
from tests.app.test_race_tabs import DRAWN

pytestmark = pytest.mark.browser
ROWS = "#mesh-runs tbody tr"


def at(page, thousandths: int) -> dict[str, int]:
    """Moves the replay to a time; returns the number of faces."""
    drag(page.locator("#mesh-replay input"), thousandths)
    return {name: page.evaluate(FACES.format(name)) for name in ("plain", "accelerated")}


def test_any_two_methods_race_and_the_race_plays_again_without_the_server(open_mesh):
    page = open_mesh()
    page.wait_for_selector("#mesh-messages p", state="detached")
    take(page, "sjdpp", "mesh-other")
    move(page, "mesh-other-knobs", "window", 1)
    small(page, "mesh-")
    assert page.locator("#mesh [data-side=plain] h3").inner_text() == "SJD++"
    assert [row.split("\t")[1].split("\n")[0].strip() for row in page.locator(ROWS).all_inner_texts()] == ["XSpecMesh", "SJD++"]
    whole = {name: page.evaluate(FACES.format(name)) for name in ("plain", "accelerated")}
    tokens = page.locator("#mesh-trace .ft-chart").get_attribute("data-tokens")
    urls = []
    page.on("request", lambda r: urls.append(r.url))
    expect(page.locator("#mesh-replay .ft-replay")).to_be_visible()
    assert at(page, 0) == {"plain": 0, "accelerated": 0}
    seen, drafts = [], 0
    for _ in range(12):
        page.click("#mesh-replay [data-do=on]")
        seen.append([page.evaluate(FACES.format(name)) for name in ("plain", "accelerated")])
        drafts += int(page.evaluate(f"{VIEW}.ghosts"))
    assert (np.diff(seen, axis=0) >= 0).all() and drafts > 0
    assert int(page.locator("#mesh-trace .ft-chart").get_attribute("data-tokens")) < int(tokens)
    assert at(page, 1000) == whole
    assert page.locator("#mesh-trace .ft-chart").get_attribute("data-tokens") == tokens and page.evaluate(f"{VIEW}.replayed") == ""
    assert [url for url in urls if "queue/data" not in url and "heartbeat" not in url] == []


def test_generate_waits_for_the_file_that_is_being_read(open_mesh, served, tmp_path):
    page = open_mesh()
    move(page, "mesh-settings", "face_budget", 2)
    scan = tmp_path / "scan.xyz"
    scan.write_text("\n".join(" ".join(map(str, row)) for row in read(meshes.EXAMPLES / "tower.ply").points[:, :3].tolist()))
    page.locator("#mesh-file input[type=file]").set_input_files(scan)
    page.wait_for_selector("#mesh-messages p:has-text('Reading scan.xyz')")
    page.click("#mesh-generate")
    page.wait_for_selector("#mesh-line p:has-text('Reading scan.xyz; your run starts')")
    page.wait_for_selector("#mesh-notes p:has-text('scan.xyz')")
    finish(page, "mesh-")
    assert json.loads((served.runs()[-1] / "run.json").read_text())["prompt"] == "scan.xyz"


SURFACE = "#mesh .ft-surfaces[data-side={}] [data-surface={}]"


def test_a_finished_mesh_is_shown_snapped_or_as_a_surface_without_the_model(open_mesh, tmp_path):
    """Offered in the sentence about the fit, kept with the race through a reload, and in its HTML file."""
    page = open_mesh()
    small(page, "mesh-")
    own = page.evaluate(FACES.format("accelerated"))
    offer = page.get_by_role("button", name="Show the classical surface")
    offer.click()
    shown = SURFACE.format("accelerated", "classical") + "[aria-pressed=true]"
    page.wait_for_selector(shown)
    assert "no tokens, no model" in page.inner_text("#mesh .ft-surfaces[data-side=accelerated]")
    offer.click()
    page.wait_for_selector(SURFACE.format("accelerated", "decoded") + "[aria-pressed=true]")
    page.click(SURFACE.format("accelerated", "snapped"))
    assert at(page, 0)["accelerated"] == 0 and at(page, 1000)["accelerated"] == own  # the faces grow, snapped
    page.wait_for_selector("#mesh-download-html:not([disabled])", timeout=DRAWN)
    with page.expect_download() as waiting:
        page.click("#mesh-download-html")
    waiting.value.save_as(tmp_path / "race.html")
    page.reload()
    page.get_by_role("tab", name="Mesh", exact=True).click()
    for there in (page, page.context.new_page()):
        if there is not page:
            there.goto((tmp_path / "race.html").as_uri())
        there.wait_for_function(f"{FACES.format('accelerated')} === {own}")
        there.click(SURFACE.format("accelerated", "classical"))
        there.wait_for_selector(shown)


def test_the_left_side_may_be_a_surface_without_the_model(open_mesh):
    page = open_mesh()
    page.click("#mesh-other .ft-picked")
    card = page.locator("#mesh-other .ft-method-card[data-name=classical]")
    assert card.locator(".ft-badge").is_hidden()
    card.click()
    page.wait_for_selector("#mesh-other-knobs .ft-knobs[data-name=classical]", state="attached")
    assert page.inner_text("#mesh [data-side=plain] h3") == "Classical surface (no model)"
    small(page, "mesh-")
    page.wait_for_function(f"{FACES.format('plain')} > 0")
    line = page.inner_text("#mesh-verdict")
    assert "floors, classical surface" in line and "faster" not in line and "tokens instead" not in line
    seconds, *rest = page.locator("#mesh dl[data-side=plain] dd").all_inner_texts()
    assert float(seconds) > 0 and rest == ["–"] * 3
    expect(page.locator(ROWS)).to_have_count(1)
    whole = page.evaluate(FACES.format("plain"))
    assert at(page, 0) == {"plain": whole, "accelerated": 0}  # it has no course


def test_the_larger_files_of_a_race_come_behind_it(open_mesh):
    page = open_mesh()
    small(page, "mesh-")
    faces = page.evaluate(FACES.format("accelerated"))
    page.click("[data-cloud=table]")
    page.wait_for_function(f"{FACES.format('accelerated')} === 0")
    page.locator(ROWS).first.get_by_role("button", name="Show and replay").click()
    page.wait_for_function(f"{FACES.format('accelerated')} === {faces}")
    expect(page.locator("#mesh-quality table")).to_be_visible()
    drawn, failed = "#mesh-download-race:not([disabled])", "#mesh-messages p:has-text('could not be drawn')"
    page.wait_for_selector(f"{drawn}, {failed}", timeout=DRAWN)
    expect(page.locator("#mesh-quality thead th:has-text('Shrinkwrapped'), #mesh-quality thead th:has-text('Classical')")).to_have_count(2)
    names = {"html": ".html", "shrinkwrapped": "-shrinkwrapped.glb", "classical": "-classical.glb"}
    if page.locator(drawn).count():
        page.wait_for_selector(f"{ROWS} img[src^='data:image/jpeg']")
        names["turntable"] = "-turntable.gif"
    heads = {"html": b'boot("mesh-quality"', "shrinkwrapped": b"glTF", "classical": b"glTF", "turntable": b"GIF8"}
    for name, ending in names.items():
        with page.expect_download() as waiting:
            page.click(f"#mesh-download-{name}")
        assert waiting.value.suggested_filename == f"foretoken-xspecmesh-7{ending}"
        assert heads[name] in waiting.value.path().read_bytes()
