"""Verdicts and scores on a CPU by the compiled functions of native_verdict.c.

Mathematics: verify.py. The k-th largest score and the top-p threshold are found bit by bit among the few tokens that can matter, both
exactly. Only what the filters leave is exponentiated, drawn and given noise; sums of draws are float64. A row has the same bits in every
pass.
Fewest bytes: as in verify.py; a row of scores stays in the second-level cache.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import addressof, c_double, c_float, c_int, c_int32, c_int64, c_long, c_uint64, c_void_p
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from engine.core import Chosen, Sampling
from engine.kernels.choice import COMPUTED
from engine.kernels.cpu.library import Library, native
from engine.sampling import guide, warp

MANY = 2**17  # scores; with fewer one thread is as fast
INTEGERS, NUMBERS = 4, 6  # results of a row, besides its answer


class Walk(ctypes.Structure):
    """A grammar as tables; native_verdict.c describes them."""

    _fields_ = (
        ("classes", c_void_p), ("next", c_void_p), ("masks", c_void_p),
        *((name, c_long) for name in ("vocabulary", "kinds", "bits", "counted", "budget", "last")),
    )  # fmt: skip


class Automaton:
    """A grammar whose states are integers, as the functions walk it: a state is a node in its low bits, and above it the number of visits
    of one node, if these are limited."""

    def __init__(self, classes: Tensor, following: Tensor, masks: Tensor, bits: int, counted: int = -1, budget: int = 0, last: int = 0):
        """classes : uint8 [V], of each token; following : uint8 [nodes, classes], the node after a node
        masks : uint8 [nodes], of each node its row of the table of masks; bits : of a node
        counted : the node whose visits are counted, -1 for none; budget, last : after so many visits its row is `last`
        """
        self.kept = classes.contiguous(), following.contiguous(), masks.contiguous()  # at their addresses
        at = (each.data_ptr() for each in self.kept)
        self.walk = Walk(*at, len(classes), following.shape[1], bits, counted, budget, last)
        self.address = addressof(self.walk)


@dataclass(slots=True)
class Along:
    """The masks of a chain: those of a grammar's states from one on, along the drafts."""

    automaton: Automaton
    state: int


# the sampling, masks bool [M, V] or None = all, and of each row its mask
Rules = tuple[Sampling, Tensor | None, Sequence[int] | Along]


class Verdict(ctypes.Structure):
    """The arguments of `verdicts`; native_verdict.c describes them."""

    _fields_ = (
        ("logits", c_void_p), *((name, c_long) for name in ("branches", "rows", "vocabulary", "branch_stride", "row_stride")),
        ("allowed", c_void_p), ("allowed_stride", c_long), ("tokens", c_void_p), ("laws", c_void_p), ("drafts", c_long),
        ("law_stride", c_long), ("positions", c_void_p), ("base", c_uint64), ("uniforms", c_void_p), ("guidance", c_float),
        ("temperature", c_float), ("top_p", c_float), ("temperature_last", c_int), ("top_k", c_long), ("scores", c_void_p), ("p", c_void_p),
        ("numbers", c_void_p), ("answers", c_void_p), ("integers", c_void_p), ("scratch", c_void_p), ("scratch_size", c_long),
        *((name, c_int) for name in ("threads", "seeded", "certain", "brief", "apart")), ("table", c_void_p), ("which", c_void_p),
        ("walk", c_void_p), ("state", c_int64), ("root", c_uint64), ("iteration", c_uint64), ("streams", c_uint64 * 3),
        ("first", c_int64), ("settled", c_int64 * 2),
    )  # fmt: skip


@dataclass(frozen=True)
class Found:
    """What the function finds of each row.

    answers  : int64 [R]
    integers : int64 [4, R]: fresh draw, residual draw, whether the row is sound, verdict on its draft
    numbers  : float32 [R, 6]: entropy, ratio, distance of p and q, probability of the draft, greatest probability, chance of acceptance;
        those of drafts are random in the other rows
    p        : [R, V] or None
    """

    answers: Tensor
    integers: Tensor
    numbers: Tensor
    p: Tensor | None


