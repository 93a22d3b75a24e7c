"""The contract between backbones and methods, one suite for every adapter: a pass over drafts equals decoding one by one.

If the tests pass, methods need not depend on the model. A pass over drafts is compared with passes of one row, so nothing here
depends on how a cache, a mask or a rotary position works.
"""

from __future__ import annotations

import gc
import re
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from engine.core import NO_DRAFT, Backbone, Draft, Prompt, Rows, Sampling, Sequence
from engine.errors import BadPrompt
from engine.kernels.compressed_linear import CompressedLinear, compress
from engine.layout import Raster
from engine.memory import FORMS
from engine.sampling import guide
from engine.tree import depths, path, visibility
from tests.engine.backbones import tiny, tiny_chameleon, tiny_checkpoints, tiny_glm_image, tiny_originals

TREE = [-1, -1, 0, 0, 1, 3]  # two roots; 0 has two children; the deepest path is 0, 3, 5
DEEPEST = [0, 3, 5]


@dataclass
class Case:
    """A backbone, a prompt that it reads, and how closely passes of different widths agree on it."""

    backbone: Backbone
    prompt: Prompt
    tolerance: float

    def start(self, sampling: Sampling | None = None, seed: int = 0) -> Sequence:
        """A fresh sequence."""
        return self.backbone.start(replace(self.prompt, seed=seed, sampling=sampling))

    def close(self, a: Tensor | None, b: Tensor | None) -> None:
        """Asserts that two tensors agree within the tolerance."""
        if a is None or b is None:
            assert a is b
            return
        torch.testing.assert_close(a, b, atol=self.tolerance, rtol=0)


def make_toy() -> Case:
    """The float64 toy."""
    toy = pytest.importorskip("research.exactness.toy")
    return Case(toy.Toy(rows=3, columns=3), Prompt(), 1e-10)


COMPRESSED = {"janus": tiny.janus, "emu3": tiny_checkpoints.emu3}


def make_compressed(name: str, form: str) -> Case:
    """A tiny model of its own whose decoder has compressed weights."""
    with tiny.NORMAL:
        backbone = COMPRESSED[name].__wrapped__()
        compress(backbone.hosted.decoder, form, "cpu")
    return Case(backbone, Prompt(text="red apple"), 2e-5)


MAKERS = {
    "pictogram": lambda: Case(tiny.pictogram(), Prompt(text="two red cats on a table"), 2e-5),
    "pictogram with looks": lambda: Case(tiny.with_looks(), Prompt(text="two red cats on a green apple", size=64), 2e-5),
    "pictogram with a grammar": lambda: Case(tiny.WithGrammar(), Prompt(text="green apple"), 2e-5),
    "janus": lambda: Case(tiny.janus(), Prompt(text="red apple"), 2e-5),
    "emu3": lambda: Case(tiny_checkpoints.emu3(), Prompt(text="red apple"), 2e-5),
    "emu35": lambda: Case(tiny_checkpoints.emu35(), Prompt(text="red apple"), 2e-5),
    "lowpoly": lambda: Case(tiny.lowpoly(), Prompt(points=tiny.sphere()), 2e-5),
    "lowpoly with a guide": lambda: Case(tiny.lowpoly(), Prompt(points=tiny.sphere(), guide=tiny.octahedron()), 2e-5),
    "lowpoly without its grammar": lambda: Case(tiny.lowpoly(grammar=False), Prompt(points=tiny.sphere()), 2e-5),
    "bpt": lambda: Case(tiny_originals.bpt_backbone(), Prompt(points=tiny.sphere()), 2e-5),
    "llamagen of classes": lambda: Case(tiny_originals.llamagen(), Prompt(label=3), 2e-5),
    "llamagen of texts": lambda: Case(tiny_originals.llamagen(text=True), Prompt(text="red"), 2e-5),
    "chameleon (Anole)": lambda: Case(tiny_chameleon.chameleon("anole"), Prompt(text="red apple"), 2e-5),
    "chameleon (Lumina-mGPT)": lambda: Case(tiny_chameleon.chameleon("lumina"), Prompt(text="red apple"), 2e-5),
    "glm_image": lambda: Case(tiny_glm_image.glm_image(), Prompt(text="red apple"), 2e-5),
    "toy": make_toy,
} | {f"{name} in {form}": partial(make_compressed, name, form) for name in COMPRESSED for form in FORMS[1:]}


