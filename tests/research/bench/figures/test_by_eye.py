"""`bench image --judge --eye`: the file of human answers, and the table of where the judge agrees."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from engine.backbones import pictogram
from engine.errors import BadFile
from engine.recognition import picture_judge as judge
from engine.recognition.picture_judge import Judge, Verdict
from engine.words.emoji_scenes import held_out_pairs, held_out_prompts, lessons_of
from research.bench.figures import by_eye
from research.bench.figures.by_eye import Seen, confusion, read
from research.bench.plan import EyeBench

HEAD = "number,weights,objects,counts,relation,background\n"


def test_a_file_is_read_and_a_wrong_one_is_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "eye.csv"
    path.write_text(f"{HEAD}3,abc,1,0,,1\n", encoding="utf-8")
    assert read(path, "abc") == [Seen(3, {"objects": True, "counts": False, "relation": None, "background": True})]
    with pytest.raises(BadFile, match="other weights"):
        read(path, "def")
    for text in (f"{HEAD}3,abc,yes,0,,1\n", "number,weights\n1,abc\n", f"{HEAD}x,abc,1,1,1,1\n", f"{HEAD}-1,abc,1,1,1,1\n"):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(BadFile, match="cannot be read"):
            read(path, "abc")
    path.write_text(HEAD, encoding="utf-8")
    with pytest.raises(BadFile, match="no answer"):
        read(path, "abc")
    with pytest.raises(BadFile, match="cannot be read"):
        read(tmp_path / "nowhere.csv", "abc")


def test_a_table_counts_where_both_say_something() -> None:
    verdicts = [Verdict(True, True, None, None, True), Verdict(True, False, True, None, False), Verdict(False, False, False, None, True)]
    answers = [(1, None), (0, True), (0, True)]
    seen = [Seen(i, {"objects": bool(o), "counts": False, "relation": r, "background": True}) for i, (o, r) in enumerate(answers)]
    objects, relation = (confusion(aspect, seen, verdicts) for aspect in ("objects", "relation"))
    assert (objects["both_right"], objects["both_wrong"], objects["only_judge_right"], objects["only_eye_right"]) == (1, 1, 1, 0)
    assert objects["pictures"] == 3 and objects["agree"] == pytest.approx(2 / 3, abs=1e-4)
    assert relation["pictures"] == 2 and (relation["both_right"], relation["only_eye_right"]) == (1, 1)


def test_the_pictures_are_those_of_the_sheet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The judge is untrained here: what it says means nothing."""
    torch.manual_seed(0)
    backbone = pictogram.load()
    lessons = lessons_of(backbone.card)
    reader = Judge(lessons.objects).eval()
    asked: list[str] = []
    right = by_eye.generate
    monkeypatch.setattr(judge, "load", lambda: reader)
    monkeypatch.setattr(by_eye, "generate", lambda backbone, method, prompt: asked.append(prompt.text) or right(backbone, method, prompt))
    path = tmp_path / "eye.csv"
    path.write_text(f"{HEAD}2,{backbone.weights_hash},1,1,,1\n", encoding="utf-8")
    rows = by_eye.bench(EyeBench(backbone="pictogram", answers=path))
    assert [row["aspect"] for row in rows] == list(by_eye.ASPECTS) and rows[0]["pictures"] == 1
    assert asked == held_out_prompts(3, lessons)[2:] == [held_out_pairs(3, lessons)[2][1]]
