"""Tests a caller's model once: whether its forward keeps to the positions, the mask and the cache that it is given.

Many classes could ignore one of them without an error: an eager layer adds a boolean mask as 0 and 1, a class may count positions by
itself. So before the first run a pass of three rows, one of which may not see another, is compared with the class's plain pass.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from transformers import PreTrainedModel

from engine.core import Draft
from engine.errors import NotSupported
from engine.transformers.host import Branch, CallerModel, CallerSequence, CallerTrunk, LateSlab

TOLERANCE = {torch.float64: 1e-2, torch.float32: 1e-2}  # largest difference, in standard deviations of the logits
COARSE = 0.3  # in other number types
PROBE_ROWS = 4  # of a pass that `agree` makes
FAILURES = (ValueError, TypeError, RuntimeError, LookupError, AttributeError)  # of a class that takes no mask of drafts


class Probed:
    """The models that passed, with the settings they passed with; they are not kept alive."""

    def __init__(self) -> None:
        self.passed: WeakKeyDictionary[PreTrainedModel, tuple[str, torch.dtype]] = WeakKeyDictionary()

    def check(self, host: CallerModel) -> None:
        """Raises NotSupported for a model whose logits are wrong when drafts are verified; tests a model once."""
        settings = (host.model.config.get_text_config(decoder=True)._attn_implementation, host.model.dtype)
        if self.passed.get(host.model) == settings:
            return
        require_near(host, *gap(host))
        self.passed[host.model] = settings


PROBED = Probed()  # one per process, so that a new callable for each generation costs no passes


def require_near(host: CallerModel, difference: float, spread: float) -> None:
    """Raise NotSupported if logits of one place differ by more than rounding does."""
    if not difference <= TOLERANCE.get(host.model.dtype, COARSE) * spread:
        raise NotSupported(
            f"{host.name} does not keep to the positions and the mask of drafts: its logits differ by {difference:.2g} "
            f"(they spread by {spread:.2g}). Use plain generate."
        )


def refusal(host: CallerModel, error: Exception) -> NotSupported:
    """The sentence for a class whose pass over drafts fails."""
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
    return NotSupported(f"{host.name} does not take the mask of drafts ({reason}). Use plain generate.")


@torch.no_grad()
def agree(sequence: CallerSequence, logits: Tensor) -> None:
    """Raise NotSupported unless a pass over drafts agrees with the plain pass that gave `logits` [branches, 1, V]; it keeps nothing.

    The drafts are three siblings, and the first and the last are the same token: neither sees another, so their logits are equal too."""
    host, plain = sequence.model, logits[0, 0].float()
    token = int(plain.argmax())
    drafts = torch.tensor([token, (token + 1) % host.vocabulary, token])
    try:
        found = sequence.forward(Draft(drafts, parents=torch.tensor([-1, -1, -1]))).logits[0].float()
    except FAILURES as e:
        raise refusal(host, e) from e
    usable = plain.abs() < torch.finfo(logits.dtype).max / 2
    spread = plain[usable].std().item()
    for one, other in ((found[0], plain), (found[3], found[1])):
        require_near(host, (one - other)[usable].abs().max().item(), spread)


@torch.no_grad()
def gap(host: CallerModel) -> tuple[float, float]:
    """The largest difference between the logits of a pass over drafts and of a plain pass, and the standard deviation of the latter.

    Raises NotSupported if the pass over drafts fails where the plain one does not."""
    ids = host.branches[0].ids[:4].to(host.device)
    ids = torch.cat([ids, ids[-1:].expand(4 - len(ids))])
    plain = host.model(input_ids=ids[None], use_cache=False, return_dict=True).logits[0, 2:]  # after the third id and after the fourth
    try:
        found = _drafted(host, ids)
    except FAILURES as e:  # the same ids went through the plain pass
        raise refusal(host, e) from e
    usable = plain.float().abs() < torch.finfo(plain.dtype).max / 2  # a class may set some logits to the smallest number there is
    difference = (found.float() - plain.float())[usable].abs().max()
    return difference.item(), plain.float()[usable].std().item()


def _drafted(host: CallerModel, ids: Tensor) -> Tensor:
    """The logits [2, V] after the third and the fourth of four ids: the first two are cached, and a wrong draft lies between the others."""
    trunk = CallerTrunk(host.model, [Branch(ids[:3])], host.attention)
    kv_cache = LateSlab(host.attention.layers, 1, len(ids) + 1)
    device = ids.device
    trunk.run(ids[None, :2, None], torch.arange(2, device=device), torch.ones(2, 2, dtype=torch.bool, device=device).tril(), kv_cache)
    kv_cache.keep([0, 1])
    wrong = (ids[3:] + 1) % host.vocabulary
    window = torch.cat([ids[2:3], wrong, ids[3:]])
    visible = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 0], [1, 1, 1, 0, 1]], dtype=torch.bool, device=device)
    logits = trunk.run(window[None, :, None], torch.tensor([2, 3, 3], device=device), visible, kv_cache)
    return logits[0, [0, 2]]