class Window:
    """The verdicts on a window: the attributes of `verify.Verdicts` except `deviations`, which no run asks for. Each is made on first use,
    because a tensor costs more than a verdict.

    answers, p : as in `Found`; integers, numbers : the same numbers as arrays of C, row after row
    size    : of the drafts
    settled : the first refusal and the token after it, which is -1 if a row up to there is not sound
    """

    pair = None

    def __init__(
        self, answers: Tensor, integers: Any, numbers: Any, p: Tensor | None, tokens: Tensor, has_laws: bool, seeded: bool,
        settled: list[int],
    ):  # fmt: skip
        self.answers, self.integers, self.numbers, self.p, self.settled = answers, integers, numbers, p, settled
        self.tokens, self.size, self.has_laws, self.seeded = tokens, tokens.shape[0], has_laws, seeded

    def drafts(self) -> list[int]:
        """The drafts, read as memory."""
        return (c_int64 * self.size).from_address(self.tokens.data_ptr())[:]

    def listed(self) -> tuple[list[float], list[float], list[float], list[float]]:
        """What a step records of the rows up to the first refusal: entropies, probabilities of the drafts, the greatest ones, chances."""
        told = self.numbers[: (self.settled[0] + 1) * NUMBERS]
        return told[::NUMBERS], told[3::NUMBERS], told[4::NUMBERS], told[5::NUMBERS]

    @cached_property
    def accepted(self) -> Tensor:
        """bool [m]"""
        if self.seeded or not self.has_laws:
            return self.tokens == self.answers[: self.size]
        return self._integer(3)[: self.size] != 0

    def _integer(self, which: int) -> Tensor:
        return torch.frombuffer(self.integers, dtype=torch.int64).view(INTEGERS, -1)[which]

    def _number(self, which: int, size: int) -> Tensor:
        return torch.frombuffer(self.numbers, dtype=torch.float32).view(-1, NUMBERS)[:size, which]

    @property
    def fresh(self) -> Tensor:
        """int64 [R]"""
        return self._integer(0)

    @property
    def drawn(self) -> Tensor:
        """int64 [R]"""
        return self._integer(1)

    @property
    def sound(self) -> Tensor:
        """bool [R]"""
        return self._integer(2) != 0

    @property
    def entropy(self) -> Tensor:
        """float32 [R]"""
        return self._number(0, self.size + 1)

    @property
    def top(self) -> Tensor:
        """float32 [R]"""
        return self._number(4, self.size + 1)

    @property
    def chances(self) -> Tensor:
        """float32 [m]"""
        return self._number(3, self.size)

    @property
    def ratios(self) -> Tensor | None:
        """float32 [m]"""
        return self._number(1, self.size) if self.has_laws else None


