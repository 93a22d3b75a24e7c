"""What remains of a run on the Mesh tab: the table, the replay, settings that come back, and the wait for a file."""

from __future__ import annotations

import base64
import json

import numpy as np
import pytest
from playwright.sync_api import expect

from app.requests import meshes
from engine.mesh.read import read
from tests.app.runs.test_runs import drop, drop_path
from tests.app.test_mesh_tab import FACES, VIEW, finished, grown, set_knob, take
from tests.app.test_mesh_tab import open_mesh as open_mesh
from tests.app.test_page import cancel

pytestmark = pytest.mark.browser
ROWS = "#mesh-runs tbody tr"
SLOW = 60_000  # milliseconds; a tab that opens loads a model
BUDGET = "#mesh-settings .ft-knob[data-knob=face_budget] output"


def small(page) -> None:
    """The first run of a page, of a few faces, to its end. It may be over before there is a Cancel."""
    set_knob(page, "mesh-settings", "face_budget", 2)
    page.click("#mesh-generate")
    page.wait_for_selector("#mesh-download-glb:not([disabled])")
    finished(page)
    expect(page.locator(ROWS)).to_have_count(2, timeout=SLOW)


def at(page, thousandths: int) -> dict[str, int]:
    """Moves the replay to a time; how many faces there are then."""
    page.locator("#mesh-replay input").evaluate("(r, v) => { r.value = v; r.dispatchEvent(new Event('input')); }", thousandths)
    return {name: page.evaluate(FACES.format(name)) for name in ("plain", "accelerated")}


def test_any_two_methods_race_and_the_race_plays_again_without_the_server(open_mesh):
    page = open_mesh()
    page.wait_for_selector("#mesh-messages p", state="detached")
    take(page, "mesh-other", "sjdpp")
    page.wait_for_selector("#mesh-other-knobs .ft-knob[data-knob=window]")
    set_knob(page, "mesh-other-knobs", "window", 1)
    small(page)
    assert page.locator("#mesh [data-side=plain] h3").inner_text() == "SJD++"
    assert [row.split("\t")[1].split("\n")[0].strip() for row in page.locator(ROWS).all_inner_texts()] == ["XSpecMesh", "SJD++"]
    whole = {name: page.evaluate(FACES.format(name)) for name in ("plain", "accelerated")}
    tokens = page.locator("#mesh-trace .ft-chart").get_attribute("data-tokens")
    asked = []
    page.on("request", lambda r: asked.append(r.url))
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
    assert [url for url in asked if "queue/data" not in url and "heartbeat" not in url] == []


def test_a_row_brings_its_settings_back_and_a_reload_loses_nothing(open_mesh):
    page = open_mesh()
    page.click("[data-cloud=table]")
    page.wait_for_selector("#mesh-notes p:has-text('table.ply')")
    page.fill("#mesh-seed input", "3")
    small(page)
    said, budget = page.inner_text("#mesh-verdict .ft-headline"), page.inner_text(BUDGET)
    faces = page.evaluate(FACES.format("accelerated"))
    set_knob(page, "mesh-settings", "face_budget", 9)
    page.click("[data-cloud=chair]")
    page.wait_for_selector("#mesh-notes p:has-text('chair.ply')")
    page.locator(ROWS).first.get_by_role("button", name="Restore").click()
    page.wait_for_selector("#mesh-notes p:has-text('table.ply')")
    expect(page.locator(BUDGET)).to_have_text(budget, timeout=SLOW)
    page.locator(ROWS).last.get_by_role("button", name="Compare with").click()
    expect(page.locator("#mesh-other .ft-picked b")).to_have_text("Plain decoding", timeout=SLOW)
    page.locator(ROWS).first.get_by_role("button", name="Show and replay").click()
    page.wait_for_function(f"{FACES.format('accelerated')} === {faces}")
    drawn, told = "#mesh-download-race:not([disabled])", "#mesh-messages p:has-text('no pictures of the meshes')"
    page.wait_for_selector(f"{drawn}, {told}", timeout=3 * SLOW)  # behind the run and everything else, where they can be drawn
    with page.expect_download() as waiting:
        page.click("#mesh-download-html")
    assert 'boot("mesh-quality"' in waiting.value.path().read_text(encoding="utf-8")
    with page.expect_download() as waiting:
        page.click("#mesh-download-shrinkwrapped")
    assert waiting.value.suggested_filename == "foretoken-xspecmesh-3-shrinkwrapped.glb"
    assert waiting.value.path().read_bytes()[:4] == b"glTF"
    if page.locator(drawn).count():
        page.wait_for_selector(f"{ROWS} img[src^='data:image/jpeg']")
        with page.expect_download() as waiting:
            page.click("#mesh-download-turntable")
        assert waiting.value.suggested_filename == "foretoken-xspecmesh-3-turntable.gif"
    page.reload()
    page.wait_for_selector(ROWS)  # the tab that was open
    page.wait_for_selector("#mesh-notes p:has-text('table.ply')")
    page.wait_for_function(f"{FACES.format('accelerated')} === {faces}")
    expect(page.locator("#mesh-seed input")).to_have_value("3", timeout=SLOW)
    expect(page.locator(BUDGET)).to_have_text(budget, timeout=SLOW)
    assert page.inner_text("#mesh-verdict .ft-headline") == said
    expect(page.locator("#mesh-replay .ft-replay")).to_be_visible()
    expect(page.locator("#mesh-quality table")).to_be_visible()


