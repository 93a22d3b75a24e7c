"""The vocabulary: what a person asks for, what a method proposes, what a model answers, what a run emits.

Two sides meet here and nowhere else. A backbone turns a `Prompt` into a `Sequence`; a method drives that `Sequence` by
proposing a `Draft`, reading `Rows`, committing, and yielding a `Step`. The invariant between them: committed tokens are
x[0:n]; the cache holds the prompt and x[0:n-1]; x[n-1] is *pending* and is fed first in the next forward. Where committed positions
are no prefix (wavefronts), every committed position that is not in the cache is pending, and all of them are fed first.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from torch import Tensor

from engine.errors import BadKnob, BadPrompt
from engine.trace import Trace

if TYPE_CHECKING:
    from engine.layout import Layout, Raster
    from engine.noise import Noise


@dataclass(frozen=True)
class Sampling:
    """How logits become a law. Order: guidance, grammar, temperature, top-k, top-p, softmax."""

    temperature: float = 1.0  # 0 = always the most probable token
    top_k: int = 0  # 0 = off
    top_p: float = 1.0  # 1 = off
    guidance: float = 1.0  # u + g (c - u); 1 = conditional only
    temperature_last: bool = False  # True: top-k and top-p look at the law without temperature (the order of BPT)

    def softened(self) -> Sampling:
        """The same with temperature 1 in the place of 0."""
        return replace(self, temperature=self.temperature or 1.0)


@dataclass(frozen=True)
class Prompt:
    """What the person wants: text, class label or points, with seed, size and sampling."""

    text: str | None = None
    label: int | None = None
    points: Tensor | None = None  # [N, 6] float32: xyz and unit normal
    seed: int = 0
    size: int | None = None  # pixels, or a face budget for a mesh; None = the backbone's own
    sampling: Sampling | None = None  # None = the backbone's own

    def __post_init__(self) -> None:
        """Raises BadPrompt for text that no file and no terminal could hold: NUL, and halves of characters."""
        for place, character in enumerate(self.text or "", 1):
            if character == "\0" or "\ud800" <= character <= "\udfff":
                code = f"U+{ord(character):04X}"
                raise BadPrompt(f"Character {place} of the prompt is {code}, which is not a character of text. Remove it.")


@dataclass(frozen=True)
class Knob:
    """One setting of a method: it feeds sliders, drop-downs, checks, documentation and tests."""

    name: str
    symbol: str  # the paper's letter, for the slider's label; "" if it has none
    default: float | str
    low: float = 0.0
    high: float = 1.0
    step: float = 0.01
    scale: str = "linear"  # or "log"
    help: str = ""
    choices: tuple[str, ...] = ()  # names; stored as their index
    live: bool = True  # False: read when the run starts, not later
    when: tuple[str, ...] = ()  # another knob and those of its choices under which this one acts; () = always

    def to_number(self, value: float | str) -> float:
        """The stored number of a value; raises BadKnob with the range or the choices."""
        if self.choices:
            names = {c.replace("-", " ").replace("_", " "): i for i, c in enumerate(self.choices)}
            key = str(value).strip().lower().replace("-", " ").replace("_", " ")
            if key not in names:
                raise BadKnob(f"{self.name} cannot be '{value}'. Choose one of: {', '.join(self.choices)}.")
            return float(names[key])
        try:
            number = float(value)
        except (TypeError, ValueError):
            raise BadKnob(f"{self.name} needs a number, not '{value}'.") from None
        if not self.low <= number <= self.high:  # also refuses nan
            raise BadKnob(f"{self.name} = {value} is out of range. Choose {self.low:g} to {self.high:g}.")
        return number

    def to_value(self, number: float) -> float | str:
        """The value of a stored number: a choice's name, an int where the step is whole, else a float."""
        if self.choices:
            return self.choices[int(number)]
        return int(number) if float(self.step).is_integer() and float(self.low).is_integer() else float(number)


