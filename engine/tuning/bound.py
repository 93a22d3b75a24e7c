"""The bound of a pass: its matrix products at the machine's measured rate, plus its bytes at the machine's measured bandwidth.

Nothing faster than the bound can be expected of this machine with these weights in this type. Both rates are the best of several short
tries that no other program disturbed, because another process can only make a try slower; so is the pass that is compared with them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from engine.core import NO_DRAFT, Backbone, Draft, Prompt, Sequence
from engine.errors import NotSupported
from engine.kernels.cpu.blocks import NativeLinear
from engine.kernels.cpu.library import native
from engine.kernels.cpu.packed_linear import PackedLinear, can_pack
from engine.memory import BYTES
from engine.tuning.load_monitor import Lap, Watch, believed

DTYPES = (("pictogram", "float32"), ("pictogram", "bfloat16"), ("lowpoly", "float32"))  # of the shipped models
ROWS = (1, 32)  # of the passes that are measured: plain decoding, and a window
KEPT = 100  # tokens in the cache
PROBE = (256, 512, 1024)  # rows, inner and outer width of the product that is timed
PATIENCE = 4  # times as many calls as there should be quiet ones
HOST = torch.device("cpu")
READ = 32 * 2**20  # bytes, about the weights of pictogram: a cache that holds these holds the others


@dataclass(frozen=True)
class Work:
    """What a pass must do at the least.

    products : operations (a multiplication and an addition are two) by the type in which they are made
    bytes    : weights once, and keys and values of what is visible
    """

    products: dict[str, int]
    bytes: int


@dataclass(frozen=True)
class Rates:
    """Operations a second by type, and bytes a second. quiet : whether no other program disturbed the measurement"""

    products: dict[str, float]
    bytes: float
    quiet: bool = True

    def seconds(self, work: Work) -> float:
        """The bound of a pass."""
        return sum(count / self.products[name] for name, count in work.products.items()) + work.bytes / self.bytes


def clock() -> float:
    """Seconds. With one thread they are those that the processor gave to it, which other programs do not lengthen; else of the wall."""
    return time.thread_time() if torch.get_num_threads() == 1 else time.perf_counter()


def timed(call: Callable[[], object]) -> float:
    """The seconds of a call."""
    start = clock()
    call()
    return clock() - start


def best(call: Callable[[], object], tries: int, watch: Watch | None = None) -> Lap:
    """The fewest seconds of some quiet calls, after one that is not counted; of all calls, if PATIENCE times as many are not quiet."""
    call()
    watch, laps = watch or Watch(HOST), []
    while len(laps) < PATIENCE * tries and sum(lap.quiet for lap in laps) < tries:
        laps.append(watch.lap(call)[1])
    found, quiet = believed(laps, 1)
    return Lap(min(found), quiet)


@torch.inference_mode()
def measured_rates(dtypes: tuple[str, ...], tries: int = 12) -> Rates:
    """The rates of this machine with PyTorch's number of threads: the best way to multiply that the engine has, and a sum over memory."""
    rows, inner, outer = PROBE
    products, quiet = {}, True
    for name in dtypes:
        dtype, layer = getattr(torch, name), nn.Linear(inner, outer, bias=False)
        ways: list[nn.Module] = [layer.to(dtype)]
        if dtype == torch.float32 and can_pack():
            ways.append(PackedLinear(layer))
        if native(dtype) is not None:
            ways.append(NativeLinear(layer, dtype))
        x = torch.randn(rows, inner).to(dtype)
        laps = [best(lambda way=way, x=x: way(x), tries) for way in ways]
        products[name], quiet = 2 * rows * inner * outer / min(lap.seconds for lap in laps), quiet and all(lap.quiet for lap in laps)
    lap = best(torch.zeros(READ // 4).sum, tries)
    return Rates(products, READ / lap.seconds, quiet and lap.quiet)


def work_of(backbone: Backbone, sequence: Sequence, rows: int) -> Work:
    """The work of a pass of one of our own models; raises NotSupported for another one."""
    if backbone.name not in ("pictogram", "lowpoly"):
        raise NotSupported(f"The bound of a pass is known for pictogram and lowpoly, not for {backbone.name}.")
    decoder, slab, dtype = backbone.model.decoder, sequence.slab, backbone.dtype
    layers, _, branches, heads, _, width = slab.block.shape
    weights = sum(  # the keys and values of lowpoly's condition are computed once a run
        layer.weight.numel()
        for name, layer in decoder.blocks.named_modules()
        if isinstance(layer, nn.Linear) and "key_value" not in name.split(".")
    )
    keys = slab.kept + rows
    fixed = sum(looked[0].shape[2] for looked in getattr(sequence.trunk, "looked", ()))  # keys of the condition, of all layers
    seen = 2 * branches * heads * width * (layers * keys + fixed)  # numbers of keys and values
    head = decoder_width(decoder) * sequence.vocabulary  # its product is float32
    products = {dtype: 2 * rows * branches * weights + 2 * rows * seen}
    products["float32"] = products.get("float32", 0) + 2 * rows * branches * head
    return Work(products, BYTES[dtype] * (weights + seen) + BYTES["float32"] * head)


def decoder_width(decoder: nn.Module) -> int:
    """The width of a decoder's hidden states."""
    return decoder.norm.weight.numel()


def prompt_of(backbone: Backbone) -> Prompt:
    """A prompt that a model reads: a caption, or points of a sphere."""
    if "points" not in backbone.capabilities:
        return Prompt("a cat")
    directions = torch.randn(1024, 3, generator=torch.Generator().manual_seed(0))
    directions = directions / directions.norm(dim=-1, keepdim=True)
    return Prompt(points=torch.cat([0.95 * directions, directions], -1))


@torch.inference_mode()
def begun(backbone: Backbone, tokens: int = KEPT) -> Sequence:
    """A sequence with up to `tokens` tokens committed: zeros, or the most probable ones that a grammar allows."""
    sequence = backbone.start(prompt_of(backbone))
    tokens = max(1, min(tokens, sequence.limit - max(ROWS)))  # a window has to fit behind them
    if sequence.grammar is None:
        drafts = tokens - 1
        sequence.forward(Draft(torch.zeros(drafts, dtype=torch.int64)))
        sequence.commit(list(range(drafts)), 0)
        return sequence
    for _ in range(tokens):
        token = int(sequence.forward(NO_DRAFT).p[0].argmax())
        if token == sequence.end:
            break
        sequence.commit([], token)
    return sequence


def pass_of(sequence: Sequence, rows: int) -> Callable[[], Tensor]:
    """A pass of so many rows, the pending one and drafts, up to its logits; nothing is committed."""
    draft = Draft(torch.zeros(rows - 1, dtype=torch.int64))
    return lambda: sequence.forward(draft).logits


@torch.inference_mode()
def bounds(backbone: Backbone, rates: Rates | None = None, tries: int = 15) -> dict[str, dict[str, float]]:
    """For a pass of 1 row and of 32 rows: its bound and its measured time in milliseconds, their ratio, and `disturbed` if other programs
    took the processor all the while."""
    sequence = begun(backbone)
    rates = rates or measured_rates(tuple({"float32", backbone.dtype}))
    found = {}
    for rows in ROWS:
        bound, lap = rates.seconds(work_of(backbone, sequence, rows)), best(pass_of(sequence, rows), tries)
        row = {"bound": round(1000 * bound, 3), "measured": round(1000 * lap.seconds, 3), "ratio": round(lap.seconds / bound, 2)}
        found[f"{rows} rows" if rows > 1 else "1 row"] = row if lap.quiet and rates.quiet else row | {"disturbed": True}
    return found
