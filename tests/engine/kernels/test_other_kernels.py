"""The smaller kernels against their references: cache, attention, parts of a layer, borrowed mass, ranks, adapters and energies."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from engine.cache import keep
from engine.kernels import residual_norm, tree_attention
from engine.kernels.pooled_mass import ranked_reference, ranked_triton
from engine.kernels.row_lora import row_lora_reference, row_lora_triton
from engine.kernels.tree_attention import VisibleRows, pack, tree_attention_reference, tree_attention_triton, unpack
from engine.rules import CONSISTENT, LITERAL
from research.bench import kernel_cases as cases
from tests.engine.kernels.near import DEVICE, near, needs_triton

HALF = torch.float16


@needs_triton
@pytest.mark.parametrize(("rows", "start"), [([0], 0), ([0, 3, 5, 2, 9], 10), ([4, 3, 2, 1, 0], 7), (list(range(1, 64, 3)), 5)])
@pytest.mark.parametrize("dtype", [torch.float32, HALF])
def test_rows_of_the_cache_move_together(rows: list[int], start: int, dtype: torch.dtype) -> None:
    block = torch.randn(2, 2, 2, 3, 80, 20).to(DEVICE, dtype)
    ours, theirs, at = block.clone(), block.clone(), torch.tensor(rows, device=DEVICE)
    keep.keep_rows_triton(ours, start, at)
    keep.keep_rows_reference(theirs, start, at)
    assert (torch.equal(ours, theirs) and not torch.equal(ours, block)) or rows == [0]


# --- attention --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 7, 63, 64, 65, 130])
def test_sets_hold_a_mask(count: int) -> None:
    visible = torch.rand(count, count) < 0.5
    assert torch.equal(unpack(pack(visible)), visible)


@needs_triton
@pytest.mark.parametrize(("rows", "cached"), [(1, 33), (7, 0), (7, 70), (63, 30), (70, 5)])
@pytest.mark.parametrize("placed", [False, True], ids=["prefix", "placed"])
def test_attention_sees_ancestors_and_the_cache(rows: int, cached: int, placed: bool) -> None:
    case = cases.tree_pass(rows, cached, placed=placed and cached > 0)
    q, k, v = (x.to(DEVICE) for x in (case.q, case.k, case.v))
    seen = VisibleRows(*(x.to(DEVICE) if isinstance(x, torch.Tensor) else x for x in vars(case.seen).values()))
    for scale in (None, 10.0):
        near("attention", tree_attention_triton(q, k, v, seen, scale), tree_attention_reference(q, k, v, seen, scale), 1e-4, 3e-5)


@needs_triton
def test_attention_in_half_precision_and_without_groups() -> None:
    case = cases.tree_pass(13, 40, heads=3, key_heads=3, width=64, dtype=HALF)
    ours = tree_attention_triton(*(x.to(DEVICE) for x in (case.q, case.k, case.v)), VisibleRows(case.seen.sets.to(DEVICE), 40))
    near("attention", ours, tree_attention_reference(case.q.float(), case.k.float(), case.v.float(), case.seen), 2e-3, 2e-3)


def test_heads_in_groups_are_told_by_their_number_alone() -> None:
    """As many rows as heads of the keys, and as many keys as heads."""
    q, k, v = torch.randn(1, 4, 2, 8), torch.randn(1, 2, 4, 8), torch.randn(1, 2, 4, 8)
    repeated = (x.repeat_interleave(2, 1) for x in (k, v))
    torch.testing.assert_close(tree_attention_reference(q, k, v, None), torch.nn.functional.scaled_dot_product_attention(q, *repeated))


@needs_triton
@pytest.mark.parametrize(("rows", "cached", "span"), [(1, 33, 64), (7, 0, 40), (7, 70, 80), (70, 5, 130)])
def test_attention_may_be_told_how_many_rows_are_kept(rows: int, cached: int, span: int) -> None:
    """In fixed shapes the keys continue after the rows of the pass, and those must not be visible."""
    case = cases.tree_pass(rows, cached)
    q, sets = case.q.to(DEVICE), case.seen.sets.to(DEVICE)
    after = torch.full_like(case.k[:, :, :1], 1e4).expand(-1, -1, span - cached - rows, -1)
    k, v = (torch.cat([x, after], 2).to(DEVICE) for x in (case.k, case.v))
    seen = VisibleRows(sets, span - rows, kept_now=torch.tensor(cached, device=DEVICE))
    plain = tree_attention_reference(q, case.k.to(DEVICE), case.v.to(DEVICE), VisibleRows(sets, cached))
    near("reference", tree_attention_reference(q, k, v, seen), plain, 1e-5, 1e-5)
    near("attention", tree_attention_triton(q, k, v, seen), plain, 1e-4, 3e-5)


ODD = {  # rows, kept rows, what may be kept, padding of each branch, and the shape of the heads
    "one row after many": (1, 700, None, None, {}),
    "33 rows of grouped queries, the prompt of a branch padded by more than a tile": (33, 301, None, (45, 0), {"heads": 8, "key_heads": 2}),
    "heads of width 100": (5, 523, None, None, {"heads": 3, "key_heads": 3, "width": 100}),
    "few of many rows kept, so most parts see nothing": (4, 9, 900, (2, 0), {}),
    "kept rows end within a tile": (40, 333, 500, (0, 40), {"heads": 4, "key_heads": 1, "width": 40}),
}


def odd_pass(name: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, VisibleRows]:
    """Query, keys, values and visibility of a case. The rows after those of the pass are large: nobody may see them."""
    rows, kept, most, padding, shape = ODD[name]
    case = cases.tree_pass(rows, kept, **shape)
    fill = 0 if most is None else most - kept
    k, v = (torch.cat([x, torch.full_like(x[:, :, :1], 1e4).expand(-1, -1, fill, -1)], 2).to(DEVICE) for x in (case.k, case.v))
    kept_now = None if most is None else torch.tensor(kept, device=DEVICE)
    hidden = None if padding is None else torch.tensor(padding, device=DEVICE)
    return case.q.to(DEVICE), k, v, VisibleRows(case.seen.sets.to(DEVICE), kept + fill, kept_now=kept_now, padding=hidden)


@needs_triton
@pytest.mark.parametrize("name", ODD)
def test_attention_in_parts_is_the_reference(name: str) -> None:
    q, k, v, seen = odd_pass(name)
    sums, _ = tree_attention._parts_like(q, k)
    assert sums.shape[1] > 1, "the keys are divided"
    ours = tree_attention_triton(q, k, v, seen)
    near("attention", ours, tree_attention_reference(q, k, v, seen), 1e-4, 3e-5)
    assert ours.transpose(1, 2).is_contiguous(), "the next product needs no copy"


@needs_triton
def test_parts_merged_without_their_weights_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mutant: every part counts the same, whatever its greatest product."""

    def merge(sums: torch.Tensor, totals: torch.Tensor, count: int, dtype: torch.dtype) -> torch.Tensor:
        return right(torch.stack([torch.zeros_like(sums[0]), sums[1]]), totals, count, dtype)

    right = tree_attention._merge_parts
    monkeypatch.setattr(tree_attention, "_merge_parts", merge)
    q, k, v, seen = odd_pass("one row after many")
    with pytest.raises(AssertionError, match="greatest error"):
        near("attention", tree_attention_triton(q, k, v, seen), tree_attention_reference(q, k, v, seen), 1e-4, 3e-5)