class KnobArray:
    """The live values of a run: float64, one slot a knob, one writer, one reader, over any buffer (shared memory too)."""

    def __init__(self, knobs: tuple[Knob, ...], values: Mapping[str, float | str], buffer: np.ndarray | None = None):
        self.knobs = {k.name: (i, k) for i, k in enumerate(knobs)}
        self.check(values)
        self.numbers = np.zeros(max(1, len(knobs))) if buffer is None else buffer
        for i, k in self.knobs.values():
            self.numbers[i] = k.to_number(values.get(k.name, k.default))

    def check(self, values: Mapping[str, float | str]) -> None:
        """Raises BadKnob for an unknown name or a value out of range; changes nothing."""
        for name, value in values.items():
            if name not in self.knobs:
                raise BadKnob(f"There is no knob '{name}' here. There are: {', '.join(self.knobs) or 'none'}.")
            self.knobs[name][1].to_number(value)

    def write(self, name: str, value: float | str) -> None:
        """Sets a knob; raises BadKnob for an unknown name or a value out of range."""
        self.check({name: value})
        i, knob = self.knobs[name]
        self.numbers[i] = knob.to_number(value)

    def read(self) -> dict[str, float | str]:
        """All values now."""
        return {name: k.to_value(self.numbers[i]) for name, (i, k) in self.knobs.items()}


class Knobs:
    """The values a method reads, as attributes: one snapshot a step, written by Run before it advances the method."""

    def __init__(self, values: Mapping[str, float | str]):
        self.values = dict(values)

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["values"][name]
        except KeyError:
            raise AttributeError(name) from None


class Rows:
    """What one pass answers, row 0 after the prefix and row i+1 after node i. Made lazily, so that a kernel may skip p.

    logits : [branches, N+1, V], as the model gives them
    scores : [N+1, V] float32 (float64 on the toy): guided, masked and warped, not normalised; argmax(scores + Gumbel noise) draws from p
    p      : [N+1, V], softmax of scores: what we verify with is what we sample from
    hidden : [branches, N+1, H], the last hidden states, or None
    """

    def __init__(self, logits: Tensor, warp: Callable[..., Tensor], hidden: Tensor | None = None):
        self.logits, self.hidden = logits, hidden
        self._warp = warp

    @cached_property
    def scores(self) -> Tensor:
        """Warped scores [N+1, V]."""
        return self._warp(self.logits)

    @cached_property
    def p(self) -> Tensor:
        """Laws [N+1, V], rows sum to 1."""
        return torch.softmax(self.scores, -1)

    @cached_property
    def soft(self) -> Tensor:
        """p as it would be at temperature 1 where the temperature is 0 [N+1, V]: what is left to compare where p knows one token only."""
        return torch.softmax(self._warp(self.logits, soft=True), -1)

    def law(self, start: int, stop: int) -> Tensor:
        """Some rows of p, [stop-start, V], without making the others."""
        return self.p[start:stop] if "p" in self.__dict__ else torch.softmax(self.scores[start:stop], -1)

    def first(self, count: int) -> Rows:
        """The first rows of the pass as a pass of their own: the ones that are verified, where others only propose."""
        hidden = None if self.hidden is None else self.hidden[:, :count]
        found = Rows(self.logits[:, :count], self._warp, hidden)
        found.__dict__ |= {name: self.__dict__[name][:count] for name in ("scores", "p", "soft") if name in self.__dict__}
        return found


@dataclass(frozen=True)
class LawHandle:
    """Laws by reference: some rows of an earlier pass, materialised only where a rule needs them."""

    rows: Rows
    index: Tensor  # int64 [N]

    def dense(self) -> Tensor:
        """[N, V]"""
        return self.rows.p[self.index]


@dataclass
class Draft:
    """Proposed tokens as a forest behind the prefix: chain, window, tree, wavefront, block or dual stream.

    tokens     : int64 [N], ids 0..V-1 of the head in use
    parents    : int64 [N] or None; -1 = after the prefix; None = a chain; siblings in the order drawn
    q          : the law each token was drawn from, [N, V] or a LawHandle; None = chosen deterministically (one-hot);
                 of a sibling: conditional on the earlier ones
    positions  : int64 [N] or None = length + depth - 1 (a child of the prefix has depth 1)
    visible    : bool [N+1, N+1] or None = ancestors; row and column 0 are the pending token. Where K tokens are pending, [N+K, N+K] and
                 the first K. In any case a row sees those cached and pending tokens only that stand at smaller positions
    predictive : bool [N] or None; rows that run with the drafter's adapter and can never be committed. They come last; no
                 other row sees them. What they say is warped without a grammar, and `Sequence.law` makes laws of it
    twins      : so many of the first predictive rows read what the first tokens read, see what they see, and stand where they stand:
                 up to the first layer with the adapter, a pass may compute them once
    """

    tokens: Tensor
    parents: Tensor | None = None
    q: Tensor | LawHandle | None = None
    positions: Tensor | None = None
    visible: Tensor | None = None
    predictive: Tensor | None = None
    twins: int = 0

    def laws(self) -> Tensor | None:
        """q as a tensor [N, V], or None."""
        return self.q.dense() if isinstance(self.q, LawHandle) else self.q


