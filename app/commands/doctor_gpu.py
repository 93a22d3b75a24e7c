"""The GPUs in `launch.py doctor`: driver, CUDA, free memory, and the kernels and passes that would be used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def gpu_facts() -> dict[str, Any]:
    """The facts by name, ready for JSON."""
    import torch

    from engine.dispatch import choice, language
    from engine.networks.static_step import is_static
    from engine.nvidia import driver, why_unseen

    sees = torch.cuda.is_available()
    device = torch.device("cuda" if sees else "cpu")
    return {
        "driver": driver(),
        "built_for": torch.version.cuda,
        "devices": [_device(i) for i in range(torch.cuda.device_count())] if sees else [],
        "triton": language.version(),
        "kernels": choice.choose(device).reason,
        "fixed_shapes": is_static(device),
        "apple": torch.backends.mps.is_available(),
        "why_unseen": "" if sees else why_unseen(driver(), torch.version.cuda),
    }


def _device(index: int) -> dict[str, Any]:
    import torch

    free, total = torch.cuda.mem_get_info(index)
    major, minor = torch.cuda.get_device_capability(index)
    return {"name": torch.cuda.get_device_name(index), "capability": f"{major}.{minor}", "free_bytes": free, "total_bytes": total}


def gpu_lines(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The facts as lines of text, each with its title."""
    if facts["apple"]:
        return [("GPU", "Apple's, which --device mps uses without Triton's kernels and CUDA graphs")]
    if not facts["devices"]:
        return [("GPU", facts["why_unseen"])]
    titles = [f"GPU {i}" for i in range(len(facts["devices"]))] if len(facts["devices"]) > 1 else ["GPU"]
    passes = "fixed shapes, captured as CUDA graphs" if facts["fixed_shapes"] else "one launch per operation"
    return [
        *zip(titles, map(_sentence, facts["devices"]), strict=True),
        ("NVIDIA driver", f"{facts['driver'] or 'unknown'}; PyTorch is built for CUDA {facts['built_for']}"),
        ("GPU kernels", facts["kernels"]),
        ("GPU passes", passes),
    ]


def _sentence(device: Mapping[str, Any]) -> str:
    free, total = (device[name] / 2**30 for name in ("free_bytes", "total_bytes"))
    return f"{device['name']}, compute capability {device['capability']}, {free:.1f} of {total:.1f} GiB free"
