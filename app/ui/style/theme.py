"""Theme of the page: fonts that ship with Gradio, and colours that colour-blind users can distinguish."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import gradio as gr

ICON = Path(__file__).with_name("icon.svg")  # of the browser tab, and of the installed app
HEAD = f"""<meta name="color-scheme" content="dark light"><meta name="theme-color" content="#0c1016">
<link rel="icon" href="data:image/svg+xml,{quote(ICON.read_text(encoding="utf-8"))}">
<script>
document.querySelector("meta[name=viewport]")?.setAttribute("content", "width=device-width, initial-scale=1"); // Gradio's forbids zooming
const chosen = localStorage.getItem("foretoken-theme"), dark = matchMedia("(prefers-color-scheme: dark)").matches;
if (chosen ? chosen === "dark" : dark) document.documentElement.style.background = "#0c1016";
</script>
"""  # sets the background before the first paint; the header's script does the rest
EXAMPLE = """<script>
if (!sessionStorage["foretoken-race"] && !new URLSearchParams(location.search).has("run")) {
  window.exampleValues = fetch("example").then((answer) => answer.json());
}
</script>
"""  # requests the example (example.js) while Gradio starts

WEIGHTS = (400, 700)  # the font files of other weights lack most letters


def theme() -> gr.themes.Base:
    """Gradio theme based on the page's own variables (studio.css), so each colour is defined once."""
    base = gr.themes.Base(
        primary_hue="teal",
        neutral_hue="slate",
        radius_size="md",
        font=[gr.themes.LocalFont("IBM Plex Sans", WEIGHTS), "system-ui", "sans-serif"],
        font_mono=[gr.themes.LocalFont("IBM Plex Mono", WEIGHTS), "ui-monospace", "monospace"],
    )
    known = vars(base)  # not every variable has a dark variant
    return base.set(**{name + end: f"var(--ft-{ours})" for name, ours in OURS.items() for end in ("", "_dark") if name + end in known})


OURS = {
    "color_accent": "accent", "body_background_fill": "page", "body_text_color": "text", "body_text_color_subdued": "muted",
    "background_fill_primary": "surface", "background_fill_secondary": "page", "border_color_primary": "line",
    "block_background_fill": "surface", "block_border_color": "line", "block_label_text_color": "muted",
    "block_title_text_color": "muted", "block_info_text_color": "muted",
    "input_background_fill": "field", "input_background_fill_focus": "field", "input_border_color": "line",
    "input_border_color_focus": "accent", "input_placeholder_color": "muted",
    "button_primary_background_fill": "accent", "button_primary_background_fill_hover": "accent-strong",
    "button_primary_text_color": "on-accent", "button_secondary_background_fill": "raised",
    "button_secondary_background_fill_hover": "line", "button_secondary_text_color": "text",
    "button_cancel_background_fill": "raised", "button_cancel_background_fill_hover": "line",
    "button_cancel_text_color": "text",
    "checkbox_background_color": "field", "checkbox_border_color": "line-strong",
    "checkbox_background_color_selected": "accent", "checkbox_border_color_selected": "accent",
    "checkbox_label_background_fill": "none", "checkbox_label_background_fill_hover": "none",
    "checkbox_label_background_fill_selected": "none", "checkbox_label_border_color": "none",
}  # fmt: skip


def css() -> str:
    """The page's style sheet."""
    return "\n".join(Path(__file__).with_name(name).read_text(encoding="utf-8") for name in ("studio.css", "charts.css"))
