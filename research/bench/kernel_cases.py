"""Inputs of the kernels: one function per kernel, for the benchmark and the parity tests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from engine import rules
from engine.cache import keep
from engine.core import Sampling
from engine.kernels import energy_scan, gate, pooled_mass, residual_norm, rotary_write, row_lora, tree_attention
from engine.noise import kernel as noise
from engine.verify.reference import verify_reference
from engine.verify.request import VerifyRequest
from engine.verify.triton import verify_triton

BASE = noise.mix(2026)
PLAIN, GUIDED = Sampling(), Sampling(guidance=3.0)


@dataclass(frozen=True)
class KernelCall:
    """A call of a kernel and of its reference on the same input, and the fewest bytes that it must move."""

    name: str
    kernel: Callable[[], Any]
    reference: Callable[[], Any]
    bytes_moved: int


def _random(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def random_probs(rows: int, vocabulary: int, random: torch.Generator, sharp: float = 2.0) -> Tensor:
    """Random distributions [N, V] float32."""
    return torch.softmax(sharp * torch.randn(rows, vocabulary, generator=random), -1)


def noise_case(device: torch.device, rows: int = 16, vocabulary: int = 65536) -> KernelCall:
    """Noise of consecutive positions."""
    at = torch.arange(rows, device=device) + 5
    kernel, reference = (partial(f, BASE, at, vocabulary) for f in (noise.gumbel_triton, noise.gumbel_reference))
    return KernelCall(f"{rows} rows of {vocabulary:,}", kernel, reference, rows * vocabulary * 4)


def window(
    rows: int,
    vocabulary: int,
    sampling: Sampling = PLAIN,
    *,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    drawn: bool = True,
    seeded: bool = False,
    masked: bool = False,
    blocked: float = 0.0,
    store: bool = True,
    seed: int = 0,
) -> VerifyRequest:
    """A pass over rows - 1 drafts. Two branches with guidance; drawn : drafts come from distributions near the model's.

    masked : with a grammar that allows a third of the tokens; blocked : share of logits that are -inf (without guidance)
    """
    random, branches = _random(seed), 2 if sampling.guidance != 1 else 1
    logits = (2 * torch.randn(branches, rows, vocabulary, generator=random)).to(dtype)
    if blocked:
        logits.masked_fill_(torch.rand(branches, rows, vocabulary, generator=random) < blocked, -torch.inf)
        logits[:, :, vocabulary // 2] = 0.0
    allowed = torch.rand(rows, vocabulary, generator=random) < 0.3 if masked else None
    if masked:
        allowed[:, vocabulary // 2] = True
    near = 0.7 * logits[0, : rows - 1].float().clamp(min=-9) + 0.6 * torch.randn(rows - 1, vocabulary, generator=random)
    q = torch.softmax(near, -1)
    tokens = torch.multinomial(q, 1, generator=random).squeeze(1) if rows > 1 else torch.empty(0, dtype=torch.int64)
    uniforms, positions = torch.rand(3, rows, generator=random, dtype=torch.float64), torch.arange(rows) + 3
    logits, tokens, q, uniforms, positions = (x.to(device) for x in (logits, tokens, q, uniforms, positions))
    allowed = None if allowed is None else allowed.to(device)
    draft_probs = q if drawn else None
    return VerifyRequest(tokens, draft_probs, uniforms, BASE, positions, seeded, store, logits=logits, sampling=sampling, allowed=allowed)


def verify_case(device: torch.device, rows: int = 96, vocabulary: int = 65536, sampling: Sampling = GUIDED) -> KernelCall:
    """A window with guidance in half precision."""
    request = window(rows, vocabulary, sampling, device=device, dtype=torch.bfloat16)
    filters = f", top-k {sampling.top_k}" if sampling.top_k else ""
    bytes_moved = request.logits.numel() * 2 + 2 * rows * vocabulary * 4
    kernel, reference = partial(verify_triton, request), partial(verify_reference, request)
    return KernelCall(f"{rows} rows of {vocabulary:,}{filters}", kernel, reference, bytes_moved)


def keep_rows_case(
    device: torch.device, layers: int = 32, heads: int = 32, width: int = 128, dtype: torch.dtype = torch.bfloat16
) -> KernelCall:
    """Four rows of a tree, in both guidance branches."""
    block = torch.randn(layers, 2, 2, heads, 80, width, generator=_random(0)).to(device, dtype)
    rows = torch.tensor([0, 2, 3, 11], device=device)

    def on(function: Callable[..., None], to: Tensor) -> Tensor:
        function(to, 60, rows)
        return to

    kernel, reference = partial(on, keep.keep_rows_triton, block), partial(on, keep.keep_rows_reference, block.clone())
    return KernelCall(f"4 rows of {layers} layers", kernel, reference, 2 * layers * 4 * heads * 4 * width * block.element_size())


@dataclass(frozen=True)
class AttentionInputs:
    """The tensors of an attention call."""

    q: Tensor
    k: Tensor
    v: Tensor
    seen: tree_attention.VisibleRows


def tree_pass(
    rows: int, cached: int, heads: int = 4, key_heads: int = 2, width: int = 24, placed: bool = False, dtype: torch.dtype = torch.float32
) -> AttentionInputs:
    """A random tree of `rows` rows after a cache, in two guidance branches; placed: some cache rows are later or invalid."""
    random = _random(rows + cached)
    q = torch.randn(2, heads, rows, width, generator=random).to(dtype)
    kv_cache = torch.randn(2, 2, key_heads, cached + rows + 5, width, generator=random).to(dtype)
    k, v = kv_cache[0, :, :, : cached + rows], kv_cache[1, :, :, : cached + rows]
    visible = torch.eye(rows, dtype=torch.bool)
    for row in range(1, rows):
        visible[row] |= visible[int(torch.randint(0, row, (1,), generator=random))]
    places = torch.randint(0, 2 * cached + 1, (2, cached), generator=random)
    places[:, : cached // 4] = torch.iinfo(torch.int64).max  # invisible padding
    positions = torch.randint(0, 2 * cached + 1, (rows,), generator=random)
    extra = (places, positions) if placed else (None, None)
    return AttentionInputs(q, k, v, tree_attention.VisibleRows(tree_attention.pack(visible), cached, *extra))


def attention_case(device: torch.device, rows: int = 60, cached: int = 2400, dtype: torch.dtype = torch.bfloat16) -> KernelCall:
    """A tree of a 7B model's layer."""
    inputs = tree_pass(rows, cached, 32, 32, 128, dtype=dtype)
    visible = tree_attention.VisibleRows(inputs.seen.sets.to(device), cached)
    q, k, v = (x.to(device) for x in (inputs.q, inputs.k, inputs.v))
    kernel, reference = (
        partial(f, q, k, v, visible) for f in (tree_attention.tree_attention_triton, tree_attention.tree_attention_reference)
    )
    return KernelCall(f"{rows} rows after {cached:,}", kernel, reference, 2 * (k.numel() + v.numel() + 2 * q.numel()))