def test_a_dropped_glb_and_a_link_open_the_tab_with_their_settings(open_mesh, open_page, served):
    page = open_mesh()
    page.fill("#mesh-seed input", "5")
    small(page)
    folder = served.runs()[-1]
    told = json.loads((folder / "run.json").read_text())
    assert told["seed"] == 5
    budget = page.inner_text(BUDGET)
    other = open_page()
    drop(other, "result.glb", (folder / "result.glb").read_bytes())
    expect(other.locator("#mesh-seed input")).to_have_value("5", timeout=SLOW)  # it was the Image tab
    expect(other.locator(BUDGET)).to_have_text(budget, timeout=SLOW)
    drop(other, "run.json", json.dumps(told | {"prompt": "scan.xyz", "seed": 6}).encode())
    other.wait_for_selector("#mesh-messages p:has-text('a run on scan.xyz, which is not in the file')")
    expect(other.locator("#mesh-seed input")).to_have_value("6", timeout=SLOW)
    drop_path(other, folder)
    expect(other.locator("#mesh-seed input")).to_have_value("5", timeout=SLOW)
    drop(other, "x.png", b"\x89PNG\r\n\x1a\n" + b"\0" * 40)
    other.wait_for_selector("#mesh-messages p[data-kind=error]:has-text('holds no settings of a run')")
    coded = base64.urlsafe_b64encode(json.dumps({k: v for k, v in told.items() if k != "machine"} | {"seed": 8}).encode()).decode()
    other.goto(f"{served.address}?run={coded.rstrip('=')}")
    expect(other.locator("#mesh-seed input")).to_have_value("8", timeout=SLOW)
    assert "run=" not in other.url


def test_generate_waits_for_the_file_that_is_being_read(open_mesh, served, tmp_path):
    page = open_mesh()
    set_knob(page, "mesh-settings", "face_budget", 2)
    scan = tmp_path / "scan.xyz"
    scan.write_text("\n".join(" ".join(map(str, row)) for row in read(meshes.EXAMPLES / "tower.ply").points[:, :3].tolist()))
    page.locator("#mesh-file input[type=file]").set_input_files(scan)
    page.wait_for_selector("#mesh-messages p:has-text('Reading scan.xyz')")
    page.click("#mesh-generate")
    page.wait_for_selector("#mesh-line p:has-text('scan.xyz is still being read. Your run starts')")
    page.wait_for_selector("#mesh-notes p:has-text('scan.xyz')")
    finished(page)
    assert json.loads((served.runs()[-1] / "run.json").read_text())["prompt"] == "scan.xyz"


def test_who_opens_the_tab_during_a_run_sees_their_place_and_an_input(open_mesh):
    first = open_mesh()
    first.locator("#mesh-settings .ft-knob[data-knob=repeat] select").select_option("5 times")  # lasts on a fast machine, too
    first.click("#mesh-generate")
    grown(first)
    second = open_mesh()
    second.wait_for_selector("#mesh-line p:has-text('Yours would be number 1 in line')")
    second.click("[data-cloud=bottle]")
    second.wait_for_selector("#mesh-notes p:has-text('bottle.ply')")
    first.bring_to_front()  # Chromium draws a page behind another one about once a second
    cancel(first, "#mesh-cancel")
    second.wait_for_selector("#mesh-line p", state="detached")
    first.wait_for_selector("#mesh-generate")
    first.get_by_role("tab", name="Image").click()
    first.locator("#settings .ft-knob[data-knob=repeat] select").select_option("5 times")
    first.click("#generate")
    first.wait_for_selector("#cancel")
    first.get_by_role("tab", name="Mesh").click()
    first.click("[data-cloud=bottle]")  # a run of the other tab does not hold this tab's input
    first.wait_for_selector("#mesh-notes p:has-text('bottle.ply')")
