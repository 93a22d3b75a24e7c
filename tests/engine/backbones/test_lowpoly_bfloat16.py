"""lowpoly in bfloat16, which auto may take on a CPU: a row has the same bits in every pass, so match seed holds."""

from __future__ import annotations

from functools import cache

import pytest
import torch

from engine.backbones import load, lowpoly
from engine.core import Draft, Prompt, Sampling
from engine.dispatch.choice import REFERENCE, VARIABLE
from engine.errors import NotSupported
from engine.kernels.cpu.library import native, native_choice
from engine.methods import find
from engine.run import generate
from tests.engine.backbones import tiny

needs_products = pytest.mark.skipif(native(torch.bfloat16) is None, reason=native_choice(torch.bfloat16).reason)
WIDTHS = (1, 2, 3, 4, 5, 8, 12, 16, 17, 33)
LENGTH = 90  # tokens of a mesh that are compared


@cache
def shipped(dtype: str) -> lowpoly.Lowpoly:
    """The shipped weights in a type."""
    return load("lowpoly", device="cpu", dtype=dtype)


@cache
def tokens(dtype: str, name: str, **knobs: object) -> list[int]:
    """The first tokens of a sphere's mesh by a method."""
    method, preset = find(name)
    run = generate(
        shipped(dtype), method, Prompt(points=tiny.sphere(), seed=1), preset | knobs | ({} if name == "ar" else {"verify": "match seed"})
    )
    for _ in run:
        if len(run.in_order) >= LENGTH:
            break
    assert run.exact
    return run.in_order[:LENGTH]


@needs_products
@pytest.mark.parametrize("count", [2, 31, 100])
@torch.inference_mode()
def test_a_row_has_the_same_bits_alone_and_in_every_window(count: int) -> None:
    model, path = shipped("bfloat16"), tokens("bfloat16", "ar")
    path = (path + path)[: count + 40]
    sequence = model.start(Prompt(points=tiny.sphere(), sampling=Sampling()))
    sequence.grammar = None
    sequence.forward(Draft(torch.tensor(path[: count - 1])))
    sequence.commit(list(range(count - 1)), path[count - 1])
    drafts = {width: Draft(torch.tensor(path[count:][: width - 1], dtype=torch.int64)) for width in WIDTHS}
    found = {width: sequence.forward(draft).logits[:, 0].clone() for width, draft in drafts.items()}
    sequence.close()
    assert [width for width in WIDTHS if not torch.equal(found[width], found[1])] == []


@needs_products
@pytest.mark.parametrize(
    ("name", "knobs"),
    [
        ("xspecmesh_exact", {}),
        ("xspecmesh_exact", {"heads": "multilayer"}),
        ("eagle", {"nodes": 8}),
        ("cross_regression", {}),
        ("surface", {}),
    ],
)
def test_match_seed_gives_the_tokens_of_plain_decoding(name: str, knobs: dict[str, object]) -> None:
    """A chain by both kinds of heads, a tree, a pass with an adapter, and drafts without weights."""
    assert tokens("bfloat16", name, **knobs) == tokens("bfloat16", "ar")


@needs_products
@torch.inference_mode()
def test_products_are_rounded_and_nothing_else() -> None:
    """Caches and distributions stay float32; logits move by a part in 256 of theirs."""
    found = {}
    for dtype in ("float32", "bfloat16"):
        sequence = shipped(dtype).start(Prompt(points=tiny.sphere()))
        found[dtype] = sequence.forward(Draft(torch.tensor(tokens("bfloat16", "ar")))).logits
        assert sequence.kv_cache.block.dtype == found[dtype].dtype == torch.float32
        sequence.close()
    away = (found["bfloat16"] - found["float32"]).norm() / found["float32"].norm()
    assert 1e-4 < away < 0.03


@needs_products
def test_it_is_offered_where_it_runs_and_refused_where_not(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shipped("float32").dtype == "float32" and shipped("bfloat16").dtype == "bfloat16"
    assert all("bfloat16" in shipped(dtype).capabilities for dtype in ("float32", "bfloat16"))
    monkeypatch.setenv(VARIABLE, REFERENCE)
    assert "bfloat16" not in load("lowpoly", device="cpu").capabilities
    with pytest.raises(NotSupported, match="compiled functions only"):
        load("lowpoly", device="cpu", dtype="bfloat16")
