"""The Bench tab: recorded tables, a benchmark measured on the page, and settings sent to the other tabs."""

from __future__ import annotations

import csv
import json

import pytest
from playwright.sync_api import expect

import engine
from app.requests import meshes as mesh_requests
from app.requests.pictures import settings
from app.ui import knobs
from app.ui.panels import elsewhere
from app.ui.tabs import bench_rows, bench_tab, restoring, subject
from engine import assets
from engine.errors import BadFile, BadKnob, NotSupported
from engine.methods import find
from engine.tuning.roofline import size_of
from research.bench import meshes
from research.bench.on_page import Benchmark, MeshBenchmark, PictureBenchmark
from research.bench.rows import append_csv

PLANE = "#plane .ft-plane"
MODELS = dict.fromkeys(("image", "mesh"), elsewhere.published())
FETCHED = "performance.getEntriesByType('resource').filter((each) => each.name.includes('/assets/PlotlyPlot-')).length"


@pytest.fixture(scope="module")
def tables():
    """The recorded tables."""
    return {each["name"]: each for each in bench_rows.read_tables(assets.benches(), MODELS)}


def test_every_recorded_row_with_a_speed_is_a_point(tables):
    for name, kind in (("epyc-image", "image"), ("xeon-mesh", "mesh")):
        with (assets.benches() / f"{name}.csv").open(newline="", encoding="utf-8") as file:
            timed = [row for row in csv.DictReader(file) if row["speedup"]]
        shown = tables[name]
        assert shown["kind"] == kind and len(shown["rows"]) == len(timed) > 5
        assert [row["point"]["x"] for row in shown["rows"]] == [json.loads(row["speedup"])[0] for row in timed]
        assert {row["point"]["group"] for row in shown["rows"]} == {"plain", "exact", "relaxed"}
        assert all(len(row["cells"]) == len(row["order"]) == len(shown["columns"]) for row in shown["rows"])
        assert shown["made"]["processor"] and shown["made"]["commit"]
    assert next(iter(tables)) == "epyc-image", "the table that opens compares most methods"
    assert len({each["title"] for each in tables.values()}) == len(tables)
    assert tables["kernels"]["axes"] is None and tables["kernels"]["rows"][0]["point"] is None


def test_speed_ups_are_computed_where_rows_are_known(tables):
    assert tables["epyc-image"]["counted"] and all(row["point"]["ratios"] for row in tables["epyc-image"]["rows"])
    at = next(iter(tables.values()))["places"].index("an H100 with a 7B model")
    for name, unknown in (
        ("xeon-mesh", {"PTS 2", "PTS 3", "PTS 4"}),
        ("xeon-amx-trees", set()),
    ):
        points = {row["point"]["title"]: row["point"] for row in tables[name]["rows"]}
        assert {title for title, point in points.items() if not point["ratios"]} == unknown and not tables[name]["counted"]
        for point in filter(lambda each: each["ratios"], points.values()):  # rows are free there, and a drafter's pass is one of 30 layers
            assert 0.8 < point["ratios"][at] / point["compressions"][0] < 1.001


def test_recorded_tables_of_meshes_know_the_size_of_lowpoly():
    assert elsewhere.of_recorded_meshes()["lowpoly"] == size_of(engine.load("lowpoly"))


def form_of(point, backbone, declared) -> dict:
    """Values of the form after loading the settings of a point."""
    form, wished = restoring.from_run({"ask": {"settings": point}}, backbone, knobs.encode("settings", declared), declared)
    assert wished is None  # the input does not change
    return form


def test_a_recorded_point_fits_the_form(tables, picto):
    points = [row["point"] for row in tables["epyc-image"]["rows"] if row["point"]["settings"]]
    able = [each for each in points if find(each["settings"]["method"])[0].needs <= picto.capabilities]
    assert len(able) >= len(points) - 1  # all but spatial, because this model has no row and column heads
    for point in able:
        form = form_of(point["settings"], picto, settings(picto))
        assert "prompt" not in form and "seed" not in form  # they do not change
        assert form["knobs"]["values"].items() >= point["settings"]["knobs"].items()  # newer knobs have their defaults
        assert form["settings"]["values"]["guidance"] == point["settings"]["sampling"]["guidance"]


