"""Realistic inputs: each is read correctly, or refused with a sentence that names the fault."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from engine.errors import BadFile
from engine.mesh import surface
from engine.mesh.read import Input, read
from tests.faults.corpus import Sample, clouds, meshes
from tests.faults.sentences import wrong

SAMPLES = (*clouds.SAMPLES, *meshes.SAMPLES)


def places(shape: Input) -> np.ndarray:
    """Points of a cloud or vertices of a mesh [N, 3] in the file's coordinates."""
    return shape.frame.from_model(shape.points[:, :3]) if shape.surface is None else shape.surface[0]


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
def test_an_input_as_people_have_it(sample: Sample, tmp_path: Path) -> None:
    path = sample.write(tmp_path)
    if sample.sentence:
        with pytest.raises(BadFile) as caught:
            read(path)
        assert sample.sentence in str(caught.value) and not wrong(str(caught.value))
        return
    shape = read(path)
    notes = " ".join(shape.notes)
    assert all(words in notes for words in sample.notes), notes
    points = places(shape)
    size = np.ptp(points, 0).max()
    if sample.low is not None and sample.high is not None:
        assert points.min(0) == pytest.approx(np.array(sample.low), abs=1e-5 * size)
        assert points.max(0) == pytest.approx(np.array(sample.high), abs=1e-5 * size)
    if sample.area is None:
        assert shape.kind == "cloud"
        assert sample.count is None or len(points) == sample.count
    else:
        assert shape.surface is not None
        assert surface.areas(*shape.surface).sum() == pytest.approx(sample.area, rel=1e-5)
        assert sample.count is None or len(shape.surface[1]) == sample.count


def test_names_of_samples_are_unique() -> None:
    assert len({sample.name for sample in SAMPLES}) == len(SAMPLES)
