"""Live panels: each a pair of files, encode(...) in .py and drawing in .js.

A panel is a gr.HTML with a constant template that its script fills; the script draws once when it loads and again whenever the
value changes. User text never enters a template: it is part of the value and is set as textContent.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gradio as gr
import numpy as np

FOLDER = Path(__file__).parent
CHART = ("chart", "chart_export")  # the scripts that all charts share
PATCHES = (*CHART, "patches")  # of the charts that draw tokens of a picture
PLOT = (*CHART, "plot")  # of the charts that Plotly draws
# next to Gradio's other scripts; "" in a version that brings none
PLOTLY = next((each.name for each in (Path(gr.__file__).parent / "templates/frontend/assets").glob("PlotlyPlot-*.js")), "")


def panel(
    name: str, value: Any, template: str, constants: dict[str, str] | None = None, before: Sequence[str] = (), folder: Path = FOLDER,
    **options: Any,
) -> gr.HTML:  # fmt: skip
    """A panel drawn by `<name>.js`.

    constants: replacements for the script's __NAMES__; before: other scripts that the panel's own needs, in order; folder: of its own
    """
    paths = [*(FOLDER / f"{each}.js" for each in ("common", *before)), folder / f"{name}.js"]
    script = "\n".join(path.read_text(encoding="utf-8") for path in paths)
    for key, text in {"OWN": json.dumps(options.get("elem_id", "")), "PLOTLY": json.dumps(PLOTLY), **(constants or {})}.items():
        script = script.replace(f"__{key}__", text)
    options.setdefault("elem_classes", ["ft-panel"])
    return gr.HTML(value, html_template=template, js_on_load=script, apply_default_css=False, **options)


def to_text(values: np.ndarray) -> str:
    """The bytes of an array as base64: Gradio compares lists number by number, but strings at once."""
    return base64.b64encode(np.ascontiguousarray(values).tobytes()).decode("ascii")