NO_DRAFT = Draft(torch.empty(0, dtype=torch.int64))


class Grammar(Protocol):
    """What may follow what, as a machine of states: pure functions, so that drafts can be masked along a hypothetical path."""

    start: Any

    def next(self, state: Any, token: int) -> Any:
        """The state behind a token."""
        ...

    def allowed(self, state: Any) -> Tensor:
        """The ids that may come next, bool [V]; at least one."""
        ...


class Resampler(Protocol):
    """What a sequence's `resampler` is: weights, shared by all runs.

    training_free : the same without its trained parts; itself where it has none
    """

    training_free: Resampler

    def up(self, tokens: Tensor, coarse: Raster, fine: Raster, first: int, stop: int) -> Tensor:
        """Laws [N, V] of the finer tokens that lie in coarser rows first..stop-1, row by row.

        tokens : int64 [stop * coarse.columns], the coarser rows so far
        """
        ...

    def down(self, tokens: Tensor, fine: Raster, coarse: Raster, first: int, stop: int) -> Tensor:
        """The coarser tokens int64 [(stop - first) * coarse.columns] of coarser rows first..stop-1.

        tokens : int64, at least the finer rows down to the last one that lies in them
        """
        ...


class Sequence(Protocol):
    """One run of one model on one prompt: cache, grammar and layout. The seam, running."""

    tokens: list[int]  # committed
    length: int  # how many, n
    limit: int  # n can not exceed this
    done: bool
    vocabulary: int  # V of the head in use
    layout: Layout
    device: torch.device
    sampling: Sampling
    codebook: Tensor | None  # by capability "codebook": [V, e], where each id lies among the codes of a picture; else None
    condition: Tensor | None  # by capability "condition": [C, H], what was seen of the prompt, for drafters that look at it; else None
    adapter: Any  # by capability "predictive_stream": what predictive rows run with; the drafter puts it here when it starts

    def forward(self, draft: Draft) -> Rows:
        """One pass over the pending token and the nodes; the cache of the nodes is kept until commit or the next forward."""
        ...

    def commit(self, nodes: list[int], token: int) -> list[int]:
        """Keeps the cache of `nodes` (a path), makes `token` pending. End of sequence and the length limit are cut here
        and nowhere else. Returns the tokens really committed: those of the nodes, then `token`, cut."""
        ...

    def law(self, logits: Tensor, *paths: list[int]) -> Tensor:
        """Laws [k, V] of raw guided logits [k, V] behind hypothetical paths, one a row or one for all: the same warp and grammar, for
        drafters."""
        ...

    def allowed(self, path: list[int]) -> Tensor | None:
        """The ids that may come behind a hypothetical path, bool [V]; None without a grammar. For drafters that need no law."""
        ...

    def state(self, path: list[int]) -> Hashable:
        """What the grammar knows behind a hypothetical path: where this is equal, equal logits have equal laws."""
        ...

    @property
    def pending(self) -> list[int]:
        """By capability "wavefront": committed positions that are not in the cache, ascending; [-1] before the first token. The first K
        rows of a pass are theirs, the row of position i being the law of position i+1."""
        ...

    def commit_at(self, positions: list[int], tokens: list[int], nodes: Iterable[int] = ()) -> None:
        """By capability "wavefront": keeps the cache of what was pending, commits tokens at any positions (ascending, no end of sequence)
        and makes them pending. `nodes` of the last pass are committed before them, where they stand and with their cache; all others are
        forgotten. `tokens` holds them in the order of commitment."""
        ...

    scales: tuple[int, ...]  # the smaller sizes, in pixels, that at_scale knows, ascending; none without the capability "at_scale"
    resampler: Resampler  # by capability "at_scale": its laws between two scales

    def at_scale(self, size: int) -> Sequence:
        """By capability "at_scale": a fresh sequence of the same model and prompt at another size; raises BadPrompt for one it cannot make.
        Who asked for it closes it."""
        ...

    def rewind(self, length: int) -> None:
        """By capability "at_scale": forgets the committed tokens from `length` on, and their cache. What is left is a prefix that was
        committed in order."""
        ...

    def close(self) -> None:
        """Frees the cache."""
        ...