@pytest.fixture(params=list(MAKERS))
def case(request: pytest.FixtureRequest) -> Iterator[Case]:
    """Each backbone in turn, under inference mode as in a run."""
    with torch.inference_mode():
        yield MAKERS[request.param]()


def tokens_of(sequence: Sequence, count: int, offset: int = 0) -> list[int]:
    """Distinct ids that the head in use knows."""
    return [(3 * i + 1 + offset) % sequence.vocabulary for i in range(count)]


def draft_of(tokens: list[int], parents: list[int] | None = None, **kwargs: Tensor) -> Draft:
    """A Draft from lists."""
    return Draft(torch.tensor(tokens, dtype=torch.int64), None if parents is None else torch.tensor(parents), **kwargs)


def feed(sequence: Sequence, tokens: list[int]) -> Sequence:
    """Commits tokens one by one, each after a pass of one row."""
    for token in tokens:
        sequence.forward(NO_DRAFT)
        assert sequence.commit([], token) == [token]
    return sequence


def same_row(case: Case, rows: Rows, i: int, other: Rows, j: int) -> None:
    """Asserts that row i of a pass is row j of another one: logits of all branches, hidden states, distribution."""
    case.close(rows.logits[:, i], other.logits[:, j])
    case.close(rows.p[i], other.p[j])
    if rows.hidden is None or other.hidden is None:
        assert rows.hidden is other.hidden
    else:
        case.close(rows.hidden[:, i], other.hidden[:, j])


def test_shapes_of_a_pass(case: Case) -> None:
    sequence = case.start()
    count = min(4, sequence.limit - 1)
    rows = sequence.forward(draft_of(tokens_of(sequence, count)))
    assert rows.logits.shape[1:] == (count + 1, sequence.vocabulary)
    assert rows.p.shape == (count + 1, sequence.vocabulary)
    torch.testing.assert_close(rows.p.sum(-1), torch.ones_like(rows.p[:, 0]))
    if "hidden" in case.backbone.capabilities:
        assert rows.hidden.shape[:2] == rows.logits.shape[:2]
    assert sequence.length == 0 and not sequence.done


def test_guidance_mixes_two_branches(case: Case) -> None:
    """At scale 1 the distribution is the conditional one; otherwise there is an unconditional branch, and it differs."""
    if "mesh" in case.backbone.capabilities or case.backbone.name == "glm_image":
        pytest.skip(f"{case.backbone.name} has no guidance")
    single, pair = case.start(Sampling(guidance=1.0)), case.start(Sampling(guidance=3.0))
    rows = pair.forward(NO_DRAFT)
    conditional, unconditional = rows.logits[:, 0]
    assert (conditional - unconditional).abs().max() > 1e-2  # the prompt matters
    case.close(single.probs_after(conditional[None], [])[0], single.forward(NO_DRAFT).p[0])
    case.close(pair.probs_after((unconditional + 3 * (conditional - unconditional))[None], [])[0], rows.p[0])


@pytest.mark.parametrize("before", [0, 2])
def test_a_chain_is_what_single_passes_see(case: Case, before: int) -> None:
    """(a) Row i of one pass over N drafts equals the pass after committing i of them one by one."""
    whole, single = case.start(), case.start()
    tokens = tokens_of(whole, before + 4)
    feed(whole, tokens[:before]), feed(single, tokens[:before])
    rows = whole.forward(draft_of(tokens[before:]))
    for i, token in enumerate([*tokens[before:], None]):
        same_row(case, rows, i, single.forward(NO_DRAFT), 0)
        if token is not None:
            single.commit([], token)


