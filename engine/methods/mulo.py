"""MuLo-SD: drafts at low resolution, verifies a whole block in one pass at high resolution, and redraws only around refused drafts.

Paper: Multi-Scale Local Speculative Decoding for Image Generation, arXiv 2601.05149: algorithm 1, equations 5, 9 and 10.
Idea: at half or a quarter of the size the same model needs a fourth or a sixteenth of the tokens. Some rows are generated at that size
and up-sampled to a block of drafts. One pass gives the distributions of the whole block. A draft stays if its neighbourhood in the
codebook has a probability above τ. Refused drafts, and drafts within l of them, are redrawn; the rest of the block stays. Then the block is
down-sampled into the small picture, so that the next rows continue the real picture.
Exactness: only at τ = 1: then every token is redrawn in its true context, which is plain decoding, token for token. Below that, drafts
that the model would almost never draw may stay, and nothing bounds the deviation. τ = 0 and l = 0 give the up-sampled draft.
Deviations: a redrawn token attends to exactly the tokens before it, because drafts that stayed after an earlier repair are fed again with
the next one (one pass per redrawn token). The paper does not mention their cache; `stale_kv` leaves it as the verification pass wrote it.
Islands of repair are redrawn in parallel, one token of each per pass, without attending to each other; they use that cache too. An island
that ends a row continues in the next, since the last token of a row predicts the first of the next row. The paper redraws in parallel with
ZipAR: `repair = wavefront` redraws the rows of each island that way; a row that begins before the end of the row above follows the draft
at that end. Parallel drafting is a wavefront over the rows of a block. Draft tokens are the up-sampler's most probable ones. k is a share
of the vocabulary, because the paper's 1,000 neighbours are for 16,384 codes.
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
from engine.decoding.scales import CoarsePicture, scales_of
from engine.decoding.wavefront import WHOLE, lead
from engine.errors import NotSupported
from engine.kernels.pooled_mass import pooled_mass
from engine.layout import fine_rows
from engine.noise import Noise
from engine.rules import NEAR, REFUSED, STAYED
from engine.sampling import draw_gumbel, entropy
from engine.trace import Trace

LEAST = Knob(
    "least_mass", "τ", 1e-4, 0, 1, 1e-6, "log",
    "A draft stays if its neighbourhood has more probability than this. 0 keeps every possible draft; 1 redraws all (plain decoding).",
    label="Keep a draft above",
)  # fmt: skip
RADIUS = Knob("radius", "l", 3, 0, 8, 1, help="Distance around a refused draft within which drafts are redrawn.")
FACTOR = Knob("factor", "r", "2", choices=("2", "4"), live=False, help="Scale factor between the picture and its draft, per side.")
BLOCK = Knob("block_rows", "", 1, 1, 8, 1, help="Rows of the small picture per block.")
AHEAD = Knob(
    "draft_window", "s", WHOLE, 1, WHOLE, 1, "log",
    "In blocks of several rows: a row of the small picture begins when the row above has this many tokens. 256: one row after another.",
)  # fmt: skip
UP_SAMPLER = Knob(
    "up_sampler", "", "trained", choices=("trained", "training-free"), live=False,
    help="trained: the model's up-sampling network, if it has one for the factor. training-free: decode, enlarge, encode.",
)  # fmt: skip
REPAIR = Knob(
    "repair", "", "in order", choices=("in order", "islands", "wavefront"), live=False,
    help="in order: one redrawn token per pass. islands: groups that do not touch are redrawn in parallel. wavefront: also the rows of a "
    "group, each behind the row above (ZipAR, as published).",
)  # fmt: skip
BEHIND = Knob(
    "redraw_window", "", 8, 1, WHOLE, 1, "log", live=False, when=("repair", "wavefront"),
    help="A run of redrawn tokens begins when nothing above it, up to this many columns to its right, is left to redraw.",
)  # fmt: skip
STALE = Knob(
    "stale_kv", "", "off", choices=("off", "on"), live=False,
    when=("repair", "in order"),
    help="Kept drafts keep the cache of the verification pass, which attended to refused drafts: fewer rows per pass, worse distributions.",
    label="Reuse the cache",
)  # fmt: skip


@dataclass
class DraftedRows:
    """Drafts of some rows after the verification pass.

    start : position of the first draft; tokens : int64 [L]; mass, entropies : [L], under the distributions of that pass
    verdicts : int64 [L], STAYED, REFUSED or NEAR; todo : places in the block to redraw, ascending
    """

    start: int
    tokens: list[int]
    mass: Tensor
    entropies: Tensor
    verdicts: Tensor
    todo: list[int]


def decode(sequence: Sequence, knobs: Knobs, noise: Noise, drafter: Any) -> Iterator[Step]:
    """Yields one Step per pass of the model at full size."""
    check_start(knobs, is_exact(knobs), f"least_mass={knobs.least_mass:g}", "least_mass=1")
    scales, factor = scales_of(sequence, "mulo"), int(knobs.factor)
    size = -(-sequence.layout.columns * sequence.layout.factor // factor)
    if size not in scales:
        known = ", ".join(map(str, scales))
        raise NotSupported(
            f"factor = {factor} drafts at {size} pixels; the smaller sizes of this model are {known}. Choose another factor."
        )
    coarser = CoarsePicture(sequence, noise, size, knobs.up_sampler == "training-free")
    try:
        yield from _blocks(sequence, coarser, knobs, noise)
    finally:
        coarser.close()


def _blocks(sequence: Sequence, coarser: CoarsePicture, knobs: Knobs, noise: Noise) -> Iterator[Step]:
    """Algorithm 1. State: the picture so far (with kept drafts), and the kept drafts that are committed with the next pass."""
    coarse, fine = coarser.layout, sequence.layout
    picture = torch.zeros(sequence.limit, dtype=torch.int64, device=sequence.device)
    behind: list[int] = []  # in-order repair: kept drafts after the last redrawn token
    notes: dict[int, tuple[int, float, float]] = {}  # by position: verdict, mass, entropy
    scattered = knobs.repair != "in order" or knobs.stale_kv == "on"
    first = 0
    while first < coarse.rows and not sequence.done:
        stop = min(coarse.rows, first + int(knobs.block_rows))
        passes = coarser.passes
        drafted = coarser.draft(stop, knobs.draft_window)  # step 1: y ~ M_q
        proposed = coarser.probs(first, stop).argmax(-1)  # step 2: x = U_r(y)
        top, bottom = fine_rows(coarse, fine, first, stop)
        start, count = top * fine.columns, (bottom - top) * fine.columns
        nodes = torch.cat([torch.tensor(behind, dtype=torch.int64, device=sequence.device), proposed])
        if scattered:
            places = torch.arange(start, start + count)
            rows, at = sequence.forward(Draft(nodes, positions=places)), len(sequence.pending) - 1
        else:
            rows, at = sequence.forward(Draft(nodes)), len(behind)  # step 3: distributions of the whole block in one pass
        block = _judge(rows, at, proposed, start, fine.columns, sequence.codebook, knobs)  # steps 4 and 5
        picture[start : start + count] = proposed
        judged = zip(block.verdicts.tolist(), block.mass.tolist(), block.entropies.tolist(), strict=True)
        notes |= dict(zip(range(start, start + count), judged, strict=True))
        repair = (
            _scattered_repairs(sequence, rows, at, block, knobs, noise)
            if scattered
            else _in_order(sequence, rows, at, block, behind, noise)
        )
        shown = {"tokens": drafted, "positions": list(range(first * coarse.columns, stop * coarse.columns)), "scale": coarser.size}
        for i, (positions, redrawn) in enumerate(repair):  # step 6
            for position, (token, nats) in redrawn.items():
                picture[position] = token
                notes[position] = *notes[position][:2], nats
            yield _describe(positions, picture, notes, shown, count if i == 0 else 0, coarser.passes - passes if i == 0 else 0)
        behind = [] if scattered else block.tokens[block.todo[-1] + 1 :] if block.todo else []
        if stop < coarse.rows and not sequence.done:
            coarser.follow(picture, first, stop)  # step 7: y = D_r(x)
        first = stop


def _judge(rows: Rows, at: int, proposed: Tensor, start: int, columns: int, codebook: Tensor, knobs: Knobs) -> DraftedRows:
    """Equations 5 and 9: a draft stays if the pooled probability of its neighbourhood is above τ and no draft within l is refused."""
    p = rows.probs(at, at + len(proposed))
    share = min(len(codebook) - 1, max(1, round(knobs.neighbour_share * len(codebook))))
    near = neighbours(codebook.to(p.device), share, knobs.distance, proposed)
    mass = pooled_mass(p, proposed, near, torch.full_like(p[:, 0], knobs.added_mass)).clamp(max=1)
    refused = mass <= knobs.least_mass
    again = dilate(refused.view(-1, columns), int(knobs.radius)).flatten()
    verdicts = torch.where(refused, REFUSED, torch.where(again, NEAR, STAYED)).cpu()
    return DraftedRows(start, proposed.tolist(), mass, entropy(p), verdicts, again.nonzero().flatten().tolist())


def dilate(refused: Tensor, radius: int) -> Tensor:
    """The places within `radius` rows and columns of a refused one: bool [rows, columns] of one block -> the same shape."""
    return F.max_pool2d(refused[None].float(), 2 * radius + 1, 1, radius)[0] > 0


def islands(todo: list[int], columns: int) -> list[list[int]]:
    """Places of a block in groups that do not touch, not even diagonally; the end of a row touches the beginning of the next."""
    grid = np.zeros((max(todo, default=0) // columns + 1, columns), bool)
    grid.flat[todo] = True
    labels = ndimage.label(grid, np.ones((3, 3)))[0]
    for row in range(len(labels) - 1):
        last, begin = labels[row, -1], labels[row + 1, 0]
        if last and begin:
            labels[labels == begin] = last
    by_label: dict[int, list[int]] = {}
    for place in todo:
        by_label.setdefault(labels.flat[place], []).append(place)
    return list(by_label.values())


Repaired = tuple[list[int], dict[int, tuple[int, float]]]  # positions committed by a pass; token and entropy of each redrawn position


def _draw(rows: Rows, row: int, position: int, noise: Noise) -> tuple[int, float]:
    """A token drawn from a row's distribution with its position's noise, and the entropy of the distribution."""
    token = draw_gumbel(rows.scores[row : row + 1], noise.gumbel(position, 1)).item()
    return token, entropy(rows.probs(row, row + 1)).item()


def _in_order(sequence: Sequence, rows: Rows, at: int, block: DraftedRows, behind: list[int], noise: Noise) -> Iterator[Repaired]:
    """Repairs with exact context: before every redrawn token, the drafts kept since the previous one are fed again.

    The first token is drawn from the verification pass, since nothing before it was refused. Drafts kept after the last one are fed with
    the next block's drafts, or committed without a pass at the end of the picture.
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
        position, prefix = block.start + place, at + place
        token, nats = _draw(rows, prefix, position, noise)
        rest = block.tokens[place + 1 :] if ends and place == block.todo[-1] else []
        if rest:
            before = sequence.length
            sequence.commit_at(list(range(position, sequence.limit)), [token, *rest], range(prefix))
            positions = list(range(before, sequence.limit))
        else:
            positions = _positions(sequence, sequence.commit(list(range(prefix)), token))
        yield positions, {position: (token, nats)}
        if sequence.done:
            return


