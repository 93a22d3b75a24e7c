"""Model cards as HTML. Their content may come from untrusted files, so all of it is escaped."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from functools import lru_cache
from html import escape
from pathlib import Path

from PIL import Image

from app.sentences import without_paths
from app.ui.method_menu import title_of
from app.ui.panels.runs import thumbnail as small
from app.ui.tabs.cards import Card, Lack
from app.ui.tabs.speeds import Speed
from engine.checkpoints.families import ModelFamily

SAMPLES = Path(__file__).with_name("samples")
THUMBNAIL = 160  # pixels
KEEPS = "The studio uses the models that it was started with."
STATES = {"in use": "In use", "ready": "Ready", "imported": "Imported", "damaged": "Damaged"}


def cards_html(cards: Iterable[Card]) -> str:
    """Model cards in a grid."""
    return f'<div class="ft-models">{"".join(map(card_html, cards))}</div>'


def card_html(card: Card) -> str:
    """A model card."""
    state = f'<span class="ft-state" data-state="{escape(card.state)}">{STATES[card.state]}</span>'
    head = f'<div class="ft-model-body"><header><h3>{escape(card.name)}</h3>{state}</header>'
    if card.damage:
        body = f'<p class="ft-model-about">{escape(without_paths(card.damage))}</p>{command_html("Fix it", card.command)}'
        return f'<article class="ft-model" data-model="{escape(card.name)}">{head}{body}</div></article>'
    facts = {"Size": card.size, "Makes": card.sizes, "Speed here": speed_text(card.speed), "Licence": first_sentence(card.licence)} | dict(
        card.facts
    )
    rows = "".join(f"<div><dt>{escape(key)}</dt><dd>{escape(value)}</dd></div>" for key, value in facts.items() if value)
    return (
        f'<article class="ft-model" data-model="{escape(card.name)}">{picture_html(card)}{head}'
        f'<p class="ft-model-about">{escape(card.about)}</p><dl class="ft-facts">{rows}</dl>'
        f"{methods_html(card)}{usage_html(card)}{folds_html(card)}</div></article>"
    )


def first_sentence(licence: str) -> str:
    """First sentence of a licence; a fold below shows all of it."""
    return licence.removeprefix("Weights: ").split(". ")[0].rstrip(".")


def speed_text(speed: Speed | None) -> str:
    """Speed of a model on this machine, as text."""
    if speed is None:
        return "not yet measured here"
    runs = f"{speed.runs} run{'s' * (speed.runs > 1)} here"
    plain = f"{speed.plain:.0f} tokens/s plain" if speed.plain is not None else ""
    fast = f"{speed.fast:.0f} tokens/s with {title_of(speed.method)}" if speed.fast is not None else ""
    return f"{', '.join(filter(None, (plain, fast)))} ({runs})"


# --- parts ------------------------------------------------------------------------------------------------------------


def picture_html(card: Card) -> str:
    """The model's picture: a shipped sample, the latest results here, or a placeholder."""
    if card.sample and (path := SAMPLES / f"{card.sample}.svg").is_file():
        return f'<div class="ft-model-picture"><img alt="Three results of {escape(card.name)}" src="{data_url(path)}"></div>'
    if card.pictures:
        shown = "".join(f'<img alt="A result of {escape(card.name)}" src="{thumbnail(path)}">' for path in card.pictures)
        return f'<div class="ft-model-picture" data-count="{len(card.pictures)}">{shown}</div>'
    return '<div class="ft-model-picture"><p>No picture yet. The first result appears here.</p></div>'


@lru_cache(maxsize=8)
def data_url(path: Path) -> str:
    """A shipped sample as a data: URL."""
    return f"data:image/svg+xml;base64,{base64.b64encode(path.read_bytes()).decode('ascii')}"


@lru_cache(maxsize=64)
def thumbnail(path: Path) -> str:
    """Thumbnail of a result as a data: URL; "" if the file is missing or damaged."""
    try:
        with Image.open(path) as picture:
            return small(picture, THUMBNAIL)
    except (OSError, ValueError):
        return ""


def methods_html(card: Card) -> str:
    """The methods that work, as chips, and a fold with the needs of the others."""
    if not card.works and not card.lacks:
        return ""
    chips = "".join(f'<li class="ft-works">{escape(title)}</li>' for title in card.works)
    count = len(card.lacks)
    need = f"{count} more {'method needs' if count == 1 else 'methods need'} something first"
    more = fold(need, "".join(map(lack_html, card.lacks)), "ft-lacks") if count else ""
    return f'<div class="ft-methods"><h4>Methods that work</h4><ul>{chips}</ul>{more}</div>'


def lack_html(lack: Lack) -> str:
    """A method and what it needs."""
    return f"<p><b>{escape(lack.title)}</b> needs {escape(lack.needs)}.</p>"


def usage_html(card: Card) -> str:
    """Button that opens the tab of a loaded model; for other models, how to load them."""
    if card.state != "in use" and card.command:
        return f'<p class="ft-use">{KEEPS} To use {escape(card.name)}, restart it with this model: see “In a terminal”.</p>'
    if card.state != "in use" or not card.tab:
        return ""
    return f'<p class="ft-use"><button type="button" class="ft-link" data-tab="{card.tab}">Open the {card.tab} tab</button></p>'


def command_html(label: str, command: str) -> str:
    """A command for the terminal."""
    return f'<p class="ft-use">{escape(label)}: <code>{escape(command)}</code></p>' if command else ""


def terminal_html(card: Card) -> str:
    """Terminal commands that use a model and train what its methods need."""
    commands = {"Use it": card.command} | {f"Train what {lack.title} needs": lack.command for lack in card.lacks}
    return "".join(command_html(label, command) for label, command in commands.items())


def folds_html(card: Card) -> str:
    """Folds with details."""
    effort, _, command = card.trained.partition(": ")
    training = f'<p class="ft-small">{escape(effort)}: <code>{escape(command)}</code></p>' if card.trained else ""
    rest = "".join(f'<p class="ft-small">{escape(without_paths(text))}</p>' for text in (card.licence, card.data) if text)
    words = f'<p class="ft-small">{escape(", ".join(card.words))}</p>'
    return (
        (fold("Training", training) if training else "")
        + (fold("Licence and data", rest) if rest else "")
        + (fold("In a terminal", commands) if (commands := terminal_html(card)) else "")
        + (fold(f"{len(card.words)} words it knows", words) if card.words else "")
    )


def fold(title: str, content: str, kind: str = "") -> str:
    """A line that opens to show content. title : plain text; content : HTML; kind : CSS class"""
    return f'<details class="ft-fold {kind}"><summary>{escape(title)}</summary><div>{content}</div></details>'


# --- what can be imported ---------------------------------------------------------------------------------------------


def families_html(families: Sequence[ModelFamily]) -> str:
    """List of the model families that can be imported."""
    rows = "".join(
        f"<li><h4>{escape(each.title)}</h4><p>{escape(each.makes[:1].upper() + each.makes[1:])}. Weights: {escape(each.source)}. "
        f"<span>Licence: {escape(each.licence)}.</span></p></li>"
        for each in families
    )
    return f'<ul class="ft-families">{rows}</ul>'


def facts_html(facts: dict[str, str]) -> str:
    """List of names and values."""
    rows = "".join(f"<div><dt>{escape(key)}</dt><dd>{escape(value)}</dd></div>" for key, value in facts.items() if value)
    return f'<dl class="ft-facts ft-machine">{rows}</dl>'
