"""Live panels. Each is a pair of files: the .py encodes a value, the .js draws it.

A panel is a gr.HTML with a constant template that its script fills when it loads and whenever the value changes. User text never
enters a template: it is part of the value and set as textContent.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gradio as gr
import numpy as np

from engine.mesh.bpt_tokens import BPT

FOLDER = Path(__file__).parent
CHART = ("chart", "chart_export")  # scripts shared by all charts
PATCHES = (*CHART, "patches")  # of charts that show patches of a picture
PLOT = (*CHART, "plot")  # of charts drawn by Plotly
MESH_TOKENS = {"OFFSET": str(BPT.first[-1]), "SPECIAL": str(BPT.special), "END": str(BPT.eos), "AXES": json.dumps(BPT.per_axis)}
# Gradio's own copy; "" if its version has none
PLOTLY = next((each.name for each in (Path(gr.__file__).parent / "templates/frontend/assets").glob("PlotlyPlot-*.js")), "")


def panel(
    name: str, value: Any, template: str, constants: dict[str, str] | None = None, before: Sequence[str] = (), folder: Path = FOLDER,
    **options: Any,
) -> gr.HTML:  # fmt: skip
    """A panel drawn by `<name>.js`.

    constants : replace __NAMES__ in the script; before : scripts that it needs, in order; folder : contains the panel's script
    """
    paths = [*(FOLDER / f"{each}.js" for each in ("common", *before)), folder / f"{name}.js"]
    script = "\n".join(path.read_text(encoding="utf-8") for path in paths)
    for key, text in {"OWN": json.dumps(options.get("elem_id", "")), "PLOTLY": json.dumps(PLOTLY), **(constants or {})}.items():
        script = script.replace(f"__{key}__", text)
    options.setdefault("elem_classes", ["ft-panel"])
    return gr.HTML(value, html_template=template, js_on_load=script, apply_default_css=False, **options)


def to_text(values: np.ndarray) -> str:
    """Bytes of an array as base64, because Gradio compares strings faster than lists of numbers."""
    return base64.b64encode(np.ascontiguousarray(values).tobytes()).decode("ascii")
