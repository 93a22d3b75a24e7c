"""The callable for `custom_generate`: turns prepared inputs into a run, and the run into `generate`'s result."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, fields
from typing import Any, Protocol

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.generation.utils import GenerateDecoderOnlyOutput

from engine.core import Backbone, KnobArray, Method, Prompt
from engine.errors import BadKnob, BadPrompt, NotSupported
from engine.methods import METHODS, find
from engine.run import Run, generate
from engine.transformers import adaptive, pictures, request
from engine.transformers.adaptive import Pilot
from engine.transformers.host import CallerModel
from engine.transformers.probe import PROBED
from engine.transformers.processors import CallerDistribution, read

AVAILABLE = frozenset({"raster", "wavefront", "codebook"})  # capabilities that a caller's model can have
TEXT = "(ids)"  # a prompt's text, where an adapter asks for one: the backbone already has ids
SEEDS = 2**62  # seeds are drawn from 0 .. SEEDS - 1


class Streamer(Protocol):
    """A transformers streamer, which receives tokens as they are decided."""

    def put(self, value: Tensor) -> None:
        """Takes the prompt int64 [1, n], then new tokens int64 [1, k]."""
        ...

    def end(self) -> None:
        """Takes the end of the sequence."""
        ...


@dataclass(frozen=True)
class GenerateOptions:
    """Options of `foretoken` and `generate` in addition to the knobs of the method.

    seed            : of the random numbers; None: drawn from PyTorch's generator, so that torch.manual_seed repeats a run
    stream_to       : a streamer; `generate` keeps its own `streamer` to itself
    grid            : rows and columns, if the new tokens are a picture without row ends
    codebook        : [V, e], a vector for each id, for rules that compare tokens (default: the input embeddings)
    processors      : types of your own logits processors that depend on nothing but ids and scores
    generation_mode : "image" for the pictures of a model that has an adapter here (Janus)
    """

    seed: int | None = None
    stream_to: Streamer | None = None
    grid: tuple[int, int] | None = None
    codebook: Tensor | None = None
    processors: Sequence[type] = ()
    generation_mode: str = "text"


OPTIONS = tuple(field.name for field in fields(GenerateOptions))


@dataclass
class Generated(GenerateDecoderOnlyOutput):
    """Result with return_dict_in_generate=True: `sequences`, and in `totals` a dictionary per sequence with the method, exactness of
    the steps, seed, tokens, passes and seconds. Nothing else is filled."""

    totals: list[dict[str, Any]] | None = None


def foretoken(method: str = adaptive.NAME, **settings: Any) -> Foretoken:
    """A callable for `model.generate(..., custom_generate=foretoken())`, or `custom_generate=foretoken("sjdpp"), window=32`.

    method   : the name of a method or preset that needs no trained drafter; auto, the default, drafts only where drafts pay
    settings : knobs of the method and fields of Options; `generate` takes the same names, and wins
    Raises NotSupported for a method that does not exist or needs a trained drafter, BadKnob for a setting that does not exist.
    """
    return Foretoken(method, settings)


class Foretoken:
    """A decoding method for `custom_generate`.

    report : of the last call, a dictionary per sequence, as in `Generated.totals`; empty before the first
    """

    def __init__(self, name: str, settings: Mapping[str, Any]):
        """See `foretoken`."""
        self.name, self.report = name, []
        self.method, preset = (adaptive.METHOD, {}) if name == adaptive.NAME else find(name)
        _check_needs(name, self.method)
        self.settings = {**preset, **settings}
        KnobArray(self.method.knobs, {k: v for k, v in self.settings.items() if k not in OPTIONS})
        names = [*dict.fromkeys([*(knob.name for knob in self.method.knobs), *OPTIONS])]
        word = inspect.Parameter.KEYWORD_ONLY
        self.__signature__ = inspect.Signature([  # `generate` passes on what it finds here
            *(inspect.Parameter(each, inspect.Parameter.POSITIONAL_OR_KEYWORD) for each in ("model", "input_ids")),
            *(inspect.Parameter(each, word) for each in ("logits_processor", "stopping_criteria", "generation_config")),
            *(inspect.Parameter(each, word, default=None) for each in names),
            inspect.Parameter("model_kwargs", inspect.Parameter.VAR_KEYWORD),
        ])  # fmt: skip

    def __call__(
        self, model: PreTrainedModel, input_ids: Tensor, *, logits_processor: Any, stopping_criteria: Any, generation_config: Any,
        **keywords: Any,
    ) -> Tensor | Generated:  # fmt: skip
        """Sequences int64 [B, n + new], or a Generated; called by `generate`."""
        options, knobs, arguments = self._split(keywords)
        request.check(model, generation_config, arguments)
        reading = read(logits_processor, not generation_config.do_sample, options.processors)
        rows = request.rows_of(input_ids, arguments, reading)
        self._check_stream(options, len(rows))
        with pictures.keep_attention(model):
            outputs, totals = self._decode(model, rows, reading, stopping_criteria, options, knobs, input_ids, generation_config)
        self.report = totals
        sequences = _join(input_ids if options.generation_mode == "text" else input_ids[:, :0], outputs, generation_config)
        return Generated(sequences=sequences, totals=totals) if generation_config.return_dict_in_generate else sequences

    def _decode(
        self, model: PreTrainedModel, rows: Sequence[request.BatchRow], reading: CallerDistribution, stopping_criteria: Any,
        options: GenerateOptions, knobs: Mapping[str, Any], input_ids: Tensor, generation_config: Any,
    ) -> tuple[list[list[int]], list[dict[str, Any]]]:  # fmt: skip
        """The new tokens and the totals of each row."""
        if options.generation_mode == "image":
            backbones = [pictures.backbone(model, row, reading, generation_config) for row in rows]
        elif options.generation_mode == "text":
            backbones = self._hosts(model, rows, reading, stopping_criteria, options)
        else:
            raise NotSupported(f"There is no generation mode '{options.generation_mode}' here. Choose text or image.")
        outputs, totals = [], []
        for index, backbone in enumerate(backbones):
            seed = _seed(options, index)
            method, pilot = self._method_for(backbone)
            run = generate(backbone, method, Prompt(TEXT, seed=seed, sampling=reading.sampling), knobs, pilot, name=self.name)
            prompt = input_ids if options.generation_mode == "text" else input_ids[:, :0]
            outputs.append(_finish(run, options.stream_to, prompt))
            about = {} if pilot is None else {"decoding": pilot.passes, "reason": pilot.reason}
            totals.append({"method": self.name, "exact": run.exact, "seed": seed, **about, **run.totals})
        return outputs, totals

    def _method_for(self, backbone: Backbone) -> tuple[Method, Pilot | None]:
        """The method for a backbone, and what chooses its drafts. An adapter of ours makes a picture, where windows pay."""
        if self.name != adaptive.NAME:
            return self.method, None
        return (self.method, Pilot(backbone)) if isinstance(backbone, CallerModel) else (METHODS["sjdpp"], None)

    def _split(self, keywords: Mapping[str, Any]) -> tuple[GenerateOptions, dict[str, Any], dict[str, Any]]:
        """Options, knobs, and the remaining arguments, which go to the model's forward."""
        own = {*OPTIONS, *(knob.name for knob in self.method.knobs)}
        chosen = self.settings | {name: value for name, value in keywords.items() if name in own and value is not None}
        options = GenerateOptions(**{name: value for name, value in chosen.items() if name in OPTIONS})
        knobs = {name: value for name, value in chosen.items() if name not in OPTIONS}
        return options, knobs, {name: value for name, value in keywords.items() if name not in own}

    def _hosts(
        self, model: PreTrainedModel, rows: Sequence[request.BatchRow], reading: CallerDistribution, criteria: Any, options: GenerateOptions
    ) -> Iterator[CallerModel]:
        """A backbone for each prompt."""
        ending = request.ending_of(criteria, len(rows[0].input_ids))
        if options.grid:
            _check_grid(options.grid, ending.limit)
        if "wavefront" in self.method.needs:
            self._check_wavefront(ending, reading, options)
        for index, row in enumerate(rows):
            host = CallerModel(
                model, row.branches, ending.limit, reading.of_row(index, len(rows)), input_ids=row.input_ids.tolist(), ends=ending.ends,
                criteria=ending.criteria, grid=options.grid, codebook=options.codebook,
            )  # fmt: skip
            if self.name != adaptive.NAME or len(row.branches) > 1:  # auto tests a model later; but a pair is padded from the start
                PROBED.check(host)
            yield host

    def _check_stream(self, options: GenerateOptions, count: int) -> None:
        """Raises BadPrompt for a stream of several sequences, NotSupported for one of a method that commits tokens out of order."""
        if options.stream_to and count > 1:
            raise BadPrompt(f"stream_to takes one sequence, and there are {count}. Generate one prompt at a time.")
        if options.stream_to and "wavefront" in self.method.needs:
            raise NotSupported(f"{self.name} decides tokens out of order, so they cannot be streamed. Leave stream_to out.")

    def _check_wavefront(self, ending: request.Ending, reading: CallerDistribution, options: GenerateOptions) -> None:
        """Raises NotSupported where tokens may not be committed out of order."""
        if options.grid is None:
            raise NotSupported(f"{self.name} works on pictures. Say how many rows and columns of tokens: grid=(24, 24).")
        if ending.ends or ending.criteria or reading.needs_paths:
            raise NotSupported(
                f"{self.name} decides tokens out of order, so nothing may depend on the tokens before: set generation_config.eos_token_id "
                "to None, and leave stopping criteria and logits processors that read the ids out."
            )