def _positions(sequence: Sequence, committed: list[int]) -> list[int]:
    """The positions of tokens that have just been committed after a prefix."""
    return list(range(sequence.length - len(committed), sequence.length))


def _scattered_repairs(sequence: Sequence, rows: Rows, at: int, block: DraftedRows, knobs: Knobs, noise: Noise) -> Iterator[Repaired]:
    """Repairs on the cache of the verification pass: every group that may advance does so by one token per pass.

    In a wavefront the groups are rows of islands. A row that begins before the end of the row above it follows a placeholder, as in ZipAR.
    Kept drafts are committed with their cache, except where their row is needed again: before a redrawn place and at the end of the
    block. These drafts are fed again and committed when their row is needed.
    """
    last = len(block.tokens) - 1
    again = set(block.todo)
    fed = {i for i in range(last + 1) if i not in again and (i + 1 in again or i == last)}
    committed_drafts = [i for i in range(last + 1) if i not in again and i not in fed]
    columns = sequence.layout.columns
    waiting = _groups(block.todo, columns, knobs)
    values = list(block.tokens)  # by place: the draft, or the token that was drawn instead
    first_pass, newest = True, set[int]()
    while True:
        now = waiting[:1] if first_pass else _ready(waiting, newest, columns, knobs)
        places = [group.island.pop(0) for group in now]
        if first_pass:
            index = [at + place for place in places]
        else:
            rows, index = _feed(sequence, [block.start + place for place in places], values, block.start, columns)
        draws = {place: _draw(rows, row, block.start + place, noise) for place, row in zip(places, index, strict=True)}
        for place, (token, _) in draws.items():
            values[place] = token
        newest, waiting = set(places), [group for group in waiting if group.island]
        due = fed & {group.island[0] - 1 for group in _ready(waiting, newest, columns, knobs)} if waiting else fed
        fed = fed - due
        new = sorted({*places, *due})
        nodes = committed_drafts if first_pass else []
        sequence.commit_at([block.start + i for i in new], [values[i] for i in new], nodes)
        yield [block.start + i for i in [*nodes, *new]], {block.start + i: token for i, token in draws.items()}
        if not waiting:
            return
        first_pass = False


