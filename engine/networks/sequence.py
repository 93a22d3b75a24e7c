"""The running sequence that every transformer backbone uses, on top of a trunk.

`TransformerSequence` keeps the pending token, turns a Draft into tokens, positions and a visibility mask, and keeps the accepted path.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from functools import cached_property, partial
from itertools import takewhile
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from engine.cache import KVCache
from engine.core import NO_DRAFT, Bias, DeviceIds, Draft, Grammar, Rows, Sampling
from engine.dispatch.choice import choose
from engine.kernels.tree_attention import Chain, Visibility, VisibleRows, pack
from engine.layout import Layout
from engine.mesh.bpt_tokens import TokenLevels
from engine.networks.rows import AdapterRows, RowAdapter, RowSplit, adapter_hooks
from engine.networks.static_step import LookAhead, PassShape, StaticPasses, WaitingPass, is_static
from engine.networks.transformer import causal_mask
from engine.networks.trunk import PassArguments, Trunk
from engine.networks.workspace import Workspace, WorkspacePool
from engine.sampling import warp
from engine.tree import depths, is_chain, visibility
from engine.verify.choice import is_host, warped_scores
from engine.verify.host import AllowedIds, HostRows, allowed_by, best_along
from engine.verify.request import VerifyRequest

HOST = torch.device("cpu")


class TransformerSequence:
    """One run on one prompt: cache, pending token, warp. All rows of `prefix` are in the cache except the last, which is pending."""

    scales: tuple[int, ...] = ()  # a subclass may support smaller sizes

    def __init__(
        self,
        trunk: Trunk,
        prefix: Tensor,
        prefix_mask: Tensor | None,
        kv_cache: KVCache,
        *,
        vocabulary: int,
        limit: int,
        layout: Layout,
        sampling: Sampling,
        end: int | None = None,
        grammar: Grammar | None = None,
        bias: Bias | None = None,
        condition: Tensor | None = None,
        codebook: Tensor | None = None,
        levels: TokenLevels | None = None,
        static: bool | None = None,
        workspaces: WorkspacePool | None = None,
        ends: Callable[[int], bool] | None = None,
    ):
        """prefix : [branches, P, H] embeddings; prefix_mask : bool [P-1, P-1] or None (causal). end : the end-of-sequence id.
        bias : a penalty on the logits.
        condition : [C, H] for drafters, or None. codebook : [V, e], the vector of each id, or None.
        levels : how ids spell vertices, or None.
        static : True if passes have fixed shapes; None: on a GPU only (static_step.py)
        workspaces : of the model, for such passes; None: of this run alone
        ends : takes every committed token; True = the sequence ends with it, as with the end of sequence"""
        self.trunk, self.kv_cache = trunk, kv_cache
        self._slots_at = HOST if trunk.reads_slots else prefix.device
        self.vocabulary, self.limit, self.layout, self.sampling, self.end = vocabulary, limit, layout, sampling, end
        self.grammar, self.condition, self.codebook, self.levels = grammar, condition, codebook, levels
        self.ends = ends
        self._state = grammar.start if grammar else None  # after the committed tokens
        self.bias, self._lost_in = bias, bias.start if bias else None  # the bias's state after the committed tokens
        self.device = prefix.device
        self.prefix = prefix.shape[1]
        self.tokens: list[int] = []
        self.done = limit == 0
        self._prompt_end, self._newest = prefix[:, -1:], []  # the pending tokens; none: the end of the prompt
        self.pending = [-1]  # committed positions that are not in the cache, ascending; -1: the end of the prompt
        self._cached: list[int] | None = None  # positions of the cached tokens, cache row by cache row; None = a prefix, in order
        self._draft = DeviceIds(NO_DRAFT.tokens)
        self.adapter: RowAdapter | None = None  # of predictive rows
        self.hidden_states: dict[int, Tensor] | None = None  # on request, see Sequence
        self._newest_pass: Rows | None = None  # only if they are requested
        self.run_together: Callable[[PassArguments], tuple[Tensor, Tensor]] | None = None  # with other runs' passes; None: alone
        self._places: Tensor | None = None
        fixed = is_static(self.device) if static is None else static
        self._workspaces, self._static = workspaces or WorkspacePool(), None
        if fixed and trunk.fixed and bias is None:
            self._static = StaticPasses(trunk, kv_cache.below, self._workspaces.borrow(kv_cache.below), vocabulary)
        self._launch: WaitingPass | None = None  # a pass that may not have started
        self._is_host: tuple[torch.dtype, bool] | None = None  # of the newest hidden states
        self._unread = (prefix[:, :-1], prefix_mask) if self.prefix > 1 else None  # until the first pass, or a copy of another cache

    @property
    def workspace(self) -> Workspace | None:
        """The workspace of a run whose passes have fixed shapes, for its drafter; None for other runs."""
        return None if self._static is None else self._static.workspace

    def look_ahead(self, function: LookAhead, *tensors: Tensor) -> None:
        """Sets a drafter's computation on the hidden state after the accepted drafts and on tensors of the run: passes in fixed shapes with
        a verdict run it and put the results into `Rows.ahead`. function : the same for all runs of the drafter"""
        if self._static is not None:
            self._static.look_ahead(function, tensors)

    def warm_up(self, window: int) -> None:
        """Captures the passes of plain decoding and of speculative sampling in a window of this many tokens. A sequence without committed
        tokens, which must be closed afterwards. Does nothing for passes without fixed shapes."""
        if self._static is None or (self.grammar is not None and self.masks is None):
            return
        self.read_prompt()
        for count in {1, window}:
            drafts = torch.zeros(count - 1, dtype=torch.int64, device=self.device if count > 1 else HOST)
            slots = torch.arange(self.prefix, self.prefix + count)
            places = self.kv_cache.begin_pass(slots, causal_mask(count, 0, HOST))
            q = torch.full((count - 1, self.vocabulary), 1 / self.vocabulary, device=self.device) if count > 1 else None
            halves = torch.full((3, count), 0.5, dtype=torch.float64)
            request = VerifyRequest(drafts, q, halves, 0, torch.arange(count), count == 1, count > 1)
            rules = (self.sampling, self.masks, [0] * count)
            self._static.warm_up(PassShape(0, drafts, places), request, lambda rows, rules=rules: rules)

    @property
    def length(self) -> int:
        """The number of committed tokens."""
        return len(self.tokens)

    def forward(self, draft: Draft) -> Rows:
        """One pass over the pending token and the nodes of the draft; the first one reads the prompt before."""
        self.read_prompt()
        assert self.kv_cache.kept == self.prefix + self.length - len(self.pending), (
            self.kv_cache.kept,
            self.prefix,
            self.length,
            self.pending,
        )
        self._begin_launch()
        count = draft.tokens.shape[0]
        control = count if draft.predictive is None else int((~draft.predictive).sum())
        parents = None if draft.parents is None else draft.parents.tolist()
        self._draft = DeviceIds(draft.tokens[:control])
        self._places = draft.positions  # the nodes' positions; None: directly after the pending token
        joins = self.run_together is not None and self.trunk.joins and control == count
        self._launch = None if joins else self._fixed_pass(draft, parents, control)
        if self._launch is not None:
            return self._rows(parents, None, lambda launch=self._launch: launch.start()[1])
        x = self._inputs(draft.tokens)
        slots, mask = self._slots(draft, parents, self._slots_at), self._mask(draft, parents, count)
        if joins:
            hidden, logits = self.run_together(PassArguments(self.trunk, x, slots, mask, self.kv_cache))
            return self._rows(parents, hidden, self._subtract_bias(parents, logits))
        if control == count:
            hidden = self.trunk.run(x, slots, mask, self.kv_cache)
            logits = self.trunk.head(hidden)
        else:
            hidden, logits = self._run_adapted(x, slots, mask, draft.shared_rows, control)
        return self._rows(parents, hidden, self._subtract_bias(parents, logits))

    def read_prompt(self) -> None:
        """Fills the cache with the rows of the prompt, once."""
        if self._unread is None:
            return
        x, mask = self._unread
        slots = torch.arange(self.prefix - 1, device=self._slots_at)
        with torch.no_grad():  # no gradient goes through a cache, and attention with gradients takes longer
            self.trunk.run(x, slots, causal_mask(self.prefix - 1, 0, self.device) if mask is None else mask, self.kv_cache)
        self.kv_cache.keep(list(range(self.prefix - 1)))
        self._unread = None

    def _on_host(self, hidden: Tensor) -> bool:
        """True if numpy verifies the rows of hidden states: chosen once per run, because the choice costs more than some verdicts."""
        if self._is_host is None or self._is_host[0] != hidden.dtype:
            self._is_host = hidden.dtype, is_host(hidden.device, hidden.dtype)
        return self._is_host[1]

    def _subtract_bias(self, parents: list[int] | None, logits: Tensor) -> Tensor:
        """Logits [C, R, V] of the pass, minus the bias. Predictive rows, the last ones, have no path yet and no bias."""
        if self.bias is None:
            return logits
        rows = logits.shape[1]
        lost = torch.stack([self.bias.loss(each) for each in states_along(self.bias, parents, self._draft, self._lost_in)[:rows]])
        lost = lost if len(lost) == rows else F.pad(lost, (0, 0, 0, rows - len(lost)))
        return logits.float() - lost.to(logits.device)

    def _begin_launch(self) -> None:
        """Starts the waiting pass, if there is one, before its inputs change."""
        if self._launch is not None:
            self._launch.start()
        self._launch = None

    def _rows(self, parents: list[int] | None, hidden: Tensor | None, logits: Tensor | Callable[[], Tensor]) -> Rows:
        """The Rows of a pass."""
        after = (parents, self._draft, self._state)
        host = partial(self._host, *after) if hidden is not None and self._on_host(hidden) else None
        rows = Rows(logits, partial(self._warp, *after), hidden, partial(self._settings, *after), self._draft, self._launch, host)
        self._newest_pass = None if self.hidden_states is None else rows
        return rows

    def _fixed_pass(self, draft: Draft, parents: list[int] | None, control: int) -> WaitingPass | None:
        """A pass in fixed shapes, which waits for its verdict; None if the shapes do not fit: after the end of the prompt, or after a
        wavefront."""
        if self._static is None or self._cached is not None or len(self._newest) != 1:
            return None
        visible = draft.visible
        if visible is None:
            chain = parents is None or is_chain(parents)
            visible = causal_mask(len(draft.tokens) + 1, 0, HOST) if chain else visibility(parents)
        slots, is_adapted = self._slots(draft, parents, HOST), control < len(draft.tokens)
        adapted = self.kv_cache.place(slots, 1 + control) if is_adapted else None
        what = PassShape(self._newest[0], draft.tokens, self.kv_cache.begin_pass(slots, visible.cpu()), adapted)
        rules = partial(self._rules, parents, self._draft, self._state)
        return self._static.prepare(what, rules, self.adapter if is_adapted else None)

    def _inputs(self, drafted: Tensor) -> Tensor:
        """The inputs of the pending rows and of drafts int64 [N]: [branches, K + N, H]."""
        branches = self.kv_cache.branches
        if not self._newest:
            nodes = [self.trunk.embed(drafted.to(self.device)).expand(branches, -1, -1)] if len(drafted) else []
            return torch.cat([self._prompt_end, *nodes], 1) if nodes else self._prompt_end
        newest = torch.tensor(self._newest, device=self.device)
        ids = torch.cat([newest, drafted.to(self.device)]) if drafted.shape[0] else newest
        return self.trunk.embed(ids).expand(branches, -1, -1)

    def _run_adapted(self, x: Tensor, slots: Tensor, mask: Tensor, shared_rows: int, control: int) -> tuple[Tensor, Tensor]:
        """Hidden states and logits of a pass whose rows after the pending rows and `control` drafts run with the adapter; the first
        `shared_rows` of them share the lower layers of drafts.

        A trunk that computes them in the first branch alone saves half of them. Their other logits are then 0, so guidance multiplies the
        first branch's: on pictogram that loses 0 to 2 % of the tokens per pass, at guidance 1.3 to 5."""
        waiting, split = len(self.pending), None
        first = self.kv_cache.place(slots, waiting + control)
        once = self.trunk.drafts_once and self.kv_cache.branches > 1
        adapter_rows = AdapterRows(self.adapter, first, once)
        if shared_rows and self.adapter.first_layer and self.trunk.takes_splits:
            below, mask, split = split_rows(mask, waiting, control, shared_rows, self.adapter.first_layer)
            x, slots = x[:, below], slots[below]
        if self.trunk.takes_adapters:
            hidden = self.trunk.run(x, slots, mask, self.kv_cache, split, adapter_rows)
        else:
            with adapter_hooks(adapter_rows):
                hidden = self.trunk.run(x, slots, mask, self.kv_cache, split)
        if not once:
            return hidden, self.trunk.head(hidden)
        needed = hidden.flatten(0, 1)[: hidden.shape[1] + first]
        logits = F.pad(self.trunk.head(needed[None])[0], (0, 0, 0, hidden.shape[1] - first))
        return hidden, logits.unflatten(0, hidden.shape[:2])

    def _slots(self, draft: Draft, parents: list[int] | None, device: torch.device) -> Tensor:
        base = self.prefix + self.pending[-1]
        if draft.positions is not None or len(self.pending) > 1:
            pending = torch.tensor(self.pending)
            return (self.prefix + (pending if draft.positions is None else torch.cat([pending, draft.positions]))).to(device)
        if parents is None:
            return torch.arange(base, base + draft.tokens.shape[0] + 1, device=device)
        return torch.tensor([base, *(base + d for d in depths(parents))], device=device)

    def _mask(self, draft: Draft, parents: list[int] | None, count: int) -> Visibility:
        """The visibility of the rows of a pass: a mask bool [R, kept + R], None (everything), a chain, or sets of bits for the kernel."""
        as_sets = self.trunk.takes_sets and not draft.shared_rows and choose(self.device, self.kv_cache.below.block.dtype).is_triton
        if self._cached is not None:
            return self._scattered_mask(draft, parents, count, as_sets)
        if draft.visible is None and (parents is None or is_chain(parents)):
            if count and as_sets:
                return VisibleRows(pack(causal_mask(count + 1, 0, self.device)), self.kv_cache.kept)
            if count and self.trunk.takes_chains and not draft.shared_rows:
                return Chain(count + 1, self.kv_cache.kept)
            return causal_mask(count + 1, self.kv_cache.kept, self.device) if count else None
        tail = (draft.visible if draft.visible is not None else visibility(parents)).to(self.device)
        if as_sets:
            return VisibleRows(pack(tail), self.kv_cache.kept)
        past = torch.ones(count + 1, self.kv_cache.kept, dtype=torch.bool, device=self.device)
        return torch.cat([past, tail], 1)

    def _scattered_mask(self, draft: Draft, parents: list[int] | None, count: int, as_sets: bool) -> Visibility:
        """The visibility if the committed tokens are not a prefix: a row sees tokens at smaller positions, wherever they are in the
        cache."""
        assert draft.positions is not None or count == 0, "after a wavefront, drafts need explicit positions"
        if count == 0 and len(self.pending) == 1 and max(self._cached, default=-1) < self.pending[0]:
            return None  # still a prefix, as in plain decoding
        waiting = len(self.pending)
        at = torch.tensor([*self.pending, *([] if count == 0 else draft.positions.tolist())])
        before = torch.cat([torch.full((self.prefix,), -1), torch.tensor(self._cached, dtype=torch.int64), at[:waiting]])
        past, own = (before <= at[:, None]).split([len(before) - waiting, waiting], 1)
        if draft.visible is not None:
            own = own & draft.visible[:, :waiting].cpu()
            nodes = draft.visible[:, waiting:].cpu()
        else:
            nodes = F.pad(visibility(parents or list(range(-1, count - 1)))[1:, 1:], (0, 0, waiting, 0))
        if as_sets:
            sets = pack(torch.cat([own, nodes], 1).to(self.device))
            return VisibleRows(sets, self.kv_cache.kept, before[None, : past.shape[1]].to(self.device), at.to(self.device))
        return torch.cat([past, own, nodes], 1).to(self.device)

    def _warp(self, parents: list[int] | None, tokens: DeviceIds, state: Any, logits: Tensor, soft: bool = False) -> Tensor:
        """Scores of a pass over these tokens, started in this grammar state. Distributions are lazy, so the commit may come first."""
        sampling, allowed = self._settings(parents, tokens, state, logits.shape[1])
        return warped_scores(logits, sampling.soften() if soft else sampling, allowed)

    def _host(self, parents: list[int] | None, tokens: DeviceIds, state: Any, logits: Tensor) -> HostRows:
        """The rows of a pass for the processor."""
        if self.grammar is None:
            return HostRows(logits, self.sampling)
        states = self._states(parents, tokens, state)[: logits.shape[1]]
        if self._possible is None:
            return HostRows(logits, self.sampling, allowed_by(torch.stack([self.grammar.allowed_ids(each) for each in states])))
        return HostRows(logits, self.sampling, [self._possible[self.grammar.mask_index(each)] for each in states])

    def _settings(self, parents: list[int] | None, tokens: DeviceIds, state: Any, count: int) -> tuple[Sampling, Tensor | None]:
        """The sampling, and the allowed ids bool [count, V] of the first rows of a pass; None without a grammar."""
        if self.grammar is None:
            return self.sampling, None
        allowed = torch.stack([self.grammar.allowed_ids(each) for each in self._states(parents, tokens, state)[:count]])
        if len(allowed) < count:  # predictive rows have no grammar yet
            allowed = F.pad(allowed, (0, 0, 0, count - len(allowed)), value=True)
        return self.sampling, allowed.to(self.device)

    def best_along(self, logits: Tensor) -> Tensor | None:
        """The most probable tokens int64 [N] of logits [N, V] for a chain after the committed tokens, each under the grammar after the
        earlier ones, by numpy; None if numpy cannot."""
        if self.bias is not None or logits.dtype != torch.float32 or logits.device.type != "cpu":
            return None
        if self.grammar is None:
            return logits.argmax(-1)
        return None if self._possible is None else best_along(logits, self._possible, self.grammar, self._state)

    def _rules(
        self, parents: list[int] | None, tokens: DeviceIds, state: Any, count: int
    ) -> tuple[Sampling, Tensor | None, list[int]] | None:
        """The rules for a verdict in fixed shapes: sampling, the table of masks, and each row's mask number; None if there is no table."""
        if self.grammar is None:
            return self.sampling, None, [0] * count
        states = self._states(parents, tokens, state)[:count]
        return None if self.masks is None else (self.sampling, self.masks, [self.grammar.mask_index(each) for each in states])

    def _states(self, parents: list[int] | None, tokens: DeviceIds, state: Any) -> list[Any]:
        """The grammar's states after the newest token and after each node of a pass."""
        return states_along(self.grammar, parents, tokens, state)

    @cached_property
    def masks(self) -> Tensor | None:
        """The grammar's table of masks on the device; None without a table or a grammar."""
        return None if self.grammar is None or self.grammar.masks is None else self._hold("grammar masks", self.grammar.masks)

    @cached_property
    def automaton(self) -> Any | None:
        """The grammar's states as tensors on the device; None without a table of masks, or if a bias follows the path too."""
        return None if self.masks is None or self.bias is not None else self.grammar.automaton.move_tensors(self._hold)

    def _hold(self, name: str, table: Tensor) -> Tensor:
        """A table of the run on the device, where graphs read it."""
        return table.to(self.device) if self.workspace is None else self.workspace.hold(name, table)

    @cached_property
    def _possible(self) -> list[AllowedIds] | None:
        """The ids that each mask allows, for numpy."""
        return None if self.masks is None or self.device.type != "cpu" else allowed_by(self.masks)

    def mask_index(self, path: list[int]) -> int:
        """The row of `masks` after a hypothetical path."""
        return self.grammar.mask_index(next(states_after(self.grammar, self._state, [path])))

    def probs_by_mask(self, logits: Tensor) -> Tensor:
        """Distributions [k, M, V] from guided logits [k, V], under every mask."""
        scores = logits.float()[:, None].expand(-1, len(self.masks), -1).flatten(0, 1)
        probs = torch.softmax(warp(scores, self.sampling, self.masks.repeat(len(logits), 1)), -1)
        return probs.unflatten(0, (len(logits), -1))

    def probs_after(self, logits: Tensor, *paths: list[int]) -> Tensor:
        """Distributions [k, V] from guided logits [k, V], after the committed tokens and hypothetical paths, one per row or one for all."""
        logits = self.biased_logits(logits, *paths)
        states = None if self.grammar is None else list(states_after(self.grammar, self._state, paths))
        if self._is_host is not None and self._is_host[1] and (states is None or self._possible is not None):
            possible = None if states is None else [self._possible[self.grammar.mask_index(each)] for each in states]
            possible = possible * len(logits) if possible is not None and len(possible) == 1 else possible
            return HostRows(logits[None], self.sampling, possible).probs(0, len(logits))
        allowed = None if states is None else torch.stack([self._allowed_in(state) for state in states])
        if allowed is not None and len(allowed) == 1:
            allowed = allowed[0]
        return torch.softmax(warped_scores(logits[None], self.sampling, allowed), -1)

    def biased_logits(self, logits: Tensor, *paths: list[int]) -> Tensor:
        """Guided logits [k, V] minus the bias after hypothetical paths, one per row or one for all."""
        if self.bias is None:
            return logits
        lost = torch.stack([self.bias.loss(each) for each in states_after(self.bias, self._lost_in, paths)])
        return logits.float() - lost.to(logits.device)

    def favourites(self, count: int) -> list[int]:
        """Up to `count` tokens that the bias favours after the committed ones; [] without a bias."""
        tokens, state = [], self._lost_in
        while self.bias is not None and len(tokens) < count and (token := self.bias.favourite(state)) is not None:
            tokens.append(token)
            state = self.bias.next(state, token)
            if token == self.end:
                break
        return tokens

    def allowed_ids(self, path: list[int]) -> Tensor | None:
        """The ids allowed after a hypothetical path, bool [V]; None without a grammar."""
        return None if self.grammar is None else self._allowed_in(next(states_after(self.grammar, self._state, [path])))

    def _allowed_in(self, state: Any) -> Tensor:
        """The ids allowed in a state of the grammar, bool [V]."""
        return self.grammar.allowed_ids(state).to(self.device) if self.masks is None else self.masks[self.grammar.mask_index(state)]

    def state(self, path: list[int]) -> Hashable:
        """The states of the grammar and of the bias after a hypothetical path; None without either."""
        machines = (self.grammar, self._state), (self.bias, self._lost_in)
        return tuple(next(states_after(each, state, [path])) for each, state in machines if each) or None

    def commit(self, nodes: list[int], token: int) -> list[int]:
        """Keeps a path of the last pass and makes `token` pending; truncates at the end of sequence, at the limit and by `ends`."""
        assert self._cached is None, "the committed tokens are not a prefix; use commit_at"
        self._begin_launch()
        new = [token]
        if nodes:
            drafted = self._draft.to_list()
            new = [*[drafted[i] for i in nodes], token]
        room = self.limit - len(self.tokens)
        if len(new) > room:
            new = new[:room]
        if self.end in new:
            new = new[: new.index(self.end) + 1]
        last = None if self.ends is None else next((i for i, each in enumerate(new) if self.ends(each)), None)
        new = new if last is None else new[: last + 1]
        self._keep([0, *[i + 1 for i in nodes[: len(new) - 1]]] if nodes else [0], range(self.pending[0], self.limit))
        self._append(new, last is not None)
        return new

    def copy(self, other: TransformerSequence, tokens: list[int]) -> int:
        """Commits tokens that a sequence on the same prompt has at the same positions, with its cache and without a pass, as many as have
        all rows before them there; returns their number. Both are on a processor, and this one has no tokens."""
        assert tokens and not self.tokens and self._static is None
        places = {
            position: self.prefix + row for row, position in enumerate(range(other.length - 1) if other._cached is None else other._cached)
        }
        rows = list(takewhile(lambda row: row is not None, map(places.get, range(len(tokens) - 1))))
        self.kv_cache.copy(other.kv_cache, [*range(self.prefix), *rows])
        self._unread = None
        new = tokens[: len(rows) + 1]
        self._append(new, self.ends is not None and any([self.ends(token) for token in new]))
        return len(new)

    def _append(self, new: list[int], is_last: bool) -> None:
        """Appends committed tokens, whose rows but the last are in the cache. is_last : `ends` said so"""
        self.tokens += new
        if self.grammar is not None:
            state, following = self._state, self.grammar.next
            for each in new:
                state = following(state, each)
            self._state = state
        if self.bias is not None:
            self._lost_in = next(states_after(self.bias, self._lost_in, [new]))
        length = len(self.tokens)
        self.done = length >= self.limit or new[-1] == self.end or is_last
        self.pending = [length - 1]
        self._newest = new[-1:]

    def commit_at(self, positions: list[int], tokens: list[int], nodes: Iterable[int] = ()) -> None:
        """Keeps the pending rows and some nodes (of a chain, if they have no positions), and makes tokens at any positions pending. Does
        not support a grammar or an end of sequence, which need a prefix."""
        assert self.end is None and self.grammar is self.bias is None, "a wavefront has no end of sequence, no grammar and no bias"
        self._begin_launch()
        nodes, waiting = list(nodes), len(self.pending)
        if self._cached is None:
            self._cached = list(range(self.length - 1))
        places = range(self.length, self.length + len(self._draft.tokens)) if self._places is None else self._places.tolist()
        fed = [*self.pending, *(places[i] for i in nodes)]
        self._keep([*range(waiting), *(waiting + i for i in nodes)], fed)
        self._cached += [position for position in fed if position >= 0]
        self.tokens += [self._draft.to_list()[i] for i in nodes] + tokens
        self.done = self.length >= self.limit
        self.pending = positions
        self._newest = tokens

    def _keep(self, rows: list[int], positions: Iterable[int]) -> None:
        """Keeps rows of the last pass in the cache and, if requested, their hidden states. positions : of the rows' tokens"""
        self.kv_cache.keep(rows)
        if self.hidden_states is not None:
            states = self._newest_pass.hidden[:, rows].unbind(1)  # a copy: the next pass may overwrite the output
            self.hidden_states.update((position + 1, state) for position, state in zip(positions, states, strict=False))

    def rewind(self, length: int) -> None:
        """Drops the committed tokens from `length` on. Does not support grammars."""
        prefix = self._cached is None or self._cached[: max(0, length - 1)] == list(range(length - 1))
        assert prefix and self.grammar is self.bias is None and length <= self.length, (
            "the remaining tokens must be a prefix, cached in order"
        )
        self._begin_launch()
        self._cached = None
        self.tokens = self.tokens[:length]
        self.kv_cache.rewind(self.prefix + length - 1)
        self.done = self.length >= self.limit
        self.pending = [length - 1]
        self._newest = self.tokens[-1:]

    def close(self) -> None:
        """Frees the cache, and gives the workspace back."""
        if self._launch is not None:
            self._launch.cancel()
        if self._static is not None:
            self._workspaces.give_back(self._static.workspace)
        self.kv_cache = self._static = self._launch = None


