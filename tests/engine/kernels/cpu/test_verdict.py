"""The compiled verdicts, scores and noise against the engine's own functions, on odd shapes and with every setting of the sampling."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import Any

import pytest
import torch
from torch import Tensor

from engine.backbones.lowpoly import MaskedGrammar
from engine.core import Chosen, Prompt, Sampling
from engine.kernels import noise
from engine.kernels.choice import NATIVE, REFERENCE, VARIABLE
from engine.kernels.cpu.library import built
from engine.kernels.cpu.verdict import Along, Verifier, scored
from engine.kernels.verify import Asked, Verdicts, settle_on_host, settle_reference, settled, verify, verify_native, verify_reference
from engine.methods import METHODS
from engine.noise import ACCEPT, DRAW, RESIDUAL, Noise
from engine.run import generate
from engine.sampling import draw, guide, warp
from research.bench.kernel_cases import window
from tests.engine.backbones import tiny
from tests.engine.kernels.near import near, ties

pytestmark = [pytest.mark.skipif(built()[0] is None, reason=built()[1]), pytest.mark.usefixtures("inference")]
BPT = Sampling(temperature=0.5, top_k=50, top_p=0.95, temperature_last=True)
LEAST = 1e-30  # below, e^x is 0 here and a denormal number there
CASES = {
    "R63-V1000-guided-grammar": window(63, 1000, Sampling(0.9, guidance=3.0), masked=True),
    "R1-V1000": window(1, 1000),
    "R7-V5": window(7, 5),
    "R7-V17-top-k": window(7, 17, Sampling(top_k=3)),
    "R7-V1000-float16": window(7, 1000, Sampling(0.8, guidance=7.5), dtype=torch.float16),
    "R7-V1000-bfloat16-top-k": window(7, 1000, Sampling(top_k=100), dtype=torch.bfloat16),
    "R7-V1000-top-p": window(7, 1000, Sampling(1.3, top_p=0.9)),
    "R7-V1000-blocked": window(7, 1000, blocked=0.9),
    "R7-V1000-blocked-top-k": window(7, 1000, Sampling(top_k=300), blocked=0.9),
    "R7-V1000-weak-guidance": window(7, 1000, Sampling(guidance=0.3)),
    "R7-V1000-greedy": window(7, 1000, Sampling(0.0, top_k=3)),
    "R7-V1000-match-seed": window(7, 1000, drawn=False, seeded=True, store=False),
    "R7-V1000-match-seed-with-laws": window(7, 1000, seeded=True, store=False),
    "R7-V5121-BPT": window(7, 5121, BPT),
    "R7-V5121-BPT-grammar": window(7, 5121, BPT, masked=True),
    "R7-V5121-temperature-last-alone": window(7, 5121, replace(BPT, top_k=0, top_p=1.0)),
    "R1-V16384-top-k-float16": window(1, 16384, Sampling(top_k=2000, guidance=3.0), dtype=torch.float16),
    "R2-V65537-top-k-grammar": window(2, 65537, Sampling(top_k=2000), masked=True),
    "R1-V131072-float16": window(1, 131072, Sampling(0.7, guidance=3.0), dtype=torch.float16),
}


def native(asked: Asked) -> Verdicts:
    """The function's result."""
    return verify_native(built()[0], asked)


# --- verdicts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
def test_it_is_the_reference(name: str) -> None:
    asked = CASES[name]
    ours, theirs = native(asked), verify_reference(asked)
    near("entropy", ours.entropy, theirs.entropy, 1e-4, 1e-5)
    near("chances", ours.chances, theirs.chances, 1e-5, 1e-12)
    near("top", ours.top, verify_reference(replace(asked, store=True)).p.amax(-1), 1e-5)
    if asked.laws is not None:
        near("ratios", ours.ratios, theirs.ratios, 1e-5, 1e-12)
        near("deviations", ours.deviations, theirs.deviations, 1e-5)
    assert (ours.p is None) == (not asked.store)
    if asked.store:
        near("p", ours.p, theirs.p, 3e-5, 1e-12)
        assert torch.equal(ours.p > LEAST, theirs.p > LEAST)  # the filters keep the same tokens
    assert ties(asked, ours, theirs) <= 1 and ours.sound.all()
    for seeded in (False, True):
        assert torch.equal(settle_on_host(ours, ours.accepted, seeded), settle_reference(ours, ours.accepted, seeded))