class Verifier:
    """The verdicts of one run: what its passes share is prepared once.

    Between two passes the weights have gone through the caches, so an operation of PyTorch, or a function of Python, costs several times
    what it does in a loop. So there are few of them here.
    """

    def __init__(self, library: Library, vocabulary: int, streams: tuple[int, int, int]):
        """streams : of acceptance, fresh and residual draws"""
        self.library, self.vocabulary = library, vocabulary
        self.call = Verdict(vocabulary=vocabulary, scratch_size=library.verdict_scratch(vocabulary), streams=(c_uint64 * 3)(*streams))
        self.address = addressof(self.call)
        self.sampling: Sampling | None = None
        self.rows, self.threads = 0, 0  # for which there is memory
        self.kinds: tuple[int, Any, Any] = 0, None, None  # rows of the last window, and the types of what it found

    def window(
        self, logits: Tensor, rules: Rules, tokens: Tensor, laws: Tensor | Chosen | None, root: int, base: int, first: int, iteration: int,
        seeded: bool, store: bool, brief: bool = False,
    ) -> Window:  # fmt: skip
        """Verdicts and draws of rows at consecutive positions from `first` on, with the random numbers of a run.

        logits, tokens, laws, base, seeded, store : as in `verify.Asked`; laws may be `Chosen`; root : of the run's numbers
        brief : nothing will be asked about the rows after the first refusal, so they may be left out
        """
        logits, call, rows = self._over(logits, rules), self.call, logits.shape[1]
        tokens, size = tokens.contiguous(), tokens.shape[0]
        if rows != self.kinds[0]:
            self.kinds = rows, c_int64 * (INTEGERS * rows), c_float * (NUMBERS * rows)
        answers, integers, numbers = torch.empty(rows, dtype=torch.int64), self.kinds[1](), self.kinds[2]()
        p = torch.empty(rows, self.vocabulary) if store else None
        call.tokens, call.drafts, call.uniforms = tokens.data_ptr(), size, self.uniforms
        call.laws, call.certain = 0, isinstance(laws, Chosen)
        if isinstance(laws, Tensor):
            laws = laws.float()
            laws = laws if laws.stride(-1) == 1 else laws.contiguous()
            call.laws, call.law_stride = laws.data_ptr(), laws.stride(0)
        call.p, call.answers = 0 if p is None else p.data_ptr(), answers.data_ptr()
        call.numbers, call.integers = addressof(numbers), addressof(integers)
        call.root, call.base, call.first, call.iteration, call.seeded, call.brief = root, base, first, iteration, seeded, brief
        self.library.window(self.address)
        return Window(answers, integers, numbers, p, tokens, laws is not None, seeded, call.settled[:])

    def answer(self, logits: Tensor, rules: Rules, base: int, first: int) -> tuple[int, list[float]]:
        """The answer of one row, logits [C, 1, V], -1 for a row that is not sound; and the numbers of `Found`."""
        logits, call = self._over(logits, rules), self.call
        call.drafts, call.laws, call.certain, call.p, call.uniforms = 0, 0, 0, 0, 0
        call.numbers, call.answers, call.integers = self.numbers, self.integers, self.integers + 8
        call.base, call.first, call.seeded, call.brief = base, first, 1, 0
        self.library.window(self.address)
        return call.settled[1], self.one[:]

    def scores(self, logits: Tensor, rules: Rules) -> Tensor:
        """The scores [R, V] of logits [C, R, V], as `scored`. rules : without a walk"""
        logits, call = self._over(logits, rules), self.call
        scores = torch.empty(logits.shape[1:])
        call.scores, call.answers, call.brief = scores.data_ptr(), 0, 0
        self.library.verdicts(self.address)
        call.scores = 0
        return scores

    def best(self, logits: Tensor, rules: Rules | None) -> Tensor | None:
        """The most probable tokens int64 [N] of logits [N, V] for a chain, each under the grammar after the earlier ones; None if the
        function does not know them. rules : with the masks of a walk"""
        if rules is None or logits.dtype != torch.float32 or logits.device.type != "cpu":
            return None
        _, table, along = rules
        logits, (count, vocabulary) = logits.contiguous(), logits.shape
        tokens = torch.empty(count, dtype=torch.int64)
        where = (0, 0, 0) if table is None else (table.data_ptr(), along.automaton.address, along.state)
        self.library.best_along(logits.data_ptr(), count, vocabulary, *where, tokens.data_ptr())
        return tokens

    def draws(self, p: Tensor, root: int, stream: int, iteration: int, first: int, count: int) -> Tensor:
        """Tokens int64 [count] drawn from one distribution, contiguous float32 [V], at consecutive positions: `draw` at the run's uniform
        numbers of a stream."""
        tokens, sums = torch.empty(count, dtype=torch.int64), torch.empty(self.vocabulary, dtype=torch.float64)
        self.library.draw_alike(p.data_ptr(), self.vocabulary, root, stream, iteration, first, count, tokens.data_ptr(), sums.data_ptr())
        return tokens

    def _over(self, logits: Tensor, rules: Rules) -> Tensor:
        """Says what every call is told; returns the logits as float32, which must live as long as the call."""
        sampling, table, which = rules
        strides = logits.stride()
        if logits.dtype != torch.float32 or strides[2] != 1:
            logits = logits.float().contiguous()
            strides = logits.stride()
        call, (branches, rows, vocabulary) = self.call, logits.shape
        assert vocabulary == self.vocabulary, (vocabulary, self.vocabulary)
        threads = torch.get_num_threads() if rows * vocabulary >= MANY else 1
        if rows > self.rows or threads > self.threads:
            self._make_room(max(rows, self.rows), max(threads, self.threads))
        if sampling is not self.sampling:
            self.sampling = sampling
            call.guidance, call.temperature, call.top_p = sampling.guidance, sampling.temperature, sampling.top_p
            call.temperature_last, call.top_k = sampling.temperature_last, sampling.top_k
        call.logits, call.branches, call.rows, call.threads = logits.data_ptr(), branches, rows, threads
        call.branch_stride, call.row_stride = strides[:2]
        call.table = call.walk = 0
        if table is not None:
            call.table = table.data_ptr()
            if isinstance(which, Along):
                call.walk, call.state = which.automaton.address, which.state
            else:
                self.which[:rows] = which
        return logits

    def _make_room(self, rows: int, threads: int) -> None:
        """Memory for passes of so many rows."""
        self.rows, self.threads, call = rows, threads, self.call
        self.which, positions, uniforms = (c_int32 * rows)(), (c_int64 * rows)(), (c_double * (3 * rows))()
        self.one, integers = (c_float * NUMBERS)(), (c_int64 * (1 + INTEGERS))()
        scratch = torch.empty(threads * call.scratch_size)
        self.kept = (positions, uniforms, integers, scratch)  # at their addresses
        self.uniforms, self.numbers, self.integers = map(addressof, (uniforms, self.one, integers))
        call.which, call.positions, call.scratch = addressof(self.which), addressof(positions), scratch.data_ptr()


