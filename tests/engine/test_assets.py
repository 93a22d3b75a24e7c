"""Models and examples are found in a checkout and next to an installed engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine import assets, machine


def test_a_checkout_has_them_in_assets() -> None:
    assert assets.checkout() == Path(__file__).resolve().parents[2]
    assert (assets.models() / "pictogram" / "card.json").is_file()
    assert (assets.clouds() / "chair.ply").is_file()


def test_an_installation_has_them_beside_the_engine_under_a_name_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assets, "ROOT", tmp_path)
    (tmp_path / "assets").mkdir()  # somebody else's
    assert assets.checkout() is None
    assert assets.models() == tmp_path / "foretoken_assets" / "models"
    assert assets.clouds() == tmp_path / "foretoken_assets" / "examples" / "clouds"


def test_an_installation_does_not_take_the_commit_of_the_repository_around_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = machine.commit.__wrapped__  # without its memory
    assert commit() != "unknown" or not (assets.ROOT / ".git").exists()
    monkeypatch.setattr(assets, "ROOT", assets.ROOT / "engine")  # inside a repository that is not a checkout
    assert commit() == "unknown"
