"""The compiled row and column heads against the heads in PyTorch, with the same bits in every call."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from engine.core import NO_DRAFT, Prompt
from engine.drafters.spatial_heads import NetworkHeads, SpatialHeads, SpatialRun
from engine.kernels.choice import REFERENCE, VARIABLE
from engine.kernels.cpu.layers import NativeLinear
from engine.kernels.cpu.library import built, native
from engine.networks.native_blocks import quick_linear
from engine.networks.sequence import TransformerSequence
from tests.engine.backbones import tiny

pytestmark = [pytest.mark.skipif(built()[0] is None, reason=built()[1]), pytest.mark.usefixtures("inference")]
REACH = 3
NOTHING = torch.empty(0, dtype=torch.int64)


def heads(guided: bool = True) -> NetworkHeads:
    """Random heads of the tiny pictogram, as `read_heads` makes them."""
    torch.manual_seed(8)
    network = SpatialHeads(32, 40, REACH, guided)
    tiny.spread(network, 0.3)
    for name in ("above", "left", "gate_up", "down"):
        setattr(network, name, quick_linear(getattr(network, name)))
    return NetworkHeads(network.requires_grad_(False))


def decoded(count: int, guidance: float = 1.8, half: bool = False) -> tuple[SpatialRun, SpatialRun]:
    """The compiled heads and those in PyTorch, after plain decoding of some tokens."""
    backbone = tiny.pictogram()
    sampling = backbone.sampling
    sequence = backbone.start(Prompt(text="red apple", seed=5, sampling=type(sampling)(guidance=guidance)))
    output = sequence.trunk.head
    plain = nn.Linear(output.in_features, output.out_features, bias=output.bias is not None)
    plain.weight, plain.bias = output.weight, output.bias
    sequence.trunk.head = NativeLinear(plain, native(), torch.bfloat16 if half else torch.float32)
    quick, slow = heads().start(sequence), heads().start(sequence)
    slow.quick = None
    for i in range(count):
        rows = sequence.forward(NO_DRAFT)
        quick.saw(i, rows)
        slow.saw(i, rows)
        sequence.commit([], (5 * i + 2) % sequence.vocabulary)
    assert quick.quick is not None
    return quick, slow


@pytest.mark.parametrize("guidance", [1.0, 1.8])
@pytest.mark.parametrize(("rows", "columns"), [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize("length", [1, 7, 8, 12, 30])
def test_it_is_the_reference_up_to_rounding(length: int, rows: bool, columns: bool, guidance: float) -> None:
    quick, slow = decoded(length, guidance)
    for drafts in (NOTHING, torch.tensor([3, 4])):
        slots = range(length + len(drafts), length + len(drafts) + 9)
        found, expected = (run.guess(slots, drafts, rows, columns) for run in (quick, slow))
        assert found.shape == expected.shape
        torch.testing.assert_close(found, expected, atol=5e-5, rtol=5e-5)
        assert len({tuple(row.tolist()) for row in found[: REACH + 1]}) > 1 or not (rows or length > 8)


def test_an_output_layer_of_half_precision_is_known() -> None:
    if not native().multiplies_half:
        pytest.skip("The processor has no instruction for products in bfloat16.")
    quick, slow = decoded(12, half=True)
    found, expected = (run.guess(range(12, 18), NOTHING) for run in (quick, slow))
    torch.testing.assert_close(found, expected, atol=2e-2, rtol=2e-2)


def test_a_slot_has_the_same_bits_in_every_call() -> None:
    quick, _ = decoded(20)
    whole = quick.guess(range(20, 29), NOTHING)
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        for count in range(1, 10):
            assert torch.equal(quick.guess(range(20, 20 + count), NOTHING), whole[:count]), (count, threads)


def test_what_it_does_not_know_is_left_to_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    def made(guided: bool = True) -> tuple[TransformerSequence, SpatialRun]:
        sequence = tiny.pictogram().start(Prompt(text="red apple", seed=5))
        return sequence, heads(guided).start(sequence)

    sequence, run = made()
    assert run.quick is not None and not run.quick.can_run(torch.zeros(2, 4, 32, dtype=torch.float64))
    assert made(guided=False)[1].quick is None
    called: list[Tensor] = []
    hook = sequence.trunk.head.register_forward_hook(lambda layer, inputs, output: called.append(output))
    run.saw(0, sequence.forward(NO_DRAFT))
    sequence.commit([], 3)
    called.clear()
    run.guess(range(1, 3), NOTHING)
    assert len(called) == 1
    hook.remove()
    monkeypatch.setenv(VARIABLE, REFERENCE)
    assert made()[1].quick is None