@dataclass
class RedrawGroup:
    """Places that are redrawn one after another. island : the remaining places, ascending; name : groups of one name wait for each other"""

    island: list[int]
    name: int


def _groups(todo: list[int], columns: int, knobs: Knobs) -> list[RedrawGroup]:
    """The places of a block in groups that may be redrawn in parallel: one group, islands, or the rows of islands."""
    if knobs.repair == "in order":
        return [RedrawGroup(list(todo), 0)] if todo else []
    regions = islands(todo, columns)
    if knobs.repair == "islands":
        return [RedrawGroup(list(island), name) for name, island in enumerate(regions)]
    rows = [
        (name, [i for i in island if i // columns == row]) for name, island in enumerate(regions) for row in {i // columns for i in island}
    ]
    return sorted((RedrawGroup(places, name) for name, places in rows), key=lambda group: group.island[0])


def _ready(groups: list[RedrawGroup], newest: set[int], columns: int, knobs: Knobs) -> list[RedrawGroup]:
    """The groups that advance in the next pass, by place. A run that has begun advances in every pass, as a row of ZipAR does."""
    if knobs.repair != "wavefront":
        return sorted(groups, key=lambda group: group.island[0])

    def may_advance(group: RedrawGroup) -> bool:
        place = group.island[0]
        row, column = divmod(place, columns)
        reach = min(columns, column + lead(knobs.redraw_window, columns))
        above = (i for other in groups if other.name == group.name for i in other.island if i // columns < row)
        return (place - 1 in newest and column > 0) or not any(i % columns < reach for i in above)

    return sorted((group for group in groups if may_advance(group)), key=lambda group: group.island[0])


def _feed(sequence: Sequence, positions: list[int], values: list[int], start: int, columns: int) -> tuple[Rows, list[int]]:
    """One pass for `positions`, ascending: its rows, and of each position the index of the row that predicts it.

    A position at the beginning of a row may follow a token that is not drawn yet, or that an earlier pass has read. Then the current
    token there serves as a placeholder, which no other token attends to.
    """
    inputs = sequence.pending
    placeholders = [position - 1 for position in positions if position - 1 not in inputs]
    assert all((position + 1) % columns == 0 for position in placeholders), placeholders
    draft = NO_DRAFT
    if placeholders:
        nodes = torch.tensor([values[position - start] for position in placeholders], dtype=torch.int64, device=sequence.device)
        draft = Draft(nodes, parents=torch.full((len(placeholders),), -1), positions=torch.tensor(placeholders))
    rows = sequence.forward(draft)
    order = [*inputs, *placeholders]
    return rows, [order.index(position - 1) for position in positions]


def _describe(
    positions: list[int], picture: Tensor, notes: dict[int, tuple[int, float, float]], shown: dict, drafted: int, passes: int
) -> Step:
    """The Step of a pass. Each token is recorded with the verdict on its draft, in whichever pass it is committed."""
    verdict, mass, nats = (list(values) for values in zip(*(notes[position] for position in positions), strict=True))
    trace = Trace([v == STAYED for v in verdict], verdict, accept_probability=mass, entropy=nats)
    status = ["draft"] * len(shown["tokens"]) if drafted else ["checked"] * len(shown["tokens"])
    tokens = picture[torch.tensor(positions, device=picture.device)].tolist()
    return Step(tokens, positions, drafted, draft_forwards=passes, draft=shown | {"status": status}, trace=trace)


def is_exact(knobs: Knobs) -> bool:
    """True if no draft can stay, and all are redrawn one after another."""
    return knobs.least_mass >= 1 and (knobs.repair != "wavefront" or knobs.redraw_window >= WHOLE)


def why(knobs: Knobs) -> str:
    """The badge's sentence."""
    if is_exact(knobs):
        return "Exact: no low-resolution draft is kept; every token is drawn in its true context."
    if knobs.least_mass >= 1:
        return not_exact(knobs, "rows are redrawn before the tokens to their right in the row above are known.")
    return not_exact(knobs, f"a draft stays if it and similar codes together have a probability above {knobs.least_mass:g}.")


_ALL_DRAWN = {"least_mass": 1, "repair": "in order"}
_HALF = {"least_mass": 0.4, "radius": 0, "added_mass": 0}
_SQUARE = {"rows": 4, "columns": 4}

METHOD = Method(
    name="mulo",
    title="MuLo-SD",
    about="Draws the picture small, enlarges it and repairs what the model refuses.",
    decode=decode,
    forks=False,  # the small picture has no such prefix
    knobs=(LEAST, RADIUS, FACTOR, BLOCK, AHEAD, UP_SAMPLER, REPAIR, BEHIND, STALE, ADDED, SHARE, DISTANCE, VERIFY),
    paper="MuLo-SD, arXiv 2601.05149",
    exact=is_exact,
    why=why,
    needs=frozenset({"raster", "wavefront", "codebook", "at_scale"}),
    common=_ALL_DRAWN | {"factor": "4"},
    drafts_past_end=False,  # it redraws all tokens
    cases=(
        Case("MULO-AR", "same tokens", _ALL_DRAWN | {"verify": "match seed"}, _SQUARE, ("keep one row more",)),
        Case("MULO-AR islands", "same tokens", _ALL_DRAWN | {"repair": "islands"}, _SQUARE, ("mulo: row of the refused draft",)),
        Case(
            "MULO-AR wavefront",
            "same tokens",
            _ALL_DRAWN | {"repair": "wavefront", "redraw_window": WHOLE},
            _SQUARE,
            ("mulo: redrawn rows do not wait",),
        ),
        Case("MULO-CTX", "same context", _HALF, _SQUARE, ("mulo: stale cache",)),
        Case("published", "not exact", {"least_mass": 0.01, "radius": 0, "factor": "4"}),
    ),
)
