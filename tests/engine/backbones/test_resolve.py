"""NAME|PATH resolves to a name, or to a folder whose card names the model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from engine.backbones import BACKBONES, load, names, resolve
from engine.errors import MissingWeights, NotSupported
from research.exactness.toy import Toy


def test_a_name_is_a_name_and_a_folder_says_what_it_holds(tmp_path: Path) -> None:
    assert [resolve(name) for name in BACKBONES] == [(name, None) for name in BACKBONES]
    save_file({"sos_token": torch.ones(2)}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text('{"model_type": "janus"}')
    assert resolve(tmp_path) == ("janus", str(tmp_path))
    assert resolve(tmp_path / "model.safetensors") == ("janus", str(tmp_path / "model.safetensors"))
    (tmp_path / "card.json").write_text('{"name": "lowpoly"}')
    assert resolve(str(tmp_path)) == ("lowpoly", str(tmp_path))


@pytest.mark.parametrize("card", [{"name": "other"}, {}, {"name": ["pictogram"]}, {"name": 3}])
def test_a_folder_of_an_unknown_model_is_a_sentence(card: object, tmp_path: Path) -> None:
    (tmp_path / "card.json").write_text(json.dumps(card))
    with pytest.raises(NotSupported, match="There are: pictogram"):
        resolve(tmp_path)


def test_what_is_neither_is_a_sentence(tmp_path: Path) -> None:
    for name in ("nowhere", "", "n" * 5000, "a\0b", "\udcff", str(tmp_path / "no")):
        with pytest.raises(NotSupported, match="neither a backbone"):
            resolve(name)
    with pytest.raises(MissingWeights, match="holds no weights"):
        load(tmp_path)
    for card, sentence in (("{", "not JSON"), ('["pictogram"]', "a list, not an object"), ("null", "nothing, not an object")):
        (tmp_path / "card.json").write_text(card)
        with pytest.raises(MissingWeights, match=sentence):
            resolve(tmp_path)


def test_a_new_backbone_is_one_file_and_one_line(registered_toy: None, tmp_path: Path) -> None:
    (tmp_path / "card.json").write_text('{"name": "toy"}')
    assert isinstance(load("toy"), Toy) and isinstance(load(tmp_path), Toy) and isinstance(load("toy", str(tmp_path)), Toy)
    assert "toy" in names()