def test_the_parts_depend_on_shapes_alone() -> None:
    assert tree_attention.parts_of(32, 4096) == 8 and tree_attention.parts_of(32, 512) == 4, "at least 128 keys in a part"
    assert tree_attention.parts_of(300, 4096) == tree_attention.parts_of(1, 100) == 1


def test_a_mask_goes_to_pytorch() -> None:
    case = cases.tree_pass(5, 9)
    mask = case.seen.dense()[0]
    assert torch.equal(
        tree_attention.tree_attention(case.q, case.k, case.v, mask), tree_attention_reference(case.q, case.k, case.v, case.seen)
    )


# --- parts of a layer -------------------------------------------------------------------------------------------------

ROUNDING = {torch.float32: (1e-6, 1e-6), HALF: (1e-3, 1e-3)}  # a step of the type: rounded in the same places, summed in another order


@needs_triton
@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize(("rows", "width"), [(1, 72), (7, 1000), (33, 40)])
def test_a_sum_and_its_norm_are_the_references(rows: int, width: int, dtype: torch.dtype) -> None:
    case = cases.residual_norm_case(DEVICE, rows, width, dtype)
    ours, theirs = case.kernel(), case.reference()
    assert torch.equal(ours[0], theirs[0])
    near("norm", ours[1], theirs[1], *ROUNDING[dtype])
    near("norm alone", residual_norm.residual_norm_triton(*case.kernel.args[:1], None, *case.kernel.args[2:])[1],
         residual_norm.residual_norm_reference(*case.kernel.args[:1], None, *case.kernel.args[2:])[1], *ROUNDING[dtype])  # fmt: skip


@needs_triton
@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize(("rows", "inner"), [(1, 70), (7, 1100)])
def test_a_gate_is_the_reference(rows: int, inner: int, dtype: torch.dtype) -> None:
    case = cases.gate_case(DEVICE, rows, inner, dtype)
    near("gate", case.kernel(), case.reference(), *ROUNDING[dtype])


@needs_triton
@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("norms", ["", "root mean square", "layer"])
@pytest.mark.parametrize(("rows", "heads", "key_heads", "width", "turned"), [(1, 4, 4, 100, 100), (7, 6, 2, 20, 12), (33, 3, 1, 64, 64)])
def test_turned_heads_and_the_cache_are_the_references(
    rows: int, heads: int, key_heads: int, width: int, turned: int, norms: str, dtype: torch.dtype
) -> None:
    case = cases.rotary_write_case(DEVICE, rows, heads, key_heads, width, turned, norms, dtype)
    before = case.reference.args[1].clone()
    relative, absolute = ROUNDING[dtype]
    (ours, kept), (theirs, expected) = case.kernel(), case.reference()
    near("queries", ours, theirs, relative, 5 * absolute)
    near("cache", kept, expected, relative, 5 * absolute)
    assert int((kept != before).any(-1).any(0).any(0).any(0).sum()) == rows, "the rows of the pass alone"


