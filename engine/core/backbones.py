"""The protocols of a model (Backbone) and of one run of it (Sequence), with the state machines that constrain a run's tokens."""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterable, Mapping
from collections.abc import Sequence as Listed
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from torch import Tensor

from engine.core.prompts import Prompt, Sampling, Understood
from engine.core.rows import Draft, Rows
from engine.errors import NotSupported

if TYPE_CHECKING:
    from engine.layout import Layout, Raster


class Grammar(Protocol):
    """The tokens that may follow, as a state machine of pure functions, so that drafts can be masked along a hypothetical path.

    masks : bool [M, V], the distinct results of `allowed_ids`, if they are few: a GPU keeps them and gets only their numbers; else None
    automaton : with `masks`: `next` and `allowed_ids` for tensors of states, by which a GPU follows paths (engine/mesh/bpt_grammar.py)
    """

    start: Any
    masks: Tensor | None
    automaton: Any

    def next(self, state: Any, token: int) -> Any:
        """The state after a token."""
        ...

    def allowed_ids(self, state: Any) -> Tensor:
        """The ids that may come next, bool [V], at least one of them True."""
        ...

    def mask_index(self, state: Any) -> int:
        """For grammars with `masks`: the row of a state."""
        ...


class Bias(Protocol):
    """Penalty on the logits along a path, in addition to a grammar: also a state machine of pure functions."""

    start: Any

    def next(self, state: Any, token: int) -> Any:
        """The state after a token."""
        ...

    def loss(self, state: Any) -> Tensor:
        """Penalty to subtract from the guided logits of the next token, float32 [V]."""
        ...

    def favourite(self, state: Any) -> int | None:
        """The token that it favours over all others, a good draft; None if there is none."""
        ...


