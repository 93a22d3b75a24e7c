"""`bench image --judge`: one row for plain decoding and one per entry, compared on the same prompts and seeds."""

from __future__ import annotations

import pytest
import torch

from engine.backbones import pictogram
from engine.errors import NotSupported
from engine.recognition import picture_judge as judge
from engine.recognition.picture_judge import Judge
from engine.words.emoji_scenes import FIRST, TAUGHT, WORLD, lessons_of
from research.bench import judged
from research.bench.plan import JudgeBench


def test_rows_for_plain_decoding_and_every_value_of_a_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    """The judge is untrained here: what it says means nothing, and is the same for the same picture."""
    torch.manual_seed(0)
    reader = Judge(lessons_of(pictogram.load().card).objects).eval()
    monkeypatch.setattr(judge, "load", lambda: reader)
    monkeypatch.setattr(judged, "read_card", lambda folder: {"judge": {"held_out": {}}})
    plan = JudgeBench(backbone="pictogram", methods=("zipar",), sweep=(("window", ("4", "16")),), count=2)
    rows = {row["method"]: row for row in judged.bench(plan)}
    assert list(rows) == ["ar", "zipar window=4", "zipar window=16"]
    assert rows["zipar window=16"]["objects_more"] == rows["zipar window=16"]["half_width"] == 0  # a full window is plain decoding
    assert rows["zipar window=16"]["background"] == rows["ar"]["background"] and rows["ar"]["prompts"] == 2


def test_a_judge_that_knows_too_little_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = Judge(TAUGHT).eval()
    monkeypatch.setattr(judge, "load", lambda: reader)
    assert judged.judge_of(FIRST) is reader
    with pytest.raises(NotSupported, match=f"does not know {len(WORLD.objects) - len(TAUGHT)} of the objects"):
        judged.judge_of(WORLD)
