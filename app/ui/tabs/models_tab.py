"""The Models tab: cards of the models on this machine, importable families, and the import of a local checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

import gradio as gr

from app.sentences import without_paths
from app.ui.tab_context import TabContext
from app.ui.tabs import model_cards
from app.ui.tabs.cards import Card, families, imported_cards, shipped_card
from app.ui.tabs.speeds import saved_runs
from engine.backbones import MESHES, PICTURES
from engine.converting import convert, identify
from engine.errors import BadFile, ForetokenError
from engine.machine import machine_facts
from engine.memory import free, size_text
from engine.networks.weights import MODELS

IN_A_TERMINAL = "Other machines can reach this studio, so it does not read folders. Import in a terminal on its machine:"
START = "python launch.py --backbone"
COMMAND = "python launch.py models import PATH"
LONGEST_PATH = 4096


def build(place: TabContext) -> None:
    """Builds the tab."""
    with gr.Column(elem_classes="ft-about"):
        cards_panel = gr.HTML(page(place), elem_id="models")
        if place.studio.local:
            with gr.Column(elem_classes="ft-add"):
                _build_import(place, cards_panel)
        elif not place.studio.limits.shared:
            gr.HTML(f'<section><h2>Add a model</h2><p class="ft-words">{IN_A_TERMINAL} <code>{COMMAND}</code></p></section>')
        gr.HTML(f"<section><h2>What can be added</h2>{model_cards.families_html(families())}</section>")
        storage = {"Runs are stored in": "the folder shown in the terminal at startup"} if place.studio.limits.runs else {}
        about = f'<p class="ft-words">{place.studio.limits.privacy}</p>'
        gr.HTML(f"<section><h2>This machine</h2>{model_cards.facts_html(machine() | storage)}{about}</section>")
    place.tab.select(lambda: page(place), None, cards_panel, **DIRECT)


DIRECT: dict[str, Any] = {"queue": False, "show_progress": "hidden", "api_visibility": "private"}


def page(place: TabContext) -> str:
    """HTML of the current cards, including recent runs and imports."""
    return model_cards.cards_html(cards(place))


def cards(place: TabContext) -> list[Card]:
    """Cards of all models: loaded models first, then shipped, then imported ones."""
    runs, backbone = saved_runs(place.studio.run_store.folder), place.studio.backbone
    loaded = backbone.name == PICTURES
    folder = place.studio.weights if loaded and place.studio.weights else MODELS / PICTURES
    own = shipped_card(PICTURES, folder, runs, loaded, backbone if loaded else None)
    own_mesh = place.studio.mesh.name.partition(":")[0] == MESHES
    mesh_folder = place.studio.mesh.folder if own_mesh else MODELS / MESHES
    meshes = [shipped_card(MESHES, mesh_folder, runs, own_mesh)] if (mesh_folder / "card.json").exists() else []
    mine = imported_cards(runs, None if loaded else backbone.weights_hash, place.studio.mesh.folder)
    return sorted([own, *meshes, *mine], key=lambda card: card.state != "in use")


def machine() -> dict[str, str]:
    """Facts about this machine that speeds depend on."""
    about, room = machine_facts(), free("cpu")
    return {
        "Processor": str(about["processor"]),
        "Graphics card": str(about["cuda"] or "none found by PyTorch"),
        "Free memory": size_text(room) if room is not None else "",
        "Fast bfloat16": "yes" if about["fast_bfloat16"] else "no",
        "PyTorch": str(about["torch"]),
    }


# --- import -----------------------------------------------------------------------------------------------------------


def _build_import(place: TabContext, cards_panel: gr.HTML) -> None:
    """Builds the fields of an import and connects their handlers."""
    gr.HTML("<section><h2>Add a model</h2></section>")
    with gr.Row(elem_classes="ft-import"):
        path = gr.Textbox(
            label="Folder or file of a checkpoint", placeholder="A folder or file on this machine, such as ~/Downloads/Janus-Pro-1B",
            show_label=False, container=False, elem_id="import-path", scale=1, max_lines=1, max_length=LONGEST_PATH,
        )  # fmt: skip
        describe_button = gr.Button("What is it?", elem_id="import-look", scale=0, min_width=120)
        import_button = gr.Button("Import", variant="primary", elem_id="import-go", scale=0, min_width=120)
    status = gr.HTML("", elem_id="import-status")
    gr.HTML(
        '<p class="ft-words">Reads safetensors and PyTorch files without executing code in them, and downloads nothing.</p>'
        + model_cards.fold("In a terminal", f'<p class="ft-use"><code>{COMMAND}</code></p>')
    )
    describe_button.click(describe, path, status, preprocess=False, **DIRECT)
    settings: dict[str, Any] = {"concurrency_id": "importing", "concurrency_limit": 1, "show_progress": "hidden"}
    importing = gr.on([import_button.click, path.submit], add, path, status, preprocess=False, api_visibility="private", **settings)
    importing.then(lambda: page(place), None, cards_panel, **DIRECT)


def path_of(text: object) -> Path:
    """The path that a visitor entered; raises BadFile for an invalid one."""
    path = text.strip().strip("'\"") if isinstance(text, str) else ""
    if not 0 < len(path) <= LONGEST_PATH or any(c == "\0" or "\ud800" <= c <= "\udfff" for c in path):
        raise BadFile("This is not the path of a file or folder. Enter the path of the checkpoint.")
    return Path(path).expanduser()


def describe(text: object) -> str:
    """Description of a checkpoint, or the reason why it cannot be imported, as HTML."""
    try:
        return message(str(identify(path_of(text))))
    except ForetokenError as e:
        return complaint(e)


def add(text: object) -> Iterator[str]:
    """Imports a checkpoint; yields its description, the progress, and finally the command that uses it."""
    try:
        path = path_of(text)
        checkpoint = identify(path)
        last_percent = -1
        for progress in convert(path):
            percent = 100 * progress.done // max(1, progress.total)
            if percent != last_percent:
                last_percent = percent
                yield message(str(checkpoint), percent)
        yield message(f"{checkpoint.name} has been imported.\n{model_cards.KEEPS} Restart it with this one: {START} {checkpoint.name}", 100)
    except ForetokenError as e:
        yield complaint(e)


def message(text: str, percent: int | None = None) -> str:
    """Lines of text as HTML, the first one bold, with an optional progress bar."""
    first, *rest = (escape(without_paths(line.strip())) for line in text.splitlines())
    bar = f'<progress max="100" value="{percent}" aria-label="Import">{percent} %</progress>' if percent is not None else ""
    return f'<div class="ft-import-status" role="status"><b>{first}</b>{"".join(f"<span>{line}</span>" for line in rest)}{bar}</div>'


def complaint(error: ForetokenError) -> str:
    """An error as HTML, without paths of this machine."""
    return f'<div class="ft-import-status" data-kind="error" role="status"><span>{escape(without_paths(str(error)))}</span></div>'