@pytest.mark.parametrize("name", list(COMPRESSED))
def test_inputs_rounded_by_a_scale_of_the_whole_pass_are_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutant: int8 products that also round their inputs, as is usual elsewhere, with the largest input of the pass."""
    product = CompressedLinear._product

    def rounded(layer: CompressedLinear, rows: Tensor) -> Tensor:
        scale = rows.abs().amax() / 127
        return product(layer, (rows / scale).round() * scale)

    case = make_compressed(name, "int8")
    monkeypatch.setattr(CompressedLinear, "_product", rounded)
    with torch.inference_mode(), pytest.raises(AssertionError, match="not close"):
        test_a_chain_is_what_single_passes_see(case, 0)


def test_rows_depend_on_their_own_path_only(case: Case) -> None:
    """Another first draft changes every row after it, and none before it."""
    sequence = case.start()
    tokens = tokens_of(sequence, 4)
    rows = sequence.forward(draft_of(tokens))
    other = sequence.forward(draft_of([tokens[0], (tokens[1] + 1) % sequence.vocabulary, *tokens[2:]]))
    case.close(rows.logits[:, :2], other.logits[:, :2])
    moved = (rows.logits - other.logits).abs().amax((0, 2))
    assert (moved[2:] > 1e3 * case.tolerance).all(), moved


@pytest.mark.parametrize("before", [0, 2])
def test_a_tree_is_its_paths(case: Case, before: int) -> None:
    """(b) Every node's row equals the last row of the chain that leads to it."""
    tree, chain = case.start(), case.start()
    tokens = tokens_of(tree, before + len(TREE))
    feed(tree, tokens[:before]), feed(chain, tokens[:before])
    nodes = tokens[before:]
    rows = tree.forward(draft_of(nodes, TREE))
    for node in range(-1, len(TREE)):
        steps = path(TREE, node)
        same_row(case, rows, node + 1, chain.forward(draft_of([nodes[i] for i in steps])), len(steps))


def test_a_chain_may_be_written_as_a_tree(case: Case) -> None:
    sequence = case.start()
    tokens = tokens_of(sequence, 4)
    plain = sequence.forward(draft_of(tokens))
    written = sequence.forward(draft_of(tokens, [-1, 0, 1, 2]))
    for i in range(5):
        same_row(case, plain, i, written, i)


@pytest.mark.parametrize("nodes", [[], [0], [1], [0, 2], [1, 4], DEEPEST])
def test_commit_keeps_a_path_of_a_tree(case: Case, nodes: list[int]) -> None:
    """(c) After a path is committed, the next pass equals that of a sequence fed the same tokens one by one."""
    sequence = feed(case.start(), [1])
    tokens = tokens_of(sequence, len(TREE), 1)
    sequence.forward(draft_of(tokens, TREE))
    expected = [*(tokens[i] for i in nodes), 0]
    assert sequence.commit(nodes, 0) == expected
    assert sequence.length == 1 + len(expected)
    fresh = feed(case.start(), [1, *expected])
    draft = draft_of(tokens_of(sequence, 2, 2))
    rows, other = sequence.forward(draft), fresh.forward(draft)
    for i in range(3):
        same_row(case, rows, i, other, i)


def test_commits_add_up(case: Case) -> None:
    """(c) After several committed trees and chains, dropped nodes leave no trace."""
    sequence, committed = case.start(), []
    for nodes, parents in (([1], [-1, -1]), ([0, 1], None), ([], [-1, 0, 0])):
        tokens = tokens_of(sequence, len(parents or nodes), len(committed))
        sequence.forward(draft_of(tokens, parents))
        committed += sequence.commit(nodes, len(committed) % sequence.vocabulary)
    assert sequence.length == len(committed) == 6
    same_row(case, sequence.forward(NO_DRAFT), 0, feed(case.start(), committed).forward(NO_DRAFT), 0)


