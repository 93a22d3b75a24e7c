"""Values sent to panels: pure functions of boards."""

from __future__ import annotations

import base64
import io
import json
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

import app.ui.panels
from app.live.boards.picture import Board
from app.ui.panels import canvas, notice, verdict
from engine.core import Prompt, Understood
from engine.mesh.fit import Fit
from engine.methods import find
from engine.recognition.picture_judge import DetectedObject, ObjectCount, PictureReading, count_objects
from engine.run import generate
from tests.app.boards import board, numbers

SCRIPTS = sorted(Path(app.ui.panels.__file__).parent.glob("*.js"))


def test_encode_is_small_plain_data(picto):
    shown = board(picto, "sjdpp", 5, window=8)
    value = canvas.encode(shown, shown.picture(), canvas.scales([shown]), "fast", "SJD++", None)
    assert len(json.dumps(value)) < 40_000
    assert (value["rows"], value["columns"], value["limit"], value["state"]) == (8, 8, 64, "running")
    committed = numbers(value["maps"]["accepted"], np.uint8) > 0
    assert committed.sum() == len(shown.run.tokens) == value["totals"]["tokens"]
    assert (numbers(value["maps"]["step"], np.uint8) > 0).tolist() == committed.tolist()
    assert numbers(value["tokens"], np.int32)[shown.run.positions].tolist() == shown.run.tokens
    assert not (numbers(value["draft"], np.uint8).astype(bool) & committed).any()
    assert 0 < numbers(value["draft"], np.uint8).sum() <= 7


def test_a_small_draft_shows_through_until_its_tokens_are_committed(picto, monkeypatch):
    """MuLo-SD: the block drafted at half size is enlarged where nothing is committed yet, dimmed as a draft."""
    monkeypatch.setattr("app.live.boards.growing.FIRST_FINE", float("inf"))
    prompt, knobs = Prompt("a red apple", seed=5, size=128), {"least_mass": 0.005, "radius": 1, "block_rows": 2}
    shown = Board(generate(picto, find("mulo")[0], prompt, knobs))
    seen = set()
    for step in shown.run:
        shown.add(step)
        through, picture = shown.draft_mask(), shown.picture()
        value = canvas.encode(shown, picture, canvas.scales([shown]), "fast", "MuLo-SD", None)
        assert numbers(value["draft"], np.uint8).astype(bool).tolist() == through.tolist()
        drafted = len(shown.small) * 4  # finer tokens that the small rows cover
        if not shown.ended:
            assert through.sum() == drafted - len(shown.run.tokens) and not through[shown.run.positions].any()
        if through.any() and not shown.ended:
            own = picto.render(shown.run.tokens, shown.run.positions, False, 128)
            where = through.reshape(16, 16).repeat(8, 0).repeat(8, 1)
            assert np.abs(picture[~where].astype(int) - own[~where]).max() <= 1 and (picture[where] != own[where]).any()
        seen |= set(value["kinds"])
    assert seen == {2, 3, 4} and not shown.draft_mask().any()
    assert set(numbers(value["maps"]["accepted"], np.uint8)) == seen  # rejected, accepted, redrawn; every token had a draft
    assert (numbers(value["maps"]["probability"], np.uint8) > 0).all()
    assert (shown.picture() == shown.run.result()).all()


def test_the_growing_picture_is_a_jpeg_and_the_last_one_is_lossless(picto):
    growing, done = board(picto, "ar", 9), board(picto, "ar")
    for shown, kind in ((growing, "JPEG"), (done, "PNG")):
        picture = shown.picture()
        address = canvas.data_url(picture, shown.ended)
        head, body = address.split(",")
        opened = Image.open(io.BytesIO(base64.b64decode(body)))
        assert (opened.format, opened.size) == (kind, (64, 64))
        assert head == f"data:image/{kind.lower()};base64"
    assert (np.asarray(opened) == picture).all()


def test_quantize_keeps_the_ends_and_leaves_a_hole_for_nothing():
    assert canvas.quantize(np.array([0.0, 1.0, 2.0, 9.0, np.nan]), 2.0).tolist() == [1, 128, 255, 255, 0]


def test_scales_are_shared_and_plain_numbers(picto):
    both = [board(picto, "sjdpp", 3, window=8), board(picto, "ar", 9)]
    scales = canvas.scales(both)
    assert scales["step"] == 8
    assert scales["entropy"] >= max(np.nanmax(b.known["entropy"]) for b in both)
    assert {type(v) for v in scales.values()} == {float}  # numpy's types would reach the page as text
    assert canvas.scales([]) == {"probability": 1.0, "top": 1.0, "depth": 4.0, "entropy": 1.5, "step": 1.0}


