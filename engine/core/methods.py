"""Methods, their presets and claims, and the Steps that they yield."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from engine.core.backbones import Backbone, Sequence
from engine.core.knobs import Knob, Knobs
from engine.trace import DecisionTrace, Trace

if TYPE_CHECKING:
    from engine.noise import Noise


@dataclass
class Step:
    """One step of a method: the committed tokens, the cost, and the data for diagnostics.

    tokens, positions : committed in this step, each position once in a run
    draft             : drafts that may be shown but are not committed: {"tokens", "positions", "scale", "status"}
    drafted           : nodes verified in this step; forwards, draft_forwards: passes of the target, all other passes
    trace             : data for diagnostics
    decide            : makes the trace's `decisions` from the pass just made; Run calls it once, outside its clock
    seconds, exact, knobs are set by Run
    """

    tokens: list[int]
    positions: list[int]
    drafted: int = 0
    forwards: int = 1
    draft_forwards: int = 0
    draft: dict[str, Any] | None = None
    trace: Trace = field(default_factory=Trace)
    decide: Callable[[], DecisionTrace | None] | None = None
    seconds: float = 0.0
    exact: bool = True
    knobs: dict[str, float | str] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    """One row of `verify`: knobs, the claim, and the mutants (names in research/exactness/mutants.py) that must break the claim."""

    name: str  # for instance "SJD-EXACT random"
    claim: str  # "same distribution" | "same tokens" | "closed form" | "full spans" | "same context" | "same as unrelaxed" | "not exact"
    knobs: Mapping[str, float | str] = field(default_factory=dict)
    toy: Mapping[str, Any] = field(default_factory=dict)  # settings of the toy backbone that differ from its defaults
    mutants: tuple[str, ...] = ()
    closed_form: str = ""  # of a "closed form": its name in research/exactness/closed_forms.py


@dataclass(frozen=True)
class Preset:
    """Knobs of a method under their own name."""

    name: str
    about: str  # one sentence for a person who does not know the paper
    knobs: Mapping[str, float | str]
    title: str = ""  # "" = the method's title, and the rest of the name in brackets
    needs: frozenset[str] = frozenset()  # beyond those of the method


Candidate = tuple[str, dict[str, float | str]]  # the name of a method or preset, and knobs


@dataclass(frozen=True)
class Method:
    """The description of a method, which menus, documentation, `verify`, `bench` and `auto` read.

    exact, why     : whether the output has the model's distribution with these knobs, and why (not): one sentence for the badge
    drafters       : names for the backbone's `drafter(name)`; those among its capabilities are loaded
    common         : exact knobs, for the claims that every method must meet
    drafts_past_end: False if no draft can follow a drafted end of the sequence; then mutants inside a span change nothing
    forks          : True if it can start after a prefix of tokens (Prompt.prefix)
    baseline       : True if no paper here proposes it
    candidates     : exact settings that `auto` may try on a backbone with the method's needs; by default none
    unmeasured     : the name (the method's or a preset's) that `auto` takes for a model without recorded tokens; "" = never
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
    forks: bool = True
    baseline: bool = False
    presets: tuple[Preset, ...] = ()
    candidates: Callable[[Backbone], list[Candidate]] = lambda backbone: []
    unmeasured: str = ""


PLAIN = "ar"  # the name of plain decoding, with which every method is compared
VERIFY = Knob(
    "verify", "", "residual", choices=("residual", "match seed"), live=False,
    help="residual: speculative sampling, the same distribution as plain decoding. match seed: the same tokens as plain decoding "
    "with this seed, on a GPU up to rounding.",
    label="Check", words={"residual": "same odds as plain", "match seed": "same result as plain"},
)  # fmt: skip
VERIFY_BLOCK = replace(  # of methods that draw all drafts of a pass independently of earlier passes
    VERIFY,
    choices=(*VERIFY.choices, "block"),
    help=VERIFY.help + " block: the same distribution, with more drafts accepted, because a chain is verified as a whole; drafts that "
    "were not reached are redrawn.",
    words={**VERIFY.words, "block": "same odds, guesses as a block"},
)
