"""Traces of saved runs that do not fit together are refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.requests import pictures
from app.runs import history
from app.runs.finished import read_trace
from engine.errors import BadFile
from engine.methods import find
from engine.run import generate


@pytest.fixture(scope="module")
def folder(picto, tmp_path_factory) -> Path:
    """The folder of a saved run."""
    run = generate(picto, find("sjdpp")[0], pictures.read_prompt("a red apple", 2, {"values": {"size": "64 px"}}, picto)).finish()
    return history.save(run, tmp_path_factory.mktemp("runs"))


def replace_arrays(**arrays: Any) -> Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]:
    """A function that replaces arrays of a trace."""
    return lambda stored: {**stored, **arrays}


DAMAGES: dict[str, Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]] = {
    "no tokens": lambda arrays: {name: values for name, values in arrays.items() if name != "tokens"},
    "no counts": lambda arrays: {name: values for name, values in arrays.items() if name != "step_tokens"},
    "a step too many": lambda arrays: replace_arrays(step_drafted=np.append(arrays["step_drafted"], 1))(arrays),
    "negative counts": lambda arrays: replace_arrays(step_tokens=arrays["step_tokens"] * -1)(arrays),
    "other counts": lambda arrays: replace_arrays(step_tokens=arrays["step_tokens"] + 1)(arrays),
    "tokens of text": lambda arrays: replace_arrays(tokens=arrays["tokens"].astype(str))(arrays),
    "accepted too short": lambda arrays: replace_arrays(accepted=arrays["accepted"][:-1])(arrays),
    "a knob for no step": replace_arrays(knob_window=np.zeros(0)),
    "scalars": replace_arrays(step_tokens=np.int32(3)),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_trace_is_a_sentence(folder, tmp_path, damage):
    with np.load(folder / "trace.npz") as stored:
        arrays = DAMAGES[damage](dict(stored))
    np.savez_compressed(tmp_path / "trace.npz", **arrays)
    with pytest.raises(BadFile, match=r"trace.npz is not the trace of a run"):
        read_trace(tmp_path / "trace.npz")


def test_pickled_objects_are_not_opened(folder, tmp_path):
    with np.load(folder / "trace.npz") as stored:
        np.savez(tmp_path / "trace.npz", **{**stored, "knob_window": np.array([{}] * len(stored["step_tokens"]), object)})
    with pytest.raises(BadFile, match="not the trace"):
        read_trace(tmp_path / "trace.npz")