def test_the_verdict_follows_the_fair_rule_and_does_not_flatter(picto):
    fast, plain = board(picto, "sjdpp", window=8, verify="match seed"), board(picto, "ar")
    fast.run.seconds, plain.run.seconds = 1.0, 2.3
    value = verdict.encode(fast, plain)
    assert (value["headline"], value["tone"]) == ("2.3× faster", "good")
    assert (value["agreement"], value["same"]) == ("identical, token for token", True)
    step = fast.run.totals["tokens"] / fast.run.totals["forwards"]
    places = dict(zip(value["places"], value["ratios"], strict=True))
    assert places["an H100 with a 7B model"] == pytest.approx(step, abs=1e-3) and len(places) == 16 and "an M4 Max with pictogram" in places
    assert verdict.computed(plain, fast) == {}  # compared with another method
    fast.run.tokens[-1] += 1
    assert verdict.agreement(fast, plain)["agreement"] == "63 of 64 tokens equal"
    fast.run.backbone = SimpleNamespace(precision="bfloat16", device="cuda:0")
    assert "matched up to rounding" in verdict.agreement(fast, plain)["agreement"]
    fast.run.backbone = picto
    fast.run.seconds = 3.45
    assert verdict.encode(fast, plain)["headline"] == "1.5× slower"
    fast.run.seconds = 2.3
    assert verdict.encode(fast, plain)["headline"] == "As fast as plain decoding"


def test_a_rule_that_is_relaxed_in_a_run_ends_the_match_of_the_seed(picto):
    fast = Board(generate(picto, find("sjdpp")[0], Prompt("a red apple", seed=5, size=64), {"verify": "match seed"}))
    fast.add(next(fast.run))
    fast.run.set(relax="additive")
    for step in fast.run:
        fast.add(step)
    assert not fast.run.exact and "agreement" not in verdict.encode(fast, board(picto, "ar"))


def test_a_picture_of_nothing_that_was_asked_for_is_not_celebrated(picto, monkeypatch):
    fast, plain = board(picto, "sjdpp", window=8), board(picto, "ar")
    fast.run.seconds, plain.run.seconds = 1.0, 7.1
    monkeypatch.setattr(type(picto), "warning", lambda self, text: "pictogram does not know anything in this prompt.")
    value = verdict.encode(fast, plain)
    assert (value["headline"], value["detail"]) == ("Nothing it knows to draw", verdict.NOTHING)
    assert verdict.encode(fast, None)["headline"] == "Nothing it knows to draw"


def test_only_a_good_match_is_celebrated():
    done = {"state": "done", "headline": "7.1× faster", "detail": "1.0 s instead of 7.1 s.", "tone": "good"}
    good = verdict.with_fit(done, Fit("good", 1.5, "Good match."))
    assert good == done | {"fit": "Good match.", "fits": "good"}
    foreign = verdict.with_fit(done, Fit("foreign", 9.0, "Poor match."))
    assert (foreign["headline"], foreign["tone"], foreign["fits"]) == (verdict.POOR, "even", "foreign")
    assert foreign["detail"].startswith("7.1× faster. 1.0 s instead of 7.1 s")  # the speed is still shown
    fair = verdict.with_fit(done, Fit("fair", 3.0, "Rough match."))
    assert (fair["headline"], fair["tone"], fair["detail"]) == (verdict.ROUGH, "even", "7.1× faster. 1.0 s instead of 7.1 s.")
    stopped = {"state": "stopped", "headline": "Stopped", "detail": "x"}
    assert verdict.with_fit(stopped, Fit("foreign", 9.0, "f"))["headline"] == "Stopped"


def test_nothing_is_promised_of_tokens_where_only_the_distribution_is_the_same(picto):
    assert verdict.agreement(board(picto, "sjdpp", window=8), board(picto, "ar")) == {}


def test_the_verdict_of_a_run_that_goes_or_was_stopped(picto):
    fast, plain = board(picto, "sjdpp", 3, window=8), board(picto, "ar", 2)
    assert verdict.encode(fast, plain)["state"] == "running"
    for each in (fast, plain):
        each.run.stop()
    stopped = verdict.encode(fast, plain)
    assert stopped["state"] == "stopped"
    assert f"Kept: 2 tokens on the left, {len(fast.run.tokens)} on the right" in stopped["detail"]


