"""Verification rules of other projects as functions of prefixes: each takes 100,000 sequences, or one, by the published code."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Optional

import torch
from torch import Tensor
from torch.nn import functional as F

from research.exactness.others.sources import Missing, Published
from research.exactness.rule_check import (
    NONE,
    Proposal,
    Propose,
    Sampler,
    Target,
    Verify,
    best_chain,
    draw_each,
    drawn_chain,
    one_by_one,
    sampler_of,
)
from research.exactness.toy import Toy

TOY: dict[str, Any] = {"rows": 1, "columns": 5, "vocabulary": 4, "sharpness": 1.2}
DRAFTS, TOP_P = 2, 0.8
MANY, ONE_BY_ONE, SLOW = 100_000, 10_000, 2_000  # draws of rules for many sequences at once, for one, and in Triton's interpreter


@dataclass(frozen=True)
class OtherRule:
    """A row of the table.

    project : its name in the package registry; path : the file, and what of it is called; drafts : how the drafts are made
    claim   : "exact", or "relaxed" if the project itself says that the distribution changes
    sampler : (source, target, drafter) -> the rule; raises Missing
    toy     : settings of the target that differ from TOY
    """

    project: str
    path: str
    drafts: str
    claim: str
    draws: int
    sampler: Callable[[Published, Target, Target], Sampler]
    toy: dict[str, Any]
    reproduction: str = ""


def toy_target(seed: int = 0, **settings: Any) -> Target:
    """The target's or the drafter's distributions."""
    return Target(Toy(seed=seed, **TOY | settings))


def _logits(p: Tensor) -> Tensor:
    return p.log().float()


def _bonus(p: Tensor) -> Tensor:
    """A draw from the last row, which engines make before they call the rule."""
    return draw_each(p[:, -1])


def _answer(tokens: Tensor, accepted: Tensor, last: Tensor) -> Tensor:
    """The accepted drafts of each row, and the token after them."""
    answer = torch.full((len(tokens), tokens.shape[1] + 1), NONE)
    answer[:, :-1] = tokens.where(torch.arange(tokens.shape[1]) < accepted[:, None], NONE)
    answer[torch.arange(len(tokens)), accepted.long()] = last.long()
    return answer


def _of(propose: Callable[[Target, int], Propose], verify: Callable[[Published], Verify]) -> Callable[[Published, Target, Target], Sampler]:
    return lambda source, target, drafter: sampler_of(propose(drafter, DRAFTS), verify(source), target)


def _shown_best(drafter: Target, count: int) -> Propose:
    return best_chain(drafter, count, show=True)


# --- transformers -----------------------------------------------------------------------------------------------------


def _transformers(weight: float | None = None) -> Callable[[Published], Verify]:
    def verify(source: Published) -> Verify:
        sample = source.load("transformers/generation/utils.py", ("_speculative_sampling",), torch=torch)._speculative_sampling

        def rule(tokens: Tensor, q: Tensor, p: Tensor) -> list[int]:
            return sample(tokens[None], _logits(q)[None], len(tokens), _logits(p)[None], weight)[0][0].tolist()

        return one_by_one(rule)

    return verify


# --- lmdeploy ---------------------------------------------------------------------------------------------------------


def _lmdeploy(source: Published) -> Verify:
    names = ("_format_rejection_outputs", "torch_greedy_rejection_sample", "DefaultRejectionSamplingImpl")
    stand_ins = {"torch": torch, "RejectionSamplingImpl": object, "PLACEHOLDER_TOKEN_ID": NONE}
    rule = source.load("lmdeploy/pytorch/backends/default/rejection_sampling.py", names, **stand_ins).DefaultRejectionSamplingImpl()

    def verify(proposal: Proposal, p: Tensor) -> Tensor:
        q = None if proposal.q is None else proposal.q.float()
        return rule.forward(_logits(p[:, :-1]), proposal.tokens, _bonus(p), is_greedy=None, draft_probs=q)[0]

    return verify


# --- SGLang -----------------------------------------------------------------------------------------------------------


def _sglang_torch(source: Published) -> Verify:
    path = "sglang/kernels/ops/speculative/dspark/blockwise_rejection.py"
    rule = source.load(path, ("blockwise_rejection_torch",), torch=torch, Optional=Optional).blockwise_rejection_torch
    noise = SimpleNamespace(key=1, counter=torch.zeros(1, dtype=torch.int64))

    def verify(proposal: Proposal, p: Tensor) -> Tensor:
        count, ones = len(p), torch.ones(len(p))
        accepted, last, _ = rule(
            candidates=torch.cat([torch.zeros(count, 1, dtype=torch.int64), proposal.tokens], 1),
            target_logits=_logits(p).flatten(0, 1),
            draft_logits=None if proposal.q is None else _logits(proposal.q),
            target_temperatures=ones,
            draft_temperatures=ones,
            noise=noise,
        )
        return _answer(proposal.tokens, accepted, last)

    return verify


def _sglang_kernel(block: bool) -> Callable[[Published], Verify]:
    def verify(source: Published) -> Verify:
        path = "sglang/kernels/ops/speculative/reject_sampling.py"
        rule = _load_kernels(source, path, "speculative_sampling_classic_kernel", "chain_speculative_sampling_triton")

        def run(proposal: Proposal, p: Tensor) -> Tensor:
            count, size = proposal.tokens.shape
            index = torch.arange(count * (size + 1)).view(count, -1)
            predicts, accept_index = torch.zeros(count * (size + 1), dtype=torch.int64), torch.zeros_like(index)
            accepted = torch.zeros(count, dtype=torch.int64)
            candidates = torch.cat([torch.zeros(count, 1, dtype=torch.int64), proposal.tokens], 1)
            coins = torch.rand(count, size), torch.rand(count)
            probs, q = p.float().contiguous(), proposal.q.float().contiguous()
            rule.chain_speculative_sampling_triton(
                predicts, accept_index, accepted, candidates, index, None, None, *coins, probs, q, 1.0, 1.0, True, block_verification=block
            )
            return _answer(proposal.tokens, accepted, predicts.view(count, -1).gather(1, accepted[:, None])[:, 0])

        return run

    return verify


# --- vLLM -------------------------------------------------------------------------------------------------------------


def _vllm(window: int | None = None) -> Callable[[Published], Verify]:
    """window : of FLy, which accepts a refused draft if the drafts after it are accepted; None: off"""

    def verify(source: Published) -> Verify:
        kernels = ("rejection_random_sample_kernel", "sample_recovered_tokens_kernel")
        launched = ("_rejection_random_sample", "_sample_recovered_tokens")
        warmups = ("_rejection_random_sample_warmup_inputs", "_sample_recovered_tokens_warmup_inputs")
        names = ("PLACEHOLDER_TOKEN_ID", "GREEDY_TEMPERATURE", "rejection_sample", "generate_uniform_probs", "sample_recovered_tokens")
        fly = _load_kernels(source, "vllm/v1/spec_decode/fly.py", "compute_fly_entropy", "apply_fly_random_acceptance_kernel")
        rule = _load_kernels(
            source, "vllm/v1/sample/rejection_sampler.py", *names, *kernels, *launched, *warmups,
            triton_kernel_dispatcher_with_warmup=lambda kernel, warmup_inputs: lambda settings: _launcher(kernel, settings), **vars(fly),
        )  # fmt: skip

        def run(proposal: Proposal, p: Tensor) -> Tensor:
            count, size = proposal.tokens.shape
            settings = SimpleNamespace(all_greedy=False, all_random=True, temperature=torch.ones(count), generators={})
            q = None if proposal.q is None else proposal.q.float().flatten(0, 1).contiguous()
            ends = torch.arange(1, count + 1, dtype=torch.int32) * size
            more = {} if window is None else {"fly_window_size": window, "fly_entropy_threshold": 0.1}
            tokens, logits = proposal.tokens.flatten().int(), _logits(p[:, :-1]).flatten(0, 1).contiguous()
            return rule.rejection_sample(tokens, [size] * count, size, ends, q, logits, _bonus(p)[:, None], settings, **more).long()

        return run

    return verify


def _launcher(kernel: Any, settings: Callable[..., Any]) -> Callable[..., None]:
    """Launches a kernel as the project's dispatcher does: `settings` returns the grid and the arguments that are not its own."""

    def launch(*arguments: Any, **named: Any) -> None:
        own = inspect.signature(settings).bind(*arguments, **named).arguments
        grid, more = settings(*arguments, **named)
        values = {**{f"{name}_ptr": value for name, value in own.items()}, **own, **more}
        kernel[grid](**{name: values[name] for name in inspect.signature(kernel.fn).parameters})

    return launch


