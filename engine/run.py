"""Runs: `generate` starts a run, `race` interleaves several by their clocks, and `Run` has the iterator, live knobs and totals."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from itertools import takewhile
from statistics import median
from typing import Any, Protocol

import numpy as np
import torch

from engine.core import Backbone, Draft, KnobArray, Knobs, Method, Prompt, Sequence, Step
from engine.errors import BadPrompt, NotSupported
from engine.machine import machine_facts
from engine.noise import Noise

READ_AT_ONCE = 64  # tokens of a prefix in a pass


class Run:
    """One generation: iterate it for Steps. The clock counts the model and the method (prefill included), never rendering."""

    def __init__(
        self,
        backbone: Backbone,
        method: Method,
        prompt: Prompt,
        knobs: Mapping[str, float | str],
        drafter: Any = None,
        buffer: np.ndarray | None = None,
        name: str = "",
        hidden: bool = False,
    ):
        missing = sorted(method.needs - backbone.capabilities)
        if missing:
            raise NotSupported(f"{method.name} needs {', '.join(missing)}; {backbone.name} does not have it. Choose another method.")
        if prompt.prefix and not method.forks:
            raise NotSupported(f"{method.name} cannot start after a prefix of tokens. Choose another method.")
        self.backbone, self.method, self.prompt = backbone, method, prompt
        self.name = name or method.name
        self.drafter = drafter_for(method, backbone) if drafter is None else drafter
        self.live = KnobArray(method.knobs, {**backbone.suits.get(method.name, {}), **knobs}, buffer)
        self.fixed = {k.name: self.live.read()[k.name] for k in method.knobs if not k.live}
        self.steps: list[Step] = []
        self.tokens: list[int] = []
        self.positions: list[int] = []
        self.seconds = 0.0
        self.counts = {"forwards": 0, "draft_forwards": 0, "drafted": 0}  # over all steps
        self.clock: Callable[[], float] = time.perf_counter
        self.began: Callable[[Sequence], None] | None = None  # called with the sequence, before the method
        self.shares: Run | None = None  # a run on the same prompt, whose part of the prefix is copied instead of read
        self.stays = False  # True: its cache stays after its end, for runs that share it, until it is closed
        self.stopped = self.finished = False
        self.sequence: Sequence | None = None
        self._hidden: dict[int, torch.Tensor] | None = {} if hidden else None  # by position; see Sequence
        self._current = Knobs({})
        self._snapshot: Mapping[str, float | str] | None = None  # the live values behind `_current`
        self._is_exact = True  # True if the method is exact under these values
        self._decode: Iterator[Step] | None = None

    def __iter__(self) -> Run:
        return self

    def __next__(self) -> Step:
        if self.backbone.device.type != "cuda":
            return self._next_in_inference_mode()
        with torch.cuda.device(self.backbone.device):  # captures and kernels take the current device, and the model may be on another
            return self._next_in_inference_mode()

    def _next_in_inference_mode(self) -> Step:
        if torch.is_inference_mode_enabled():  # as in `finish`: entering and leaving the mode costs more than a draw
            return self._next()
        with torch.inference_mode():
            return self._next()

    def _next(self) -> Step:
        if self.stopped or self.finished:
            if self.stopped or not self.stays:
                self.close()
            raise StopIteration
        self._read_knobs()
        torch.set_flush_denormal(True)  # a per-thread setting, and a page may advance a run from several threads
        start = self.clock()
        try:
            if self._decode is None:
                self._begin()
            step = next(self._decode, None)
        except BaseException:
            self.close()  # frees the cache of a method that failed
            raise
        elapsed = self.clock() - start
        if step is None:
            self.seconds += elapsed
            self.finished = True
            if not self.stays:
                self.close()
            raise StopIteration
        step.seconds, step.knobs = elapsed, self._current.values
        step.exact = self._is_exact
        if step.decide is not None and self.backbone.device.type == "cpu":  # elsewhere records would cost launches and transfers
            step.trace.decisions = step.decide()
        step.decide = None  # its pass is not kept
        self.take(step)
        return step

    def _read_knobs(self) -> None:
        """Gives the method the live values, if any has changed since the previous step."""
        values = self.live.snapshot()
        if values is not self._snapshot:
            self._snapshot = values
            self._current.take({**values, **self.fixed})
            self._is_exact = self.method.exact(self._current)

    def take(self, step: Step) -> None:
        """Adds a step to the run, with its seconds."""
        self.seconds += step.seconds
        for name in self.counts:
            self.counts[name] += getattr(step, name)
        self.steps.append(step)
        self.tokens += step.tokens
        self.positions += step.positions

    def _begin(self) -> None:
        self.sequence = self.backbone.start(self.prompt)
        self.sequence.hidden_states = self._hidden
        if self.began is not None:
            self.began(self.sequence)
        noise = Noise(self.prompt.seed, self.sequence.vocabulary, self.sequence.device)
        self._decode = self._all_steps(noise)

    def _all_steps(self, noise: Noise) -> Iterator[Step]:
        """The method's steps, after one that commits the prompt's prefix and counts no pass, because it is part of the input."""
        if prefix := list(self.prompt.prefix):
            self._check(prefix)
            for part in (prefix[start : start + READ_AT_ONCE] for start in range(self._copy(prefix), len(prefix), READ_AT_ONCE)):
                self.sequence.forward(Draft(torch.tensor(part[:-1], dtype=torch.int64)))
                self.sequence.commit(list(range(len(part) - 1)), part[-1])
                if self.sequence.done:
                    raise BadPrompt("The prefix repeats itself until the mesh ends, so none can follow. Take fewer tokens.")
            yield Step(prefix, list(range(len(prefix))), forwards=0)
        yield from self.method.decode(self.sequence, self._current, noise, self.drafter)

    def _copy(self, prefix: list[int]) -> int:
        """Copies the tokens of the prefix that another run has read or drawn, with their cache; returns their number."""
        other, self.shares = self.shares, None
        if not (other and other.sequence) or "joined" not in self.backbone.capabilities or self.backbone.device.type != "cpu":
            return 0
        known = dict(zip(other.positions, other.tokens, strict=True))
        shared = list(takewhile(lambda pair: known.get(pair[0]) == pair[1], enumerate(prefix)))
        return self.sequence.copy(other.sequence, prefix[: len(shared)]) if shared else 0

    def _check(self, prefix: list[int]) -> None:
        """Raises BadPrompt for a prefix that the model cannot have written; of its grammar, only the last token is checked."""
        sequence = self.sequence
        if len(prefix) >= sequence.limit:
            raise BadPrompt(f"A prefix of {len(prefix)} tokens leaves none to draw: there are {sequence.limit}. Take fewer.")
        if wrong := [token for token in prefix if not 0 <= token < sequence.vocabulary or token == self.backbone.end]:
            raise BadPrompt(f"{wrong[0]} is not a token that others can follow. Choose one from 0 to {sequence.vocabulary - 1}.")
        allowed = sequence.allowed_ids(prefix[:-1])
        if allowed is not None and not allowed[prefix[-1]]:
            raise BadPrompt(f"The token {prefix[-1]} may not stand at position {len(prefix) - 1} of this sequence. Choose another.")

    def set(self, **values: float | str) -> None:
        """Sets live knobs; they take effect at the next step. Raises BadKnob."""
        self.live.check(values)  # all or nothing
        for name, value in values.items():
            self.live.write(name, value)

    def stop(self) -> None:
        """Ends the run before its next step and keeps the committed tokens."""
        self.stopped = True

    def close(self) -> None:
        """Frees the cache of the run."""
        if self._decode is not None:
            self._decode.close()
        if self.sequence is not None:
            self.sequence.close()
        self._decode = self.sequence = None

    @torch.inference_mode()
    def finish(self) -> Run:
        """Runs to the end."""
        for _ in self:
            pass
        return self

    def result(self) -> Any:
        """The final picture or mesh of the tokens committed so far."""
        return self.backbone.render(self.tokens, self.positions, True, self.prompt.size)

    @property
    def prior_token_ids(self) -> torch.Tensor:
        """Finishes the run; its tokens as the input of the diffusion model that draws them, see `Backbone.prior_token_ids`."""
        return self.backbone.prior_token_ids(self.finish().in_order, self.prompt.size)

    @property
    def hidden_states(self) -> torch.Tensor:
        """Finishes the run; the model's last hidden states [branches, tokens, H]: row i is the one that predicts token i, computed after
        the committed tokens before it. Raises NotSupported unless the run was started with hidden=True on a model with hidden states."""
        count, states = len(self.finish().tokens), self._hidden or {}
        if not states or not all(position in states for position in range(count)):
            raise NotSupported("This run has no hidden states. Start it with hidden=True, on a model that has them.")
        return torch.stack([states[position] for position in range(count)], 1)

    @property
    def made_with(self) -> dict[str, str | None]:
        """The precision and the device of the model that computes the steps."""
        return {"dtype": self.backbone.precision, "device": str(self.backbone.device)}

    @property
    def machine(self) -> dict[str, Any]:
        """Facts about the machine that computes the steps, see engine/machine.py."""
        return machine_facts()

    @property
    def in_order(self) -> list[int]:
        """The tokens so far, sorted by position; a wavefront commits them in another order."""
        return [token for _, token in sorted(zip(self.positions, self.tokens, strict=True))]

    @property
    def exact(self) -> bool:
        """True if every step so far was exact."""
        return all(s.exact for s in self.steps)

    @property
    def totals(self) -> dict[str, float]:
        """Tokens, passes, seconds and their ratios so far."""
        forwards, drawn = self.counts["forwards"], len(self.tokens) - len(self.prompt.prefix)
        return {
            "tokens": len(self.tokens),
            **self.counts,
            "step_compression": drawn / forwards if forwards else 0.0,
            "seconds": self.seconds,
            "tokens_per_second": drawn / self.seconds if self.seconds else 0.0,
        }


def drafter_for(method: Method, backbone: Backbone) -> Any:
    """The drafter of a method, or None if the backbone lacks that capability and the method does not need it. For a method with several
    drafters, a mapping of the available ones."""
    drafters = {name: backbone.drafter(name) for name in method.drafters if name in backbone.capabilities}
    return drafters if len(method.drafters) > 1 else next(iter(drafters.values()), None)


def generate(
    backbone: Backbone,
    method: Method,
    prompt: Prompt,
    knobs: Mapping[str, float | str] | None = None,
    drafter: Any = None,
    buffer: np.ndarray | None = None,
    name: str = "",
    hidden: bool = False,
) -> Run:
    """Starts a run.

    knobs  : values by name; the rest are the backbone's recommended values, or the defaults
    buffer : memory for the live values (may be shared)
    name   : name of the preset in use (default: the method's name)
    hidden : keep `Run.hidden_states`
    """
    return Run(backbone, method, prompt, knobs or {}, drafter, buffer, name, hidden)


class Timed(Protocol):
    """Anything with a time: a Run, or a generation by other code."""

    seconds: float
    tokens: Sized


def speedup(plain: Iterable[Timed], fast: Iterable[Timed]) -> float:
    """Speed-up of the second runs over the first: the ratio of the median seconds per token, so that lengths may differ."""
    slow, quick = (median(run.seconds / len(run.tokens) for run in runs) for runs in (plain, fast))
    return slow / quick


def race(runs: Iterable[Run]) -> Iterator[tuple[int, Step]]:
    """Yields (index of the run, its step), always from the run with the least elapsed time, so that runs compare by time, not steps."""
    going = dict(enumerate(runs))
    while going:
        which = min(going, key=lambda i: going[i].seconds)
        step = next(going[which], None)
        if step is None:
            del going[which]
        else:
            yield which, step
