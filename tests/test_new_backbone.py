"""A new backbone is one file and one line in the table: the library, the command line, the list of models and `bench` then have it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image

import engine
from app import cli
from app.commands import models
from engine.backbones import BACKBONES
from engine.core import VERIFY
from engine.methods import METHODS
from research.bench.plan import ImageBench

FILE = '''
"""Stripes: a token follows another with a probability from a table, so that rows of a picture are runs of gray levels."""

import numpy as np
import torch

from engine.core import Backbone, Rows, Sampling
from engine.layout import Raster
from engine.sampling import warp

TABLE = torch.eye(5) * 2  # raw logits of the next token, by the token before it


class Stripes(Backbone):
    """The backbone: five gray levels on a grid of 4 x 4."""

    name, capabilities, sampling = "stripes", frozenset({"raster"}), Sampling()
    device, dtype, parameters, vocabulary, sizes = torch.device("cpu"), "float32", 25, 5, (32,)

    def start(self, prompt):
        return StripesSequence(prompt.sampling or self.sampling)

    def render(self, tokens, positions, final, size=None):
        picture = np.zeros(16, np.uint8)
        picture[positions] = np.array(tokens) * 60
        return np.kron(picture.reshape(4, 4), np.ones((8, 8), np.uint8))[..., None].repeat(3, 2)


class StripesSequence:
    """One run: its whole state is its tokens, because a row depends on one token only."""

    vocabulary, limit, layout, device = 5, 16, Raster(4, 4), torch.device("cpu")
    codebook = condition = masks = levels = workspace = None

    def __init__(self, sampling):
        self.sampling, self.tokens = sampling, []

    @property
    def length(self):
        return len(self.tokens)

    @property
    def done(self):
        return self.length >= self.limit

    def forward(self, draft):
        self.drafted = draft.tokens.tolist()
        logits = TABLE[[self.tokens[-1] if self.tokens else 0, *self.drafted]][None]
        return Rows(logits, lambda raw, soft=False: warp(raw[0], self.sampling.soften() if soft else self.sampling, None))

    def commit(self, nodes, token):
        new = ([self.drafted[node] for node in nodes] + [token])[: self.limit - self.length]
        self.tokens += new
        return new

    def probs_after(self, logits, *paths):
        return torch.softmax(warp(logits, self.sampling, None), -1)

    def biased_logits(self, logits, *paths):
        return logits

    def favourites(self, count):
        return []

    def allowed_ids(self, path):
        return None

    def state(self, path):
        return None

    def close(self):
        pass


def load(path, device, dtype):
    return Stripes()
'''


@pytest.fixture(autouse=True)
def registration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file, importable, and its line in the table."""
    (tmp_path / "stripes.py").write_text(FILE, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(BACKBONES, "stripes", "stripes")


@pytest.mark.parametrize(
    "method", [name for name, each in METHODS.items() if VERIFY.name in {knob.name for knob in each.knobs} and not each.needs - {"raster"}]
)
def test_the_library_decodes_it_exactly(method: str) -> None:
    """With the same seed, an accelerated run has the tokens of plain decoding."""
    backbone, prompt = engine.load("stripes"), engine.Prompt(seed=3)
    plain = engine.generate(backbone, METHODS["ar"], prompt).finish()
    fast = engine.generate(backbone, METHODS[method], prompt, {"verify": "match seed"}).finish()
    assert plain.tokens == fast.tokens


def test_the_command_line_draws_a_picture(tmp_path: Path) -> None:
    cli.main(["image", "any words", "--backbone", "stripes", "--method", "sjdpp", "--out", str(tmp_path / "run")])
    picture = Image.open(tmp_path / "run/result.png")
    assert picture.size == (32, 32) and len(picture.convert("L").getcolors()) > 1
    assert json.loads((tmp_path / "run/run.json").read_text(encoding="utf-8"))["backbone"] == "stripes"


def test_it_is_among_the_models_and_in_bench() -> None:
    assert "stripes" in models.rows()
    assert {"jacobi", "sjd", "sjdpp"} <= ImageBench(backbone="stripes").entries(engine.load("stripes").capabilities).keys()