def states_along(machine: Grammar | Bias, parents: list[int] | None, tokens: DeviceIds, state: Any) -> list[Any]:
    """The states of a machine after the newest token and after each node of a pass."""
    states = [state]
    for i, token in enumerate(tokens.to_list()):
        states.append(machine.next(states[i if parents is None else parents[i] + 1], token))
    return states


def states_after(machine: Grammar | Bias, begin: Any, paths: Iterable[list[int]]) -> Iterator[Any]:
    """The states of a machine after paths from a state. A path that extends the previous one is not walked again from its start."""
    state, known = begin, []
    for path in paths:
        if path[: len(known)] != known:
            state, known = begin, []
        for token in path[len(known) :]:
            state = machine.next(state, token)
        known = path
        yield state


def split_rows(mask: Tensor, waiting: int, control: int, shared_rows: int, layer: int) -> tuple[Tensor, Tensor, RowSplit]:
    """Prepares a pass in which, below a layer, predictive rows share the rows of drafts. Returns the rows below that layer int64 [R'],
    their visibility mask bool [R', kept + R'], and the split.

    mask : bool [R, kept + R] of all rows: `waiting` pending rows, `control` drafts, then the predictive rows. The first
    `shared_rows` predictive rows share the rows of the first drafts.
    """
    first, count, device = waiting + control, len(mask), mask.device
    kept = mask.shape[1] - count
    below = torch.cat([torch.arange(first), torch.arange(first + shared_rows, count)]).to(device)
    low = mask[below][:, torch.cat([torch.arange(kept, device=device), kept + below])]
    low[first:, kept + waiting : kept + waiting + shared_rows] |= mask[first + shared_rows :, kept + first : kept + first + shared_rows]
    rows = torch.cat([torch.arange(first), torch.arange(waiting, waiting + shared_rows), torch.arange(first, len(below))])
    return below, low, RowSplit(layer, rows.to(device), mask)
