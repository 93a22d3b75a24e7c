"""ZipAR: several rows of a picture grow at once, each a few tokens behind the row above; published or verified form.

Paper: ZipAR: Parallel Auto-regressive Image Generation through Spatial Locality, He et al., arXiv 2412.04062 (ICML 2025).
Idea: a token depends mostly on its left and upper neighbours, so a row may begin when the row above has `window` tokens. One pass then
extends every active row by one token. As published these tokens are final. Verified, they are drafts, and each carries the distribution it
was drawn from. Drafts that continue the committed tokens without a gap are verified in raster order in the same passes. Drafts after a
gap are redrawn, coupled, from the better distributions that the pass has just computed.
Exactness: verified, always. The distribution of a draft depends on smaller raster positions only, because a row attends to nothing else,
so acceptance by p/q with residual draws gives p (see `WindowState`; a gap only delays the verdict). As published it is not exact,
since contexts lack the tokens to the right of the wavefront. At the highest `window` every row waits for the whole row above, which is
plain decoding, token for token. `verify` tests all three.
Deviations: the first row is not a special case (the public code decodes it alone). The window decides when a row begins; from then on the
row advances in every pass. A row whose left neighbour in raster order is missing begins after a placeholder, the newest token of the row
above, because the models here have no row-end token. The adaptive window stops waiting at `window`; the paper has no such limit.
Verified, a row may gain several drafts per pass (`growth`): one from its own distribution, the others from their left neighbour's, to be
redrawn in later passes as in SJD. A row that gains one draft per pass can commit no more than that, however many rows wait below it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from engine.core import VERIFY, Case, Draft, Knob, Knobs, Method, Preset, Rows, Sequence, Step
from engine.decoding.policy import check_start, matches_seed, not_exact
from engine.decoding.verdict import WindowState, correct, step_of, verify
from engine.decoding.wavefront import WHOLE, lead, predict
from engine.decoding.windows import Refresh, coupled_gumbel, coupled_maximal
from engine.layout import Raster
from engine.noise import ACCEPT, RESIDUAL, Noise
from engine.rules import leading, ratio
from engine.sampling import draw, draw_gumbel, entropy, residual
from engine.trace import Trace

MODE = Knob(
    "mode", "", "published", choices=("published", "verified"), live=False,
    help="published: the tokens of a wavefront are final. verified: they are drafts, and the output has plain decoding's distribution.",
)  # fmt: skip
WINDOW = Knob("window", "s", 8, 1, WHOLE, 1, "log", "A row starts when the row above has this many tokens; 256 waits for the whole row.")
ROWS = Knob("rows", "", 32, 1, 256, 1, "log", "Largest number of rows of the picture that grow at once.")
ADAPTIVE = Knob(
    "adaptive", "", "off", choices=("off", "on"),
    when=("mode", "published"),
    help="A row starts once its first token stays the same, between least_window and window tokens behind the row above.",
)  # fmt: skip
LEAST_WINDOW = Knob(
    "least_window",
    "s_min",
    4,
    1,
    256,
    1,
    "log",
    "The window at which the adaptive window first tries to start a row.",
    when=("adaptive", "on"),
)


def carry(window: WindowState, first: int, knobs: Knobs) -> tuple[Tensor, Tensor | None]:
    """Keeps all drafts with the distributions they were drawn from (lemma b); only the token of the last row is new."""
    last = len(window.tokens)
    new, _ = coupled_gumbel(window, last, knobs)
    draft_probs = None if window.draft_probs is None else torch.cat([window.draft_probs[first:], window.rows.p[last:]])
    return torch.cat([window.tokens[first:], new]), draft_probs


GROWTH = Knob(
    "growth", "g", 1, 1, 32, 1, "log",
    "Number of drafts that every row gains per pass. All but the first are drawn from their left neighbour's distribution.",
    when=("mode", "verified"),
)  # fmt: skip
REFRESHES: dict[str, Refresh] = {"coupled gumbel": coupled_gumbel, "coupled maximal": coupled_maximal, "carry": carry}
REFRESH = Knob(
    "refresh", "", "coupled gumbel", choices=tuple(REFRESHES), live=False,
    when=("mode", "verified"),
    help="Drafts that could not be verified yet. coupled: redrawn from the newest distribution with as few changes as possible. "
    "carry: kept unchanged.",
    label="Leftover guesses",
    words={"coupled gumbel": "same dice again", "coupled maximal": "keep where possible", "carry": "keep"},
)  # fmt: skip


# --- as published -----------------------------------------------------------------------------------------------------


def decode_published(sequence: Sequence, knobs: Knobs, noise: Noise) -> Iterator[Step]:
    """Commits one token of every active row per pass. State: tokens per row, the newest token of each, the first token on trial."""
    starts, widths = sequence.layout.starts, sequence.layout.widths
    filled, newest = [0] * len(widths), [0] * len(widths)
    tried: RowStart | None = None
    iteration = 0
    while not sequence.done:
        begin = _next_row(filled, widths, knobs)
        active = [row for row, width in enumerate(widths) if 0 < filled[row] < width] + ([] if begin is None else [begin])
        positions = [starts[row] + filled[row] for row in active]
        rows, index = predict(sequence, positions, [newest[begin - 1]] if begin else [])
        tokens = draw_gumbel(rows.scores[index], _gumbel(noise, positions)).tolist()
        if begin:
            early = filled[begin - 1] < lead(knobs.window, widths[begin - 1])
            if early or tried is not None:
                tried = _try_again(rows.p[index[-1:]], tokens[-1], tried, noise, positions[-1], iteration)
                tokens[-1] = tried.token
            if early and not tried.stays:
                del active[-1], positions[-1], tokens[-1]
            else:
                tried = None
        index = index[: len(tokens)]
        sequence.commit_at(positions, tokens)
        for row, token in zip(active, tokens, strict=True):
            filled[row] += 1
            newest[row] = token
        step = Step(tokens, positions, trace=Trace(entropy=entropy(rows.p[index]), top=rows.p[index].amax(-1)))
        if tried is not None and begin is not None:
            step.draft = {"tokens": [tried.token], "positions": [starts[begin]], "status": "draft"}
        iteration += 1
        yield step


def _next_row(filled: list[int], widths: list[int], knobs: Knobs) -> int | None:
    """The row that begins (or tries to) in this pass: the first empty row, if the row above has enough tokens."""
    row = next((i for i, tokens in enumerate(filled) if tokens == 0), None)
    if row is None or row == 0:
        return row
    enough = lead(knobs.window, widths[row - 1])
    if knobs.adaptive == "on":
        enough = min(enough, int(knobs.least_window))
    growing = sum(0 < tokens < width for tokens, width in zip(filled, widths, strict=True))
    return row if filled[row - 1] >= enough and growing < knobs.rows else None


def _gumbel(noise: Noise, positions: list[int]) -> Tensor:
    """The Gumbel noise [N, V] of any positions."""
    return torch.cat([noise.gumbel(position, 1) for position in positions])


@dataclass
class RowStart:
    """The first token of a row that has not begun, its distribution [1, V], and whether the newest context kept the token."""

    token: int
    probs: Tensor
    stays: bool


def _try_again(p: Tensor, fresh: int, tried: RowStart | None, noise: Noise, position: int, iteration: int) -> RowStart:
    """The adaptive window: x has distribution p_k. With one more column x stays with probability min(1, p_(k+1)/p_k), else it is
    redrawn."""
    if tried is None:
        return RowStart(fresh, p, False)
    token = torch.tensor([tried.token], device=p.device)
    accepted, _ = ratio(p, tried.probs, token, noise.uniform(ACCEPT, position, 1, iteration))
    if accepted.item():
        return RowStart(tried.token, p, True)
    return RowStart(draw(residual(p, tried.probs), noise.uniform(RESIDUAL, position, 1, iteration)).item(), p, False)


# --- verified ---------------------------------------------------------------------------------------------------------


@dataclass
class Stretch:
    """Consecutive drafts. The first stretch begins after the committed tokens; every other stretch begins a row, after a gap.

    tokens : int64 [m], at positions start .. start+m-1; draft_probs : [m, V], their distributions, or None if not needed
    """

    start: int
    tokens: Tensor
    draft_probs: Tensor | None

    @property
    def stop(self) -> int:
        """The first position after the stretch."""
        return self.start + len(self.tokens)


def decode_verified(sequence: Sequence, knobs: Knobs, noise: Noise) -> Iterator[Step]:
    """Verifies the first stretch and extends all stretches in each pass. State: the stretches in raster order; the first may be empty."""
    seeded, refresh = matches_seed(knobs, exact=True), REFRESHES[knobs.refresh]
    keep_probs = not seeded or knobs.refresh == "coupled maximal"
    none = torch.empty(0, dtype=torch.int64, device=sequence.device)
    no_probs = torch.empty(0, sequence.vocabulary, device=sequence.device, dtype=noise.dtype) if keep_probs else None
    stretches = [Stretch(0, none, no_probs)]
    iteration = 0
    while not sequence.done:
        n = sequence.length
        begin, growing = _plan(stretches, sequence.layout, knobs)
        if begin is not None:
            stretches.append(Stretch(begin, none, no_probs))
        draft, first_rows = _wavefront(sequence, stretches)
        rows = sequence.forward(draft)
        windows = [_judge(rows, at, s, noise, iteration, seeded) for at, s in zip(first_rows, stretches, strict=True)]
        window = windows[0]
        window.a = a = leading(window.accepted)
        if n + a == sequence.limit:  # the last draft of the picture is accepted: no token follows it
            committed = sequence.commit(list(range(a - 1)), window.tokens[a - 1].item())
        else:
            token = correct(window.rows, window.draft_probs, window.verdict.answers, a, len(window.tokens), noise, n, iteration)
            committed = sequence.commit(list(range(a)), token)
        step = step_of(window, committed)
        grown = [_extend(w, a + 1 if i == 0 else 0, growing[i], refresh, knobs, keep_probs) for i, w in enumerate(windows)]
        stretches = _join_stretches(grown, sequence.length, none, no_probs)
        step.draft = {
            "tokens": torch.cat([s.tokens for s in stretches]),
            "positions": [position for s in stretches for position in range(s.start, s.stop)],
            "status": "draft",
        }
        iteration += 1
        yield step


def _plan(stretches: list[Stretch], layout: Raster, knobs: Knobs) -> tuple[int | None, list[int]]:
    """The start of a new stretch, or None, and the number of tokens by which each stretch may grow (the new one comes last).

    The plan depends on positions and never on token values, so the choice of drafted positions does not either.
    """
    starts_of_rows, widths = layout.starts, layout.widths
    last = stretches[-1].stop
    below = bisect_left(starts_of_rows, last)  # the first row without a token
    first = layout.row_of(stretches[0].start)
    counts = _counts(stretches, layout, below)

    def room(position: int, end: int) -> int:
        places = range(position, min(end, position + int(knobs.growth)))
        return next((i for i, place in enumerate(places) if not may_draft(place)), len(places))

    def may_draft(position: int) -> bool:
        row = layout.row_of(position)
        if row >= min(len(widths), first + knobs.rows):
            return False
        above = widths[row - 1]
        return row == first or (row <= below and counts[row - 1] >= min(above, position - starts_of_rows[row] + lead(knobs.window, above)))

    begin = starts_of_rows[below]
    begins = below > 0 and begin != last and may_draft(begin)  # a stretch that ends with a row continues in the next row anyway
    starts = [s.start for s in stretches] + [begin] * begins
    ends = [*starts[1:], starts_of_rows[-1]]
    stops = [s.stop for s in stretches] + [begin] * begins
    return begin if begins else None, [room(stop, end) for stop, end in zip(stops, ends, strict=True)]


def _counts(stretches: list[Stretch], layout: Raster, rows: int) -> list[int]:
    """Tokens per row, committed or drafted, in the first `rows` rows."""
    committed = stretches[0].start
    counts = [min(width, max(0, committed - start)) for start, width in zip(layout.starts[:rows], layout.widths, strict=False)]
    for s in stretches:
        for position in range(s.start, s.stop):
            counts[layout.row_of(position)] += 1
    return counts


def _wavefront(sequence: Sequence, stretches: list[Stretch]) -> tuple[Draft, list[int]]:
    """All drafts as one Draft in raster order, and for each stretch the row of the pass that predicts its first position.

    A node attends to the pending token and every earlier draft. Before each later stretch comes a placeholder, which no other node
    attends to.
    """
    tokens, positions, placeholders, first_rows = [], [], [], [0]
    for i, s in enumerate(stretches):
        if i:
            above = stretches[i - 1]
            newest = above.tokens[-1:] if len(above.tokens) else torch.tensor(sequence.tokens[-1:], device=sequence.device)
            first_rows.append(len(positions) + 1)
            placeholders.append(len(positions) + 1)
            tokens.append(newest)
            positions.append(s.start - 1)
        tokens.append(s.tokens)
        positions += range(s.start, s.stop)
    if not placeholders:
        return Draft(torch.cat(tokens)), first_rows
    visible = torch.ones(len(positions) + 1, len(positions) + 1, dtype=torch.bool).tril()
    visible[:, placeholders] = False
    visible[placeholders, placeholders] = True
    return Draft(torch.cat(tokens), positions=torch.tensor(positions, dtype=torch.int64), visible=visible), first_rows


def _judge(rows: Rows, at: int, s: Stretch, noise: Noise, iteration: int, seeded: bool) -> WindowState:
    """A stretch with the distributions just computed for its positions and the next one, and its verdict, not yet settled.

    Only the first stretch is verified with them; the others use them for the coupling.
    """
    stop = at + len(s.tokens) + 1
    own = Rows(rows.logits[:, at:stop], lambda _: rows.scores[at:stop])
    verdict = verify(own, s.tokens, s.draft_probs, noise, s.start, iteration, seeded)
    return WindowState(own, s.tokens, s.draft_probs, noise, s.start, iteration, verdict, 0, -1)


def _extend(window: WindowState, first: int, more: int, refresh: Refresh, knobs: Knobs, keep_probs: bool) -> Stretch:
    """The rest of a stretch from `first` on, refreshed, with `more` new tokens at its end."""
    size = len(window.tokens)
    start, length = window.start + first, size + more - first
    if length <= 0:
        return Stretch(start, window.tokens[:0], window.draft_probs[:0] if keep_probs else None)
    if first <= size:
        tokens, draft_probs = refresh(window, first, knobs)
        if keep_probs and draft_probs is None:
            draft_probs = window.rows.p[first:]
    else:  # the token drawn after all drafts is committed: the rest is new
        tokens, draft_probs = window.tokens[:0], window.rows.p[:0] if keep_probs else None
    if more > 1:
        tokens, draft_probs = _add_guesses(window, tokens, draft_probs, more - 1)
    return Stretch(start, tokens[:length], draft_probs[:length] if keep_probs else None)


def _add_guesses(window: WindowState, tokens: Tensor, draft_probs: Tensor | None, more: int) -> tuple[Tensor, Tensor | None]:
    """The stretch with `more` tokens added, drawn from the newest token's distribution, each with the noise of its own position."""
    size = len(window.tokens)
    scores = window.rows.scores[size:].expand(more, -1)
    new = draw_gumbel(scores, window.noise.gumbel(window.start + size + 1, more))
    return torch.cat([tokens, new]), None if draft_probs is None else torch.cat([draft_probs, window.rows.p[size:].expand(more, -1)])