def test_notices_are_sentences():
    assert notice.understood("pictogram", Understood("anything")) == []
    whole = Understood("a cat", {"cta": "cat"}, "Draws a cat.", (), ("camle", "xyzzy"), {"camle": ["camel"]})
    (message,) = notice.understood("pictogram", whole, ["dgo"])
    assert message["text"] == "Draws a cat. pictogram does not know 'camle', 'xyzzy', so it leaves those words out."
    assert (message["instead"], message["corrected"], message["kept"]) == ({"camle": ["camel"]}, {"cta": "cat"}, ["dgo"])
    assert not message["nothing"] and notice.kept_words([message, {}]) == {"dgo"}
    assert notice.understood("pictogram", Understood("x", remarks=["Nothing to draw."]))[0]["nothing"]
    assert notice.queue_place(0) == []
    assert "number 2" in notice.queue_place(2)[0]["text"]
    message = [notice.queue_place(2, seconds)[0]["text"].split("end, ")[1] for seconds in (0.2, 12.4, 119, 150)]
    assert "Replay plays the race" in notice.queue_place(2, 12, replays=True)[0]["text"]
    assert not any(
        "Replay" in notice.queue_place(2, seconds, replays)[0]["text"] for seconds, replays in ((12, False), (3, True), (None, True))
    )
    assert message == ["in about 1 second.", "in about 12 seconds.", "in about 119 seconds.", "in about 2 minutes."]


LINE = {"state": "done", "headline": "2.0× faster", "detail": "1 s instead of 2 s.", "tone": "good", "agreement": "identical"}
COUNTS = [  # (requested, detected, others), what was not understood, headline, tone
    ((2, 2, 0), {}, "2.0× faster", "good"),
    ((3, 2, 0), {}, "2 of 3 objects found", "even"),
    ((1, 0, 2), {"missing": ["rug"]}, "0 of 1 object found", "even"),
    ((2, 2, 1), {}, "1 more than requested", "even"),
    ((1, 1, 0), {"missing": ["ten", "glass", "rug"]}, "Left out: ten, glass …", "even"),
    ((1, 1, 0), {"remarks": ["'white' does not change the cat."]}, "2.0× faster", "even"),
    (None, {}, "2.0× faster", "even"),
    (None, {"missing": ["rug"]}, "Left out: rug", "even"),
]


@pytest.mark.parametrize(("count", "lost", "headline", "tone"), COUNTS)
def test_only_a_picture_with_the_requested_objects_is_cheered(count, lost, headline, tone):
    line = verdict.with_objects(LINE, ObjectCount(*count) if count else None, Understood("x", **lost))
    assert (line["headline"], line["tone"]) == (headline, tone) and "1 s instead of 2 s." in line["detail"]
    assert (headline == LINE["headline"]) or "2.0× faster." in line["detail"]
    stopped = {"state": "stopped", "headline": "Stopped", "detail": ""}
    assert verdict.with_objects(stopped, ObjectCount(2, 0, 0), Understood("x")) == stopped


def test_objects_of_a_picture_are_counted():
    reading = PictureReading(tuple(DetectedObject(name, "", 1, 1) for name in ("cat", "cat", "dog", "sun")), "blue")
    assert count_objects(reading, {"cat": 2, "dog": 1, "sun": 1}) == ObjectCount(4, 4, 0)
    assert count_objects(reading, {"cat": 3, "fox": 1}) == ObjectCount(4, 2, 2)
    assert count_objects(reading, {"cat": 0, "dog": 1, "sun": 1}).matches and not count_objects(reading, {"fox": 0}).matches


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed; the page tests run the scripts as well")
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda s: s.name)
def test_scripts_parse(script: Path, tmp_path: Path):
    wrapped = tmp_path / script.name
    wrapped.write_text(f"async function load(element, props, trigger, watch) {{\n{script.read_text()}\n}}")
    subprocess.run(["node", "--check", wrapped], check=True)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Cannot write in /home/u/.local/share/runs (full). Go on.", "Cannot write in runs (full). Go on."),
        (r"The file C:\Users\u\model.safetensors is missing.", "The file model.safetensors is missing."),
        ("~/models/card.json is damaged; see https://x.example/a/b", "card.json is damaged; see https://x.example/a/b"),
        ("3/4 of a/b/c, 1.5 tokens/s", "3/4 of a/b/c, 1.5 tokens/s"),
    ],
)
def test_sentences_lose_the_folders_of_this_machine(text: str, shown: str):
    assert notice.error(OSError(text)) == [{"kind": "error", "text": shown}]