def test_drafts_are_forgotten(case: Case) -> None:
    """(d) A rejected draft leaves no trace, and a pass without a commit changes nothing."""
    sequence, fresh = case.start(), case.start()
    sequence.forward(draft_of(tokens_of(sequence, 5)))
    sequence.commit([], 2)
    feed(fresh, [2])
    draft = draft_of(tokens_of(sequence, 3, 2))
    first, expected = sequence.forward(draft), fresh.forward(draft)
    sequence.forward(draft_of(tokens_of(sequence, 4, 1), [-1, -1, 0, 1]))
    again = sequence.forward(draft)
    for i in range(4):
        same_row(case, first, i, expected, i)
        same_row(case, first, i, again, i)


def test_commit_cuts_at_the_limit(case: Case) -> None:
    """(e) No more than `limit` tokens are ever committed, and `done` says so."""
    sequence = case.start()
    sequence = feed(sequence, tokens_of(sequence, sequence.limit - 2))
    assert not sequence.done
    sequence.forward(draft_of([1, 2]))
    assert sequence.commit([0, 1], 0) == [1, 2]
    assert sequence.done and sequence.length == sequence.limit
    if hasattr(sequence, "kv_cache"):  # the invariant: all but the pending token is in the cache
        assert sequence.kv_cache.kept == sequence.prefix + sequence.limit - 1


def test_the_last_token_ends_the_sequence(case: Case) -> None:
    sequence = case.start()
    feed(sequence, tokens_of(sequence, sequence.limit - 1))
    assert not sequence.done
    sequence.forward(NO_DRAFT)
    assert sequence.commit([], 1) == [1] and sequence.done


@pytest.mark.parametrize("positions", [[], [0, 1, 2], [1, 3]])
@pytest.mark.parametrize("final", [False, True])
def test_partial_pictures_render(case: Case, positions: list[int], final: bool) -> None:
    """(f) Any subset of the positions renders at full size; missing positions have one colour."""
    layout = case.start().layout
    if not isinstance(layout, Raster):
        pytest.skip(f"{case.backbone.name} makes no pictures")
    picture = case.backbone.render([1] * len(positions), positions, final)
    assert picture.dtype == np.uint8
    assert picture.shape == (layout.rows * layout.factor, layout.columns * layout.factor, 3)
    tiles = picture.reshape(layout.rows, layout.factor, layout.columns, layout.factor, 3).swapaxes(1, 2)
    missing = [divmod(i, layout.columns) for i in range(layout.rows * layout.columns) if i not in positions]
    assert len(np.unique(np.stack([tiles[place] for place in missing]).reshape(-1, 3), axis=0)) == 1


def test_rendered_tokens_matter(case: Case) -> None:
    layout = case.start().layout
    if not isinstance(layout, Raster):
        pytest.skip(f"{case.backbone.name} makes no pictures")
    count = layout.rows * layout.columns
    pictures = [case.backbone.render([token] * count, list(range(count)), True) for token in (0, 2)]
    assert (pictures[0] != pictures[1]).any()


@pytest.mark.parametrize("parents", [[-1, 0, 1, 2], TREE])
def test_explicit_positions_and_visibility(case: Case, parents: list[int]) -> None:
    """(g) A draft with the default positions and visibility written out gives the same rows."""
    sequence = feed(case.start(), [2, 1])
    tokens = tokens_of(sequence, len(parents))
    derived = sequence.forward(draft_of(tokens, parents))
    positions = torch.tensor([sequence.length + depth - 1 for depth in depths(parents)])
    spelled = sequence.forward(draft_of(tokens, parents, positions=positions, visible=visibility(parents)))
    for i in range(len(parents) + 1):
        same_row(case, derived, i, spelled, i)


