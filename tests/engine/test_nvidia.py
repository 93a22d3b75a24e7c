"""Why PyTorch sees no GPU, by driver and build; and doctor's lines about GPUs."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from app.commands.doctor_gpu import gpu_facts, gpu_lines
from engine import nvidia


@pytest.mark.parametrize(
    ("version", "cuda", "environment", "sentence"),
    [
        (None, None, {}, "no NVIDIA driver"),
        ("", "13.0", {}, "reports no driver"),
        ("580.65.06", None, {}, "for the processor. Start with: python launch.py --torch cuda"),
        ("550.54.14", "13.0", {}, "for CUDA 13.0, and the driver is 550.54.14. Update it, or start with: python launch.py --torch cu126"),
        ("470.256.02", "12.6", {}, "needs driver 525 or newer for CUDA 12.6, and the driver is 470.256.02. Update it."),
        ("580.65.06", "13.0", {"CUDA_VISIBLE_DEVICES": "-1"}, "CUDA_VISIBLE_DEVICES=-1 hides every GPU"),
        ("580.65.06", "13.0", {}, "finds no GPU"),
    ],
)
def test_a_gpu_that_is_not_seen_has_a_reason(version, cuda, environment, sentence):
    reason = nvidia.why_unseen(version, cuda, environment)
    assert sentence in reason and reason[0].isupper()


@pytest.mark.parametrize(
    ("printed", "version"), [("580.65.06\\n580.65.06\\n", "580.65.06"), ("NVIDIA-SMI has failed\\n", ""), (None, None)]
)
def test_the_driver_is_read_from_nvidia_smi(printed: str | None, version: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    if printed is not None:
        program = tmp_path / "nvidia-smi"
        program.write_text(f"#!/bin/sh\nprintf '{printed}'\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert nvidia.driver.__wrapped__() == version


def test_the_processor_is_not_taken_in_silence_where_there_is_a_card(monkeypatch, capsys):
    from engine.tuning import prepare

    monkeypatch.setattr(nvidia, "driver", lambda: "550.54.14")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    prepare.to_stderr_once.cache_clear()
    for _ in range(2):
        assert prepare.prepare("pictogram", dtype="float32", cores=1).device.type == "cpu"
    assert capsys.readouterr().err.count("The processor is used. The NVIDIA driver is 550.54.14, but this PyTorch is for") == 1


def test_doctor_names_every_card_with_its_memory(monkeypatch):
    assert gpu_lines(gpu_facts())[0][0].startswith("GPU")
    card = {"name": "NVIDIA H100", "capability": "9.0", "free_bytes": 70 * 2**30, "total_bytes": 80 * 2**30}
    facts = {
        "devices": [card, card],
        "driver": "580.65.06",
        "built_for": "13.0",
        "kernels": "Triton 3.7.1 on an NVIDIA GPU.",
        "fixed_shapes": True,
        "apple": False,
    }
    assert "--device mps" in gpu_lines({"devices": [], "apple": True})[0][1]
    lines = dict(gpu_lines(facts))
    assert lines["GPU 1"] == "NVIDIA H100, compute capability 9.0, 70.0 of 80.0 GiB free"
    assert lines["NVIDIA driver"] == "580.65.06; PyTorch is built for CUDA 13.0" and "CUDA graphs" in lines["GPU passes"]
