"""`bench weights`: its numbers, its rows, and what it stores in a card, which the page shows."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from app.ui.tabs import cards
from engine.backbones import imported_folders
from engine.converting import convert
from engine.core import Prompt
from engine.errors import BadPrompt
from engine.networks.card import read_card
from research.bench import weights
from research.bench.weights import WeightsBench, deviation_row, distributions
from tests.engine.backbones import tiny
from tests.engine.backbones.adapters import FOLDERS


@pytest.fixture
def imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An imported tiny Janus, to be loaded with int8 weights."""
    monkeypatch.setenv("FORETOKEN_HOME", str(tmp_path / "data"))
    (tmp_path / "Tiny-Janus").mkdir()
    FOLDERS["janus"].write(tmp_path / "Tiny-Janus", monkeypatch)
    list(convert(tmp_path / "Tiny-Janus", weights="int8"))
    return imported_folders()[0]


def test_a_row_has_the_total_variation_of_each_token() -> None:
    away = torch.tensor([0.0, 0.25, 0.5, 0.25])
    row = deviation_row("nf4", away, torch.tensor([True, True, False, True]))
    assert (row["mean"], row["largest"], row["same_first"]) == (0.25, 0.5, 0.75) and 0.25 < row["most"] < 0.5


def test_distributions_are_those_of_passes_of_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    backbone, prompt, path = tiny.janus(), Prompt(text="red"), [3, 1, 4, 1, 5, 9, 2]
    whole = distributions(backbone, prompt, path)
    monkeypatch.setattr(weights, "CHUNK", 1)
    torch.testing.assert_close(distributions(backbone, prompt, path), whole, atol=1e-5, rtol=0)


def test_the_deviation_is_measured_stored_and_shown(imported: Path) -> None:
    """nf4 is farther away than int8; the measurement does not depend on the form chosen at import."""
    assert "not yet measured" in cards.imported_card(imported, [], None).facts["Linear layers"]
    rows = weights.bench(WeightsBench(backbone=str(imported), dtype="float32", count=2, tokens=16, write=True))
    assert 0 < rows[0]["mean"] < rows[1]["mean"] <= rows[1]["largest"] <= 1 and [row["form"] for row in rows] == ["int8", "nf4"]
    stored = read_card(imported)["deviation"]
    assert stored["int8"]["mean"] == rows[0]["mean"] and "bench weights --backbone Tiny-Janus" in stored["command"]
    shown = cards.imported_card(imported, [], None).facts["Linear layers"]
    assert shown == f"int8; total variation per token from full weights {rows[0]['mean']:.4f} on average"


def test_models_of_meshes_are_measured_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    FOLDERS["bpt"].write(tmp_path, monkeypatch)
    rows = weights.bench(WeightsBench(backbone=str(tmp_path / "bpt-8-16-500m.pt"), dtype="float32", count=1, tokens=8))
    assert 0 < rows[0]["mean"] < rows[1]["mean"]


def test_a_form_cannot_be_named() -> None:
    with pytest.raises(BadPrompt, match="compares all forms of weights"):
        weights.bench(WeightsBench(backbone="pictogram", weights="int8"))
