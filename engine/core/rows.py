"""Drafts that a method proposes, and the rows of the pass that verifies them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import torch
from torch import Tensor

from engine.core.prompts import Sampling


class DeviceIds:
    """Ids that may be on a GPU. Each read makes the host wait, so it reads them once, together with other numbers."""

    def __init__(self, tokens: Tensor):
        """tokens : int64 [N]"""
        self.tokens = tokens
        self._read: list[int] | None = None

    def to_list(self) -> list[int]:
        """The ids as a list on the host."""
        if self._read is None:
            self._read = self.tokens.tolist()
        return self._read

    def set_host(self, ids: list[int]) -> None:
        """Sets ids that were already read, at least those that will be needed."""
        self._read = ids

    def to_list_with(self, more: Tensor) -> list[int]:
        """Other numbers, int64 [K], on the host. The ids come in the same transfer, and are not read again."""
        if self.tokens.device.type == "cpu":
            self.to_list()
        if self._read is not None or not len(self.tokens):
            return more.tolist()
        both = torch.cat([more, self.tokens.to(more.device)]).tolist()
        self._read = both[len(more) :]
        return both[: len(more)]


class Launch(Protocol):
    """A pass that starts when one of its results is needed, so that earlier requests about its rows can run with it.

    count : number of rows; place : device and type of the results; ahead : see `Rows`, after a verdict
    """

    count: int
    place: tuple[torch.device, torch.dtype]
    ahead: tuple[Tensor, ...]

    def start(self) -> tuple[Tensor, Tensor]:
        """Hidden states and logits."""
        ...

    def verdict(self, request: Any) -> Any | None:
        """The verdict on a request (engine/verify/request.py); None: too late, or not possible."""
        ...


@dataclass(frozen=True)
class LaunchOfFirst:
    """A launch for the first `count` rows of its pass."""

    launch: Launch
    count: int

    @property
    def place(self) -> tuple[torch.device, torch.dtype]:
        """Device and type of the results."""
        return self.launch.place

    @property
    def ahead(self) -> tuple[Tensor, ...]:
        """See `Rows`."""
        return self.launch.ahead

    def start(self) -> tuple[Tensor, Tensor]:
        """Hidden states and logits."""
        hidden, logits = self.launch.start()
        return hidden[:, : self.count], logits[:, : self.count]

    def verdict(self, request: Any) -> Any | None:
        """The verdict on a request; see `Launch`."""
        return self.launch.verdict(request)


class Rows:
    """The output of one pass: row 0 follows the prefix, row i+1 follows node i. Computed lazily, so that p can be skipped.

    logits : [branches, N+1, V], the model's raw output
    scores : [N+1, V] float32 (float64 on the toy): guided, masked and warped, not normalised; argmax(scores + Gumbel noise) draws from p
    p      : [N+1, V], softmax of scores: the distributions used both to verify and to sample
    hidden : [branches, N+1, H], the last hidden states, or None
    settings : (number of rows) -> the sampling and the allowed ids bool [rows, V] or None, the only inputs of the warp: for kernels that
        go from logits to tokens; None if there is no such function
    drafted : the ids of the draft's nodes
    launch : the pass, if it may still wait for a request about its rows
    host : (logits) -> the rows for a processor, each computed when it is needed (engine/verify/host.py); None elsewhere
    """

    def __init__(
        self,
        logits: Tensor | Callable[[], Tensor],
        warp: Callable[..., Tensor],
        hidden: Tensor | None = None,
        settings: Callable[[int], tuple[Sampling, Tensor | None]] | None = None,
        drafted: DeviceIds | None = None,
        launch: Launch | None = None,
        host: Callable[[Tensor], Any] | None = None,
    ):
        """logits : a tensor, or a function that computes it on first use; hidden : with a launch, the launch's"""
        self._logits, self._hidden = logits, hidden
        if isinstance(logits, Tensor):
            self.__dict__["logits"] = logits  # avoids the property's lock
        self.drafted = DeviceIds(NO_DRAFT.tokens) if drafted is None else drafted
        self._warp, self.settings, self.launch = warp, settings, launch
        self.make_host = host

    @cached_property
    def logits(self) -> Tensor:
        """The model's raw output [branches, N+1, V]."""
        return self._logits()

    @cached_property
    def hidden(self) -> Tensor | None:
        """The last hidden states [branches, N+1, H], or None."""
        return self._hidden if self.launch is None else self.launch.start()[0]

    @property
    def count(self) -> int:
        """N+1."""
        return self.logits.shape[1] if self.launch is None else self.launch.count

    @property
    def place(self) -> tuple[torch.device, torch.dtype]:
        """Device and type of the output. The logits may not have been computed yet."""
        if self.launch is not None:
            return self.launch.place
        output = self.logits if self.hidden is None else self.hidden
        return output.device, output.dtype

    @property
    def ahead(self) -> tuple[Tensor, ...]:
        """A drafter's results, computed inside the pass from the row after the accepted drafts; () if the pass computes none."""
        return () if self.launch is None else self.launch.ahead

    def set_probs(self, p: Tensor) -> None:
        """Sets the distributions [N+1, V] that a kernel has computed from these logits."""
        self.__dict__["p"] = p

    @cached_property
    def host(self) -> Any | None:
        """The rows for a processor, or None."""
        return None if self.make_host is None else self.make_host(self.logits)

    @cached_property
    def scores(self) -> Tensor:
        """Warped scores [N+1, V]."""
        return self._warp(self.logits) if self.host is None else self.host.scores(self.count)

    @cached_property
    def p(self) -> Tensor:
        """Distributions [N+1, V]; rows sum to 1."""
        return torch.softmax(self.scores, -1) if self.host is None else self.host.probs(0, self.count)

    @cached_property
    def soft(self) -> Tensor:
        """p with temperature 1 instead of 0 [N+1, V]: used to compare tokens where p is one-hot."""
        return torch.softmax(self._warp(self.logits, soft=True), -1)

    def probs(self, start: int, stop: int) -> Tensor:
        """Rows start..stop-1 of p, [stop-start, V], without computing the others."""
        if "p" in self.__dict__:
            return self.p[start:stop]
        return torch.softmax(self.scores[start:stop], -1) if self.host is None else self.host.probs(start, min(stop, self.count))

    def first(self, count: int) -> Rows:
        """The first rows alone, which are verified if the rest only propose."""
        if self.launch is not None:
            launch = LaunchOfFirst(self.launch, count)
            rows = Rows(lambda: launch.start()[1], self._warp, None, self.settings, self.drafted, launch)
        else:
            hidden = None if self.hidden is None else self.hidden[:, :count]
            rows = Rows(self.logits[:, :count], self._warp, hidden, self.settings, self.drafted)
        rows.__dict__ |= {name: self.__dict__[name][:count] for name in ("scores", "p", "soft") if name in self.__dict__}
        rows.__dict__["host"] = self.host  # computes the first rows alone
        return rows