class Resampler(Protocol):
    """Converts tokens between two scales. All runs share its weights.

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

        tokens : int64, at least the finer rows down to the last one needed
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
    masks: Tensor | None  # the distinct masks of its grammar, bool [M, V], on the device; None without a grammar, or if there are many
    automaton: Any  # its grammar's `automaton`, on the device; None without `masks`, or if a bias follows the path too
    levels: Any  # by capability "vertices": how ids spell the vertices of a mesh (TokenLevels in engine/mesh/bpt_tokens.py); else None
    workspace: Any  # where passes have fixed shapes: the tensors and graphs that its model lends (engine/networks/workspace.py); else None
    adapter: Any  # by capability "predictive_stream": the weights of predictive rows, set by the drafter when it starts

    # By capability "hidden", if set before the first pass: the last hidden state [branches, H] of each committed row, by the position that
    # the row predicts
    hidden_states: dict[int, Tensor] | None

    def forward(self, draft: Draft) -> Rows:
        """One pass over the pending token and the nodes; their cache entries are kept until commit or the next forward."""
        ...

    def commit(self, nodes: list[int], token: int) -> list[int]:
        """Keeps the cache entries of `nodes` (a path) and makes `token` pending. Only this method cuts at the end of the sequence and at
        the length limit. Returns the committed tokens after the cut: the nodes' tokens, then `token`."""
        ...

    def probs_after(self, logits: Tensor, *paths: list[int]) -> Tensor:
        """Distributions [k, V] of raw guided logits [k, V] after hypothetical paths, one path per row or one for all. For drafters: applies
        the same warp and grammar as a pass."""
        ...

    def biased_logits(self, logits: Tensor, *paths: list[int]) -> Tensor:
        """Raw guided logits [k, V] minus the bias after hypothetical paths, one path per row or one for all: the input of `probs_after`'s
        warp."""
        ...

    def favourites(self, count: int) -> list[int]:
        """By capability "vertices": up to `count` tokens that the bias favours, each after the ones before; [] without a bias."""
        ...

    def allowed_ids(self, path: list[int]) -> Tensor | None:
        """The ids that may follow a hypothetical path, bool [V]; None without a grammar. For drafters that need no distribution."""
        ...

    def state(self, path: list[int]) -> Hashable:
        """The state of grammar and bias after a hypothetical path: if states are equal, equal logits give equal distributions."""
        ...

    def mask_index(self, path: list[int]) -> int:
        """With `masks`: the row that applies after a hypothetical path."""
        ...

    def probs_by_mask(self, logits: Tensor) -> Tensor:
        """With `masks`: `probs_after` under every one of them, [k, M, V]."""
        ...

    @property
    def pending(self) -> list[int]:
        """By capability "wavefront": committed positions that are not in the cache, ascending; [-1] before the first token. The first K
        rows of a pass are theirs: the row of position i is the distribution of position i+1."""
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

    def copy(self, other: Sequence, count: int) -> None:
        """By capability "joined", on a processor: commits the first `count` tokens of a sequence on the same prompt, with its cache."""
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

    Backbones subclass it. The defaults describe a model that reads any words, has no drafter, and has sequences of equal length.
    """

    name: str
    capabilities: frozenset[str]  # e.g. raster, wavefront, mesh, codebook, encode, hidden, at_scale, sketch; joined: see engine/many.py
    sampling: Sampling  # defaults
    suits: Suits = ANY_SUIT  # knob values that work better on this model than the methods' defaults
    device: torch.device
    dtype: str  # number type of the passes: "float32", "bfloat16" or "float64"
    weight_form: str = "full"  # of its linear layers' weights: "full", "int8" or "nf4"; all claims of exactness are relative to these
    card: Mapping[str, Any] = MappingProxyType({})  # its training and its measurements; empty without a card
    weights_hash: str | None = None  # a hash of all its files; None if it has none
    parameters: int  # number of trained parameters
    vocabulary: int  # number of tokens
    end: int | None = None  # the id that ends a sequence; None if all sequences are equally long
    sizes: Listed[int] = ()  # sides of its pictures in pixels, ascending; empty for meshes
    words: Mapping[str, int] = MappingProxyType({})  # the known words with their ids; empty if any word is accepted

    @property
    def precision(self) -> str:
        """Number type of the passes, and the form of the weights unless they are full."""
        return self.dtype if self.weight_form == "full" else f"{self.dtype}, {self.weight_form} weights"

    def warning(self, text: str) -> str:
        """A sentence to show before drawing if the prompt names nothing that the model can draw; else ""."""
        return ""

    def understand(self, text: str, kept: Container[str] = ()) -> Understood:
        """The model's reading of a prompt. kept : misspelled words that are not corrected"""
        return Understood(text)

    def words_read(self, prompt: Prompt) -> str | None:
        """The prompt's text as the model reads it, with all that its seed chooses; by default the text itself."""
        return prompt.text

    def added_words(self, prompt: Prompt) -> str:
        """The words that the model adds to those of a prompt, by its seed; "" if it adds none."""
        return ""

    def unknown_words(self, text: str) -> dict[str, list[str]]:
        """The unknown words of a text, each with up to three known words nearest in meaning or spelling."""
        return {}

    def start(self, prompt: Prompt) -> Sequence:
        """A sequence on the prompt, which its first pass reads; raises BadPrompt."""
        ...

    def warm_up(self, window: int) -> None:
        """On a GPU, prepares the passes of plain decoding and of a window of this many tokens, so that the first run does not wait."""

    def drafter(self, name: str) -> Any:
        """By the capability of this name: the drafter, loaded once. Raises NotSupported if there is none."""
        raise NotSupported(f"{self.name} has no drafter '{name}'. Choose a method that needs none.")

    def render(self, tokens: list[int], positions: list[int], final: bool, size: int | None = None) -> Any:
        """The picture (uint8 [H, W, 3]) or mesh of some committed tokens; final=False may be cheaper and coarser.
        size: the prompt's."""
        ...

    def prior_token_ids(self, tokens: list[int], size: int | None = None) -> Tensor:
        """The tokens of a finished run, in order, as the input of the diffusion model that draws the picture. Raises NotSupported if there
        is none, or for an unfinished run. size: the prompt's."""
        raise NotSupported(f"{self.name} draws its own results; `prior_token_ids` is for models whose pictures a diffusion model draws.")

    def sketch(self, grid: np.ndarray, rows: range, fine: bool) -> np.ndarray:
        """By capability "sketch": the pixels of some token rows of a growing picture, uint8 [pixels of the rows, W, 3], so that a change
        costs only its neighbourhood. grid: int [rows, columns], -1 = missing; fine: use the decoder of finished pictures"""
        ...