def library_for(device: torch.device, dtype: torch.dtype) -> Library | None:
    """The functions if they are chosen for logits of a device and type."""
    return native() if device.type == "cpu" and dtype in COMPUTED else None


def found(
    library: Library, logits: Tensor, sampling: Sampling, allowed: Tensor | None, tokens: Tensor, laws: Tensor | None, uniforms: Tensor,
    base: int, positions: Tensor, store: bool,
) -> Found:  # fmt: skip
    """Verdicts and draws; the arguments are those of `verify.Asked`."""
    rows, vocabulary = logits.shape[1:]
    answers = torch.empty(rows, dtype=torch.int64)
    integers, numbers = torch.empty(INTEGERS, rows, dtype=torch.int64), torch.empty(rows, NUMBERS)
    p = torch.empty(rows, vocabulary) if store else None
    tokens, positions, uniforms = tokens.contiguous(), positions.contiguous(), uniforms.contiguous()
    call, kept = _call(library, logits, sampling, allowed)
    call.tokens, call.drafts, call.positions, call.base, call.uniforms = (
        tokens.data_ptr(), len(tokens), positions.data_ptr(), base, uniforms.data_ptr()
    )  # fmt: skip
    call.apart = 1
    if laws is not None:
        laws = laws.float()
        laws = laws if laws.stride(-1) == 1 else laws.contiguous()
        call.laws, call.law_stride = laws.data_ptr(), laws.stride(0)
    call.p, call.answers = 0 if p is None else p.data_ptr(), answers.data_ptr()
    call.numbers, call.integers = numbers.data_ptr(), integers.data_ptr()
    library.verdicts(ctypes.byref(call))
    del kept
    return Found(answers, integers, numbers, p)


def scored(logits: Tensor, sampling: Sampling, allowed: Tensor | None) -> Tensor:
    """Scores [R, V] of raw logits [C, R, V]: `warp(guide(logits))` by the function or by PyTorch's operations."""
    library = library_for(logits.device, logits.dtype)
    if library is None or not logits.numel():
        return warp(guide(logits.float(), sampling.guidance), sampling, allowed)
    scores = torch.empty(logits.shape[1:])
    call, kept = _call(library, logits, sampling, allowed)
    call.scores = scores.data_ptr()
    library.verdicts(ctypes.byref(call))
    del kept
    return scores


def _call(library: Library, logits: Tensor, sampling: Sampling, allowed: Tensor | None) -> tuple[Verdict, tuple[Tensor | None, ...]]:
    """What both kinds of calls are told, and the tensors that must live as long as the call."""
    logits = logits.float()
    logits = logits if logits.stride(-1) == 1 else logits.contiguous()
    branches, rows, vocabulary = logits.shape
    allowed = None if allowed is None else allowed.contiguous()
    threads = torch.get_num_threads() if rows * vocabulary >= MANY else 1
    size = library.verdict_scratch(vocabulary)
    scratch = torch.empty(threads * size)
    call = Verdict(
        logits.data_ptr(), branches, rows, vocabulary, logits.stride(0), logits.stride(1),
        0 if allowed is None else allowed.data_ptr(), 0 if allowed is None or allowed.ndim == 1 else vocabulary,
        guidance=sampling.guidance, temperature=sampling.temperature, top_p=sampling.top_p, temperature_last=sampling.temperature_last,
        top_k=sampling.top_k, scratch=scratch.data_ptr(), scratch_size=size, threads=threads,
    )  # fmt: skip
    return call, (logits, allowed, scratch)
