"""The shared types: prompts, knobs, drafts, the rows of a forward pass, steps, and the protocols of backbones and sequences.

Backbones and methods meet only here. A backbone turns a `Prompt` into a `Sequence`. A method drives that `Sequence`: it proposes a
`Draft`, reads `Rows`, commits tokens and yields a `Step`. The invariant: committed tokens are x[0:n]; the cache holds the prompt and
x[0:n-1]; x[n-1] is *pending* and is the first input of the next pass. If the committed positions are not a prefix (wavefronts), every
committed position that is not in the cache is pending, and all of them are the first inputs.

"law" in an identifier is the code's short word for a next-token probability distribution.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from collections.abc import Sequence as Listed
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from torch import Tensor

from engine.decimals import decimal
from engine.errors import BadKnob, BadPrompt, NotSupported
from engine.trace import Trace

if TYPE_CHECKING:
    from engine.layout import Layout, Raster
    from engine.noise import Noise


@dataclass(frozen=True)
class Sampling:
    """How logits become a distribution. Order: guidance, adherence, grammar, temperature, top-k, top-p, softmax."""

    temperature: float = 1.0  # 0 = always the most probable token
    top_k: int = 0  # 0 = off
    top_p: float = 1.0  # 1 = off
    guidance: float = 1.0  # u + g (c - u); 1 = conditional only
    temperature_last: bool = False  # True: top-k and top-p filter before the temperature is applied (BPT's order)
    adherence: float = 0.0  # meshes: nats that a vertex loses for each unit of distance from the points (engine/backbones/adherence.py)

    def softened(self) -> Sampling:
        """The same settings, with temperature 1 instead of 0."""
        return replace(self, temperature=self.temperature or 1.0)


@dataclass(frozen=True)
class Prompt:
    """What to generate: text, class label or points, with seed, size and sampling."""

    text: str | None = None
    label: int | None = None
    points: Tensor | None = None  # [N, 6] float32: xyz and unit normal
    seed: int = 0
    size: int | None = None  # pixels, or a face budget for a mesh; None = the backbone's default
    sampling: Sampling | None = None  # None = the backbone's default

    def __post_init__(self) -> None:
        """Raises BadPrompt for text that cannot be written to a file or a terminal: NUL and lone surrogates."""
        for place, character in enumerate(self.text or "", 1):
            if character == "\0" or "\ud800" <= character <= "\udfff":
                code = f"U+{ord(character):04X}"
                raise BadPrompt(f"Character {place} of the prompt is {code}, which is not a character of text. Remove it.")


@dataclass(frozen=True)
class Knob:
    """One setting of a method. Sliders, drop-downs, checks, documentation and tests are made from it."""

    name: str
    symbol: str  # the paper's letter, for the slider's label; "" if it has none
    default: float | str
    low: float = 0.0
    high: float = 1.0
    step: float = 0.01
    scale: str = "linear"  # or "log"
    help: str = ""
    choices: tuple[str, ...] = ()  # names; stored as their index
    live: bool = True  # False: read only when the run starts
    when: tuple[str, ...] = ()  # another knob, then the choices of it that enable this one; () = always enabled
    label: str = ""  # its name on the page; "" = the name in words
    words: Mapping[str, str] = field(default_factory=dict, hash=False)  # by choice: what it is called on the page, if not by its name

    def to_number(self, value: float | str) -> float:
        """The number that stores a value; raises BadKnob with the range or the choices."""
        if self.choices:
            names = {c.replace("-", " ").replace("_", " "): i for i, c in enumerate(self.choices)}
            key = str(value).strip().lower().replace("-", " ").replace("_", " ")
            if key not in names:
                raise BadKnob(f"{self.name} cannot be '{value}'. Choose one of: {', '.join(self.choices)}.")
            return float(names[key])
        number = decimal(value)
        if number is None:
            raise BadKnob(f"{self.name} needs a number, not '{value}'.")
        if not self.low <= number <= self.high:  # also refuses nan
            raise BadKnob(f"{self.name} = {value} is out of range. Choose {self.low:g} to {self.high:g}.")
        if self.is_whole and number != int(number):
            raise BadKnob(f"{self.name} = {value} is not a whole number. Choose {self.low:g} to {self.high:g}.")
        return float(number)

    @property
    def is_whole(self) -> bool:
        """True if its values are whole numbers."""
        return not self.choices and float(self.step).is_integer() and float(self.low).is_integer()

    def to_value(self, number: float) -> float | str:
        """The value of a stored number: the name of a choice, an int if the step is whole, else a float."""
        if self.choices:
            return self.choices[int(number)]
        return int(number) if self.is_whole else float(number)


class KnobArray:
    """The live values of a run: float64, one slot per knob. One thread writes while another reads."""

    def __init__(self, knobs: tuple[Knob, ...], values: Mapping[str, float | str]):
        self.knobs = {k.name: (i, k) for i, k in enumerate(knobs)}
        self.check(values)
        self.numbers = np.zeros(max(1, len(knobs)))
        for i, k in self.knobs.values():
            self.numbers[i] = k.to_number(values.get(k.name, k.default))
        self._read: tuple[bytes, dict[str, float | str]] = b"", {}  # the numbers that were read last, and their values

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
        """The current values by name."""
        return dict(self.seen())

    def seen(self) -> Mapping[str, float | str]:
        """The same, and the same mapping until one of them changes. It must not be written to."""
        numbers = self.numbers.tobytes()
        if numbers != self._read[0]:
            told = np.frombuffer(numbers)  # another thread may write meanwhile
            self._read = numbers, {name: k.to_value(told[i]) for name, (i, k) in self.knobs.items()}
        return self._read[1]


class Knobs:
    """The values a method reads, as attributes: one snapshot per step, written by Run before it advances the method."""

    def __init__(self, values: Mapping[str, float | str]):
        self.take(values)

    def take(self, values: Mapping[str, float | str]) -> None:
        """Replaces all values."""
        self.values = dict(values)
        self.__dict__ = {"values": self.values} | self.values  # a plain attribute is found faster than by a function

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """A value by its name."""
            ...


class Ids:
    """Ids that may be on a GPU. The host waits when it reads something there, so it reads them once, and together with something else."""

    def __init__(self, tokens: Tensor):
        """tokens : int64 [N]"""
        self.tokens = tokens
        self._read: list[int] | None = None

    def listed(self) -> list[int]:
        """The same on the host."""
        if self._read is None:
            self._read = self.tokens.tolist()
        return self._read

    def have(self, ids: list[int]) -> None:
        """Takes what somebody else has read, at least those that will be asked for."""
        self._read = ids

    def along(self, more: Tensor) -> list[int]:
        """Other numbers, int64 [K], on the host. The ids come in the same transfer, and are not read again."""
        if self.tokens.device.type == "cpu":
            self.listed()
        if self._read is not None or not len(self.tokens):
            return more.tolist()
        both = torch.cat([more, self.tokens.to(more.device)]).tolist()
        self._read = both[len(more) :]
        return both[: len(more)]


class Launch(Protocol):
    """A pass that begins when something of it is needed, so that what is asked about its rows before can go along with it.

    count : its rows; place : device and type of its results; ahead : see `Rows`, after a verdict
    """

    count: int
    place: tuple[torch.device, torch.dtype]
    ahead: Tensor | None

    def start(self) -> tuple[Tensor, Tensor]:
        """Hidden states and logits."""
        ...

    def verdict(self, request: Any) -> Any | None:
        """The verdict on a request (engine/verify/request.py); None: too late, or not possible."""
        ...


class Rows:
    """The output of one pass: row 0 follows the prefix, row i+1 follows node i. Computed lazily, so that p can be skipped.

    logits : [branches, N+1, V], the model's raw output
    scores : [N+1, V] float32 (float64 on the toy): guided, masked and warped, not normalised; argmax(scores + Gumbel noise) draws from p
    p      : [N+1, V], softmax of scores: the distributions used both to verify and to sample
    hidden : [branches, N+1, H], the last hidden states, or None
    settings : (number of rows) -> the sampling and the allowed ids bool [rows, V] or None, which are all that the warp depends on: for
        kernels that go from logits to tokens; None if there is no such function
    drafted : the ids of the draft's nodes
    launch : the pass, if it may still wait for a question about its rows
    host : (logits) -> the rows for a processor, each computed when it is needed (engine/verify/host.py); None elsewhere
    """

    def __init__(
        self,
        logits: Tensor | Callable[[], Tensor],
        warp: Callable[..., Tensor],
        hidden: Tensor | None = None,
        settings: Callable[[int], tuple[Sampling, Tensor | None]] | None = None,
        drafted: Ids | None = None,
        launch: Launch | None = None,
        host: Callable[[Tensor], Any] | None = None,
    ):
        """logits : or a function that computes them on first use; hidden : with a launch, its own"""
        self._logits, self._hidden = logits, hidden
        if isinstance(logits, Tensor):
            self.__dict__["logits"] = logits  # found without the property's lock
        self.drafted = Ids(NO_DRAFT.tokens) if drafted is None else drafted
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
    def ahead(self) -> Tensor | None:
        """What a drafter has computed inside the pass, from the row after the accepted drafts; None if it has not."""
        return None if self.launch is None else self.launch.ahead

    def has(self, p: Tensor) -> None:
        """Takes distributions [N+1, V] that a kernel has computed from these logits, so that they are not computed again."""
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

    def law(self, start: int, stop: int) -> Tensor:
        """Rows start..stop-1 of p, [stop-start, V], without computing the others."""
        if "p" in self.__dict__:
            return self.p[start:stop]
        return torch.softmax(self.scores[start:stop], -1) if self.host is None else self.host.probs(start, min(stop, self.count))

    def first(self, count: int) -> Rows:
        """The first rows alone: those that are verified, if the rest only propose."""
        hidden = None if self.hidden is None else self.hidden[:, :count]
        found = Rows(self.logits[:, :count], self._warp, hidden, self.settings, self.drafted)
        found.__dict__ |= {name: self.__dict__[name][:count] for name in ("scores", "p", "soft") if name in self.__dict__}
        found.__dict__["host"] = self.host  # which computes the first rows alone, too
        return found


@dataclass(frozen=True)
class Chosen:
    """The distributions of tokens that were chosen, not drawn: one-hot, and made only where somebody reads them. tokens : int64 [N]"""

    tokens: Tensor
    vocabulary: int
    dtype: torch.dtype

    def dense(self) -> Tensor:
        """[N, V]"""
        found = torch.zeros(len(self.tokens), self.vocabulary, dtype=self.dtype, device=self.tokens.device)
        return found.scatter_(1, self.tokens[:, None], 1.0)


@dataclass
class Draft:
    """Proposed tokens as a forest after the prefix: chain, window, tree, wavefront, block or dual stream.

    tokens     : int64 [N], ids 0..V-1 of the output vocabulary in use
    parents    : int64 [N] or None; -1 = after the prefix; None = a chain; siblings in the order drawn
    q          : the distribution each token was drawn from, [N, V] or Chosen, for a sibling conditional on the earlier ones;
                 None = chosen deterministically (one-hot)
    positions  : int64 [N] or None = length + depth - 1 (a child of the prefix has depth 1)
    visible    : bool [N+1, N+1] or None = ancestors; row and column 0 are the pending token. With K pending tokens: [N+K, N+K], and
                 the first K rows and columns. A row never attends to cached or pending tokens at larger positions than its own
    predictive : bool [N] or None; rows that run with the drafter's adapter and are never committed. They come last, and no
                 other row attends to them. Their logits are warped without a grammar; `Sequence.law` turns them into distributions
    twins      : how many of the first predictive rows have the same input, mask and position as the first tokens; a pass may
                 compute these once, up to the first layer with the adapter
    """

    tokens: Tensor
    parents: Tensor | None = None
    q: Tensor | Chosen | None = None
    positions: Tensor | None = None
    visible: Tensor | None = None
    predictive: Tensor | None = None
    twins: int = 0

    def laws(self) -> Tensor | None:
        """q as a tensor [N, V], or None."""
        return self.q.dense() if isinstance(self.q, Chosen) else self.q


NO_DRAFT = Draft(torch.empty(0, dtype=torch.int64))


class Grammar(Protocol):
    """Which tokens may follow, as a state machine of pure functions, so that drafts can be masked along a hypothetical path.

    masks : bool [M, V], the distinct answers of `allowed`, if they are few: a GPU then keeps them and is sent their numbers; else None
    """

    start: Any
    masks: Tensor | None

    def next(self, state: Any, token: int) -> Any:
        """The state after a token."""
        ...

    def allowed(self, state: Any) -> Tensor:
        """The ids that may come next, bool [V]; at least one."""
        ...

    def mask_index(self, state: Any) -> int:
        """By grammars with `masks`: the row of a state."""
        ...


class Bias(Protocol):
    """What logits lose along a path, besides what a grammar forbids: a state machine of pure functions, too."""

    start: Any

    def next(self, state: Any, token: int) -> Any:
        """The state after a token."""
        ...

    def loss(self, state: Any) -> Tensor:
        """What is subtracted from the guided logits of the next token, float32 [V]."""
        ...


class Resampler(Protocol):
    """Converts tokens between two scales. Its weights are shared by all runs.

    training_free : the same resampler without trained parts; itself if it has none
    """

    training_free: Resampler

    def up(self, tokens: Tensor, coarse: Raster, fine: Raster, first: int, stop: int) -> Tensor:
        """Distributions [N, V] of the finer tokens that lie in coarser rows first..stop-1, row by row.

        tokens : int64 [stop * coarse.columns], the coarser rows so far
        """
        ...

    def down(self, tokens: Tensor, fine: Raster, coarse: Raster, first: int, stop: int) -> Tensor:
        """The coarser tokens int64 [(stop - first) * coarse.columns] of coarser rows first..stop-1.

        tokens : int64, at least the finer rows down to the last one that lies in them
        """
        ...


class Sequence(Protocol):
    """One run of one model on one prompt: cache, grammar and layout."""

    tokens: list[int]  # committed
    length: int  # number of committed tokens, n
    limit: int  # the largest n
    done: bool
    vocabulary: int  # size V of the output vocabulary in use
    layout: Layout
    device: torch.device
    sampling: Sampling
    codebook: Tensor | None  # by capability "codebook": [V, e], the code vector of each id; else None
    condition: Tensor | None  # by capability "condition": [C, H], features of the prompt, for drafters that attend to it; else None
    masks: Tensor | None  # the distinct masks of its grammar, bool [M, V], on the device; None without a grammar, or if they are many
    levels: Any  # by capability "vertices": how ids spell the vertices of a mesh (Levels in engine/mesh/bpt_tokens.py); else None
    adapter: Any  # by capability "predictive_stream": the weights of predictive rows; the drafter sets it when it starts

    def forward(self, draft: Draft) -> Rows:
        """One pass over the pending token and the nodes; their cache entries are kept until commit or the next forward."""
        ...

    def commit(self, nodes: list[int], token: int) -> list[int]:
        """Keeps the cache entries of `nodes` (a path) and makes `token` pending. Only this method cuts at the end of the sequence and at
        the length limit. Returns the committed tokens: those of the nodes, then `token`, after the cut."""
        ...

    def law(self, logits: Tensor, *paths: list[int]) -> Tensor:
        """Distributions [k, V] of raw guided logits [k, V] after hypothetical paths, one path per row or one for all. Applies the same
        warp and grammar as a pass; for drafters."""
        ...

    def biased(self, logits: Tensor, *paths: list[int]) -> Tensor:
        """Raw guided logits [k, V] less the bias after hypothetical paths, one path per row or one for all: what `law` warps."""
        ...

    def allowed(self, path: list[int]) -> Tensor | None:
        """The ids that may follow a hypothetical path, bool [V]; None without a grammar. For drafters that need no distribution."""
        ...

    def state(self, path: list[int]) -> Hashable:
        """The state of grammar and bias after a hypothetical path: if states are equal, equal logits give equal distributions."""
        ...

    def mask_index(self, path: list[int]) -> int:
        """With `masks`: the row of those that may follow a hypothetical path."""
        ...

    def laws(self, logits: Tensor) -> Tensor:
        """With `masks`: `law` under every one of them, [k, M, V]."""
        ...

    @property
    def pending(self) -> list[int]:
        """By capability "wavefront": committed positions that are not in the cache, ascending; [-1] before the first token. The first K
        rows of a pass belong to them: the row of position i is the distribution of position i+1."""
        ...

    def commit_at(self, positions: list[int], tokens: list[int], nodes: Iterable[int] = ()) -> None:
        """By capability "wavefront": keeps the cache of pending tokens, commits tokens at any positions (ascending, no end of sequence)
        and makes them pending. First commits `nodes` of the last pass at their positions, with their cache; discards all other nodes.
        `Sequence.tokens` holds tokens in the order of commitment."""
        ...

    scales: tuple[int, ...]  # the smaller sizes, in pixels, that at_scale accepts, ascending; empty without the capability "at_scale"
    resampler: Resampler  # by capability "at_scale": converts tokens between two scales

    def at_scale(self, size: int) -> Sequence:
        """By capability "at_scale": a new sequence of the same model and prompt at another size; raises BadPrompt for an unsupported size.
        The caller must close it."""
        ...

    def rewind(self, length: int) -> None:
        """By capability "at_scale": discards the committed tokens from `length` on, and their cache. The rest must be a prefix that was
        committed in order."""
        ...

    def close(self) -> None:
        """Frees the cache."""
        ...


Suits = Mapping[str, Mapping[str, float | str]]  # by method, then by knob
ANY_SUIT: Suits = MappingProxyType({})  # for a model that keeps the methods' defaults


class Backbone(Protocol):
    """A model: weights, tokenizer, renderer. It does not depend on any method. Other code uses only these members.

    Backbones are children of it. The defaults are of a model that reads any words and has no drafter, and whose sequences are equally long.
    """

    name: str
    capabilities: frozenset[str]  # e.g. raster, wavefront, mesh, codebook, encode, hidden, at_scale, sketch; joined: see engine/many.py
    sampling: Sampling  # defaults
    suits: Suits = ANY_SUIT  # knob values that work better on this model than the methods' defaults
    device: torch.device
    dtype: str  # of the passes: "float32", "bfloat16" or "float64"
    card: Mapping[str, Any] = MappingProxyType({})  # its training and its measurements; empty without a card
    weights_hash: str | None = None  # of all its files; None if it has none
    parameters: int  # number of trained parameters
    vocabulary: int  # number of tokens
    end: int | None = None  # the id that ends a sequence; None if all sequences are equally long
    sizes: Listed[int] = ()  # sides of its pictures in pixels, ascending; empty for meshes
    words: Mapping[str, int] = MappingProxyType({})  # the known words with their ids; empty if any word is accepted

    def warning(self, text: str) -> str:
        """A sentence to show before drawing if the prompt names nothing that the model can draw; else ""."""
        return ""

    def added(self, prompt: Prompt) -> str:
        """The words that the model adds to those of a prompt, by its seed; "" if it adds none."""
        return ""

    def unknown_words(self, text: str) -> dict[str, list[str]]:
        """The unknown words of a text, each with up to three known words that are nearest in meaning or spelling."""
        return {}

    def start(self, prompt: Prompt) -> Sequence:
        """Prefills the prompt; raises BadPrompt."""
        ...

    def drafter(self, name: str) -> Any:
        """By the capability of that name: the drafter, loaded once. Raises NotSupported if there is none."""
        raise NotSupported(f"{self.name} has no drafter '{name}'. Choose a method that needs none.")

    def render(self, tokens: list[int], positions: list[int], final: bool, size: int | None = None) -> Any:
        """The picture (uint8 [H, W, 3]) or mesh of some committed tokens; final=False may be cheaper and coarser.
        size: the prompt's."""
        ...

    def sketch(self, grid: np.ndarray, rows: range, fine: bool) -> np.ndarray:
        """By the capability "sketch": some rows of tokens of a growing picture, uint8 [pixels of the rows, W, 3], so that a change costs
        its neighbourhood only. grid: int [rows, columns], -1 = missing; fine: by the decoder of finished pictures"""
        ...