def test_a_mesh_point_fits_the_mesh_tab_of_its_model(tables, low):
    points = {row["point"]["title"]: row["point"] for row in tables["xeon-mesh"]["rows"]}
    declared = mesh_requests.settings(low.sampling)
    form = form_of(points["B exact"]["settings"], low, declared)
    assert form["method"] == "xspecmesh" and form["knobs"]["values"]["accept"] == "residual" and "seed" not in form
    with pytest.raises(BadFile, match="lowpoly_lora"):
        form_of(points["E exact"]["settings"], low, declared)
    with pytest.raises(BadFile, match="does not contain the settings"):
        form_of("nonsense", low, declared)


def picture_benchmark(picto, begin=lambda runs: None, **changes) -> Benchmark:
    """A benchmark of two prompts at 64 pixels."""
    return PictureBenchmark(picto, ["sjd", "sjdpp_published"], 2, 64, begin, **changes)


def test_a_benchmark_has_the_rows_of_the_command(picto, tmp_path):
    bench, progress, shown = picture_benchmark(picto), [], []
    for turn in bench:
        progress.append((bench.done, bench.seconds_left))
        shown.append((turn, len(bench.rows)))
    assert bench.done == bench.of == 3 + 2 * 6 and not bench.stopped
    assert progress[-1] == (bench.of, 0) and all(left is None or left >= 0 for _, left in progress)
    assert [done for done, _ in progress] == sorted(done for done, _ in progress)
    assert {turn.input for turn, rows in shown if not rows} == {0} and shown[-1][1] == 3
    names = [row["method"] for row in bench.rows]
    assert names == ["ar", "sjd", "sjdpp_published"] and [row["exact"] for row in bench.rows] == [True, True, False]
    assert all(row["prompts"] == 2 and row["size"] == 64 and row["seeds"] == "0..1" for row in bench.rows)
    append_csv(tmp_path / "again.csv", bench.rows)
    written = bench.write(tmp_path / "rows.csv")
    assert written.read_text() == (tmp_path / "again.csv").read_text()
    again = bench_rows.read_tables(tmp_path, MODELS)[-1]
    assert again["columns"] == bench_rows.table("x", bench.rows, MODELS)["columns"] and again["rows"][0]["cells"][0] == "Plain decoding"
    assert bench.command.endswith("--methods sjd,sjdpp_published --count 2 --size 64")
    totals = [of[0].totals for of in bench.runs["sjd"]]
    rows = 1 + sum(each["drafted"] for each in totals) / sum(each["forwards"] for each in totals)
    assert bench_rows.counts(bench.rows[1]).rows == pytest.approx(rows, abs=1e-3) and bench_rows.table("x", bench.rows, MODELS)["counted"]


def test_a_row_is_called_as_people_read_it():
    names = {"A plain in float32": "Plain decoding in float32", "A plain": "Plain decoding", "lookup drafted=2": "Prompt lookup drafted=2"}
    names |= {"auto:xspecmesh_exact,heads=multilayer,depth=3": "auto: XSpecMesh, multilayer, depth 3", "B MLP": "B MLP"}
    assert {name: bench_rows.expand_title(name) for name in names} == names


def test_a_benchmark_that_is_stopped_keeps_the_complete_prompts(picto):
    begun = []

    def stop_late(runs):
        begun.extend(runs)
        if len(begun) == 3 + 6 + 2:
            runs[0].stop()

    bench = picture_benchmark(picto, stop_late)
    for _ in bench:
        pass
    assert bench.stopped and bench.done == 3 + 6 + 1
    assert bench.rows[0]["prompts"] == 1
    assert bench_tab.end_panel(bench)["state"] == "stopped" and "1 complete prompt" in bench_tab.end_panel(bench)["detail"]


