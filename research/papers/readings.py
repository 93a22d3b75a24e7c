"""Readings of the shipped drafters on pictures that the model draws itself: what they say of each place, beside what the model says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from engine.core import Backbone, Draft, Prompt, Sequence
from engine.drafters.predictive_stream import PredictiveStream, within
from engine.errors import NotSupported
from engine.methods import find
from engine.methods.cross_regression import dual
from engine.noise import Noise
from engine.run import Run, generate
from engine.sampling import guide
from engine.words.emoji_scenes import caption, held_out_scenes, lessons_of, trained_scenes

Found = dict[str, dict[str, Any]]  # the numbers of an input, by label
WINDOW = 16  # predictive rows of a readout
BEGINS = (0.25, 0.5, 0.75)  # of the picture: where windows begin
LAYERS = 32  # of the paper's model; its ranges are taken in proportion
RANGES = ((0, 3), (4, 7), (8, 11), (12, 15), (16, 19), (20, 23), (24, 27), (28, 31), (0, 7), (8, 15), (16, 23), (24, 31), (0, 15), (8, 23),
          (16, 31), (0, 23), (8, 31), (0, 31))  # fmt: skip


def drawn(backbone: Backbone, number: int, held_out: bool = True) -> Run:
    """Returns a finished run of plain decoding, of a held-out caption or of one of the lessons."""
    need(backbone, "decoder")
    lessons = lessons_of(backbone.card)
    scenes = held_out_scenes(number + 1, lessons) if held_out else trained_scenes(2**42, number + 1, lessons=lessons)
    return generate(backbone, find("ar")[0], Prompt(caption(scenes[number], number), seed=number), {}).finish()


def need(backbone: Backbone, part: str) -> None:
    """Raises NotSupported for a model that is not built like ours, whose layers cannot be read."""
    if backbone.name != "pictogram" or not hasattr(backbone.model, part):
        raise NotSupported(f"The drafters of {backbone.name} cannot be read layer by layer. Leave out --backbone.")


@torch.inference_mode()
def drafter_accuracy(backbone: Backbone, number: int) -> Found:
    """Returns how often the model's most probable token is the tree drafter's first, or among its first three, on true prefixes, for a
    picture of the lessons and a held-out one."""
    found: Found = {}
    for kind in ("seen", "held out"):
        run = drawn(backbone, number, kind == "held out")
        sequence = backbone.start(run.prompt)
        try:
            growth = backbone.drafter("feature_draft").start(sequence)
            rows = sequence.forward(Draft(torch.tensor(run.in_order[:-1])))
            said = [growth.root(rows.hidden[:, i : i + 1], [token]) for i, token in enumerate(run.in_order[:-1])]
            wanted = rows.scores[1:].argmax(-1)[:, None]
        finally:
            sequence.close()
        ranked = torch.stack(said).topk(3).indices == wanted
        found |= {f"top {k}, {kind}": {"accuracy": ranked[:, :k].any(1).float().mean().item()} for k in (1, 3)}
    return found


# --- the predictive stream --------------------------------------------------------------------------------------------


class Unworn:
    """Wears an adapter on no row: the hooks, and so the functions that a pass runs, are those of a pass with the adapter."""

    first_layer = 0

    def __init__(self, stream: PredictiveStream):
        self.lora = stream.lora

    def worn(self, first: int | Tensor) -> Any:
        """The context of a pass."""
        return self.lora.worn(1 << 20)


@torch.inference_mode()
def readout(backbone: Backbone, number: int) -> Found:
    """Returns, for the predictive rows of windows of noise, the overlap of each layer's readout (final norm and output layer applied to it)
    with the model's distribution given the true tokens, with the adapter and without."""
    run = drawn(backbone, number)
    stream = backbone.drafter("predictive_stream")
    sums: dict[str, list[float]] = {}
    for share in BEGINS:
        begin = int(share * len(run.tokens))
        for kind, adapter in (("without adapter", Unworn(stream)), ("with adapter", stream.lora)):
            layers, p = looked(backbone, run, begin, stream.causal, adapter)
            for layer, q in enumerate(layers, 1):
                sums.setdefault(f"{kind}, {layer}", []).append(torch.minimum(p, q).sum(-1).mean().item())
    return {label: {"overlap": sum(values) / len(values)} for label, values in sums.items()}


def looked(backbone: Backbone, run: Run, begin: int, is_causal: bool, adapter: Any) -> tuple[list[Tensor], Tensor]:
    """Returns the distributions [WINDOW, V] that each layer's output gives in the predictive rows after `begin` committed tokens, and the
    model's own."""
    sequence = backbone.start(run.prompt)
    try:
        rows = sequence.forward(Draft(torch.tensor(run.in_order[:-1])))
        p = rows.scores[begin + 1 : begin + 1 + WINDOW].softmax(-1)
        sequence.commit([*range(begin - 1)], run.in_order[begin - 1])
        sequence.adapter = adapter
        draft = dual(
            torch.empty(0, dtype=torch.int64), WINDOW, sequence, Noise(run.prompt.seed, sequence.vocabulary, sequence.device), 0, is_causal
        )
        with outputs(backbone) as layers:
            sequence.forward(draft)
        return [law_of(backbone, sequence, layer[:, -WINDOW:]) for layer in layers], p
    finally:
        sequence.close()


@contextmanager
def outputs(backbone: Backbone) -> Iterator[list[Tensor]]:
    """In this context, a list receives what every layer puts out, [branches, rows, H] each."""
    found: list[Tensor] = []
    hooks = [block.register_forward_hook(lambda _, given, out: found.append(out)) for block in backbone.model.decoder.blocks]
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()


def law_of(backbone: Backbone, sequence: Sequence, hidden: Tensor) -> Tensor:
    """Returns the distributions [R, V] of a layer's output [branches, R, H] after the final norm."""
    logits = sequence.trunk.head(backbone.model.decoder.norm(hidden.contiguous())).float()
    return sequence.law(guide(logits, sequence.sampling.guidance), [])


def layer_ranges(backbone: Backbone, number: int) -> Found:
    """Returns the tokens a pass of Cross-Regression whose adapter is worn in a range of layers only, both ways of drafting."""
    run = drawn(backbone, number)
    stream, decoder = backbone.drafter("predictive_stream"), backbone.model.decoder
    found: Found = {}
    for first, last in RANGES:
        part = within(stream, decoder, *in_proportion(first, last, len(decoder.blocks)))
        for mode in ("sequential", "joint"):
            each = Run(backbone, find("cross_regression")[0], run.prompt, {"mode": mode}, drafter=part).finish()
            found[f"{mode}, {first}-{last}"] = {"step_compression": each.totals["step_compression"]}
    return found


def in_proportion(first: int, last: int, layers: int) -> tuple[int, int]:
    """Returns a range of the paper's layers as one of a model with so many layers, both ends included."""
    begin = min(round(first * layers / LAYERS), layers - 1)
    return begin, max(begin, round((last + 1) * layers / LAYERS) - 1)


READ: dict[str, Callable[[Backbone, int], Found]] = {
    "drafter accuracy": drafter_accuracy, "readout": readout, "layer ranges": layer_ranges,
}  # fmt: skip