def _load_kernels(source: Published, path: str, *names: str, **stand_ins: Any) -> SimpleNamespace:
    """Loads Triton kernels for its interpreter, which runs them on a CPU."""
    if os.environ.get("TRITON_INTERPRET") != "1":
        raise Missing("Triton's interpreter is off; TRITON_INTERPRET=1 turns it on")
    try:
        import triton
        import triton.language as tl
    except ImportError as absent:
        raise Missing("Triton, whose interpreter runs the kernel, is not installed") from absent
    return source.load(path, names, torch=torch, triton=triton, tl=tl, Any=Any, **stand_ins)


# --- LitGPT -----------------------------------------------------------------------------------------------------------


def _litgpt(**settings: float) -> Callable[[Published, Target, Target], Sampler]:
    """settings : of sampling, which the rule applies itself to the models' logits"""

    def sampler(source: Published, target: Target, drafter: Target) -> Sampler:
        base = source.load("litgpt/generate/base.py", ("multinomial_num_samples_1", "sample_top_p"), torch=torch)
        path, names = "litgpt/generate/speculative_decoding.py", ("sample", "speculative_decoding")
        rule, raw = source.load(path, names, torch=torch, F=F, **vars(base)).speculative_decoding, toy_target()

        def run(prefixes: Tensor) -> Tensor:
            answer = torch.full((len(prefixes), DRAFTS + 1), NONE)
            start = torch.zeros(1, dtype=torch.int64)
            for i, prefix in enumerate(prefixes):
                models = _model_after(drafter, prefix), _model_after(raw, prefix)
                tokens = rule(*models, start, start.clone(), 1, DRAFTS, **settings)
                answer[i, : len(tokens)] = tokens
            return answer

        return run

    return sampler