@pytest.mark.parametrize("name", ["R63-V1000-guided-grammar", "R7-V5121-BPT-grammar", "R7-V1000-top-p"])
def test_a_row_has_the_same_bits_in_every_pass(name: str) -> None:
    """Alone as in plain decoding, in a window, and with any number of threads: match seed compares such rows."""
    asked = CASES[name]
    whole, size = native(asked), len(asked.tokens)
    for row in (0, size // 2, size):
        mine = slice(row, min(row + 1, size))
        own = {"tokens": asked.tokens[mine], "laws": asked.laws[mine], "uniforms": asked.uniforms[:, row : row + 1]}
        allowed = None if asked.allowed is None else asked.allowed[row]
        alone = native(
            replace(asked, logits=asked.logits[:, row : row + 1], positions=asked.positions[row : row + 1], allowed=allowed, **own)
        )
        for field in ("answers", "fresh", "drawn", "entropy", "p", "top"):
            assert torch.equal(getattr(alone, field), getattr(whole, field)[row : row + 1]), field


def test_many_rows_are_shared_among_threads() -> None:
    asked = window(40, 5121, BPT)
    torch.set_num_threads(1)
    alone = native(asked)
    torch.set_num_threads(3)
    shared = native(asked)
    assert torch.equal(shared.p, alone.p) and torch.equal(shared.answers, alone.answers) and torch.equal(shared.drawn, alone.drawn)


def test_filters_are_exact_and_keep_ties() -> None:
    """Scores from a few values only: whole groups of tokens are equal at the thresholds."""
    for sampling in (Sampling(top_k=10), Sampling(top_p=0.5), Sampling(top_k=300, top_p=0.7), Sampling(top_k=1), Sampling(top_p=0.01)):
        asked = window(3, 1000, sampling)
        asked = replace(asked, logits=(4 * asked.logits).round() / 4 + 0.0)
        asked.logits[:, :, 5] = -0.0
        ours, theirs = native(asked), verify_reference(asked)
        assert torch.equal(ours.p > 0, theirs.p > 0), sampling
        if sampling.top_k == 10:
            assert (ours.p[0] > 0).sum() > 10  # the tenth has equals, and they stay


def test_the_answer_of_equals_is_the_first() -> None:
    ours = native(replace(window(1, 1000, Sampling(0.0)), logits=torch.zeros(1, 1, 1000)))
    assert [ours.answers.item(), ours.fresh.item(), ours.drawn.item()] == [0, 0, 0] and ours.entropy.item() == 0


def test_a_draft_from_its_own_distribution_is_replaced_by_a_draw_from_it() -> None:
    asked = window(4, 1000)
    asked = replace(asked, laws=native(asked).p[:3].clone())
    ours = native(asked)
    assert (ours.ratios == 1).all() and (ours.deviations == 0).all() and (ours.p.gather(1, ours.drawn[:, None]) > 0).all()


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("sampling", [Sampling(), BPT])
def test_nan_is_refused(value: float, sampling: Sampling) -> None:
    asked = window(3, 1000, sampling)
    asked.logits[0, 1, 999] = value
    ours = native(asked)
    assert ours.sound.tolist() == [True, False, True]
    assert ours.answers[1] == ours.fresh[1] == ours.drawn[1] == -1 and not ours.accepted[1]
    assert settled(settle_on_host(ours, torch.tensor([False, False]), False))[0] == 0  # the row after the refusal does not matter
    with pytest.raises(FloatingPointError, match="NaN"):
        settled(settle_on_host(ours, torch.tensor([True, False]), False))


def test_a_row_without_any_possible_token_is_refused() -> None:
    asked = window(2, 1000)
    asked.logits[0, 0] = -torch.inf
    assert native(asked).sound.tolist() == [False, True]


@pytest.mark.parametrize("mutant", ["", "the residual is p", "the ratio is p"])
def test_a_verified_draft_has_the_distribution_of_the_model(mutant: str) -> None:
    """20,000 drafts from one q, verified against one p: the tokens that stay or replace them are draws from p. With a wrong rule not."""
    count, vocabulary = 20_000, 12
    one = window(2, vocabulary)
    random = torch.Generator().manual_seed(3)
    q = torch.softmax(torch.randn(vocabulary, generator=random), -1)
    tokens = torch.multinomial(q, count, True, generator=random)
    uniforms = torch.rand(3, count + 1, generator=random, dtype=torch.float64)
    asked = replace(
        one, logits=one.logits[:, :1].expand(-1, count + 1, -1).contiguous(), tokens=tokens, laws=q.expand(count, -1), uniforms=uniforms,
        positions=torch.arange(count + 1),
    )  # fmt: skip
    ours = native(asked)
    accepted = uniforms[0, :count] < ours.chances if mutant == "the ratio is p" else ours.accepted
    left = ours.fresh if mutant == "the residual is p" else ours.drawn
    for tokens_of_p, right in ((torch.where(accepted, tokens, left[:-1]), not mutant), (ours.answers, True), (ours.fresh, True)):
        found, expected = torch.bincount(tokens_of_p, minlength=vocabulary), ours.p[0].double() * len(tokens_of_p)
        statistic = ((found - expected) ** 2 / expected).sum().item()  # chi squared with 11 degrees of freedom
        assert (statistic < 35) == right, statistic


# --- the windows of a run ---------------------------------------------------------------------------------------------

STREAMS = (ACCEPT, DRAW, RESIDUAL)
FIELDS = ("accepted", "answers", "fresh", "drawn", "sound", "entropy", "top", "chances", "ratios", "p")


def in_a_run(asked: Asked, random: Noise, first: int, iteration: int) -> Asked:
    """The same rows at consecutive positions, with the numbers of a run."""
    positions = torch.arange(first, first + asked.logits.shape[1])
    return replace(asked, positions=positions, uniforms=random.host_uniforms(STREAMS, positions, iteration), base=random.base)


@pytest.mark.parametrize("name", CASES)
def test_a_window_of_a_run_has_the_bits_of_its_verdicts(name: str) -> None:
    """Uniform numbers, positions, masks from a table, and the first refusal, in one call; a smaller window after a larger one, too."""
    random, asked = Noise(5, CASES[name].logits.shape[-1]), in_a_run(CASES[name], Noise(5, CASES[name].logits.shape[-1]), 11, 3)
    verifier = Verifier(built()[0], random.vocabulary, STREAMS)
    for size in (len(asked.tokens), len(asked.tokens) // 2):
        rows, laws = size + 1, None if asked.laws is None else asked.laws[:size]
        part = replace(
            asked, logits=asked.logits[:, :rows], tokens=asked.tokens[:size], laws=laws, uniforms=asked.uniforms[:, :rows],
            positions=asked.positions[:rows], allowed=None if asked.allowed is None else asked.allowed[:rows],
        )  # fmt: skip
        table, which = (
            (None, [0] * rows) if asked.allowed is None else (asked.allowed.flip(0).contiguous(), [*range(len(asked.allowed))][::-1])
        )
        rules = (asked.sampling, table, which[:rows])
        ours = verifier.window(part.logits, rules, part.tokens, laws, random.root, random.base, 11, 3, asked.seeded, asked.store)
        theirs = native(part)
        for field in FIELDS:
            mine, other = getattr(ours, field), getattr(theirs, field)
            assert (mine is None and other is None) or torch.equal(mine, other), field
        assert ours.settled == settle_on_host(theirs, theirs.accepted, asked.seeded).tolist()
        if size == 0:
            token, numbers = verifier.answer(part.logits, rules, random.base, 11)
            assert token == theirs.answers.item() and numbers[0] == theirs.entropy.item() and numbers[4] == theirs.top.item()


def test_chosen_drafts_are_those_of_one_hot_distributions() -> None:
    asked = in_a_run(window(9, 1000, BPT), Noise(2, 1000), 4, 0)
    best = native(asked).p[:8].argmax(-1)  # some are accepted
    for tokens in (best, asked.tokens):
        chosen, verifier = Chosen(tokens, 1000, torch.float32), Verifier(built()[0], 1000, STREAMS)
        ours, theirs = (
            verifier.window(
                asked.logits, (asked.sampling, None, [0] * 9), tokens, laws, Noise(2, 1000).root, asked.base, 4, 0, False, False
            )
            for laws in (chosen, chosen.dense())
        )
        for field in FIELDS[:-1]:
            assert torch.equal(getattr(ours, field), getattr(theirs, field)), field
        assert ours.settled == theirs.settled and not (ours.drawn[:8] == tokens).any()
    assert ours.has_laws and not ours.accepted.all()


def along_a_mesh(budget: int | None, rows: int) -> tuple[MaskedGrammar, Tensor, list[int]]:
    """A grammar; drafts that mostly obey it, with one that does not; and the states of all rows."""
    grammar, generator = MaskedGrammar(budget), torch.Generator().manual_seed(7)
    tokens, states = [], [grammar.start]
    for i in range(rows - 1):
        allowed = grammar.allowed(states[-1]).nonzero().flatten()
        tokens.append(5120 if i == 17 else allowed[torch.randint(len(allowed), (1,), generator=generator)].item())
        states.append(grammar.next(states[-1], tokens[-1]))
    return grammar, torch.tensor(tokens), states


@pytest.mark.parametrize("budget", [None, 2, 1000])
def test_a_walk_along_the_drafts_has_the_masks_of_the_grammar(budget: int | None) -> None:
    grammar, tokens, states = along_a_mesh(budget, 20)
    asked = window(20, 5121, BPT)
    which = [grammar.mask_index(state) for state in states]
    assert len(set(which)) > 2
    walk, listed = ((BPT, grammar.masks, each) for each in (Along(grammar.automaton, grammar.start), which))
    wrong = (BPT, grammar.masks, Along(grammar.automaton, states[1]))
    random, verifier = Noise(3, 5121), Verifier(built()[0], 5121, STREAMS)
    ours, theirs, others = (
        verifier.window(asked.logits, rules, tokens, asked.laws, random.root, random.base, 0, 0, False, True)
        for rules in (walk, listed, wrong)
    )
    for field in FIELDS:
        assert torch.equal(getattr(ours, field), getattr(theirs, field)), field
    assert ours.settled == theirs.settled and ours.drafts() == tokens.tolist()
    assert not torch.equal(others.p, theirs.p)


@pytest.mark.parametrize("budget", [None, 2])
def test_the_best_tokens_of_a_chain_obey_the_grammar_along_it(budget: int | None) -> None:
    grammar, _, states = along_a_mesh(budget, 12)
    logits = torch.randn(8, 5121, generator=torch.Generator().manual_seed(3))
    verifier, free = Verifier(built()[0], 5121, STREAMS), logits.argmax(-1).tolist()
    for start in (states[0], states[-1]):
        path, state = [], start
        for row in logits:
            path.append(row.masked_fill(~grammar.allowed(state), -torch.inf).argmax().item())
            state = grammar.next(state, path[-1])
        assert verifier.best(logits, (BPT, grammar.masks, Along(grammar.automaton, start))).tolist() == path
        assert path != free or start
    assert verifier.best(logits, (BPT, None, ())).tolist() == free
    assert verifier.best(logits.double(), (BPT, None, ())) is None and verifier.best(logits, None) is None


@pytest.mark.parametrize("name", ["R7-V1000-top-p", "R7-V1000-match-seed", "R7-V5121-BPT"])
def test_a_brief_window_leaves_out_only_what_follows_the_first_refusal(name: str) -> None:
    random, asked = Noise(5, CASES[name].logits.shape[-1]), in_a_run(CASES[name], Noise(5, CASES[name].logits.shape[-1]), 11, 3)
    torch.set_num_threads(1)
    rules, refused, found, stored = (asked.sampling, None, ()), set(), native(asked), native(replace(asked, store=True))
    for shift in range(7):  # the first drafts are accepted, so the first refusal is in every row
        tokens = torch.cat([found.answers[:shift], asked.tokens[shift:]])[:6]
        laws = None if asked.laws is None else torch.cat([stored.p[:shift], asked.laws[shift:]])[:6]
        verifier = Verifier(built()[0], random.vocabulary, STREAMS)
        whole, brief = (
            verifier.window(asked.logits, rules, tokens, laws, random.root, random.base, 11, 3, asked.seeded, False, only)
            for only in (False, True)
        )
        a = whole.settled[0]
        assert brief.settled == whole.settled and brief.listed() == whole.listed()
        assert torch.equal(brief.answers[: a + 1], whole.answers[: a + 1]) and brief.sound.sum() == a + 1 <= whole.sound.sum() == 7
        refused.add(a)
    assert len(refused) > 1


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_window_with_nan_is_refused(value: float) -> None:
    asked = in_a_run(window(3, 1000), Noise(2, 1000), 4, 0)
    asked.logits[0, 0, 7] = value
    found = Verifier(built()[0], 1000, STREAMS).window(
        asked.logits, (asked.sampling, None, [0] * 3), asked.tokens, asked.laws, Noise(2, 1000).root, asked.base, 4, 0, False, True
    )
    assert found.settled[1] == -1 and found.sound.tolist() == [False, True, True]


def test_draws_from_one_distribution_are_those_of_draw() -> None:
    random, verifier = Noise(9, 1000), Verifier(built()[0], 1000, STREAMS)
    p = torch.softmax(3 * torch.randn(1, 1000, generator=torch.Generator().manual_seed(1)), -1)
    for first, count in ((0, 1), (7, 5), (100, 300)):
        u = random.uniform(DRAW, first, count, 4)
        assert torch.equal(verifier.draws(p, random.root, DRAW, 4, first, count), draw(p, u))
        assert torch.equal(draw(p, u), draw(p.expand(count, -1), u) if count > 1 else draw(p.double(), u))


# --- scores and noise -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
def test_scores_are_those_of_pytorch_s_operations(name: str) -> None:
    asked = CASES[name]
    ours = scored(asked.logits, asked.sampling, asked.allowed)
    theirs = warp(guide(asked.logits.float(), asked.sampling.guidance), asked.sampling, asked.allowed)
    assert torch.equal(ours.isinf(), theirs.isinf())
    near("scores", ours.nan_to_num(neginf=0), theirs.nan_to_num(neginf=0), 1e-6, 1e-6)


def test_the_answer_is_that_of_the_scores_and_the_noise_of_a_run() -> None:
    """Methods that draw by PyTorch, and those whose draws come with their verdicts, agree in every bit."""
    for name in ("R63-V1000-guided-grammar", "R7-V5121-BPT", "R1-V131072-float16", "R7-V1000-top-p"):
        asked = CASES[name]
        loud = scored(asked.logits, asked.sampling, asked.allowed)
        loud += noise.gumbel_native(built()[0], asked.base, asked.positions, loud.shape[-1])
        assert torch.equal(loud.argmax(-1), native(asked).answers)


@pytest.mark.parametrize("base", [0, 1, 2**63, 2**64 - 1, noise.mix(7)])
def test_uniforms_are_the_host_s(base: int) -> None:
    positions = torch.tensor([0, 1, 4095, 2**31, 2**40])
    for slot in (0, 1, 65536):
        ours = noise.uniforms([base, 5], positions, slot)
        assert torch.equal(ours, torch.stack([noise.uniform_reference(key, positions, slot) for key in (base, 5)]))


@pytest.mark.parametrize(("rows", "vocabulary"), [(1, 5), (3, 5121), (7, 1000), (63, 1000), (1, 131072)])
def test_gumbel_noise_is_the_reference_to_the_last_bit_but_one(rows: int, vocabulary: int) -> None:
    at = torch.arange(rows) + 2**33
    ours = noise.gumbel_native(built()[0], 3, at, vocabulary)
    theirs = noise.gumbel_reference(3, at, vocabulary)
    near("noise", ours, theirs, 1.2e-7)
    assert (ours != theirs.float()).double().mean() < 1e-4  # float64 numbers that differ by a bit are seldom rounded differently


def test_a_run_asks_for_many_uniforms_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    own, at, streams = Noise(5, 8), torch.tensor([9, 3, 3, 40]), (ACCEPT, DRAW, RESIDUAL)
    theirs = torch.stack([own.host_uniform(stream, 0, 41, 6)[at] for stream in streams])
    assert torch.equal(own.host_uniforms(streams, at, 6), theirs)
    monkeypatch.setenv(VARIABLE, REFERENCE)
    assert torch.equal(own.host_uniforms(streams, at, 6), theirs)


# --- the choice, and runs ---------------------------------------------------------------------------------------------


def test_the_reference_can_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = CASES["R7-V1000-top-p"]
    assert verify(asked).top is not None
    assert verify(replace(asked, logits=asked.logits.double())).top is None  # the toy's numbers are the reference's affair
    monkeypatch.setenv(VARIABLE, REFERENCE)
    assert verify(asked).top is None
    assert torch.equal(scored(asked.logits, asked.sampling, None), warp(asked.logits[0], asked.sampling))


OPEN = Prompt("red apple", seed=3)
FILTERED = Prompt("red apple", seed=3, sampling=Sampling(0.9, 20, 0.9, 2.0))
WINDOW: dict[str, Any] = {"window": 5}


@pytest.mark.parametrize(
    ("method", "knobs", "prompt"),
    [
        ("ar", {}, OPEN),
        ("ar", {}, FILTERED),
        ("sjd", WINDOW, OPEN),
        ("sjdpp", WINDOW, FILTERED),
        ("sjdpp", WINDOW | {"verify": "match seed"}, OPEN),
        ("sjdpp", WINDOW | {"refresh": "coupled maximal"}, OPEN),
        ("sjdpp", WINDOW | {"refresh": "reuse mixture"}, OPEN),
        ("sjdpp", WINDOW | {"relax": "multiplicative", "multiplied_mass": 2.0}, OPEN),
        ("gsd", WINDOW | {"code_distance": 1.9}, OPEN),
        ("jacobi", WINDOW, OPEN),
        ("zipar", {"window": 3}, OPEN),
    ],
)
def test_the_tokens_and_the_trace_are_those_of_the_reference(
    method: str, knobs: dict[str, Any], prompt: Prompt, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for kind in (REFERENCE, NATIVE):
        monkeypatch.setenv(VARIABLE, kind)
        run = generate(tiny.pictogram.__wrapped__(), METHODS[method], prompt, knobs)  # its own, because others find its head again
        found.append(list(islice(run, 12)))
        run.stop()
        next(run, None)
    theirs, ours = found
    assert [(s.tokens, s.positions) for s in ours] == [(s.tokens, s.positions) for s in theirs]
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.trace.told == other.trace.told
        for name in ("entropy", "accept_probability", "top"):
            if (value := getattr(other.trace, name)) is not None:
                near(name, torch.as_tensor(getattr(mine.trace, name)), torch.as_tensor(value), 1e-4, 1e-5)


@pytest.mark.parametrize(("method", "knobs"), [("sjdpp", {"window": 3}), ("sjdpp", {"window": 6, "verify": "match seed"}), ("ar", {})])
def test_a_mesh_obeys_its_grammar(method: str, knobs: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    prompt, found = Prompt(points=tiny.sphere(), seed=1), []
    for kind in (REFERENCE, NATIVE):
        monkeypatch.setenv(VARIABLE, kind)
        found.append(generate(tiny.lowpoly(), METHODS[method], prompt, knobs).finish().tokens)
    assert found[0] == found[1]


def tokens_of(method: str, knobs: dict[str, Any], prompt: Prompt) -> Tensor:
    """The tokens of a whole run, by position."""
    return torch.tensor(generate(tiny.pictogram.__wrapped__(), METHODS[method], prompt, knobs).finish().in_order)


@pytest.mark.parametrize("method", ["sjd", "sjdpp", "jacobi", "lookup", "zipar"])
@pytest.mark.parametrize("prompt", [OPEN, FILTERED], ids=["open", "filtered"])
def test_match_seed_gives_the_tokens_of_plain_decoding(method: str, prompt: Prompt) -> None:
    knobs: dict[str, Any] = {"verify": "match seed"} | ({"mode": "verified"} if method == "zipar" else {})
    assert torch.equal(tokens_of(method, knobs, prompt), tokens_of("ar", {}, prompt))
