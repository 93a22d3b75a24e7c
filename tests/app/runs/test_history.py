"""Saved runs: they contain everything needed to repeat them, never share a folder, and lose as little as possible on disk errors."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from app.live.session import Sessions
from app.live.worker import LocalRunner
from app.runs import finished, history
from app.runs.mesh_files import write_files
from app.server import studio
from app.ui.method_menu import title_of
from app.ui.tabs.decoder import TabRuns
from engine import files
from engine.core import Prompt, Sampling
from engine.errors import BadFile, BadOutput, BadPrompt, MissingWeights
from engine.mesh.read import read
from engine.methods import METHODS, find
from engine.run import Run, generate
from tests.engine.backbones import tiny

CHAIR = Path(__file__).parents[3] / "assets" / "examples" / "clouds" / "chair.ply"
PROMPT = Prompt(text="two red cats", seed=5, sampling=Sampling(temperature=0.9, guidance=2.0))


def run_of(name: str = "sjdpp", prompt: Prompt = PROMPT, backbone=None, **knobs) -> Run:
    """An unstarted run of a method or preset."""
    method, preset = find(name)
    return generate(backbone or tiny.pictogram(), method, prompt, preset | knobs, name=name)


def run_with_moves(run: Run, *moves: tuple[int, str, float | str], steps: int | None = None) -> Run:
    """Advances a run to its end or for some steps, and moves knobs before the given steps."""
    while steps is None or len(run.steps) < steps:
        for step, name, value in moves:
            if step == len(run.steps):
                run.set(**{name: value})
        if next(run, None) is None:
            break
    run.stop()
    run.close()
    return run


def test_a_runs_file_says_which_knob_changed_when(tmp_path: Path) -> None:
    run = run_with_moves(run_of(window=3), (2, "window", 7), (4, "window", 4))
    settings = json.loads((history.save(run, tmp_path) / "run.json").read_text())
    assert settings["knobs"] == run.steps[0].knobs and settings["knobs"]["window"] == 3
    assert settings["moves"] == [{"step": 2, "name": "window", "value": 7}, {"step": 4, "name": "window", "value": 4}]


@pytest.mark.parametrize("steps", [None, 5])
def test_a_run_with_moved_knobs_is_made_again(tmp_path: Path, steps: int | None) -> None:
    run = run_with_moves(run_of(window=3, verify="residual"), (1, "window", 8), (3, "window", 2), steps=steps)
    other = run_with_moves(run_of(window=3, verify="residual"), steps=steps)
    again = finished.repeat(history.save(run, tmp_path), tiny.pictogram())
    assert again.tokens == run.tokens != other.tokens
    assert [s.knobs for s in again.steps] == [s.knobs for s in run.steps] and again.finished == run.finished == (steps is None)


def test_a_mesh_is_made_again_from_its_folder_alone(tmp_path: Path) -> None:
    shape = read(CHAIR, "y")
    prompt = Prompt(points=torch.from_numpy(shape.points), seed=3, size=8, about=400, sampling=tiny.lowpoly().sampling)
    run = run_with_moves(run_of("sjd", prompt, tiny.lowpoly(), window=3), (2, "window", 6))
    folder = history.save(run, tmp_path, shape)
    assert finished.repeat(folder, tiny.lowpoly()).tokens == run.tokens
    (folder / "points.npz").write_bytes(b"PK\3\4 damaged")
    with pytest.raises(BadFile, match=r"points\.npz cannot be read"):
        finished.repeat(folder, tiny.lowpoly())


def test_a_preset_gives_its_name_to_the_run_the_folder_and_the_files(tmp_path: Path) -> None:
    run = run_of("sjdpp_published").finish()
    folder = history.save(run, tmp_path)
    settings = json.loads((folder / "run.json").read_text())
    assert folder.name.endswith("-sjdpp_published-5")
    assert (settings["method"], settings["preset"]) == ("sjdpp", "sjdpp_published")
    assert json.loads(Image.open(folder / "result.png").text["foretoken"]) == settings
    assert finished.repeat(folder, tiny.pictogram()).name == "sjdpp_published"
    assert json.loads((history.save(run_of("sjd").finish(), tmp_path) / "run.json").read_text())["preset"] is None
    shape = read(CHAIR, "y")
    prompt = Prompt(points=torch.from_numpy(shape.points), seed=3, size=8)
    files = write_files(run_of("sjdpp_published", prompt, tiny.lowpoly()).finish(), shape, tmp_path / "mesh")
    assert files["settings"].name == "chair-sjdpp_published-3.json"


@pytest.mark.parametrize(
    "content", [b"", b"[1]", b"\xff\xfe", b'{"backbone": "pictogram"}', b"[" * 100_000, b"knobs", b"sampling", b"moves", b"steps"]
)
def test_a_damaged_file_of_a_run_is_a_sentence(tmp_path: Path, content: bytes) -> None:
    folder = history.save(run_of("sjd").finish(), tmp_path)
    path = folder / "run.json"
    whole = json.loads(path.read_text())
    path.write_bytes(json.dumps(whole | {content.decode(): ["x"]}).encode() if content.decode("latin1") in whole else content)
    with pytest.raises(BadFile) as caught:
        finished.repeat(folder, tiny.pictogram())
    assert str(folder) in str(caught.value) and "\n" not in str(caught.value)


def test_a_run_of_other_weights_is_not_made_again(tmp_path: Path) -> None:
    folder = history.save(run_of("sjd").finish(), tmp_path)
    path = folder / "run.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"weights": "abc"}))
    with pytest.raises(BadFile, match=r"was made by pictogram \(abc"):
        finished.repeat(folder, tiny.pictogram())


def test_two_runs_that_end_at_the_same_moment_both_live(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process takes the name between the check and the rename."""
    run, rename, taken = run_of("ar").finish(), os.rename, []

    def contested_rename(source: Path, target: Path) -> None:
        if not taken and Path(target).name.startswith("20"):
            taken.append(Path(target))
            taken[0].mkdir()
            (taken[0] / "run.json").write_text("the other run")
        rename(source, target)

    monkeypatch.setattr(os, "rename", contested_rename)
    folder = history.save(run, tmp_path)
    assert folder == taken[0].with_name(f"{taken[0].name}-1") and (folder / "result.png").exists()
    assert (taken[0] / "run.json").read_text() == "the other run"