@dataclass(frozen=True)
class ChosenTokens:
    """The distributions of tokens that were chosen, not drawn: one-hot, and built only when read. tokens : int64 [N]"""

    tokens: Tensor
    vocabulary: int
    dtype: torch.dtype

    def dense(self) -> Tensor:
        """[N, V]"""
        out = torch.zeros(len(self.tokens), self.vocabulary, dtype=self.dtype, device=self.tokens.device)
        return out.scatter_(1, self.tokens[:, None], 1.0)


@dataclass
class Draft:
    """Proposed tokens as a forest after the prefix: chain, window, tree, wavefront, block or dual stream.

    tokens     : int64 [N], ids 0..V-1 of the output vocabulary in use
    parents    : int64 [N] or None; -1 = after the prefix; None = a chain; siblings in the order drawn
    q          : the distribution each token was drawn from, [N, V] or ChosenTokens, for a sibling conditional on the earlier ones;
                 None = chosen, not drawn (one-hot)
    positions  : int64 [N] or None = length + depth - 1 (a child of the prefix has depth 1)
    visible    : bool [N+1, N+1] or None = ancestors; row and column 0 are the pending token. With K pending tokens: [N+K, N+K], and
                 the first K rows and columns. A row never attends to cached or pending tokens at larger positions than its own
    predictive : bool [N] or None; rows that run with the drafter's adapter and are never committed. They come last, and no
                 other row attends to them. Their logits are warped without a grammar; `Sequence.probs_after` turns them into distributions
    shared_rows : how many of the first predictive rows have the same input, mask and position as the first tokens; a pass may
                 compute these once, up to the first layer with the adapter
    """

    tokens: Tensor
    parents: Tensor | None = None
    q: Tensor | ChosenTokens | None = None
    positions: Tensor | None = None
    visible: Tensor | None = None
    predictive: Tensor | None = None
    shared_rows: int = 0

    def probs(self) -> Tensor | None:
        """q as a tensor [N, V], or None."""
        return self.q.dense() if isinstance(self.q, ChosenTokens) else self.q


NO_DRAFT = Draft(torch.empty(0, dtype=torch.int64))