def residual_norm_case(device: torch.device, rows: int = 32, width: int = 4096, dtype: torch.dtype = torch.bfloat16) -> KernelCall:
    """The sum and norm of both branches in a layer of an 8B model."""
    random = _random(5)
    x, more, weight = (torch.randn(*shape, generator=random).to(device, dtype) for shape in ((2, rows, width), (2, rows, width), (width,)))
    kernel, reference = (
        partial(f, x, more, weight, 1e-5) for f in (residual_norm.residual_norm_triton, residual_norm.residual_norm_reference)
    )
    return KernelCall(f"{rows} rows of {width:,}", kernel, reference, 4 * x.numel() * x.element_size())


def gate_case(device: torch.device, rows: int = 32, inner: int = 14336, dtype: torch.dtype = torch.bfloat16) -> KernelCall:
    """Both branches in a layer of an 8B model; gate and up are halves of one tensor."""
    halves = torch.randn(2, rows, 2 * inner, generator=_random(6)).to(device, dtype).chunk(2, -1)
    kernel, reference = (partial(f, *halves) for f in (gate.gate_triton, gate.gate_reference))
    return KernelCall(f"{rows} rows of {inner:,}", kernel, reference, 6 * rows * inner * halves[0].element_size())


def rotary_write_case(
    device: torch.device, rows: int = 32, heads: int = 32, key_heads: int = 8, width: int = 128, turned: int = 128, norms: str = "",
    dtype: torch.dtype = torch.bfloat16,
) -> KernelCall:  # fmt: skip
    """Both branches in a layer of an 8B model. norms : of the heads: "", "root mean square" or "layer". Returns queries and cache."""
    random = _random(rows + width)

    def numbers(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=random).to(device, dtype)

    q, k, v = (numbers(2, rows, count, width) for count in (heads, key_heads, key_heads))
    cos, sin, block = numbers(1, rows, turned), numbers(1, rows, turned), numbers(2, 2, key_heads, 3 * rows, width)
    each = [numbers(1 if norms == "root mean square" else count, width) for count in (heads, key_heads, heads, key_heads)]
    bias = each[2:] if norms == "layer" else (None, None)
    head_norms = rotary_write.HeadNorms(*each[:2], 1e-5, *bias) if norms else None
    at = torch.randperm(3 * rows, generator=random)[:rows].to(device)

    def on(function: Callable[..., Tensor], kept: Tensor) -> tuple[Tensor, Tensor]:
        return function(q, k, v, cos, sin, *kept, at, head_norms), kept

    kernel = partial(on, rotary_write.rotary_write_triton, block)
    reference = partial(on, rotary_write.rotary_write_reference, block.clone())
    bytes_moved = 2 * (q.numel() + k.numel() + v.numel()) * q.element_size()
    return KernelCall(f"{rows} rows of {heads} + 2 x {key_heads} heads of {width}", kernel, reference, bytes_moved)