Suits = Mapping[str, Mapping[str, float | str]]  # by method, then by knob
ANY_SUIT: Suits = MappingProxyType({})  # of a model on which the methods' own defaults do


class Backbone(Protocol):
    """A model: weights, tokenizer, renderer. It knows no method. All that others read of it is here."""

    name: str
    capabilities: frozenset[str]  # e.g. raster, wavefront, mesh, codebook, encode, hidden, at_scale
    sampling: Sampling  # defaults
    suits: Suits  # knob values that do better on this model than the methods' own defaults
    device: torch.device
    dtype: str  # of the passes: "float32", "bfloat16" or "float64"
    card: Mapping[str, Any]  # what it was taught and how it did; empty without one
    weights_hash: str | None  # of all its files; None where it has none
    parameters: int  # numbers that were trained
    vocabulary: int  # tokens it can choose from
    end: int | None  # the id that ends a sequence; None where all are equally long
    sizes: list[int]  # sides of the pictures that it makes, in pixels, ascending; empty for meshes
    words: Mapping[str, int]  # that it knows, with their ids; empty where any word will do

    def warning(self, text: str) -> str:
        """A sentence to be said before drawing, for a prompt that names nothing that the model can draw; else ""."""
        ...

    def unknown_words(self, text: str) -> dict[str, list[str]]:
        """The words of a text that it does not know, each with up to three known ones nearest in meaning, or that it is a slip of."""
        ...

    def start(self, prompt: Prompt) -> Sequence:
        """Prefills the prompt; raises BadPrompt."""
        ...

    def drafter(self, name: str) -> Any:
        """By capability of that name: its module that proposes, loaded once."""
        ...

    def render(self, tokens: list[int], positions: list[int], final: bool, size: int | None = None) -> Any:
        """The picture (uint8 [H, W, 3]) or mesh of some committed tokens; final=False may be cheaper and coarser.
        size: the prompt's."""
        ...


@dataclass
class Step:
    """One step of a method: what was committed, what it cost, and what the diagnostics draw.

    tokens, positions : committed now, each position once in a run
    draft             : what may be shown but is not committed: {"tokens", "positions", "scale", "status"}
    drafted           : nodes verified in this step; forwards, draft_forwards: target passes and all other passes
    trace             : what the diagnostics draw of it
    seconds, exact, knobs are written by Run
    """

    tokens: list[int]
    positions: list[int]
    drafted: int = 0
    forwards: int = 1
    draft_forwards: int = 0
    draft: dict[str, Any] | None = None
    trace: Trace = field(default_factory=Trace)
    seconds: float = 0.0
    exact: bool = True
    knobs: dict[str, float | str] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    """One row of `verify`: knobs, what is claimed, and the mutants (names in measure/verify/mutants.py) that must break the claim."""

    name: str  # for instance "SJD-EXACT random"
    claim: str  # "same law" | "same tokens" | "closed form" | "full spans" | "same context" | "same as unrelaxed" | "not exact"
    knobs: Mapping[str, float | str] = field(default_factory=dict)
    toy: Mapping[str, Any] = field(default_factory=dict)  # settings of the toy backbone that differ from its own
    mutants: tuple[str, ...] = ()
    law: str = ""  # of a "closed form": its name in measure/verify/closed_forms.py


@dataclass(frozen=True)
class Method:
    """A row of the table of methods."""

    name: str
    title: str
    decode: Callable[[Sequence, Knobs, Noise, Any], Iterator[Step]]
    knobs: tuple[Knob, ...]
    paper: str
    exact: Callable[[Knobs], bool]
    why: Callable[[Knobs], str]  # one sentence for the badge: why it is exact, or why not
    needs: frozenset[str] = frozenset()
    drafter: str = ""  # what the backbone's `drafter(name)` is asked for; "" = the method has none
    cases: tuple[Case, ...] = ()
    common: Mapping[str, float | str] = field(default_factory=dict)  # knobs for the claims that every method must meet; exact ones


VERIFY = Knob(
    "verify", "", "residual", choices=("residual", "match seed"), live=False,
    help="residual: speculative sampling, the same law as plain decoding. match seed: the very tokens of plain decoding with this seed.",
)  # fmt: skip
