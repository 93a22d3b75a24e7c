"""Writes a finished race as an HTML file that replays it: the studio's panels with their scripts, style sheet and values.

The file needs no server, network or model; its content security policy forbids all requests.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import gradio as gr

from app.live.stream import Growth
from app.ui.method_menu import title_of
from app.ui.panels import canvas
from app.ui.panels.captions import made_with
from app.ui.style import header, theme
from engine.core import PLAIN

POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data: blob:"
OWN = Path(__file__).parent
PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="dark light">
<title>{title}</title>
<style>
{style}
</style>
</head>
<body>
<div class="ft-player">
{header}
<div class="ft-caption"><h2>{title}</h2><p>{line}</p></div>
<main class="ft-main" data-settings="closed">
<div class="ft-stage">
{panels}
<section class="ft-made">
<h3>How it was made</h3>
<div class="ft-made-sides">{made}</div>
<a download="run.json" href="data:application/json;base64,{coded}">Settings of {whose} (run.json)</a>
</section>
</div>
</main>
</div>
<script type="application/json" id="foretoken-settings">{settings}</script>
<script>
{player}
</script>
{scripts}
<script>
show({values});
</script>
</body>
</html>
"""


class PageText(NamedTuple):
    """Text of the page outside its panels.

    title : the prompt, or the name of the input; line : summary of the sides, seed and size
    made  : title and caption of each side, see panels/captions.py; settings : run.json of one side; whose : which side
    """

    title: str
    line: str
    captions: Sequence[tuple[str, Mapping[str, str]]]
    settings: Mapping[str, Any]
    whose: str = "the right side"


def page(rows: Sequence[Sequence[gr.HTML]], values: Mapping[str, Any], text: PageText) -> str:
    """The HTML file. rows : panels from top to bottom; values : their values by id"""
    html = [sides_html(row) if are_sides(row) else "".join(map(panel_html, row)) for row in rows]
    panels = [panel for row in rows for panel in row]
    written = script_text(text.settings)
    return PAGE.format(
        policy=POLICY, title=escape(text.title), line=escape(text.line), style=f"{theme.css()}\n{own_file('player.css')}",
        header=header.TEMPLATE.replace('<span class="ft-loaded"></span>', '<span class="ft-loaded">A recorded race</span>'),
        panels="\n".join(html), made="".join(facts_html(*each) for each in text.captions), settings=written, whose=escape(text.whose),
        coded=base64.b64encode(json.dumps(text.settings, indent=1, ensure_ascii=False).encode()).decode("ascii"),
        player=own_file("player.js"), scripts="\n".join(map(boot_script, panels)), values=script_text(values),
    )  # fmt: skip


def are_sides(row: Sequence[gr.HTML]) -> bool:
    """True if a row contains the sides of a race."""
    return row[0].elem_id.startswith("canvas-")


def sides_html(row: Sequence[gr.HTML]) -> str:
    """HTML of the sides of a race in one row."""
    several = row[0].elem_id == f"canvas-{canvas.LANES[0]}"
    kind = f'class="ft-lanes-row" style="--lanes: {len(row)}"' if several else 'class="ft-sides"'
    return f"<div {kind}>{''.join(map(panel_html, row))}</div>"


def own_file(name: str) -> str:
    """Text of a file in this folder."""
    return (OWN / name).read_text(encoding="utf-8")


def panel_html(panel: gr.HTML) -> str:
    """HTML element of a panel."""
    return f'<div id="{panel.elem_id}" class="{" ".join(panel.elem_classes)}">{panel.html_template}</div>'


def boot_script(panel: gr.HTML) -> str:
    """Script of a panel, with its initial value."""
    first = script_text(panel.value)
    return (
        f"<script>\nboot({json.dumps(panel.elem_id)}, {first}, (element, props, trigger, watch) => {{\n{panel.js_on_load}\n}});\n</script>"
    )


def facts_html(title: str, facts: Mapping[str, str]) -> str:
    """HTML list of facts about a side."""
    lines = "".join(f"<div><dt>{escape(name.capitalize())}</dt><dd>{escape(text)}</dd></div>" for name, text in facts.items() if text)
    return f'<section><h4>{escape(title)}</h4><dl class="ft-facts">{lines}</dl></section>'


def script_text(value: Any) -> str:
    """A value as a JSON literal that cannot end the script element around it."""
    return json.dumps(value, ensure_ascii=False).replace("<", "\\u003c")


# --- a race -----------------------------------------------------------------------------------------------------------

PICTURES = ("verdict", ("left", "right"), "replay", "overlay")  # from top to bottom; other panels follow
MESHES = ("verdict", "viewer", "replay")
LANES = (canvas.LANES, "viewer", "replay")  # a race of several runs
WITHOUT_VALUES = ("replay", "overlay")
SHOWN_ABOVE = ("prompt", "method")  # shown above the panels, and above the list


def write(
    path: Path, names: Sequence[str | tuple[str, ...]], parts: Mapping[str, gr.HTML], values: Mapping[str, Any], text: PageText
) -> Path:  # fmt: skip
    """Writes a race to a file, without its empty panels. names : PICTURES, MESHES or LANES; parts, values : panels and their values by
    these names"""
    shown_values = {name: value for name, value in values.items() if name in parts and value and value.get("state") != "empty"}
    present = {*shown_values, *WITHOUT_VALUES} & parts.keys()
    layout_names = [row if isinstance(row, tuple) else (row,) for row in names]
    layout_names += [(name,) for name in parts if not any(name in row for row in layout_names)]
    rows = [tuple(name for name in row if name in present) for row in layout_names]
    layout = [[parts[name] for name in row] for row in rows if row]
    if costs := shown_values.get("verdict", {}).get("costs"):  # of the studio's page, not of the race
        shown_values["verdict"] = {name: text for name, text in shown_values["verdict"].items() if text != costs}
    path.write_text(page(layout, {parts[name].elem_id: value for name, value in shown_values.items()}, text), encoding="utf-8")
    return path


def page_text(boards: Sequence[Growth], title: str, settings: Mapping[str, Any]) -> PageText:
    """Texts of the page of a race. boards : the right one first; settings : of its run"""
    runs = [board.run for board in reversed(boards)]
    sides = " against ".join("plain decoding" if run.name == PLAIN and len(runs) > 1 else title_of(run.name) for run in reversed(runs))
    size = f", {runs[0].prompt.size} px" if runs[0].prompt.size and runs[0].prompt.points is None else ""
    facts = [(title_of(run.name), {name: text for name, text in made_with(run).items() if name not in SHOWN_ABOVE}) for run in runs]
    return PageText(title or "A race", f"{sides}. Seed {runs[0].prompt.seed}{size}, {runs[0].backbone.name}.", facts, settings)
