"""The loss of heads that predict tokens after the next one, on a sample of places; used in the training of a backbone and of its heads.

The weight falls by a factor of 0.8 with each place (XSpecMesh, section 3.5, after Medusa).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from numpy.random import Generator
from torch import Tensor
from torch.nn import functional as F

from engine.drafters.mesh_heads import MeshHeads

DEPTH = 6  # heads; a method's knob sets how many of them it uses
DECAY = 0.8
KINDS = ("cross", "mlp")
PAD = -1


def all_places(tokens: Tensor) -> Tensor:
    """Returns all places of tokens [B, L] but the last: int64 [B, L-1]. Places after an end have no label."""
    return torch.arange(tokens.shape[1] - 1, device=tokens.device).expand(len(tokens), -1)


def some_places(tokens: Tensor, rows: int, rng: Generator) -> Tensor:
    """Returns about `rows` random places, the same number in each sequence of tokens [B, L]: int64 [B, rows // B]."""
    known = (tokens != PAD).sum(1, keepdim=True) - 1
    fractions = torch.from_numpy(rng.random((len(tokens), max(1, rows // len(tokens))))).to(tokens.device)
    return (fractions * known).long()


def labels_after(tokens: Tensor, places: Tensor, depth: int) -> Tensor:
    """Returns the labels of `depth` heads at places [B, R] of tokens [B, L]: int64 [D, B, R], -1 after the end."""
    behind = F.pad(tokens, (0, depth), value=PAD)
    return torch.stack([behind.gather(1, places + d + 1) for d in range(depth)])


def head_logits(heads: MeshHeads, hidden: Tensor, condition: Tensor, places: Tensor, head: Callable[[Tensor], Tensor]) -> Tensor:
    """Returns logits [D, B, R, V] of heads at places [B, R] of hidden states [B, L, width]. head : the backbone's output layer"""
    picked = hidden.gather(1, places[..., None].expand(-1, -1, hidden.shape[-1]))
    return heads.logits(heads.features(picked, heads.keys_values(condition)), head)


def cross_entropies(logits: Tensor, labels: Tensor) -> Tensor:
    """Returns the mean cross-entropy [D] of each head, from logits [D, B, R, V] and labels [D, B, R]."""
    each = F.cross_entropy(logits.flatten(0, 2).float(), labels.flatten(), ignore_index=PAD, reduction="none").view_as(labels)
    return each.sum((1, 2)) / (labels != PAD).sum((1, 2))


def top_1(logits: Tensor, labels: Tensor) -> Tensor:
    """Returns how often each head's most probable token is right, [D]."""
    return ((logits.argmax(-1) == labels) & (labels != PAD)).sum((1, 2)) / (labels != PAD).sum((1, 2))


def weighted_sum(each: Tensor) -> Tensor:
    """Returns the sum of 0.8^d CE_d over cross-entropies [D]."""
    return (each * DECAY ** torch.arange(1, len(each) + 1, device=each.device)).sum()