def _check_needs(name: str, method: Method) -> None:
    """Raises NotSupported if a method needs something that no caller's model has."""
    missing = sorted(method.needs - AVAILABLE)
    if missing:
        free = [each for each, row in METHODS.items() if row.needs <= AVAILABLE]
        trained = "a drafter that was trained for the model" if method.drafters else "a model that was made for it"
        raise NotSupported(f"{name} needs {trained} ({', '.join(missing)}). Methods that need none: {', '.join(free)}.")


def _check_grid(grid: Sequence[int], limit: int) -> None:
    if len(grid) != 2 or min(grid) < 1 or grid[0] * grid[1] != limit:
        raise BadKnob(f"grid={tuple(grid)} and {limit} new tokens do not fit. Set max_new_tokens to rows times columns.")


def _seed(options: GenerateOptions, index: int) -> int:
    """The seed of the row of this number: counted from the given one, or drawn from PyTorch's generator."""
    return options.seed + index if options.seed is not None else int(torch.randint(SEEDS, ()))


def _finish(run: Run, streamer: Streamer | None, prompt: Tensor) -> list[int]:
    """The tokens of a finished run in order; a streamer gets each once it is decided."""
    if streamer:
        streamer.put(prompt.cpu())
    with closing(run):
        for step in run:
            if streamer and step.tokens:
                streamer.put(torch.tensor([step.tokens]))
    if streamer:
        streamer.end()
    return run.in_order


def _join(prompt: Tensor, outputs: list[list[int]], settings: Any) -> Tensor:
    """Prompts [B, n] and new tokens as one tensor [B, n + longest]; shorter ones are padded on the right, as `generate` does it."""
    longest = max(map(len, outputs))
    padding = 0
    if any(len(tokens) < longest for tokens in outputs):
        padding = getattr(settings, "_pad_token_tensor", None)
        if padding is None:
            raise BadPrompt("The sequences have different lengths, and there is no padding token. Give pad_token_id.")
    new = [tokens + [int(padding)] * (longest - len(tokens)) for tokens in outputs]
    return torch.cat([prompt, torch.tensor(new, dtype=prompt.dtype, device=prompt.device).view(len(outputs), longest)], 1)
