"""The rest pose of a glTF mesh: morph targets with the weights of the file, then the skin."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count, takewhile
from typing import Any

import numpy as np

from engine.mesh.formats.gltf_buffers import Buffers
from engine.mesh.formats.gltf_nodes import Globals

CHUNK = 2**15  # vertices per batch; each has a matrix


def morph(
    buffers: Buffers, primitive: dict[str, Any], name: str, values: np.ndarray, weights: Sequence[float], used: np.ndarray | None
) -> np.ndarray:
    """Positions or normals [N, 3] of a primitive with its morph targets, float64.

    values  : [V, 3] of the primitive
    weights : of the targets; a target without a weight has none
    used    : [N] indices of the vertices to return, None: all
    """
    moved = (values if used is None else values[used]).astype(np.float64)
    for target, weight in zip(primitive.get("targets", ()), weights):
        if weight and name in target:
            difference = buffers.accessor(target[name])
            if difference.shape != values.shape:
                raise ValueError("a morph target has another number of vertices than its mesh")
            moved += float(weight) * (difference if used is None else difference[used])
    return moved


def apply_skin(
    buffers: Buffers,
    names: dict[str, int],
    skin: dict[str, Any],
    matrices: Globals,
    xyz: np.ndarray,
    normals: np.ndarray | None,
    used: np.ndarray | None,
) -> tuple[np.ndarray, np.ndarray | None, bool]:
    """Positions and normals [N, 3] where the joints put them, and True if these mirror the mesh. The mesh's own node has no effect.

    names : accessors of the primitive's attributes
    xyz   : [N, 3] the vertices that are used
    used  : [N] their indices, None: all
    """
    joints = np.stack([matrices[joint] for joint in skin["joints"]])
    if "inverseBindMatrices" in skin:
        inverse = buffers.accessor(skin["inverseBindMatrices"])[: len(joints)].astype(np.float64)
        joints = joints @ inverse.reshape(len(joints), 4, 4).transpose(0, 2, 1)
    sets = [(buffers.accessor(names[f"JOINTS_{k}"]), buffers.accessor(names[f"WEIGHTS_{k}"])) for k in _sets(names)]
    which = np.concatenate([joint if used is None else joint[used] for joint, _ in sets], 1)
    weights = np.concatenate([weight if used is None else weight[used] for _, weight in sets], 1).astype(np.float64)
    if len(which) != len(xyz) or which.shape != weights.shape:
        raise ValueError("a skin has another number of vertices than its mesh")
    weights[~(np.abs(weights).sum(1) > 0), 0] = 1.0  # no weights at all, or NaN: the first joint
    weights /= weights.sum(1, keepdims=True)
    which = np.where(weights == 0, 0, which)  # the index of a joint without weight may be invalid
    moved, turned, mirrors = np.empty_like(xyz), None if normals is None else np.empty_like(normals), 0
    for at in range(0, len(xyz), CHUNK):
        part = slice(at, at + CHUNK)
        blend = sum(weights[part, k, None, None] * joints[which[part, k]] for k in range(which.shape[1]))
        moved[part] = np.einsum("nij,nj->ni", blend[:, :3, :3], xyz[part]) + blend[:, :3, 3]
        mirrors += int((np.linalg.det(blend[:, :3, :3]) < 0).sum())
        if turned is not None and normals is not None:
            turned[part] = np.einsum("nji,nj->ni", np.linalg.pinv(blend[:, :3, :3]), normals[part])
    return moved, turned, mirrors > len(xyz) / 2


def _sets(names: dict[str, int]) -> Iterator[int]:
    """Numbers of the sets of joints and weights: 0, 1, ... while both are present."""
    return takewhile(lambda k: f"JOINTS_{k}" in names and f"WEIGHTS_{k}" in names, count())
