"""Decoding that drafts only where drafts pay: the method of `foretoken()` without a name.

Idea: a run begins with plain passes. Prompt lookup is scored alongside, without a pass: what it would have drafted is compared with the
tokens that come. Once the run is long enough to afford it, one pass of four rows tests whether the class keeps to the masks of drafts, and
shows what rows cost on this machine. From then on a pass drafts by lookup if the tokens that its matches gave so far exceed that cost. If
four rows are cheap, windows of SJD++ are tried: from 4 rows upwards, as long as a larger one is faster. Whatever is tried may lose no more
than SHARE of the time of its run.
Exactness: always, for plain passes, lookup and SJD++ are exact from any committed prefix on. What is drafted next depends on committed
tokens and on the clock alone, never on noise of later positions; every stretch of windows has noise of its own.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from statistics import median
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from transformers import PreTrainedModel

from engine.core import NO_DRAFT, ChosenTokens, Draft, Knob, Knobs, Method, Step
from engine.decoding.verdict import draw_plain, step_over
from engine.errors import NotSupported
from engine.methods import sjdpp
from engine.methods.lookup import Index
from engine.noise import Noise
from engine.noise.kernel import MASK, mix
from engine.trace import Trace
from engine.transformers.costs import PassCosts
from engine.transformers.host import CallerModel, CallerSequence
from engine.transformers.probe import PROBE_ROWS, PROBED, TOLERANCE, agree

NAME = "auto"
SHARE = 0.03  # of a run's time: the most that drafts may lose
PROBE_COST = 3.0  # plain passes that a probe may take, before one is measured
MARGIN = 0.05  # plain passes that a lookup must gain per pass, and share by which a window must be faster
MATCHES, DRAFTS = 3, (3, 7, 15)  # longest run of tokens to look up; lengths of drafts
RECENT = 8  # newest lookups of a length that an estimate uses
TRIED, TIMED = 8, 64  # passes before a window's speed counts, and the newest passes kept
SETTLING = 2  # first passes of a stretch of windows, whose drafts are guesses still
FIRST_WINDOW, HOPED = 4, 2.0  # rows of the first window; expected tokens per pass from which windows are tried
WINDOW = Knob("window", "W", 32, FIRST_WINDOW, 256, 1, "log", "The largest window that is tried.")


class Knowledge:
    """Measurements from runs of one model: the cost of rows, and the speed of windows.

    checked : True if passes over drafts agree with plain ones, None if that was not tested; fault : the sentence if they do not
    windows : tokens per pass of each window that was tried, by its rows
    """

    def __init__(self) -> None:
        self.checked: bool | None = None
        self.fault = ""
        self.costs = PassCosts()
        self.windows: dict[int, deque[int]] = {}

    def speed(self, window: int) -> float:
        """Tokens of a window in the time of a plain token; infinite before TRIED passes have shown it."""
        tokens = self.windows.get(window, ())
        return sum(tokens) / len(tokens) / self.costs.of(window) if len(tokens) >= TRIED else float("inf")

    def best_window(self, largest: int, tried: bool = False) -> int | None:
        """The window to use or to try next, or the best of those that were tried; None if none pays."""
        sizes = [FIRST_WINDOW]
        while sizes[-1] * 2 <= largest and 1 < self.speed(sizes[-1]) < float("inf"):
            if len(sizes) > 1 and self.speed(sizes[-1]) < self.speed(sizes[-2]):
                break
            sizes.append(sizes[-1] * 2)
        sizes = [size for size in sizes if not tried or self.speed(size) < float("inf")]
        best = max(sizes, key=lambda size: (self.speed(size), -size), default=None)
        return best if best is not None and self.speed(best) > 1 + MARGIN else None


KNOWN: WeakKeyDictionary[PreTrainedModel, dict[tuple[Any, ...], Knowledge]] = WeakKeyDictionary()


def knowledge_of(host: CallerModel) -> Knowledge:
    """The measurements of a model under its present settings; they live as long as the model."""
    settings = (
        host.device, host.dtype, host.attention, host.model.config.get_text_config(decoder=True)._attn_implementation,
        torch.get_num_threads(), len(host.branches), host.sampling.temperature > 0, bool(host.reading.called),
    )  # fmt: skip
    return KNOWN.setdefault(host.model, {}).setdefault(settings, Knowledge())


class LookupRecord:
    """Counts of right tokens in lookups, by the length of the match. Lookups that are not drafted are compared with later tokens."""

    def __init__(self, prompt: Sequence[int]):
        """prompt : ids that lookups may copy from"""
        self.index = Index(MATCHES)
        self.index.add(list(prompt))
        self.right: dict[int, deque[int]] = {length: deque(maxlen=RECENT) for length in range(MATCHES + 1)}
        self.length, self.open = self.lookup()  # only one lookup at a time is compared
        self.matched = 0

    def lookup(self) -> tuple[int, list[int]]:
        """Length of the longest match of the newest tokens, and the tokens that followed it; 0 and none without a match."""
        tokens = self.index.tokens
        runs = range(min(MATCHES, len(tokens)), 0, -1)
        length = next((length for length in runs if tuple(tokens[-length:]) in self.index.last), 0)
        return length, self.index.continuation(length, DRAFTS[-1])

    def add(self, tokens: Sequence[int]) -> None:
        """Takes committed tokens; a comparison ends at its first error, or with the lookup."""
        for token in tokens:
            self.index.add([token])
            right = self.matched < len(self.open) and token == self.open[self.matched]
            self.matched += right
            if not right or self.matched == len(self.open):
                self.right[self.length].append(self.matched)
                self.restart()

    def add_drafted(self, tokens: Sequence[int], length: int) -> None:
        """Takes the tokens of a pass that drafted by a match of this length: all but the last were right."""
        self.right[length].append(len(tokens) - 1)
        self.index.add(list(tokens))
        self.restart()

    def restart(self) -> None:
        """Starts another comparison."""
        (self.length, self.open), self.matched = self.lookup(), 0

    def outcomes(self, length: int) -> list[int]:
        """Right tokens of the newest lookups by a match of this length, and 0 for an unseen length."""
        return [*self.right[length], *([self.matched] if self.matched and self.length == length else []), 0]

    def gain(self, length: int, count: int) -> float:
        """Expected right tokens among the first `count`."""
        seen = self.outcomes(length)
        return sum(min(each, count) for each in seen) / len(seen)

    def risk(self, length: int, least: float) -> float:
        """The part of lookups that gave fewer right tokens than `least`."""
        seen = self.outcomes(length)
        return sum(each < least for each in seen) / len(seen)


class Pilot:
    """Chooses a run's drafts by the gains and losses of its passes so far.

    passes : number of passes by kind
    """

    clock: Callable[[], float] = staticmethod(time.perf_counter)

    def __init__(self, host: CallerModel):
        """host : the backbone of the run"""
        self.host, self.record = host, LookupRecord(host.branches[0].ids.tolist())
        self.known = knowledge_of(host)
        self.plain: deque[float] = deque(maxlen=2 * RECENT)  # seconds
        self.elapsed = self.saved = 0.0  # seconds
        self.passes = {"plain": 0, "lookup": 0, "window": 0}

    @property
    def plain_seconds(self) -> float:
        """Seconds of a plain pass; 0 before the first."""
        return median(self.plain) if self.plain else 0.0

    def affords(self, passes: float) -> bool:
        """True if a loss of this many plain passes stays within SHARE of the run."""
        return bool(self.plain) and self.saved - passes * self.plain_seconds >= -SHARE * self.elapsed

    def wants_probe(self) -> bool:
        """True if drafts of this model are untested, and the run is long enough to test them."""
        return self.known.checked is None and self.affords(PROBE_COST)

    def draft(self, left: int) -> tuple[int, list[int]]:
        """Length of a match and tokens to draft by it, at most `left`; 0 and none where they would not pay."""
        if not self.known.checked:
            return 0, []
        length, tokens = self.record.lookup()
        gains = {count: self.record.gain(length, count) + 1 - self.known.costs.of(count + 1) for count in DRAFTS}
        count = max(gains, key=gains.__getitem__)
        loss = self.known.costs.of(count + 1) - 1
        if not tokens or left < 1 or gains[count] < MARGIN or not self.affords(loss * self.record.risk(length, loss)):
            return 0, []
        return length, tokens[: min(count, left)]

    def window(self, largest: int, begun: bool) -> int | None:
        """Rows of the next pass's window, or None. A trial begins once the run could afford to waste all its passes.

        begun : True if the previous pass had a window"""
        if not self.known.checked or self.known.costs.of(FIRST_WINDOW) > HOPED:
            return None
        window = self.known.best_window(largest)
        if window is None:
            return None
        begins = self.known.speed(window) == float("inf") and not begun
        if begins and not self.affords((SETTLING + TRIED) * (self.known.costs.of(window) - 1)):
            window = self.known.best_window(largest, tried=True)
        return window if self.affords(0.0) else None

    def took(self, kind: str, seconds: float, rows: int, tokens: int) -> None:
        """Takes the time of a pass, its rows, and the tokens that it committed."""
        self.elapsed += seconds
        self.passes[kind] += 1
        if kind == "plain":
            self.plain.append(seconds)
        else:
            self.saved += tokens * self.plain_seconds - seconds
            self.known.costs.add(rows, seconds / self.plain_seconds)

    @property
    def reason(self) -> str:
        """Why the run decoded as it did, in one sentence."""
        known = self.known
        if known.fault:
            return known.fault
        if known.checked is None:
            return "Plain passes: the run was too short to test drafts at a loss below 3 %."
        cost = f"a pass of {FIRST_WINDOW} rows takes {known.costs.of(FIRST_WINDOW):.2f} times as long as a plain one"
        if self.passes["window"] > self.passes["plain"] + self.passes["lookup"]:
            return f"Windows of SJD++ pay: {cost}."
        if self.passes["lookup"]:
            return f"Prompt lookup where it pays, else plain passes: {cost}."
        return f"Plain passes: {cost}, and no draft gives the tokens to pay for it."


def decode(sequence: CallerSequence, knobs: Knobs, noise: Noise, drafter: Pilot) -> Iterator[Step]:
    """Yields one Step per pass."""
    pilot, iteration = drafter, 0
    while not sequence.done:
        iteration += 1
        start, n = pilot.clock(), sequence.length
        length, tokens = pilot.draft(sequence.limit - n - 1)
        if not tokens:
            if pilot.window(int(knobs.window), begun=False):
                yield from windows(sequence, knobs, Noise(mix(noise.root + iteration & MASK), sequence.vocabulary, sequence.device), pilot)
            else:
                yield plain_pass(sequence, noise, pilot, start)
            continue
        ids = torch.tensor(tokens, dtype=torch.int64, device=sequence.device)
        _, step = step_over(sequence, Draft(ids, q=ChosenTokens(ids, sequence.vocabulary, noise.dtype)), noise, iteration, False)
        pilot.record.add_drafted(step.tokens, length)
        pilot.took("lookup", pilot.clock() - start, len(tokens) + 1, len(step.tokens))
        yield step


def plain_pass(sequence: CallerSequence, noise: Noise, pilot: Pilot, start: float) -> Step:
    """One plain pass that began at `start`, followed by the probe if it is due."""
    n = sequence.length
    rows = sequence.forward(NO_DRAFT)
    token, nats, top = draw_plain(rows, noise, n)
    if n:  # the first pass was the prompt's
        pilot.took("plain", pilot.clock() - start, 1, 1)
    due = pilot.wants_probe()
    if due:
        probe(sequence, rows.logits, pilot)
    committed = sequence.commit([], token)
    pilot.record.add(committed)
    trace = Trace(accepted=[False], accept_probability=[0.0], entropy=nats, top=top)
    return Step(committed, [n], forwards=1 + due, trace=trace)


def probe(sequence: CallerSequence, logits: Tensor, pilot: Pilot) -> None:
    """Tests a pass over drafts against the plain pass before it, and takes its time. logits : of that pass [branches, 1, V]"""
    start, known = pilot.clock(), pilot.known
    try:
        if sequence.trunk.model.dtype not in TOLERANCE:  # too coarse for a test in a long context alone
            PROBED.check(pilot.host)
        passes = pilot.clock()
        agree(sequence, logits)
        known.costs.add(PROBE_ROWS, (pilot.clock() - passes) / pilot.plain_seconds)
    except NotSupported as e:
        known.fault = f"Plain passes. {e}"
    known.checked = not known.fault
    pilot.elapsed += pilot.clock() - start
    pilot.saved -= pilot.clock() - start


def windows(sequence: CallerSequence, knobs: Knobs, noise: Noise, pilot: Pilot) -> Iterator[Step]:
    """Steps of SJD++ as long as a window pays or is still on trial."""
    largest, passes = int(knobs.window), 0
    values = {knob.name: knob.default for knob in sjdpp.METHOD.knobs}
    inner = Knobs(values)
    steps = sjdpp.METHOD.decode(sequence, inner, noise, None)
    while not sequence.done and (window := pilot.window(largest, begun=passes > 0)):
        inner.take({**values, "window": window})
        start, n = pilot.clock(), sequence.length
        step = next(steps)
        seconds = pilot.clock() - start
        passes += 1
        if passes > SETTLING:
            pilot.known.windows.setdefault(window, deque(maxlen=TIMED)).append(len(step.tokens))
        pilot.record.add(step.tokens)
        pilot.took("window", seconds, step.drafted + 1, sequence.length - n)
        yield step
    steps.close()


METHOD = Method(
    name=NAME,
    title="What pays",
    decode=decode,
    knobs=(WINDOW,),
    paper="SJD++; Prompt Lookup Decoding",
    exact=lambda knobs: True,
    why=lambda knobs: (
        "Exact: plain passes, lookup and SJD++ are, and what is drafted next depends on committed tokens and the clock alone."
    ),
)
