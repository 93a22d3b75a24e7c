"""The compiled draft heads against the heads in PyTorch, with the same bits in every call."""

from __future__ import annotations

from itertools import islice

import pytest
import torch
from torch import Tensor, nn

from engine.core import Prompt
from engine.drafters.mesh_heads import BoundHeads, HeadsByKind, MeshHeads
from engine.kernels.choice import NATIVE, REFERENCE, VARIABLE
from engine.kernels.cpu.heads import NativeHeads, best_allowed
from engine.kernels.cpu.layers import NativeLinear
from engine.kernels.cpu.library import built, native, native_choice
from engine.methods import METHODS
from engine.run import generate
from tests.engine.backbones import tiny

pytestmark = [pytest.mark.skipif(built()[0] is None, reason=built()[1]), pytest.mark.usefixtures("inference")]
DEPTH, VOCABULARY = 5, 333
LOOKING = 41  # vectors of the condition


def made(
    kind: str, width: int, heads: int, dtype: torch.dtype = torch.float32
) -> tuple[MeshHeads, NativeLinear, tuple[Tensor, Tensor] | None]:  # fmt: skip
    """Random heads, an output layer of a type, and what the heads found in a condition."""
    torch.manual_seed(0)
    own = MeshHeads(DEPTH, width, heads, VOCABULARY, kind)
    for p in own.parameters():
        nn.init.normal_(p, std=0.3 if p.ndim < 3 or p.shape[1] == 1 else width**-0.5)
    return own, NativeLinear(nn.Linear(width, VOCABULARY), native(), dtype), own.look(torch.randn(1, LOOKING, width))


def needs(dtype: torch.dtype) -> None:
    """Skips the test where the functions have no products of a type."""
    if native(dtype) is None:
        pytest.skip(native_choice(dtype).reason)


def ours(own: MeshHeads, output: nn.Module, looked: tuple[Tensor, Tensor] | None, hidden: Tensor, count: int) -> Tensor:
    """Logits [count, V] by the function."""
    quick = own.quick(output)
    assert isinstance(quick, NativeHeads) and quick.can_run(hidden)
    return quick(hidden, None if looked is None else tuple(each[:, 0].contiguous() for each in looked), count)


@pytest.mark.parametrize("kind", ["mlp", "cross"])
@pytest.mark.parametrize(("width", "heads"), [(192, 6), (32, 2), (96, 1)])
def test_it_is_the_reference_up_to_rounding(kind: str, width: int, heads: int) -> None:
    own, output, looked = made(kind, width, heads)
    if kind == "cross" and width == 96:
        assert own.quick(output) is None  # heads of three vectors are not known
        return
    for count in (1, 3, DEPTH):
        hidden = 2 * torch.randn(width)
        theirs = own.logits(own.features(hidden[None, None], looked, count)[:, 0, 0], output)
        found = ours(own, output, looked, hidden, count)
        assert found.shape == (count, VOCABULARY)
        torch.testing.assert_close(found, theirs, atol=2e-5, rtol=2e-5)
        assert len({tuple(row.tolist()) for row in found}) == count  # each head has weights of its own


@pytest.mark.parametrize("kind", ["mlp", "cross"])
def test_in_bfloat16_it_is_the_reference_up_to_the_rounding_of_weights_and_rows(kind: str) -> None:
    needs(torch.bfloat16)
    own, output, looked = made(kind, 192, 6, torch.bfloat16)
    hidden = 2 * torch.randn(192)
    exact = nn.Linear(192, VOCABULARY)
    exact.weight, exact.bias = output.weight, output.bias
    theirs = own.logits(own.features(hidden[None, None], looked)[:, 0, 0], exact)
    found = ours(own, output, looked, hidden, DEPTH)
    assert output.half and 1e-5 < (found - theirs).norm() / theirs.norm() < 0.02


@pytest.mark.parametrize("kind", ["mlp", "cross"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_head_has_the_same_bits_in_every_call(kind: str, dtype: torch.dtype) -> None:
    needs(dtype)
    own, output, looked = made(kind, 192, 6, dtype)
    hidden = torch.randn(192)
    whole = ours(own, output, looked, hidden, DEPTH)
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        for count in range(1, DEPTH + 1):
            assert torch.equal(ours(own, output, looked, hidden, count), whole[:count]), (count, threads)


def test_what_it_does_not_know_is_left_to_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    own, output, _ = made("mlp", 32, 2)
    assert own.quick(nn.Linear(32, VOCABULARY)) is None
    assert MeshHeads(2, 32, 2, VOCABULARY, tied=False).quick(output) is None
    assert made("mlp", 33, 1)[0].quick(made("mlp", 33, 1)[1]) is None
    quick = own.quick(output)
    assert not quick.can_run(torch.randn(32).double())
    with torch.inference_mode(False):
        assert not quick.can_run(torch.randn(32))  # gradients may be wanted
    output.register_forward_hook(lambda *_: None)
    assert not quick.can_run(torch.randn(32))
    monkeypatch.setenv(VARIABLE, REFERENCE)
    assert own.quick(output) is None


@pytest.mark.parametrize("vocabulary", [1, 5, 16, 1000, 5121])
def test_the_best_token_is_the_first_of_the_greatest_that_are_allowed(vocabulary: int) -> None:
    torch.manual_seed(vocabulary)
    logits = torch.randn(6, vocabulary).round(decimals=1)  # with equals
    logits[5] = -torch.inf
    for share in (0.0, 0.5, 1.0):
        allowed = torch.rand(vocabulary) < share
        theirs = logits[:5].masked_fill(~allowed, -torch.inf).argmax(-1).tolist()
        theirs.append(int(allowed.long().argmax()))  # if all of them are impossible, the first allowed one
        assert [best_allowed(native(), logits, row, allowed.data_ptr()) for row in range(6)] == theirs
    assert [best_allowed(native(), logits, row, 0) for row in range(6)] == logits.argmax(-1).tolist()


@pytest.mark.parametrize("kind", ["mlp", "cross"])
@pytest.mark.parametrize("grammar", [True, False])
@pytest.mark.parametrize("verify", ["residual", "match seed"])
def test_a_run_has_the_tokens_and_drafts_of_the_reference(kind: str, grammar: bool, verify: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for choice in (REFERENCE, NATIVE):
        monkeypatch.setenv(VARIABLE, choice)
        model = tiny.quick_lowpoly(grammar)
        torch.manual_seed(1)
        own = MeshHeads(4, 32, 2, model.vocabulary, kind)
        for p in own.parameters():
            nn.init.normal_(p, std=0.2)
        bound = BoundHeads(own, model.model.decoder.head, model.model.decoder.head)
        assert (bound.quick is not None) == (choice == NATIVE)
        model.capabilities |= {"mesh_heads"}
        knobs = {"accept": "residual", "drafts": "most probable", "heads": "multilayer", "depth": 3, "verify": verify}
        drafter = HeadsByKind(["multilayer"], lambda _, bound=bound: bound, "tiny")
        run = generate(model, METHODS["xspecmesh"], Prompt(points=tiny.sphere(), seed=2), knobs, drafter)
        found.append([(step.tokens, None if step.draft is None else step.draft["tokens"].tolist()) for step in islice(run, 30)])
    assert found[0] == found[1] and any(draft for _, draft in found[0])