def test_visibility_is_obeyed(case: Case) -> None:
    """(g) A row that may not see a node does not depend on it."""
    sequence = case.start()
    blind = torch.ones(4, 4, dtype=torch.bool).tril()
    blind[3, 2] = False  # the third node does not see the second
    first, second = (sequence.forward(draft_of([1, token, 1], visible=blind)) for token in (0, 2))
    case.close(first.logits[:, 3], second.logits[:, 3])
    assert (first.logits[:, 2] - second.logits[:, 2]).abs().max() > 1e3 * case.tolerance


def test_sequences_do_not_disturb_each_other(case: Case) -> None:
    """(h) Two runs on the same weights with interleaved passes give the same rows as alone."""
    one, two = case.start(), case.start()
    first, second = tokens_of(one, 5), tokens_of(one, 5, 2)
    one.forward(draft_of(first)), two.forward(draft_of(second))
    one.commit([0, 1], first[2]), two.commit([0], second[1])
    mine, yours = one.forward(NO_DRAFT), two.forward(NO_DRAFT)
    same_row(case, mine, 0, feed(case.start(), first[:3]).forward(NO_DRAFT), 0)
    same_row(case, yours, 0, feed(case.start(), second[:2]).forward(NO_DRAFT), 0)


@pytest.mark.parametrize(
    "sampling",
    [Sampling(guidance=3.0), Sampling(0.7, 5, 0.9, 2.0), Sampling(temperature=0.0, guidance=3.0), Sampling(1.3, 0, 0.8, 1.0)],
)
def test_drafters_warp_as_rows_do(case: Case, sampling: Sampling) -> None:
    """(i) `probs_after` of guided logits after a path equals `Rows.p` of the node at its end."""
    sequence = feed(case.start(sampling), [1])
    tokens = tokens_of(sequence, len(TREE), 1)
    rows = sequence.forward(draft_of(tokens, TREE))
    guided = guide(rows.logits, sampling.guidance)
    for node in range(-1, len(TREE)):
        behind = [tokens[i] for i in path(TREE, node)]
        case.close(sequence.probs_after(guided[node + 1 : node + 2], behind)[0], rows.p[node + 1])


def test_what_is_allowed_is_what_a_distribution_can_say(case: Case) -> None:
    """Without filters, exactly the tokens that `allowed` excludes after a path are impossible."""
    sequence = feed(case.start(Sampling()), [1])
    path = tokens_of(sequence, 2, 1)
    for behind in ([], path[:1], path):
        probs = sequence.probs_after(torch.zeros(1, sequence.vocabulary, device=sequence.device), behind)[0]
        allowed = sequence.allowed_ids(behind)
        assert torch.equal(probs > 0, torch.ones_like(probs, dtype=torch.bool) if allowed is None else allowed)


def test_the_first_rows_of_a_pass_are_those_rows(case: Case) -> None:
    """Computed alone, or cut from rows that were already computed."""
    sequence = feed(case.start(), [1])
    rows = sequence.forward(draft_of(tokens_of(sequence, 4, 1)))
    alone = rows.first(2)
    copies = alone.scores.clone(), alone.p.clone(), alone.soft.clone()
    whole = rows.scores, rows.p, rows.soft
    for few, cut, all_rows in zip(copies, (rows.first(2).scores, rows.first(2).p, rows.first(2).soft), whole, strict=True):
        case.close(few, all_rows[:2])
        assert torch.equal(cut, all_rows[:2])
    assert alone.logits.shape[1] == 2 and alone.hidden.shape[1] == 2


def test_closing_frees_the_cache(case: Case) -> None:
    sequence = feed(case.start(), [1, 2])
    if getattr(sequence, "kv_cache", None) is None:
        pytest.skip(f"{case.backbone.name} keeps no cache")
    block = weakref.ref(sequence.kv_cache)
    sequence.close()
    gc.collect()
    assert block() is None


