"""The compiled contents of blocks are those of PyTorch's operations, but for the order of sums."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from engine.kernels.choice import REFERENCE, VARIABLE
from engine.kernels.cpu.library import built, native
from engine.networks.cloud_blocks import CONTENTS, block_contents

pytestmark = pytest.mark.skipif(built()[0] is None, reason=built()[1])


def cloud(kind: str) -> Tensor:
    numbers = torch.Generator().manual_seed(4)
    points = torch.rand(3, 700, 6, generator=numbers) * 2.2 - 1.1  # some outside of the cube
    points[..., 3:] = F.normalize(points[..., 3:], dim=-1)
    if kind == "borders":
        points[..., :3] = (points[..., :3] * 8).round() / 8
    if kind == "without normals":
        points[..., 3:] = 0.0
    if kind == "flat":
        points[..., 2], points[..., 3:] = 0.3, torch.tensor([0.0, 0.0, -1.0])
    return points


@pytest.mark.parametrize("slots", [192, 20])
@pytest.mark.parametrize("kind", ["anywhere", "borders", "without normals", "flat"])
def test_contents_are_those_of_the_reference(kind: str, slots: int, monkeypatch: pytest.MonkeyPatch) -> None:
    points = cloud(kind)
    monkeypatch.delenv(VARIABLE, raising=False)
    assert native() is not None and native().contents_size == CONTENTS
    found = block_contents(points, slots)
    monkeypatch.setenv(VARIABLE, REFERENCE)
    ids, contents = block_contents(points, slots)
    same = (found[0] == ids).all(1)
    assert same.all() or kind != "anywhere"  # equally worthy blocks may be told in another order
    torch.testing.assert_close(found[1][same], contents[same], atol=1e-5, rtol=1e-5)
    assert contents.any() and (found[0] >= 0).sum() == (ids >= 0).sum()
    other = block_contents(points.flip(1) * torch.tensor([1.0, 1.0, -1.0, 1.0, 1.0, 1.0]), slots)
    assert (other[1] - found[1]).abs().max() > 0.1  # another cloud