def _join_stretches(stretches: list[Stretch], length: int, none: Tensor, no_probs: Tensor | None) -> list[Stretch]:
    """The stretches after `length` committed tokens: adjacent ones are joined, empty ones dropped; the first begins at `length`."""
    merged = [Stretch(length, none, no_probs)]
    for s in stretches:
        if not len(s.tokens):
            continue
        if s.start == merged[-1].stop:
            last = merged[-1]
            draft_probs = None if no_probs is None else torch.cat([last.draft_probs, s.draft_probs])
            merged[-1] = Stretch(last.start, torch.cat([last.tokens, s.tokens]), draft_probs)
        else:
            merged.append(s)
    return merged


# --- the method -------------------------------------------------------------------------------------------------------


def decode(sequence: Sequence, knobs: Knobs, noise: Noise, drafter: Any) -> Iterator[Step]:
    """Yields one Step per pass."""
    if knobs.mode == "verified":
        return decode_verified(sequence, knobs, noise)
    check_start(knobs, is_exact(knobs), f"mode=published with window={knobs.window}", "mode=verified")
    return decode_published(sequence, knobs, noise)


def is_exact(knobs: Knobs) -> bool:
    """True if verified, or if every row waits for the whole row above."""
    return knobs.mode == "verified" or (knobs.window >= WHOLE and knobs.adaptive == "off")