def test_what_is_saved_is_on_the_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    fsync, rename = os.fsync, os.rename
    monkeypatch.setattr(os, "fsync", lambda handle: (order.append("fsync"), fsync(handle))[1])
    monkeypatch.setattr(os, "rename", lambda a, b: (order.append("rename"), rename(a, b))[1])
    history.save(run_of("ar").finish(), tmp_path)
    assert order == ["fsync"] * 4 + ["rename", "fsync"]  # picture, trace, settings and their folder; the name


@pytest.mark.parametrize("write", [Image.Image.save, np.savez_compressed, Path.write_text])
def test_a_full_disk_leaves_nothing_and_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write) -> None:
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    run = run_of("ar").finish()
    monkeypatch.setattr(np if write is np.savez_compressed else write.__globals__[write.__qualname__.split(".")[0]], write.__name__, full)
    with pytest.raises(BadOutput, match="No space left on device"):
        history.save(run, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_history_that_refuses_does_not_cost_the_folder_that_was_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "home").write_text("a file where the history should be")
    monkeypatch.setenv("FORETOKEN_HOME", str(tmp_path / "home"))
    run = run_of("ar").finish()
    folder, complaint = history.deliver(run, tmp_path / "out")
    assert {p.name for p in folder.iterdir()} == {"result.png", "trace.npz", "run.json"} and folder == tmp_path / "out"
    assert complaint.startswith("Cannot write in") and "is saved only in" in complaint
    with pytest.raises(BadOutput):
        history.deliver(run, None)
    monkeypatch.setenv("FORETOKEN_HOME", str(tmp_path / "other"))
    assert history.deliver(run, tmp_path / "out")[1] == "" and len(list((tmp_path / "other" / "runs").iterdir())) == 1


def test_what_a_dead_process_left_goes_with_the_next_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = tmp_path / ".part-1234567-ab-run"
    left.mkdir()
    monkeypatch.setattr(files, "is_running", lambda process: process != 1234567)
    folder = history.save(run_of("ar").finish(), tmp_path)
    assert list(tmp_path.iterdir()) == [folder]


def test_downloads_that_the_disk_refuses_are_a_sentence(tmp_path: Path) -> None:
    shape = read(CHAIR, "y")
    run = run_of("ar", Prompt(points=torch.from_numpy(shape.points), size=8), tiny.lowpoly())
    (tmp_path / "file").write_text("")
    with pytest.raises(BadOutput, match="Cannot write in"):
        write_files(run, shape, tmp_path / "file" / "mesh")
    with pytest.raises(BadOutput, match="Cannot write in"):
        history.picture_with_settings(np.zeros((8, 8, 3), np.uint8), {}, tmp_path / "file" / "a.png")


def test_a_start_of_the_studio_removes_what_dead_processes_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORETOKEN_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(files, "is_running", lambda process: process != 1234567)
    for name in ("home/runs/.part-1234567-ab-run", "home/runs/run"):
        (tmp_path / name).mkdir(parents=True)
    with pytest.raises(MissingWeights):
        studio.launch("pictogram", str(tmp_path / "nothing"))
    assert [p.name for p in (tmp_path / "home" / "runs").iterdir()] == ["run"]


def test_a_presets_run_bears_its_name_on_the_page() -> None:
    runs = TabRuns(Sessions(), LocalRunner()).start("visitor", 0, tiny.pictogram(), PROMPT, [("sjdpp_published", {}), ("ar", {})])
    assert [run.name for run in runs] == ["sjdpp_published", "ar"] and runs[0].method.name == "sjdpp"
    assert [title_of(run.name) for run in runs] == ["SJD++ (published)", METHODS["ar"].title]


def test_a_run_goes_on_from_a_token_of_another(tmp_path: Path) -> None:
    run = run_of("sjdpp").finish()
    folder, backbone = history.save(run, tmp_path), tiny.pictogram()
    prompt = finished.fork(folder, backbone, 9)
    assert (prompt.text, prompt.seed, prompt.size, prompt.prefix) == (
        run.prompt.text,
        run.prompt.seed,
        run.prompt.size,
        tuple(run.in_order[:9]),
    )
    same = run_of("sjdpp", replace(prompt, seed=run.prompt.seed), verify="match seed").finish()
    plain = run_of("ar").finish()
    assert same.in_order[9:] == generate(backbone, METHODS["ar"], prompt).finish().in_order[9:] and plain.in_order[:9] != []
    other = generate(backbone, METHODS["sjd"], finished.fork(folder, backbone, 9, token=1)).finish()
    assert other.in_order[:10] == [*run.in_order[:9], 1]
    again = finished.repeat(history.save(other, tmp_path), backbone)
    assert again.tokens == other.tokens and again.prompt.prefix == other.prompt.prefix
    assert again.prompt.origin == (finished.read_settings(folder)["id"], 9) == (history.describe(run)["id"], 9)
    with pytest.raises(BadPrompt, match="Choose 1 to 64"):
        finished.fork(folder, backbone, 65)