def test_a_benchmark_of_meshes_has_the_rows_of_the_command(low, tmp_path, monkeypatch):
    monkeypatch.setitem(low.card, "families", ["table", "chair", "bed"])
    bench = MeshBenchmark(low, ["xspecmesh", "lookup"], 2, 8, lambda runs: None)
    shown = [len(bench.rows) for _ in bench]
    assert bench.done == bench.of == 3 + 2 * 6 and shown[-1] == 3 and bench.complete == 2
    assert [(row["row"], row["method"], row["exact"]) for row in bench.rows] == [
        ("ar", "ar", True), ("xspecmesh", "xspecmesh", False), ("lookup", "lookup", True)
    ]  # fmt: skip
    assert all(row["inputs"] == 2 and row["faces_allowed"] == 8 and row["speedup"] for row in bench.rows)
    runs = {name: of for name, of in bench.runs.items()}
    again = meshes.summary("xspecmesh", runs, bench.subjects, "ar")
    assert {name: bench.rows[1][name] for name in again} == again  # distances measured before do not change
    table = bench_rows.table("here", bench.rows, MODELS, "Measured here")
    assert table["kind"] == "mesh" and [row["cells"][0] for row in table["rows"]] == ["Plain decoding", "XSpecMesh", "Prompt lookup"]
    assert form_of(table["rows"][1]["point"]["settings"], low, mesh_requests.settings(low.sampling))["method"] == "xspecmesh"
    assert bench.write(tmp_path / "rows.csv").read_text().count("\n") == 4
    assert bench.command.endswith("bench mesh --methods xspecmesh,lookup --count 2 --faces 8")
    assert bench_tab.end_panel(bench)["detail"] == "15 runs on 2 clouds."


def test_what_is_ticked_is_checked(picto):
    assert bench_tab.chosen_methods(["sjd", "sjd", "sjdpp"], picto) == ["sjd", "sjdpp"]
    for wrong, error in (([], BadKnob), ("sjd", BadKnob), (["ar"], BadKnob), (["nobody"], NotSupported), ([3], NotSupported)):
        with pytest.raises(error):
            bench_tab.chosen_methods(wrong, picto)
    most = [{k.name: k.high for k in bench_tab.settings(subject.pictures(picto), local)}["prompts"] for local in (False, True)]
    assert most[0] < most[1]


# --- in a browser -----------------------------------------------------------------------------------------------------


def open_tab(page):
    """Opens the tab and waits for its chart."""
    page.get_by_role("tab", name="Bench", exact=True).click()
    page.wait_for_selector(f"{PLANE}[data-state=done][data-table=epyc-image]")
    page.wait_for_selector(f"{PLANE} .points path")
    return page


@pytest.mark.browser
def test_the_plane_is_saved_with_what_it_was_made_from_and_a_point_loads_its_settings(open_page):
    page = open_page()
    assert not page.evaluate(FETCHED)  # Plotly is loaded with the first chart
    open_tab(page)
    assert page.evaluate(FETCHED) == 1
    with page.expect_download() as download:
        page.click("#plane [data-save=csv]")
    assert download.value.suggested_filename == "foretoken-bench-epyc-image.csv"
    text = download.value.path().read_text(encoding="utf-8")
    assert "# processor: AMD EPYC" in text and "Speed-up" in text
    with page.expect_download() as download:
        page.click("#plane [data-save=png]")
    assert download.value.path().read_bytes().startswith(b"\x89PNG")
    chart = page.locator("#plane .ft-plot")
    chart.focus()
    page.keyboard.press("End")
    page.keyboard.press("ArrowLeft")  # the fastest point uses heads that this model does not have
    summary = page.inner_text("#plane output")
    assert "95 % interval" in summary and chart.get_attribute("aria-valuetext") == summary
    title = summary.split(" · ")[0]
    assert page.locator("#plane tr[data-chosen=true] td >> nth=0").inner_text() == title
    page.keyboard.press("Enter")
    expect(page.get_by_role("tab", name="Image", exact=True)).to_have_attribute("aria-selected", "true")
    expect(page.locator("#method .ft-picked b")).to_have_text(title)
    assert page.locator("#settings .ft-knob[data-knob=size] select").input_value() == "128 px"


