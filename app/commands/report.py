"""Report of a run on stdout: one line of JSON, or the same as text."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def decode(options: argparse.Namespace, backbone: Any, method: Any, prompt: Any, knobs: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """(finished run, with --compare the columns of plain decoding)."""
    from engine.run import generate

    if options.compare:
        return compare(backbone, method, prompt, knobs, options.method)
    return generate(backbone, method, prompt, knobs, name=options.method).finish(), {}


def compare(backbone: Any, method: Any, prompt: Any, knobs: Mapping[str, Any], name: str) -> tuple[Any, dict[str, Any]]:
    """Alternates a method with plain decoding; returns (run, columns). The speed-up compares seconds per token, as lengths may differ."""
    from statistics import median

    from engine.methods import METHODS, PLAIN
    from engine.run import generate, speedup
    from engine.tuning.alternate import alternate

    kinds = {
        "plain": lambda _: generate(backbone, METHODS[PLAIN], prompt).finish(),
        "fast": lambda _: generate(backbone, method, prompt, knobs, name=name).finish(),
    }
    runs = {name: inputs[0] for name, inputs in alternate(kinds).items()}
    plain, fast = runs["plain"], runs["fast"]
    same = plain[0].in_order == fast[0].in_order
    seconds = round(median(run.seconds for run in plain), 4)
    return fast[0], {"compare": {"method": PLAIN, "seconds": seconds, "speedup": round(speedup(plain, fast), 3), "same_tokens": same}}


def report(run: Any, folder: Path) -> dict[str, Any]:
    """Columns of a run's JSON line."""
    from engine.loading import model_columns

    totals = run.totals
    return model_columns(run.backbone) | {
        "method": run.method.name,
        "preset": run.name if run.name != run.method.name else None,
        "exact": run.exact,
        "verify": run.fixed.get("verify", "residual"),
        "seed": run.prompt.seed,
        "tokens": totals["tokens"],
        "forwards": totals["forwards"],
        "draft_forwards": totals["draft_forwards"],
        "step_compression": round(totals["step_compression"], 3),
        "seconds": round(totals["seconds"], 4),
        "tokens_per_second": round(totals["tokens_per_second"], 2),
        "knobs": run.steps[-1].knobs if run.steps else {},
        "files": files_of(folder),
    }


def files_of(folder: Path) -> dict[str, str]:
    """Paths of a run's files by stem (result, trace, run); a second file with the same stem by its whole name."""
    files: dict[str, str] = {}
    for path in sorted(folder.iterdir()):
        files[path.name if path.stem in files else path.stem] = str(path)
    return files


def readable(line: dict[str, Any]) -> str:
    """The line as text."""
    from engine.methods import AUTO, title

    name, kind = line["preset"] or line["method"], "exact" if line["exact"] else "not exact"
    name = title(name) if name.startswith(f"{AUTO}:") else name
    text = (
        f"{name} ({kind}): {line['tokens']} tokens in {line['forwards']} passes "
        f"({line['step_compression']:.2f} per pass), {line['seconds']:.2f} s, {line['tokens_per_second']:.0f} tokens/s"
    )
    if "compare" in line:
        c = line["compare"]
        text += f"\nplain decoding: {c['seconds']:.2f} s, so {c['speedup']:.2f}x; same tokens: {'yes' if c['same_tokens'] else 'no'}"
    return text + "\n" + "\n".join(line["files"].values())


def print_json(value: Any) -> None:
    """Prints one line of JSON for any parser and terminal: without NaN, with escapes for characters that the terminal lacks."""
    clean = _without_nan(value)
    text = json.dumps(clean, ensure_ascii=False, allow_nan=False)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        text = json.dumps(clean, allow_nan=False)
    print(text)


def _without_nan(value: Any) -> Any:
    """The value with None for nan and infinity."""
    if isinstance(value, Mapping):
        return {key: _without_nan(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
