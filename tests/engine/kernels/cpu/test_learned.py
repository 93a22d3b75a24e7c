"""The compiled functions of a training step against PyTorch in float32: values and gradients; and a mutant of each that must fail."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from engine.kernels.choice import REFERENCE, VARIABLE
from engine.kernels.cpu.learned import Gate, gates, learned_attention, learns, mean_loss
from engine.kernels.cpu.library import built
from engine.networks.transformer import causal

pytestmark = pytest.mark.skipif(built()[0] is None, reason=built()[1])
CPU = torch.device("cpu")
MASKS = {  # rows, keys and the mask
    "everything": (70, 37, None),
    "one row": (1, 5, None),
    "causal": (131, 131, causal(131, 0, CPU)),
    "after a prefix": (35, 90, causal(35, 55, CPU)),
    "scattered": (45, 200, (torch.rand(45, 200, generator=torch.Generator().manual_seed(3)) < 0.2).index_fill_(1, torch.tensor([5]), True)),
}


@pytest.fixture(autouse=True)
def free_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)


def inputs(rows: int, keys: int, width: int) -> list[Tensor]:
    """Queries, keys and values whose heads lie beside each other, as a layer computes them."""
    numbers = torch.Generator().manual_seed(rows)
    mixed = [torch.randn(2, n, 3, width, generator=numbers).bfloat16() for n in (rows, keys, keys)]
    return [x.requires_grad_().transpose(1, 2) for x in mixed]


def reference(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float, unit: bool) -> Tensor:
    q, k = (F.normalize(x, dim=-1) for x in (q, k)) if unit else (q, k)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)


def relative(found: Tensor, true: Tensor) -> float:
    return ((found.float() - true).norm() / true.norm()).item()


def errors(name: str, width: int, unit: bool, scale: float = 0.5, meant: float = 0.5) -> list[float]:
    """Relative errors of the attention and of the three gradients. meant : the reference's scale"""
    rows, keys, mask = MASKS[name]
    parts = inputs(rows, keys, width)
    weight = torch.randn(2, 3, rows, width, generator=torch.Generator().manual_seed(1))
    assert learns(*parts, mask)
    found = learned_attention(*parts, mask, scale, unit)
    exact = [x.detach().float().requires_grad_() for x in parts]
    true = reference(*exact, mask, meant, unit)
    gradients = [torch.autograd.grad((x.float() * weight).sum(), of) for x, of in ((found, parts), (true, exact))]
    return [relative(found, true.detach())] + [relative(own, other) for own, other in zip(*gradients, strict=True)]


@pytest.mark.parametrize("unit", [False, True])
@pytest.mark.parametrize("width", [32, 24, 7])
@pytest.mark.parametrize("name", MASKS)
def test_attention_and_its_gradients(name: str, width: int, unit: bool) -> None:
    assert max(errors(name, width, unit)[slice(None) if name != "one row" else slice(1)]) < 0.01


def test_another_scale_is_noticed() -> None:
    assert min(errors("causal", 32, unit=False, scale=0.5, meant=0.6)) > 0.02


def test_a_row_without_length_has_a_finite_gradient() -> None:
    q, k, v = (x.detach().clone() for x in inputs(4, 4, 16))
    q[0, 0, 0], k[0, 0, 1] = 0.0, 0.0
    parts = [x.requires_grad_() for x in (q, k, v)]
    learned_attention(*parts, None, 10.0, unit=True).sum().backward()
    assert all(x.grad.isfinite().all() for x in parts)


def test_threads_do_not_change_a_bit() -> None:
    threads, found = torch.get_num_threads(), []
    rows, keys, mask = MASKS["causal"]
    for count in (1, 3):
        torch.set_num_threads(count)
        parts = inputs(rows, keys, 32)
        out = learned_attention(*parts, mask, 0.5)
        found.append([out, *torch.autograd.grad(out.float().square().sum(), parts)])
    torch.set_num_threads(threads)
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


def test_what_a_row_must_not_see_does_not_reach_it() -> None:
    rows, keys, mask = MASKS["causal"]
    q, k, v = inputs(rows, keys, 16)
    late = v.detach().clone()
    late[:, :, 70:] += 100.0
    assert torch.equal(learned_attention(q, k, late, mask, 0.5)[:, :, :70], learned_attention(q, k, v, mask, 0.5)[:, :, :70])


def test_it_is_for_training_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    q, k, v = inputs(4, 4, 16)
    assert learns(q, k, v, None) and not learns(q.float(), k.float(), v.float(), None)
    assert not learns(q.detach(), k, v, None) and not learns(q, k, v, torch.ones(2, 1, 4, 4, dtype=torch.bool))
    with torch.no_grad():
        assert not learns(q, k, v, None)
    monkeypatch.setenv(VARIABLE, REFERENCE)
    assert not learns(q, k, v, None) and not gates(torch.randn(2, 128).bfloat16().requires_grad_())


@pytest.mark.parametrize("rows", [1, 37])
def test_the_gate_and_its_gradient(rows: int) -> None:
    mixed = (3 * torch.randn(2, rows, 192, generator=torch.Generator().manual_seed(2))).bfloat16().requires_grad_()
    given = torch.randn(2, rows, 96, generator=torch.Generator().manual_seed(4)).bfloat16()
    assert gates(mixed)
    found = Gate.apply(mixed)
    exact = mixed.detach().float().requires_grad_()
    value, gate = exact.chunk(2, -1)
    true = value * F.gelu(gate)
    true.backward(given.float())
    found.backward(given)
    assert relative(found, true.detach()) < 0.005 and relative(mixed.grad, exact.grad) < 0.005
    assert relative(found, (gate * F.gelu(value)).detach()) > 0.1  # the halves exchanged


def losses(rows: int, vocabulary: int) -> tuple[list[Tensor], Tensor]:
    numbers = torch.Generator().manual_seed(rows)
    shapes = (rows, 48), (vocabulary, 48), (vocabulary,)
    return [torch.randn(s, generator=numbers).requires_grad_() for s in shapes], torch.randint(0, vocabulary, (rows,), generator=numbers)


@pytest.mark.parametrize("rows", [1, 300])
@pytest.mark.parametrize("vocabulary", [64, 101, 5])
def test_the_mean_loss_and_its_gradients(rows: int, vocabulary: int) -> None:
    parts, labels = losses(rows, vocabulary)
    with torch.autocast("cpu", torch.bfloat16):
        found = mean_loss(*parts, labels)
    assert found.grad_fn is not None and "MeanLoss" in found.grad_fn.name()
    true = F.cross_entropy(F.linear(*parts), labels)
    gradients = [torch.autograd.grad(2 * loss, parts) for loss in (found, true)]
    assert abs(found - true) < 0.02 * true + 0.01
    assert max(relative(own, other) for own, other in zip(*gradients, strict=True)) < 0.03
    wrong = torch.autograd.grad(F.cross_entropy(F.linear(*parts), (labels + 1) % vocabulary), parts)
    assert min(relative(own / 2, other) for own, other in zip(gradients[0], wrong, strict=True)) > 0.1


def test_the_loss_is_pytorchs_without_gradients_and_in_float32() -> None:
    parts, labels = losses(9, 11)
    true = F.cross_entropy(F.linear(*parts), labels)
    assert torch.equal(mean_loss(*parts, labels), true)
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        assert abs(mean_loss(*parts, labels) - true) < 0.05


def test_a_label_outside_of_the_vocabulary_is_not_read() -> None:
    parts, labels = losses(9, 11)
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(AssertionError, match="no id"):
        mean_loss(*parts, labels - 100)