@pytest.mark.browser
def test_computed_speed_ups_replace_what_was_measured(open_page):
    page = open_tab(open_page())
    page.select_option("#plane .ft-elsewhere select", "an H100 with a 7B model")
    expect(page.locator(f"{PLANE} .xtitle")).to_have_text("Computed speed-up on an H100, 7B model (×)")
    heads = page.locator("#plane thead button").all_inner_texts()
    assert heads == ["Method", "Exact", "Tokens / pass", "Computed speed-up", "Log probability"]
    page.focus("#plane .ft-plot")
    page.keyboard.press("End")
    assert "× (computed; quartiles" in page.inner_text("#plane output")
    page.select_option("#plane .ft-which select", "xeon-mesh")  # the choice stays
    expect(page.locator(f"{PLANE} .xtitle")).to_have_text("Computed speed-up on an H100, 7B model (×)")
    expect(page.locator("#plane .ft-about-chart")).to_contain_text("PTS 2, PTS 3, PTS 4 are left out")
    page.select_option("#plane .ft-elsewhere select", "")
    expect(page.locator(f"{PLANE} .xtitle")).to_have_text(bench_rows.SPEED)
    assert "ms / pass" in page.inner_text("#plane thead")


@pytest.mark.browser
def test_a_mesh_row_loads_into_a_tab_that_was_never_opened(open_page):
    page = open_tab(open_page())
    page.select_option("#plane .ft-which select", "xeon-mesh")
    page.get_by_role("button", name="Load B exact into the Mesh tab").click()
    expect(page.get_by_role("tab", name="Mesh", exact=True)).to_have_attribute("aria-selected", "true")
    page.wait_for_function("document.querySelector('#mesh-knobs .ft-knob[data-knob=accept] select')?.value === 'residual'")


@pytest.mark.browser
def test_a_benchmark_ends_when_it_is_cancelled_and_the_next_one_is_shown(open_page):
    page = open_tab(open_page())
    page.locator("#bench-settings select").select_option("256 px")
    page.click("#bench-generate")
    page.wait_for_selector("#bench-going .ft-going[data-state=running] >> text=Run")
    page.click("#bench-cancel")
    page.wait_for_selector("#bench-going .ft-going[data-state=stopped]")
    page.wait_for_selector("#bench-generate")
    page.locator("#bench-settings .ft-knob[data-knob=prompts] input").evaluate(
        "r => { r.value = 0; r.dispatchEvent(new Event('input', {bubbles: true})); }"
    )
    page.locator("#bench-settings select").select_option("64 px")
    page.click("#bench-generate")
    page.wait_for_selector("#bench-going .ft-going[data-state=running]")
    page.wait_for_selector(f"{PLANE}[data-table=here]")
    page.wait_for_selector("#bench-going .ft-going[data-state=done]")
    assert page.locator(PLANE).get_attribute("data-points") == "4"
    assert "bench image --methods sjdpp,sjd,zipar_verified --count 1 --size 64" in page.inner_text("#plane .ft-about-chart")
    page.wait_for_selector("#bench-csv:not([disabled])")
    with page.expect_download() as download:
        page.click("#bench-csv")
    assert download.value.path().read_text().startswith("method,prompts,tokens,knobs")


@pytest.mark.browser
def test_a_benchmark_of_meshes_is_measured_here(open_page):
    page = open_tab(open_page())
    page.click("#bench-kind [data-kind=mesh]")
    page.wait_for_selector("#bench-settings .ft-knob[data-knob=face_budget]")
    page.wait_for_selector(f"{PLANE}[data-table=epyc-mesh]")
    for knob in ("clouds", "face_budget"):
        page.locator(f"#bench-settings .ft-knob[data-knob={knob}] input").evaluate(
            "(r, stop) => { r.value = stop; r.dispatchEvent(new Event('input', {bubbles: true})); }", 0 if knob == "clouds" else 1
        )
    for name in ("XSpecMesh (exact)", "SJD++"):
        page.get_by_label(name, exact=True).uncheck()
    page.click("#bench-generate")
    page.wait_for_selector(f"{PLANE}[data-table=here]")
    page.wait_for_selector("#bench-going .ft-going[data-state=done]")
    assert page.locator(PLANE).get_attribute("data-points") == "2"
    assert "bench mesh --methods xspecmesh --count 1 --faces 8" in page.inner_text("#plane .ft-about-chart")