def ending() -> list[Sequence]:
    """Backbones whose last id ends a sequence."""
    picture = tiny.pictogram().start(Prompt(text="a table"))
    picture.end = picture.vocabulary - 1
    toy = pytest.importorskip("research.exactness.toy")
    return [picture, toy.Toy(rows=3, columns=3, end=True).start(Prompt())]


@torch.inference_mode()
def test_the_end_token_cuts_a_commit() -> None:
    """(e) Tokens accepted after the end of the sequence are dropped; the end itself is committed."""
    for sequence in ending():
        end = sequence.vocabulary - 1
        feed(sequence, [0])
        sequence.forward(draft_of([1, end, 0]))
        assert sequence.commit([0, 1, 2], 0) == [1, end]
        assert sequence.done and sequence.length == 3
        if hasattr(sequence, "kv_cache"):
            assert sequence.kv_cache.kept == sequence.prefix + 2


@torch.inference_mode()
def test_the_end_token_may_come_last() -> None:
    for sequence in ending():
        sequence.forward(draft_of([1, 0]))
        assert sequence.commit([0], sequence.vocabulary - 1) == [1, sequence.vocabulary - 1]
        assert sequence.done and sequence.length == 2


@torch.inference_mode()
def test_a_grammar_follows_each_path() -> None:
    """In a tree, siblings may be followed by different tokens; what is forbidden has probability zero."""
    sequence = tiny.WithGrammar().start(Prompt(text="red table"))
    feed(sequence, [5])
    rows = sequence.forward(draft_of([1, 2, 3], [-1, -1, 1]))
    forbidden = [(rows.p[i] == 0).nonzero().flatten().tolist() for i in range(4)]
    assert forbidden == [[5], [1, 5], [2, 5], [2, 3]]


# --- what is declared ----------------------------------------------------------------------------------------------------


def test_a_backbone_and_its_sequences_have_all_that_is_declared(case: Case) -> None:
    sequence = case.start()
    lacking = [name for name in Backbone.__annotations__ if not hasattr(case.backbone, name)]
    lacking += [name for name in Sequence.__annotations__ if not hasattr(sequence, name) and name != "resampler"]
    assert lacking == []
    assert case.backbone.dtype in ("float32", "bfloat16", "float64") and case.backbone.vocabulary == sequence.vocabulary
    assert (case.backbone.parameters > 0) == (case.backbone.name != "toy")
    assert isinstance(case.backbone.unknown_words("red zyx"), dict)


def test_nobody_asks_a_model_whether_it_has_something() -> None:
    """A missing attribute of a backbone, a sequence or a layout is a bug, and a default would hide it."""
    root = Path(__file__).parents[3]
    asks = re.compile(r"(getattr|hasattr)\([\w.]*(backbone|sequence|layout)\b,")
    lines = [(path, line) for room in ("engine", "app") for path in (root / room).rglob("*.py") for line in path.read_text().splitlines()]
    assert [(path.name, line) for path, line in lines if asks.search(line)] == []


def refusal(backbone: Backbone, text: str) -> str:
    """The error message for a prompt: one sentence that a terminal and a page can show."""
    with pytest.raises(BadPrompt) as caught:
        backbone.start(Prompt(text=text))
    sentence = str(caught.value)
    sentence.encode()
    assert sentence.isprintable() and sentence.endswith(".")
    return sentence


@pytest.mark.parametrize("text", ["a red\0apple", "a red \ud83c apple", "\udfff"])
def test_what_is_no_character_is_refused_with_its_place(text: str) -> None:
    assert re.match(r"Character \d+ of the prompt is U\+(0000|D83C|DFFF),", refusal(tiny.pictogram(), text))


@pytest.mark.parametrize("text", ["🧿🧿", "!?", "\u200b"])
def test_a_prompt_without_a_word_is_refused_by_a_model_of_words(text: str) -> None:
    assert re.search("no word of (letters|this prompt)", refusal(tiny.pictogram(), text))
