"""`launch.py bench weights`: the deviation that compressed weights cause in the distributions of tokens.

Plain decoding with full weights draws some tokens; every model then computes the distribution of each of them after the same tokens. The
deviation at a token is the total variation between two sampling distributions, guided and warped: the greatest difference in the
probability of any set of tokens, 0 to 1.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from engine.backbones import resolve
from engine.checkpoints.families import ADAPTED
from engine.core import PLAIN, Backbone, Draft, Prompt
from engine.errors import BadPrompt
from engine.kernels.compressed_linear import compress
from engine.memory import FORMS, FULL
from engine.methods import find
from engine.networks.card import write_entry
from engine.networks.weights import MODELS
from engine.run import generate
from research.bench.expected import inputs
from research.bench.plan import MOST_INPUTS, Model, check_count
from research.bench.rows import experiment, publish

CHUNK = 32  # rows of a pass
ENTRY = "deviation"  # in a card: the rows by form of weights


@dataclass(frozen=True, kw_only=True)
class WeightsBench(Model):
    """`bench weights`: the first `tokens` tokens of `count` held-out inputs; write : store the rows in the model's card."""

    count: int = 4
    tokens: int = 128
    write: bool = False
    csv: Path | None = None

    def __post_init__(self) -> None:
        """Raises BadPrompt or NotSupported for a plan that cannot be measured."""
        super().__post_init__()
        check_count("count", self.count, MOST_INPUTS)


def bench(plan: WeightsBench) -> list[dict[str, Any]]:
    """Returns a row for each form of compressed weights; with `write`, stores them in the card. Raises BadPrompt, BadOutput."""
    if plan.weights != "auto":
        raise BadPrompt("bench weights compares all forms of weights; leave --weights out.")
    own = replace(plan, weights=FULL)
    backbone = own.load()
    prompts = inputs(backbone, plan.count)
    paths = [plain_tokens(backbone, prompt, plan.tokens) for prompt in prompts]
    reference = [distributions(backbone, prompt, path).cpu() for prompt, path in zip(prompts, paths, strict=True)]
    stamp = experiment(backbone, backbone.sampling, inputs=len(prompts), tokens=sum(map(len, paths)))
    name, dtype = backbone.name, backbone.dtype
    del backbone  # two models would need twice the memory
    gc.collect()
    rows = publish(measure(own, prompts, paths, reference), row_text, stamp, plan.csv)
    if plan.write:
        folder = Path(resolve(plan.backbone)[1] or MODELS / name)
        options = f"--count {plan.count} --tokens {plan.tokens} --dtype {dtype}"
        command = f"python launch.py bench weights --backbone {folder.name} {options} --write"
        kept = {row["form"]: {each: row[each] for each in ("mean", "most", "largest", "same_first", "tokens", "dtype")} for row in rows}
        write_entry(folder, ENTRY, {"command": command, **kept})
    return rows


def measure(plan: WeightsBench, prompts: list[Prompt], paths: list[list[int]], reference: list[Tensor]) -> Iterator[dict[str, Any]]:
    """Yields a row for each form of compressed weights. reference : distributions [N, V] with full weights, of each prompt's path"""
    for form in FORMS[1:]:
        backbone = compressed(plan, form)
        away, same = [], []
        for prompt, path, full in zip(prompts, paths, reference, strict=True):
            p = distributions(backbone, prompt, path).cpu()
            away.append((p - full).abs().sum(-1) / 2)
            same.append(p.argmax(-1) == full.argmax(-1))
        del backbone
        gc.collect()
        yield deviation_row(form, torch.cat(away), torch.cat(same))


def deviation_row(form: str, away: Tensor, same: Tensor) -> dict[str, Any]:
    """The row of a form. away : total variation at each token [N]; same : bool [N], the most probable token is the same"""
    values = {"mean": away.mean(), "most": away.quantile(0.95), "largest": away.max(), "same_first": same.float().mean()}
    return {"form": form} | {name: round(float(value), 5) for name, value in values.items()}


def compressed(plan: WeightsBench, form: str) -> Backbone:
    """The model with weights in a form. The shipped models are not loaded compressed; for the measurement their decoder is."""
    if resolve(plan.backbone)[0] in ADAPTED:
        return replace(plan, weights=form).load()
    backbone = plan.load()
    decoder = backbone.model.decoder
    decoder.quick = None  # compiled passes have weights of their own
    compress(decoder.blocks, form, backbone.device)
    return backbone


def plain_tokens(backbone: Backbone, prompt: Prompt, count: int) -> list[int]:
    """The first tokens that plain decoding draws."""
    run = generate(backbone, find(PLAIN)[0], prompt, {})
    for _ in run:
        if len(run.tokens) >= count:
            break
    run.close()
    return run.tokens[:count]


@torch.inference_mode()
def distributions(backbone: Backbone, prompt: Prompt, path: list[int]) -> Tensor:
    """The distribution of each token of a path after the tokens before it, [N, V]."""
    sequence, parts = backbone.start(prompt), []
    try:
        for at in range(0, len(path), CHUNK):
            tokens = path[at : at + CHUNK]
            parts.append(sequence.forward(Draft(torch.tensor(tokens[:-1], dtype=torch.int64))).p.float())
            sequence.commit(list(range(len(tokens) - 1)), tokens[-1])
    finally:
        sequence.close()
    return torch.cat(parts)


def row_text(row: dict[str, Any]) -> str:
    """Formats one line of the table."""
    return (
        f"{row['form']:6} total variation per token: mean {row['mean']:.4f}, 95 % below {row['most']:.4f}, largest {row['largest']:.4f}; "
        f"the most probable token is the same at {row['same_first']:.1%}"
    )
