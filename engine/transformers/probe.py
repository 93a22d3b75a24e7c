"""Tests once that the forward of a caller's model keeps to the positions, the mask and the cache of a pass.

Many classes could ignore one of them without an error: an eager layer adds a boolean mask as 0 and 1, a class may count positions by
itself. So before the first run a pass over three drafts, none of which may see another, is compared with the class's plain pass.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from transformers import PreTrainedModel

from engine.core import NO_DRAFT, Draft, Prompt, Sampling
from engine.errors import NotSupported, first_line
from engine.transformers.host import Branch, CallerModel, CallerSequence
from engine.transformers.processors import CallerDistribution

TOLERANCE = {torch.float64: 1e-2, torch.float32: 1e-2}  # largest difference, in standard deviations of the logits
COARSE = 0.3  # the same in other dtypes
FIRST = 4  # ids of a prompt that a model is tested on
PROBE_ROWS = 4  # rows of the pass in `agree`
FAILURES = (ValueError, TypeError, RuntimeError, LookupError, AttributeError)  # raised by a class that takes no mask of drafts


class Probed:
    """The models that passed, with the settings they passed with; they are not kept alive."""

    def __init__(self) -> None:
        self.passed: WeakKeyDictionary[PreTrainedModel, tuple[str, torch.dtype]] = WeakKeyDictionary()

    def check(self, host: CallerModel) -> None:
        """Raises NotSupported for a model whose logits are wrong when drafts are verified; tests a model once."""
        settings = (host.model.config.get_text_config(decoder=True)._attn_implementation, host.model.dtype)
        if self.passed.get(host.model) == settings:
            return
        ids = host.branches[0].ids[:FIRST].to(host.device)
        short = CallerModel(host.model, [Branch(ids)], PROBE_ROWS, CallerDistribution(Sampling()))
        sequence = short.start(Prompt())
        with torch.no_grad():
            agree(sequence, sequence.forward(NO_DRAFT).logits)
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
    return NotSupported(f"{host.name} does not take the mask of drafts ({first_line(error)}). Use plain generate.")


@torch.no_grad()
def agree(sequence: CallerSequence, logits: Tensor) -> None:
    """Raise NotSupported unless a pass over drafts agrees with the plain pass that gave `logits` [branches, 1, V]; it keeps nothing.

    The drafts are three siblings, and the first and the last are the same token: neither sees another, so their logits are equal too."""
    host, plain = sequence.model, logits[0, 0].float()
    token = int(plain.argmax())
    drafts = torch.tensor([token, (token + 1) % host.vocabulary, token])
    try:
        drafted = sequence.forward(Draft(drafts, parents=torch.tensor([-1, -1, -1]))).logits[0].float()
    except FAILURES as e:
        raise refusal(host, e) from e
    usable = plain.abs() < torch.finfo(logits.dtype).max / 2
    spread = plain[usable].std().item()
    for one, other in ((drafted[0], plain), (drafted[3], drafted[1])):
        require_near(host, (one - other)[usable].abs().max().item(), spread)
