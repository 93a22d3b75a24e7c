"""The shipped models in bfloat16, which auto may take on a CPU: a row has the same bits in every pass, so match seed holds."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch

from engine.backbones import load
from engine.core import Backbone, Draft, Prompt, Sampling
from engine.dispatch.choice import REFERENCE, VARIABLE
from engine.errors import NotSupported
from engine.kernels.cpu.library import native, native_choice
from engine.methods import find
from engine.run import generate
from tests.engine.backbones import tiny

pytestmark = pytest.mark.skipif(native(torch.bfloat16) is None, reason=native_choice(torch.bfloat16).reason)
PROMPTS = {"pictogram": Prompt("a red apple on a blue background", size=64), "lowpoly": Prompt(points=tiny.sphere())}
WIDE = {"pictogram": replace(PROMPTS["pictogram"], size=128), "lowpoly": replace(PROMPTS["lowpoly"], sampling=Sampling())}
WIDTHS = (1, 2, 3, 4, 5, 8, 12, 16, 17, 24, 32, 33, 48, 64)
LENGTH = 90  # tokens of a run that are compared


@cache
def load_shipped(name: str, dtype: str = "bfloat16") -> Backbone:
    """The shipped weights in a dtype."""
    return load(name, device="cpu", dtype=dtype)


@cache
def tokens(name: str, method: str, seed: int = 0, **knobs: Any) -> list[int]:
    """The first tokens of a run."""
    entry, preset = find(method)
    chosen = preset | knobs | ({} if method == "ar" else {"verify": "match seed"})
    run = generate(load_shipped(name), entry, replace(PROMPTS[name], seed=seed), chosen)
    for _ in run:
        if len(run.tokens) >= LENGTH and method != "zipar_verified":
            break
    assert run.exact
    return run.in_order[:LENGTH]


@pytest.mark.parametrize("count", [2, 31, 100, 190])
@pytest.mark.parametrize("name", list(PROMPTS))
@torch.inference_mode()
def test_a_row_has_the_same_bits_alone_and_in_every_window(name: str, count: int) -> None:
    model = load_shipped(name)
    path = torch.randint(model.vocabulary, (256,), generator=torch.Generator().manual_seed(count)).tolist()
    sequence = model.start(WIDE[name])
    sequence.grammar = None
    sequence.forward(Draft(torch.tensor(path[: count - 1])))
    sequence.commit(list(range(count - 1)), path[count - 1])
    drafts = {width: Draft(torch.tensor(path[count:][: width - 1], dtype=torch.int64)) for width in WIDTHS}
    logits = {width: sequence.forward(draft).logits[:, 0].clone() for width, draft in drafts.items()}
    sequence.close()
    assert [width for width in WIDTHS if not torch.equal(logits[width], logits[1])] == []


@pytest.mark.parametrize(
    ("name", "method", "knobs"),
    [
        ("pictogram", "sjdpp", {}), ("pictogram", "sjdpp", {"window": 33}), ("pictogram", "eagle", {"nodes": 12}),
        ("pictogram", "cross_regression", {}), ("pictogram", "zipar_verified", {}), ("lowpoly", "xspecmesh_exact", {}),
        ("lowpoly", "xspecmesh_exact", {"heads": "multilayer"}), ("lowpoly", "eagle", {"nodes": 8}), ("lowpoly", "cross_regression", {}),
        ("lowpoly", "surface", {}),
    ],
)  # fmt: skip
def test_match_seed_gives_the_tokens_of_plain_decoding(name: str, method: str, knobs: dict[str, Any]) -> None:
    """For windows, trees, heads, passes with a fork or an adapter, a wavefront, and drafts without weights."""
    for seed in (0, 1):
        assert tokens(name, method, seed, **knobs) == tokens(name, "ar", seed)


@torch.inference_mode()
def test_products_are_rounded_and_nothing_else() -> None:
    """Caches and distributions stay float32; logits change by less than one part in 256."""
    logits = {}
    for dtype in ("float32", "bfloat16"):
        sequence = load_shipped("lowpoly", dtype).start(PROMPTS["lowpoly"])
        logits[dtype] = sequence.forward(Draft(torch.tensor(tokens("lowpoly", "ar", 1)))).logits
        assert sequence.kv_cache.block.dtype == logits[dtype].dtype == torch.float32
        sequence.close()
    away = (logits["bfloat16"] - logits["float32"]).norm() / logits["float32"].norm()
    assert 1e-4 < away < 0.03


@pytest.mark.parametrize("name", list(PROMPTS))
def test_it_is_offered_where_it_runs_and_refused_where_not(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert all(load_shipped(name, dtype).dtype == dtype for dtype in ("float32", "bfloat16"))
    assert all("bfloat16" in load_shipped(name, dtype).capabilities for dtype in ("float32", "bfloat16"))
    monkeypatch.setenv(VARIABLE, REFERENCE)
    assert "bfloat16" not in load(name, device="cpu").capabilities
    with pytest.raises(NotSupported, match=r"by compiled functions only\. FORETOKEN_KERNELS=reference"):
        load(name, device="cpu", dtype="bfloat16")
