"""Tests a caller's model once: whether its forward keeps to the positions, the mask and the cache that it is given.

Many classes could ignore one of them without an error: an eager layer adds a boolean mask as 0 and 1, a class may count positions by
itself. So before the first run a pass of three rows, one of which may not see another, is compared with the class's plain pass.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from transformers import PreTrainedModel

from engine.accelerate.host import Branch, CallerModel, CallerTrunk, LateSlab
from engine.errors import NotSupported

TOLERANCE = {torch.float64: 1e-2, torch.float32: 1e-2}  # largest difference, in standard deviations of the logits
COARSE = 0.3  # in other number types


class Probed:
    """The models that passed, with the settings they passed with; they are not kept alive."""

    def __init__(self) -> None:
        self.passed: WeakKeyDictionary[PreTrainedModel, tuple[str, torch.dtype]] = WeakKeyDictionary()

    def check(self, host: CallerModel) -> None:
        """Raises NotSupported for a model whose logits are wrong when drafts are verified; tests a model once."""
        settings = (host.model.config.get_text_config(decoder=True)._attn_implementation, host.model.dtype)
        if self.passed.get(host.model) == settings:
            return
        difference, spread = gap(host)
        if not difference <= TOLERANCE.get(host.model.dtype, COARSE) * spread:
            raise NotSupported(
                f"{host.name} does not keep to the positions and the mask of drafts: its logits differ by {difference:.2g} "
                f"(they spread by {spread:.2g}). Use plain generate."
            )
        self.passed[host.model] = settings


PROBED = Probed()  # one per process, so that a new callable for each generation costs no passes


@torch.no_grad()
def gap(host: CallerModel) -> tuple[float, float]:
    """The largest difference between the logits of a pass over drafts and of a plain pass, and the standard deviation of the latter.

    Raises NotSupported if the pass over drafts fails where the plain one does not."""
    ids = host.branches[0].ids[:4].to(host.device)
    ids = torch.cat([ids, ids[-1:].expand(4 - len(ids))])
    plain = host.model(input_ids=ids[None], use_cache=False, return_dict=True).logits[0, 2:]  # after the third id and after the fourth
    try:
        found = _drafted(host, ids)
    except (ValueError, TypeError, RuntimeError, LookupError, AttributeError) as e:  # the same ids went through the plain pass
        told = (str(e).strip().splitlines() or [type(e).__name__])[0].rstrip(".")
        raise NotSupported(f"{host.name} does not take the mask of drafts ({told}). Use plain generate.") from e
    usable = plain.float().abs() < torch.finfo(plain.dtype).max / 2  # a class may set some logits to the smallest number there is
    difference = (found.float() - plain.float())[usable].abs().max()
    return difference.item(), plain.float()[usable].std().item()


def _drafted(host: CallerModel, ids: Tensor) -> Tensor:
    """The logits [2, V] after the third and the fourth of four ids: the first two are cached, and a wrong draft lies between the others."""
    trunk = CallerTrunk(host.model, [Branch(ids[:3])], host.attention)
    slab = LateSlab(host.attention.layers, 1, len(ids) + 1)
    device = ids.device
    trunk.run(ids[None, :2, None], torch.arange(2, device=device), torch.ones(2, 2, dtype=torch.bool, device=device).tril(), slab)
    slab.keep([0, 1])
    wrong = (ids[3:] + 1) % host.vocabulary
    window = torch.cat([ids[2:3], wrong, ids[3:]])
    visible = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 0], [1, 1, 1, 0, 1]], dtype=torch.bool, device=device)
    logits = trunk.run(window[None, :, None], torch.tensor([2, 3, 3], device=device), visible, slab)
    return logits[0, [0, 2]]