def _model_after(target: Target, prefix: Tensor) -> Callable[..., Tensor]:
    """A model whose first input stands for the prefix: ids [1, T], again and again -> logits [1, T, V]."""
    path = [None, *prefix.tolist()]

    def model(idx: Tensor, **places: Any) -> Tensor:
        rows = []
        for token in idx[0].tolist():
            path[:] = prefix.tolist() if path[:1] == [None] else [*path, token]
            rows.append(target.after(torch.tensor([path], dtype=torch.int64)))
        return _logits(torch.cat(rows))[None]

    return model


# --- vLLM for TPUs ----------------------------------------------------------------------------------------------------


def _tpu_inference(source: Published) -> Verify:
    try:
        import jax
        import jax.numpy as jnp
    except ImportError as absent:
        raise Missing("JAX is not installed") from absent
    names = ("_get_segment_info", "_sample_recovered_tokens", "_random_rejection_sample_with_segment")
    stand_ins = {"jax": jax, "jnp": jnp, "Optional": Optional, "PLACEHOLDER_TOKEN_ID": NONE}
    rule = source.load("tpu_inference/layers/jax/sample/rejection_sampler.py", names, **stand_ins)._random_rejection_sample_with_segment
    keys = [jax.random.key(1)]

    def verify(proposal: Proposal, p: Tensor) -> Tensor:
        count, size = proposal.tokens.shape
        keys[0], key = jax.random.split(keys[0])
        q = None if proposal.q is None else jnp.asarray(proposal.q.float().flatten(0, 1).numpy())
        tokens, probs = jnp.asarray(proposal.tokens.flatten().numpy()), jnp.asarray(p[:, :-1].float().flatten(0, 1).numpy())
        answer = rule(tokens, q, probs, jnp.full(count, size), jnp.asarray(_bonus(p).numpy()), key)
        main, bonus = torch.from_numpy(jax.device_get(answer).copy()).long().split([count * size, count])
        return torch.cat([main.view(count, size), bonus[:, None]], 1)

    return verify


