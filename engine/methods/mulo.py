"""MuLo-SD: drafts at low resolution, checks all of a block in one pass at high resolution, and repairs only around what is impossible.

Paper: Multi-Scale Local Speculative Decoding for Image Generation, arXiv 2601.05149: algorithm 1, equations 5, 9 and 10.
Idea: the same model at half or a quarter of the size needs a fourth or a sixteenth of the tokens. Some of its rows are drawn and
up-sampled to a block of drafts. One pass gives the laws of the whole block; a draft stays if its neighbourhood in the codebook has more
than τ of probability. What is refused, and what is within l of it, is drawn anew; the rest of the block stays. Then the block goes down to
the small picture again, so that the next rows continue what is really there.
Exactness: only where τ is 1: then every token is drawn anew in its true context, which is plain decoding, token for token. Below, a draft
stays that the model might hardly ever have drawn, and nothing bounds the deviation; τ = 0 and l = 0 give the up-sampled draft.
Deviations: a redrawn token sees exactly the tokens before it, because those that stayed behind an earlier repair are fed again with the
next one (one pass a redrawn token); the paper does not speak of their cache, and `stale_kv` leaves it as the verification pass wrote it.
Islands of repair are redrawn side by side, a token of each a pass, without a look at each other; they use that cache as well. An island
that ends a row goes on in the next one, since the first token of a row is predicted by the last one of the row above. Parallel
drafting is a wavefront over the rows of a block. Draft tokens are
the most probable ones of the up-sampler. k is a share of the vocabulary, because 1,000 neighbours belong to 16,384 codes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy import ndimage
from torch import Tensor
from torch.nn import functional as F

from engine.core import NO_DRAFT, VERIFY, Case, Draft, Knob, Knobs, Method, Rows, Sequence, Step
from engine.decoding.neighbours import ADDED, DISTANCE, SHARE, neighbours
from engine.decoding.policy import check_start, not_exact
from engine.decoding.rules import NEAR, REFUSED, STAYED, pooled_mass
from engine.decoding.scales import Coarser, scales_of
from engine.decoding.wavefront import WHOLE
from engine.errors import NotSupported
from engine.layout import fine_rows
from engine.noise import Noise
from engine.sampling import draw_gumbel, entropy
from engine.trace import Trace

LEAST = Knob(
    "least_mass", "τ", 1e-4, 0, 1, 1e-6, "log",
    "A draft stays if its neighbourhood has more probability than this. 0 keeps what is possible, 1 redraws all: plain decoding.",
)  # fmt: skip
RADIUS = Knob("radius", "l", 3, 0, 8, 1, help="How far around a refused draft others are drawn anew too.")
FACTOR = Knob("factor", "r", "2", choices=("2", "4"), live=False, help="How much smaller the drafted picture is along a side.")
BLOCK = Knob("block_rows", "", 1, 1, 8, 1, help="Rows of the small picture in a block.")
AHEAD = Knob(
    "draft_window", "s", WHOLE, 1, WHOLE, 1, "log",
    "A row of the small picture begins when the row above has so many tokens, in blocks of several rows; 256 drafts them one by one.",
)  # fmt: skip
UP_SAMPLER = Knob(
    "up_sampler", "", "trained", choices=("trained", "training-free"), live=False,
    help="trained: the model's networks, for the factors that it has one for. training-free: decode, enlarge, encode.",
)  # fmt: skip
REPAIR = Knob(
    "repair", "", "in order", choices=("in order", "islands"), live=False,
    help="in order: one redrawn token a pass. islands: those that do not touch are redrawn side by side.",
)  # fmt: skip
STALE = Knob(
    "stale_kv", "", "off", choices=("off", "on"), live=False,
    when=("repair", "in order"),
    help="Drafts that stay keep the cache of the verification pass, which saw refused ones: narrower passes, worse laws.",
)  # fmt: skip


@dataclass
class Block:
    """Drafts of some rows after the verification pass.

    start : position of the first; tokens : int64 [L]; mass, entropies : [L], of the laws of that pass
    verdicts : int64 [L], STAYED, REFUSED or NEAR a refused one; todo : places in the block that are drawn anew, ascending
    """

    start: int
    tokens: list[int]
    mass: Tensor
    entropies: Tensor
    verdicts: Tensor
    todo: list[int]


def decode(sequence: Sequence, knobs: Knobs, noise: Noise, drafter: Any) -> Iterator[Step]:
    """Yields one Step a pass of the model at full size."""
    check_start(knobs, is_exact(knobs), f"least_mass={knobs.least_mass:g}", "least_mass=1")
    scales, factor = scales_of(sequence, "mulo"), int(knobs.factor)
    size = -(-sequence.layout.columns * sequence.layout.factor // factor)
    if size not in scales:
        known = ", ".join(map(str, scales))
        raise NotSupported(
            f"factor = {factor} drafts at {size} pixels; the smaller sizes of this model are {known}. Choose another factor."
        )
    coarser = Coarser(sequence, noise, size, knobs.up_sampler == "training-free")
    try:
        yield from _blocks(sequence, coarser, knobs, noise)
    finally:
        coarser.close()


def _blocks(sequence: Sequence, coarser: Coarser, knobs: Knobs, noise: Noise) -> Iterator[Step]:
    """Algorithm 1. Locals: the picture so far (kept drafts included), and the kept drafts that wait to be committed with the next pass."""
    coarse, fine = coarser.layout, sequence.layout
    picture = torch.zeros(sequence.limit, dtype=torch.int64, device=sequence.device)
    behind: list[int] = []  # in-order repair: drafts that stayed behind the last redrawn token
    notes: dict[int, tuple[int, float, float]] = {}  # by position: verdict, mass, entropy
    scattered = knobs.repair == "islands" or knobs.stale_kv == "on"
    first = iteration = 0
    while first < coarse.rows and not sequence.done:
        stop = min(coarse.rows, first + int(knobs.block_rows))
        passes = coarser.passes
        drafted = coarser.draft(stop, iteration, knobs.draft_window)  # step 1: y ~ M_q
        proposed = coarser.laws(first, stop).argmax(-1)  # step 2: x = U_r(y)
        top, bottom = fine_rows(coarse, fine, first, stop)
        start, count = top * fine.columns, (bottom - top) * fine.columns
        nodes = torch.cat([torch.tensor(behind, dtype=torch.int64, device=sequence.device), proposed])
        if scattered:
            places = torch.arange(start, start + count)
            rows, at = sequence.forward(Draft(nodes, positions=places)), len(sequence.pending) - 1
        else:
            rows, at = sequence.forward(Draft(nodes)), len(behind)  # step 3: the laws of the whole block in one pass
        block = _judge(rows, at, proposed, start, fine.columns, sequence.codebook, knobs)  # steps 4 and 5
        picture[start : start + count] = proposed
        judged = zip(block.verdicts.tolist(), block.mass.tolist(), block.entropies.tolist(), strict=True)
        notes |= dict(zip(range(start, start + count), judged, strict=True))
        repair = _scattered(sequence, rows, at, block, knobs, noise) if scattered else _in_order(sequence, rows, at, block, behind, noise)
        shown = {"tokens": drafted, "positions": list(range(first * coarse.columns, stop * coarse.columns)), "scale": coarser.size}
        for i, (positions, redrawn) in enumerate(repair):  # step 6
            for position, (token, nats) in redrawn.items():
                picture[position] = token
                notes[position] = *notes[position][:2], nats
            yield _describe(positions, picture, notes, shown, count if i == 0 else 0, coarser.passes - passes if i == 0 else 0)
        behind = [] if scattered else block.tokens[block.todo[-1] + 1 :] if block.todo else []
        if stop < coarse.rows and not sequence.done:
            coarser.follow(picture, first, stop)  # step 7: y = D_r(x)
        first, iteration = stop, iteration + 1


def _judge(rows: Rows, at: int, proposed: Tensor, start: int, columns: int, codebook: Tensor, knobs: Knobs) -> Block:
    """Equations 5 and 9: a draft stays if the pooled probability of its neighbourhood is above τ; refusals spread by l."""
    p = rows.law(at, at + len(proposed))
    share = min(len(codebook) - 1, max(1, round(knobs.neighbour_share * len(codebook))))
    near = neighbours(codebook.to(p.device), share, knobs.distance, proposed)
    mass = pooled_mass(p, proposed, near, knobs.added_mass)
    refused = mass <= knobs.least_mass
    again = expanded(refused.view(-1, columns), int(knobs.radius)).flatten()
    verdicts = torch.where(refused, REFUSED, torch.where(again, NEAR, STAYED)).cpu()
    return Block(start, proposed.tolist(), mass, entropy(p), verdicts, again.nonzero().flatten().tolist())


def expanded(refused: Tensor, radius: int) -> Tensor:
    """Everything within `radius` of a refused place, in both directions: bool [rows, columns] of one block, same shape."""
    return F.max_pool2d(refused[None].float(), 2 * radius + 1, 1, radius)[0] > 0


def islands(todo: list[int], columns: int) -> list[list[int]]:
    """Places of a block as groups that do not touch, diagonals included; the end of a row touches the beginning of the next one."""
    grid = np.zeros((max(todo, default=0) // columns + 1, columns), bool)
    grid.flat[todo] = True
    labels = ndimage.label(grid, np.ones((3, 3)))[0]
    for row in range(len(labels) - 1):
        last, begin = labels[row, -1], labels[row + 1, 0]
        if last and begin:
            labels[labels == begin] = last
    found: dict[int, list[int]] = {}
    for place in todo:
        found.setdefault(labels.flat[place], []).append(place)
    return list(found.values())


Repaired = tuple[list[int], dict[int, tuple[int, float]]]  # positions committed by a pass; those drawn anew: token, entropy of the law


def _draw(rows: Rows, row: int, position: int, noise: Noise) -> tuple[int, float]:
    """A token of a row's law under the noise of its position, and the law's entropy."""
    token = draw_gumbel(rows.scores[row : row + 1], noise.gumbel(position, 1)).item()
    return token, entropy(rows.law(row, row + 1)).item()


def _in_order(sequence: Sequence, rows: Rows, at: int, block: Block, behind: list[int], noise: Noise) -> Iterator[Repaired]:
    """Repair with exact context: before every redrawn token, the drafts that stayed since the last one are fed again.

    The verification pass itself serves the first one: nothing before that was refused. What stays behind the last one is fed with the
    next block's drafts, or committed without a pass where the picture ends.
    """
    run = [*behind, *block.tokens]  # the nodes of the pass
    if not block.todo:
        yield _positions(sequence, sequence.commit(list(range(len(run) - 1)), run[-1])), {}
        return
    ends = block.start + len(block.tokens) == sequence.limit
    for i, place in enumerate(block.todo):
        if i:
            run = block.tokens[block.todo[i - 1] + 1 : place]
            rows, at = sequence.forward(Draft(torch.tensor(run, dtype=torch.int64))), len(run) - place
        position, kept = block.start + place, at + place
        token, nats = _draw(rows, kept, position, noise)
        rest = block.tokens[place + 1 :] if ends and place == block.todo[-1] else []
        if rest:
            before = sequence.length
            sequence.commit_at(list(range(position, sequence.limit)), [token, *rest], range(kept))
            positions = list(range(before, sequence.limit))
        else:
            positions = _positions(sequence, sequence.commit(list(range(kept)), token))
        yield positions, {position: (token, nats)}
        if sequence.done:
            return


def _positions(sequence: Sequence, committed: list[int]) -> list[int]:
    """Where tokens lie that have just been committed behind a prefix."""
    return list(range(sequence.length - len(committed), sequence.length))


def _scattered(sequence: Sequence, rows: Rows, at: int, block: Block, knobs: Knobs, noise: Noise) -> Iterator[Repaired]:
    """Repair on the cache of the verification pass: every group of places advances by a token a pass.

    A draft that stays is committed with its cache, but for those whose row is asked for again: the one before a redrawn place, and the
    last of the block. They are committed when their time comes, and are fed then.
    """
    last = len(block.tokens) - 1
    again = set(block.todo)
    fed = {i for i in range(last + 1) if i not in again and (i + 1 in again or i == last)}
    kept = [i for i in range(last + 1) if i not in again and i not in fed]
    together = islands(block.todo, sequence.layout.columns) if knobs.repair == "islands" else [block.todo]
    open_groups = [list(group) for group in together if group]
    first_pass = True
    while True:
        now = open_groups[:1] if first_pass else open_groups
        drawn: dict[int, tuple[int, float]] = {}
        for group in now:
            place = group.pop(0)
            row = at + place if first_pass else sequence.pending.index(block.start + place - 1)
            drawn[place] = _draw(rows, row, block.start + place, noise)
        open_groups = [group for group in open_groups if group]
        due = fed & {group[0] - 1 for group in open_groups} if open_groups else fed
        fed = fed - due
        new = {place: token for place, (token, _) in drawn.items()} | {place: block.tokens[place] for place in due}
        places = sorted(new)
        nodes = kept if first_pass else []
        sequence.commit_at([block.start + i for i in places], [new[i] for i in places], nodes)
        yield [block.start + i for i in [*nodes, *places]], {block.start + i: found for i, found in drawn.items()}
        if not open_groups:
            return
        rows, first_pass = sequence.forward(NO_DRAFT), False


def _describe(
    positions: list[int], picture: Tensor, notes: dict[int, tuple[int, float, float]], shown: dict, drafted: int, passes: int
) -> Step:
    """The Step of a pass. Every token says what became of its draft, whichever pass of the block commits it."""
    verdict, mass, nats = (list(values) for values in zip(*(notes[position] for position in positions), strict=True))
    trace = Trace([v == STAYED for v in verdict], verdict, accept_probability=mass, entropy=nats)
    status = ["draft"] * len(shown["tokens"]) if drafted else ["checked"] * len(shown["tokens"])
    tokens = picture[torch.tensor(positions, device=picture.device)].tolist()
    return Step(tokens, positions, drafted, draft_forwards=passes, draft=shown | {"status": status}, trace=trace)


def is_exact(knobs: Knobs) -> bool:
    """True where no draft can stay."""
    return knobs.least_mass >= 1


def why(knobs: Knobs) -> str:
    """The badge's sentence."""
    if is_exact(knobs):
        return "Exact: nothing of the low-resolution draft is kept, every token is drawn in its true context."
    return not_exact(knobs, f"a draft stays wherever codes like it have more than {knobs.least_mass:g} of probability together.")


_ALL_DRAWN = {"least_mass": 1}
_HALF = {"least_mass": 0.4, "radius": 0, "added_mass": 0}
_SQUARE = {"rows": 4, "columns": 4}

METHOD = Method(
    name="mulo",
    title="MuLo-SD",
    decode=decode,
    knobs=(LEAST, RADIUS, FACTOR, BLOCK, AHEAD, UP_SAMPLER, REPAIR, STALE, ADDED, SHARE, DISTANCE, VERIFY),
    paper="MuLo-SD, arXiv 2601.05149",
    exact=is_exact,
    why=why,
    needs=frozenset({"raster", "wavefront", "codebook", "at_scale"}),
    common=_ALL_DRAWN | {"factor": "4"},
    cases=(
        Case("MULO-AR", "same tokens", _ALL_DRAWN | {"verify": "match seed"}, _SQUARE, ("keep one row more",)),
        Case("MULO-AR islands", "same tokens", _ALL_DRAWN | {"repair": "islands"}, _SQUARE, ("mulo: row of the refused draft",)),
        Case("MULO-CTX", "same context", _HALF, _SQUARE, ("mulo: stale cache",)),
        Case("published", "not exact", {"least_mass": 0.01, "radius": 0, "factor": "4"}),
    ),
)
