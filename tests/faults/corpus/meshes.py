"""Meshes as people have them."""

from __future__ import annotations

from tests.faults.corpus import Sample

SAMPLES: tuple[Sample, ...] = ()