@dataclass
class Step:
    """One step of a method: the committed tokens, the cost, and the data for diagnostics.

    tokens, positions : committed in this step, each position once in a run
    draft             : drafts that may be shown but are not committed: {"tokens", "positions", "scale", "status"}
    drafted           : nodes verified in this step; forwards, draft_forwards: target passes and all other passes
    trace             : data for diagnostics
    seconds, exact, knobs are set by Run
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
    """One row of `verify`: knobs, the claim, and the mutants (names in measure/verify/mutants.py) that must break the claim."""

    name: str  # for instance "SJD-EXACT random"
    claim: str  # "same law" | "same tokens" | "closed form" | "full spans" | "same context" | "same as unrelaxed" | "not exact"
    knobs: Mapping[str, float | str] = field(default_factory=dict)
    toy: Mapping[str, Any] = field(default_factory=dict)  # settings of the toy backbone that differ from its defaults
    mutants: tuple[str, ...] = ()
    law: str = ""  # of a "closed form": its name in measure/verify/closed_forms.py


@dataclass(frozen=True)
class Preset:
    """Knobs of a method under a name of their own."""

    name: str
    about: str  # one sentence for a person who does not know the paper
    knobs: Mapping[str, float | str]
    title: str = ""  # "" = the method's title, and the rest of the name in brackets
    needs: frozenset[str] = frozenset()  # beyond those of the method


Candidate = tuple[str, dict[str, float | str]]  # the name of a method or preset, and knobs


def no_candidates(backbone: Backbone) -> list[Candidate]:
    """The candidates of a method that `auto` never tries."""
    return []


@dataclass(frozen=True)
class Method:
    """All that is known of a method: menus, documentation, `verify`, `bench` and `auto` read it here.

    exact, why     : whether the output has the model's distribution with these knobs, and why (not): one sentence for the badge
    drafters       : names for the backbone's `drafter(name)`, of those that are among its capabilities
    common         : exact knobs, for the claims that every method must meet
    drafts_past_end: False if no draft can follow a drafted end of the sequence, so that the mutant that forgets it changes nothing
    baseline       : whether no paper here proposes it
    candidates     : what `auto` may try on a backbone that has what the method needs; all of it exact
    unmeasured     : the name (its own or a preset's) that `auto` takes for a model of which no tokens are recorded; "" = never
    """

    name: str
    title: str
    decode: Callable[[Sequence, Knobs, Noise, Any], Iterator[Step]]
    knobs: tuple[Knob, ...]
    paper: str
    exact: Callable[[Knobs], bool]
    why: Callable[[Knobs], str]
    about: str = ""  # one sentence for a person who does not know the paper
    needs: frozenset[str] = frozenset()
    drafters: tuple[str, ...] = ()
    cases: tuple[Case, ...] = ()
    common: Mapping[str, float | str] = field(default_factory=dict)
    drafts_past_end: bool = True
    baseline: bool = False
    presets: tuple[Preset, ...] = ()
    candidates: Callable[[Backbone], list[Candidate]] = no_candidates
    unmeasured: str = ""


PLAIN = "ar"  # the name of plain decoding, with which every method is compared
VERIFY = Knob(
    "verify", "", "residual", choices=("residual", "match seed"), live=False,
    help="residual: speculative sampling, the same distribution as plain decoding. match seed: the same tokens as plain decoding "
    "with this seed.",
    label="Checked for", words={"residual": "the same chances", "match seed": "the same result"},
)  # fmt: skip