_GEMMA = """import torch
from transformers.generation.utils import _speculative_sampling
p = torch.tensor([[[0.5, 0.3, 0.2]]]).log()
draft = p.argmax(-1)  # the path drafts the best guess, and hands over the distribution that it was not drawn from
tokens = [_speculative_sampling(draft, p, 1, p.repeat(1, 2, 1))[0][0, 0] for _ in range(1000)]
print(torch.bincount(torch.stack(tokens), minlength=3) / 1000)  # 1, 0, 0 instead of 0.5, 0.3, 0.2"""
_LITGPT = """import torch
from litgpt.generate.speculative_decoding import speculative_decoding
def model(p):
    return lambda idx, **places: torch.tensor(p).log().expand(1, idx.shape[1], -1)
draft, target, zero = model([0.7, 0.1, 0.1, 0.1]), model([0.1, 0.3, 0.3, 0.3]), torch.zeros(1, dtype=torch.int64)
for _ in range(100):  # raises as soon as a draft is refused: the residual is filtered as if it were logits, and -inf is no probability
    speculative_decoding(draft, target, zero, zero.clone(), 1, 1, temperature=1.0, top_p=0.8)"""
_KERNEL, _FUNCTION = "drawn, in Triton's interpreter", "drawn"
RULES = (
    OtherRule("transformers", "_speculative_sampling", _FUNCTION, "exact", ONE_BY_ONE, _of(drawn_chain, _transformers()), {}),
    OtherRule("transformers", "_speculative_sampling", "drawn, target with top-k", "exact", ONE_BY_ONE, _of(drawn_chain, _transformers()),
              {"top_k": 2}),
    OtherRule("transformers", "_speculative_sampling, as the Gemma 4 path calls it", "best guess, shown as drawn", "exact", ONE_BY_ONE,
              _of(_shown_best, _transformers()), {}, _GEMMA),
    OtherRule("transformers", "_speculative_sampling, assistant_ensemble_weight=0.5", _FUNCTION, "relaxed", ONE_BY_ONE,
              _of(drawn_chain, _transformers(0.5)), {}),
    OtherRule("lmdeploy", "DefaultRejectionSamplingImpl.forward", _FUNCTION, "exact", MANY, _of(drawn_chain, _lmdeploy), {}),
    OtherRule("lmdeploy", "DefaultRejectionSamplingImpl.forward", "drawn, target with top-k", "exact", MANY, _of(drawn_chain, _lmdeploy),
              {"top_k": 2}),
    OtherRule("lmdeploy", "DefaultRejectionSamplingImpl.forward", "best guess", "exact", MANY, _of(best_chain, _lmdeploy), {}),
    OtherRule("sglang", "blockwise_rejection_torch", _FUNCTION, "exact", MANY, _of(drawn_chain, _sglang_torch), {}),
    OtherRule("sglang", "blockwise_rejection_torch", "drawn, target with top-k", "exact", MANY, _of(drawn_chain, _sglang_torch),
              {"top_k": 2}),
    OtherRule("sglang", "blockwise_rejection_torch", "best guess", "exact", MANY, _of(best_chain, _sglang_torch), {}),
    OtherRule("sglang", "chain_speculative_sampling_triton", _KERNEL, "exact", SLOW, _of(drawn_chain, _sglang_kernel(False)), {}),
    OtherRule("sglang", "chain_speculative_sampling_triton, block_verification", _KERNEL, "exact", SLOW,
              _of(drawn_chain, _sglang_kernel(True)), {}),
    OtherRule("vllm", "rejection_sample", _KERNEL, "exact", SLOW, _of(drawn_chain, _vllm()), {}),
    OtherRule("vllm", "rejection_sample", "best guess, in Triton's interpreter", "exact", SLOW, _of(best_chain, _vllm()), {}),
    OtherRule("vllm", "rejection_sample, FLy", _KERNEL, "relaxed", SLOW, _of(drawn_chain, _vllm(1)), {}),
    OtherRule("litgpt", "speculative_decoding", _FUNCTION, "exact", SLOW, _litgpt(), {}),
    OtherRule("litgpt", "speculative_decoding, top_p=0.8", _FUNCTION, "exact", SLOW, _litgpt(top_p=TOP_P), {"top_p": TOP_P}, _LITGPT),
    OtherRule("litgpt", "speculative_decoding, top_k=2", _FUNCTION, "exact", SLOW, _litgpt(top_k=2), {"top_k": 2}),
    OtherRule("tpu-inference", "_random_rejection_sample_with_segment", _FUNCTION, "exact", MANY, _of(drawn_chain, _tpu_inference), {}),
    OtherRule("tpu-inference", "_random_rejection_sample_with_segment", "best guess", "exact", MANY, _of(best_chain, _tpu_inference), {}),
)  # fmt: skip
