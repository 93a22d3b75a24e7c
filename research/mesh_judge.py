"""The judge of meshes: it names the family of lowpoly's world that a point cloud shows.

It was trained on shapes of known families, many of them degraded or coarse, and never on a generated mesh (`research/train/mesh_judge.py`),
so it is independent of every generator. It also knows the families that lowpoly never learns. Shapes without a family are named `assembly`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from engine.mesh import surface
from engine.mesh.frame import centre
from engine.mesh.rotation import rotation
from engine.networks.weights import MODELS, build_network, need, read_card, read_tensors
from engine.recognition.network import CloudNetwork, subsample

FOLDER = MODELS / "mesh_judge"
DRAWN = 4096  # points drawn from a mesh
OTHER = "assembly"  # the name of shapes without a family


class MeshJudge:
    """The trained network and the names of its answers."""

    def __init__(self, names: Sequence[str], network: CloudNetwork):
        self.names, self.network = tuple(names), network.eval()
        self._turns = [torch.tensor(rotation(90.0 * quarter).T, dtype=torch.float32) for quarter in range(4)]

    @torch.inference_mode()
    def chances(self, points: np.ndarray) -> np.ndarray:
        """The probability of each of `names` for a cloud [N, 6] with +Y up, at any scale and place and with any side in front."""
        cloud = subsample(centre(points))
        turned = torch.stack([torch.cat([cloud[:, :3] @ turn, cloud[:, 3:] @ turn], -1) for turn in self._turns])
        return self.network(turned).log_softmax(-1).mean(0).softmax(-1).double().numpy()

    def chances_of_mesh(self, vertices: np.ndarray, faces: np.ndarray) -> np.ndarray | None:
        """The same for a mesh with +Y up; None if it has no area."""
        if not len(faces) or not surface.areas(vertices, faces).sum() > 0:
            return None
        return self.chances(surface.draw(vertices, faces, DRAWN, np.random.default_rng(0)))

    def name(self, chances: np.ndarray | None) -> str:
        """The most probable family; "" for a mesh without an area."""
        return "" if chances is None else self.names[int(chances.argmax())]


def load(folder: Path = FOLDER) -> MeshJudge:
    """The judge of a folder; raises MissingWeights."""
    card, path = read_card(folder), folder / "mesh_judge.safetensors"
    names = need(card, "names", list, folder, of=str)
    return MeshJudge(names, build_network(CloudNetwork, need(card, "mesh_judge.settings", dict, folder), read_tensors(path), path))