def pooled_mass_case(device: torch.device, rows: int = 60, vocabulary: int = 16384, count: int = 1000, limit: float = 0.1) -> KernelCall:
    """Nodes that borrow from their neighbours."""
    random = _random(1)
    p = random_probs(rows, vocabulary, random)
    tokens = torch.multinomial(p, 1, generator=random).squeeze(1)
    near = torch.stack([torch.randperm(vocabulary, generator=random)[:count] for _ in range(rows)])
    arguments = [x.to(device) for x in (p, tokens, near, torch.full((rows,), limit))]
    kernel, reference = (partial(f, *arguments) for f in (pooled_mass.pooled_mass_triton, pooled_mass.pooled_mass_reference))
    return KernelCall(f"{rows} nodes, {count:,} neighbours, at most {limit:g}", kernel, reference, rows * count * 40)


def rank_case(device: torch.device, rows: int = 16, vocabulary: int = 16384, half: int = 7) -> KernelCall:
    """Ranks of grouped drafts."""
    random = _random(2)
    p = random_probs(rows, vocabulary, random)
    p[:, : vocabulary // 3] = p[:, :1]  # ties
    tokens = torch.multinomial(p, 1, generator=random).squeeze(1)
    tokens[0], tokens[-1] = p[0].argmin(), p[-1].argmax()
    arguments = p.to(device), tokens.to(device), half
    kernel, reference = (partial(f, *arguments) for f in (pooled_mass.ranked_triton, pooled_mass.ranked_reference))
    return KernelCall(f"{rows} rows of {vocabulary:,}, {2 * half} ranks", kernel, reference, rows * vocabulary * 4)


def lora_case(
    device: torch.device, rows: int = 33, inner: int = 4096, outer: int = 11008, rank: int = 32, dtype: torch.dtype = torch.bfloat16
) -> KernelCall:
    """An adapter on half the rows of a pass."""
    random, first = _random(3), rows // 2
    y, x = (torch.randn(2, rows, width, generator=random).to(device, dtype) for width in (outer, inner))
    down = (torch.randn(rank, inner, generator=random) / inner**0.5).to(device, dtype)
    up = torch.randn(outer, rank, generator=random).to(device, dtype)
    theirs = y.clone()

    def on(function: Callable[..., None], to: Tensor) -> Tensor:
        function(to, x, down, up, first, 0.5)
        return to

    bytes_moved = (rank * (inner + outer) + 2 * (rows - first) * (inner + 2 * outer)) * y.element_size()
    kernel, reference = partial(on, row_lora.row_lora_triton, y), partial(on, row_lora.row_lora_reference, theirs)
    return KernelCall(f"{rows - first} rows, {inner:,} to {outer:,}, rank {rank}", kernel, reference, bytes_moved)


def energy_case(
    device: torch.device, drafts: int = 16, vocabulary: int = 16384, smoothing: float = 0.2, rule: rules.EnergyRule = rules.CONSISTENT
) -> KernelCall:
    """A prefix of drafts, one of them impossible."""
    random = _random(4)
    p, q = random_probs(drafts, vocabulary, random), random_probs(drafts, vocabulary, random)
    tokens = torch.multinomial(q, 1, generator=random).squeeze(1)
    p[drafts // 2, tokens[drafts // 2]] = 0.0
    u = torch.rand(drafts, generator=random, dtype=torch.float64)
    arguments = [x.to(device) for x in (p, q, tokens, u)]
    kernel, reference = (
        partial(f, *arguments, smoothing, 2.0, 16, rule) for f in (energy_scan.energy_scan_triton, energy_scan.energy_scan_reference)
    )
    return KernelCall(f"{drafts} drafts", kernel, reference, drafts * 97)


# Calls that the benchmark measures on a GPU, by kernel
CASES: dict[str, tuple[Callable[[torch.device], KernelCall], ...]] = {
    "noise": (noise_case,),
    "verify": (
        verify_case,
        partial(verify_case, rows=32, vocabulary=16384),
        partial(verify_case, sampling=Sampling(guidance=3.0, top_k=2000)),
        partial(verify_case, rows=1),
    ),
    "keep_rows": (keep_rows_case,),
    "tree_attention": (attention_case, partial(attention_case, rows=17)),
    "residual_norm": (residual_norm_case,),
    "rotary_write": (rotary_write_case,),
    "gate": (gate_case,),
    "pooled_mass": (pooled_mass_case, rank_case),
    "row_lora": (lora_case,),
    "energy_scan": (energy_case,),
}