def why(knobs: Knobs) -> str:
    """The badge's sentence."""
    if knobs.mode == "verified":
        if matches_seed(knobs, exact=True):
            return "Exact: every token equals plain decoding's token for this seed."
        return "Exact: every draft of the wavefront is verified in raster order against the distribution it was drawn from."
    if is_exact(knobs):
        return "Exact: every row waits for the whole row above, which is plain decoding."
    return not_exact(knobs, "a token is drawn before the tokens to its right in the row above are known.")


_VERIFIED = {"mode": "verified", "window": 1}

METHOD = Method(
    name="zipar",
    title="ZipAR",
    about="Starts the next row of the picture before the row above is finished.",
    decode=decode,
    forks=False,  # rows of a wavefront start together
    knobs=(MODE, WINDOW, ROWS, GROWTH, ADAPTIVE, LEAST_WINDOW, REFRESH, VERIFY),
    paper="ZipAR, He et al., arXiv 2412.04062; verified: ours",
    exact=is_exact,
    why=why,
    needs=frozenset({"raster", "wavefront"}),
    common=_VERIFIED,
    presets=(
        Preset(
            "zipar_verified", "Rows start early as in ZipAR, and the model checks their tokens.",
            {"mode": "verified", "window": 4, "rows": 2, "growth": 8},
        ),
    ),
    candidates=lambda backbone: [("zipar_verified", {})],
    cases=(
        Case("ZIP-VER coupled gumbel", "same distribution", _VERIFIED, mutants=("wavefront: q of another warp", "residual is p")),
        Case(
            "ZIP-VER coupled maximal", "same distribution", _VERIFIED | {"refresh": "coupled maximal"}, {"rows": 3, "columns": 2},
            mutants=("wavefront: q of another warp",),
        ),
        Case("ZIP-VER carry", "same distribution", _VERIFIED | {"refresh": "carry"}, mutants=("wavefront: carried with new q",)),
        Case(
            "ZIP-VER small first", "same distribution", _VERIFIED | {"growth": 2}, {"rows": 3, "columns": 2, "small": 2},
            mutants=("wavefront: guesses said to be uniform",),
        ),
        Case("ZIP-VER growth", "same distribution", _VERIFIED | {"growth": 3}, mutants=("wavefront: guesses said to be uniform",)),
        Case("SEED-EXACT", "same tokens", _VERIFIED | {"verify": "match seed"}, {"rows": 4, "columns": 4}, ("iteration in the noise",)),
        Case(
            "ZIP-FULL", "same tokens", {"window": 256}, {"rows": 3, "columns": 4},
            mutants=("wavefront: rows do not wait", "wavefront: the newest of a row is not cached"),
        ),
        Case("published", "not exact", {"window": 1}),
    ),
)  # fmt: skip
