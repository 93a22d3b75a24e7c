"""pictogram in bfloat16, which auto may take on a CPU: a row has the same bits in every pass, so match seed holds."""

from __future__ import annotations

from functools import cache

import pytest
import torch

from engine.backbones import load, pictogram
from engine.core import Draft, Prompt
from engine.dispatch.choice import REFERENCE, VARIABLE
from engine.errors import NotSupported
from engine.kernels.cpu.library import native, native_choice
from engine.methods import find
from engine.run import generate

pytestmark = pytest.mark.skipif(native(torch.bfloat16) is None, reason=native_choice(torch.bfloat16).reason)
TEXT = "a red apple on a blue background"
WIDTHS = (1, 2, 3, 4, 5, 8, 12, 16, 24, 32, 33, 48, 64)


@cache
def shipped() -> pictogram.Pictogram:
    """The shipped weights in bfloat16."""
    return load("pictogram", device="cpu", dtype="bfloat16")


@cache
def plain(seed: int) -> list[int]:
    """The tokens of plain decoding at 64 pixels."""
    return generate(shipped(), find("ar")[0], Prompt(TEXT, seed=seed, size=64)).finish().in_order


@torch.inference_mode()
def rows_differ(count: int) -> list[int]:
    """The widths of a pass after `count` tokens in which the logits of the pending row have other bits than alone."""
    model = shipped()
    tokens = torch.randint(model.vocabulary, (256,), generator=torch.Generator().manual_seed(count)).tolist()
    sequence = model.start(Prompt(TEXT, size=128))
    sequence.forward(Draft(torch.tensor(tokens[: count - 1])))
    sequence.commit(list(range(count - 1)), tokens[count - 1])
    drafts = {width: Draft(torch.tensor(tokens[count:][: width - 1], dtype=torch.int64)) for width in WIDTHS}
    found = {width: sequence.forward(draft).logits for width, draft in drafts.items()}
    sequence.close()
    return [width for width in WIDTHS if not torch.equal(found[width][:, 0], found[1][:, 0])]


@pytest.mark.parametrize("count", [2, 31, 100, 190])
def test_a_row_has_the_same_bits_alone_and_in_every_window(count: int) -> None:
    assert rows_differ(count) == []


def test_without_the_compiled_functions_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, REFERENCE)
    with pytest.raises(NotSupported, match=r"by compiled functions only\. FORETOKEN_KERNELS=reference"):
        load("pictogram", device="cpu", dtype="bfloat16")


@pytest.mark.parametrize(
    ("name", "knobs"),
    [("sjdpp", {}), ("sjdpp", {"window": 33}), ("eagle", {"nodes": 12}), ("cross_regression", {}), ("zipar_verified", {})],
)
def test_match_seed_gives_the_tokens_of_plain_decoding(name: str, knobs: dict[str, float]) -> None:
    """Windows, a tree, a pass with a fork, and a wavefront."""
    method, preset = find(name)
    for seed in (0, 1):
        run = generate(shipped(), method, Prompt(TEXT, seed=seed, size=64), preset | knobs | {"verify": "match seed"}).finish()
        assert run.in_order == plain(seed) and run.exact
