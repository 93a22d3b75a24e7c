"""Finds the axis that is up, with a network trained on shapes in six orientations (`research/train/upright.py`).

`stand_up` turns an input that was read with `up="auto"`: it combines the network's answer with the convention of the file's format and
the position of the ground. One network scores the cloud in each of the 24 rotations of a cube, so a turned cloud gets the same answer,
turned.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from engine.mesh.frame import SIDE, UP, centre
from engine.mesh.read import Input, read
from engine.mesh.rotation import rotation as around
from engine.networks.weights import MODELS, build_network, need, read_card, read_tensors
from engine.recognition.network import CloudNetwork, subsample

SURE = 0.6  # probability below which the axis is a question to the user
UNSURE = "Not sure which way is up"
FOLDER = MODELS / "upright"
AXES = tuple(UP)  # the answers of the network, in their order
# Chosen on asset packs with +Y up and on held-out shapes, each in six orientations: the network is overconfident on unfamiliar shapes.
CALM = 2.0  # temperature: the network's logits are divided by it
# Odds of a format's axis against any other, by specification or by the habit of nearly all programs.
SPECIFIED = {".glb": 40.0, ".gltf": 40.0, ".obj": 40.0}
USUAL = 3.0  # the same for formats without a convention
STANDS = 20.0  # odds of the only axis along which the shape begins at 0
GROUND = 0.02  # of the longest side: within this distance of 0 a shape stands on the ground


def rotation(axis: str) -> np.ndarray:
    """Rotation matrix [3, 3] that takes the axis to +Y."""
    return np.array(UP[axis], np.float64)


def orientations(clouds: Tensor, quarters: range | Sequence[int] = range(4)) -> Tensor:
    """Clouds [B, N, 6], with each of AXES up and then turned about the vertical: [B, 6, quarters, N, 6]."""
    stands = np.stack([[around(90.0 * quarter) @ rotation(axis) for quarter in quarters] for axis in AXES])
    turns = torch.from_numpy(stands).to(clouds.dtype)
    return torch.cat([torch.einsum("bnj,aqij->baqni", part, turns) for part in (clouds[..., :3], clouds[..., 3:])], -1)


def scores(network: CloudNetwork, clouds: Tensor) -> Tensor:
    """Logits [B, 6] that each of AXES is up, for clouds [B, N, 6]."""
    standing = orientations(clouds)
    return network(standing.flatten(0, 2)).view(standing.shape[:3]).mean(2)


class Upright:
    """The network in inference mode."""

    def __init__(self, network: CloudNetwork):
        self.network = network.eval()

    @torch.inference_mode()
    def chances(self, points: np.ndarray) -> np.ndarray:
        """The probability [6] that each of AXES is up, for a cloud [N, 6] of any scale and position."""
        return scores(self.network, subsample(centre(points))[None])[0].softmax(-1).double().numpy()


def with_priors(chances: np.ndarray, shape: Input, rows: np.ndarray) -> np.ndarray:
    """The probabilities [6] combined with the convention of the file's format and the position of the ground.

    rows : points [N, 3 or 6] in the axes of the file, in the units of the model's frame, centred
    """
    usual = SPECIFIED.get(Path(shape.name).suffix.lower(), USUAL)
    prior = np.where(np.array(AXES) == shape.frame.up, usual, 1.0)
    middle = shape.frame.centre * shape.frame.scale
    ends = [((rows[:, :3] + middle) @ rotation(axis)[1]).min() for axis in AXES]
    stands = np.abs(ends) < GROUND * SIDE
    if stands.sum() == 1:
        prior = prior * np.where(stands, STANDS, 1.0)
    calm = chances ** (1 / CALM) * prior
    return calm / calm.sum()


def stand_up(shape: Input, judge: Upright | None = None) -> Input:
    """The input turned so that the most likely axis is up, with a note that names it. shape : read with up = "auto" """
    back = shape.frame.rotation
    rows = np.concatenate([shape.points[:, :3] @ back, shape.points[:, 3:] @ back], 1)  # in the axes of the file
    chances = with_priors((judge or shipped_network()).chances(rows), shape, rows)
    axis = AXES[int(chances.argmax())]
    turn = (rotation(axis) @ back.T).T
    points = np.concatenate([shape.points[:, :3] @ turn, shape.points[:, 3:] @ turn], 1).astype(np.float32)
    note = f"The {axis} axis was taken as up (probability {chances.max():.0%}); choose another if not."
    if chances.max() < SURE:
        note = f"{UNSURE} ({axis}, {100 * chances.max():.0f} %). Choose the axis that points up."
    return replace(shape, frame=replace(shape.frame, up=axis), points=points, notes=[*shape.notes, note])


def read_standing(path: Path | str, up: str = "auto") -> Input:
    """Read a file as `engine.mesh.read.read` does; for auto the network chooses the axis that is up."""
    shape = read(path, up)
    return stand_up(shape) if up == "auto" else shape


def load(folder: Path = FOLDER) -> Upright:
    """The network of a folder; raises MissingWeights."""
    path = folder / "upright.safetensors"
    return Upright(build_network(CloudNetwork, need(read_card(folder), "upright.settings", dict, folder), read_tensors(path), path))


@cache
def shipped_network() -> Upright:
    """The shipped network, loaded once."""
    return load()