# --- rules ------------------------------------------------------------------------------------------------------------


@needs_triton
@pytest.mark.parametrize("limit", [0.0, 0.003, 0.1, 2.0])
@pytest.mark.parametrize(("rows", "vocabulary", "count"), [(1, 1000, 62), (7, 5121, 320), (63, 1000, 65)])
def test_borrowed_mass_is_the_reference(rows: int, vocabulary: int, count: int, limit: float) -> None:
    case = cases.pooled_mass_case(DEVICE, rows, vocabulary, count, limit)
    near("mass", case.kernel(), case.reference(), 1e-5, 1e-7)


@needs_triton
@pytest.mark.parametrize(("rows", "vocabulary", "half"), [(1, 1000, 7), (3, 1000, 1), (3, 5121, 3)])
def test_ranks_are_the_reference_with_ties(rows: int, vocabulary: int, half: int) -> None:
    case = cases.rank_case(DEVICE, rows, vocabulary, half)
    assert torch.equal(case.kernel(), case.reference())


@needs_triton
def test_the_first_token_has_neighbours_if_it_is_impossible() -> None:
    p = torch.tensor([[0.0, 0.0, 0.25, 0.75]], device=DEVICE)
    tokens = torch.tensor([0], device=DEVICE)
    assert torch.equal(ranked_triton(p, tokens, 2), ranked_reference(p, tokens, 2))


@needs_triton
@pytest.mark.parametrize("rule", [CONSISTENT, LITERAL], ids=["consistent", "literal"])
@pytest.mark.parametrize("smoothing", [0.0, 0.5])
@pytest.mark.parametrize("drafts", [1, 7, 63])
def test_energies_are_the_reference(drafts: int, smoothing: float, rule) -> None:
    case = cases.energy_case(DEVICE, drafts, 1000, smoothing, rule)
    (accepted, levels, least), theirs = case.kernel(), case.reference()
    assert torch.equal(accepted, theirs[0]) and not accepted[drafts // 2]  # the impossible one
    near("energies", levels, theirs[1], 1e-9)
    near("thresholds", least, theirs[2], 1e-12)


@needs_triton
def test_energies_need_no_tensor_from_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    case = cases.energy_case(DEVICE)
    monkeypatch.setattr(torch, "tensor", None)
    assert len(case.kernel()[0]) == 16


@needs_triton
@pytest.mark.parametrize(("rows", "inner", "outer", "rank"), [(1, 70, 63, 4), (7, 64, 130, 8), (63, 33, 65, 32)])
@pytest.mark.parametrize("dtype", [torch.float32, HALF])
def test_an_adapter_acts_on_its_rows_alone(rows: int, inner: int, outer: int, rank: int, dtype: torch.dtype) -> None:
    case = cases.lora_case(DEVICE, rows, inner, outer, rank, dtype)
    before = case.kernel.args[1].clone()
    ours, theirs = case.kernel(), case.reference()
    near("rows", ours, theirs, 1e-5 if dtype == torch.float32 else 4e-3, 2e-6 if dtype == torch.float32 else 4e-3)
    assert torch.equal(ours[:, : rows // 2], before[:, : rows // 2]) and not torch.equal(ours, before)


@needs_triton
@pytest.mark.parametrize("dtype", [torch.float32, HALF])
@pytest.mark.parametrize("way", [row_lora_reference, row_lora_triton])
def test_an_adapter_may_be_told_its_first_row(way, dtype: torch.dtype) -> None:
    random = torch.Generator().manual_seed(3)
    shapes = ((2, 33, 130), (2, 33, 64), (8, 64), (130, 8))
    before, x, down, up = (torch.randn(*shape, generator=random).to(DEVICE, dtype) for shape in shapes)
    ours, theirs = before.clone(), before.clone()
    way(ours, x, down, up, torch.tensor(20, device=DEVICE), 0.5)
    row_lora_reference(theirs, x, down, up, 20, 0.5)
    near("rows", ours, theirs, 1e-5 if dtype == torch.float32 else 4e-3, 2e-5 if dtype == torch.float32 else 4e-2)
    assert torch.equal(ours[:, :20], before[:, :20]) and not torch.equal(ours, before)
    way(ours.copy_(before), x, down, up, torch.tensor(33, device=DEVICE), 0.5)
    assert torch.equal(ours, before), "no row has the adapter"


@pytest.mark.gpu
@pytest.mark.parametrize("make", [partial(make) for group in cases.CASES.values() for make in group])
def test_every_case_of_the_benchmark_runs(make) -> None:
    case = make(DEVICE)
    assert case.bytes_moved > 0
    case.kernel()
    torch.cuda.synchronize()
