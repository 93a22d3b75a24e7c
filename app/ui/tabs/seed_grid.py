"""Nine at once: results of nine seeds, or of three values of two knobs with one seed, decoded in joint passes; the best one is framed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import gradio as gr

from app.live.one_thread import in_one_thread
from app.live.stream import Throttle, updates
from app.live.worker import LocalRunner
from app.requests.limits import LARGEST_SEED
from app.requests.sides import Side, checked_side
from app.runs import history
from app.ui.knobs import label, stops
from app.ui.panels import grid, notice, runs
from app.ui.tabs.method_form import checked_by_odds
from app.ui.tabs.race import RaceRequest, RaceTab
from engine.core import Backbone, Knob
from engine.errors import BadPrompt
from engine.many import race_together
from engine.mesh import picture
from engine.methods import find
from engine.run import Run, generate

SIDE = 3  # results along a side of the grid
COUNT = SIDE * SIDE
GAP = 8  # pixels between the pictures of the file
DETAIL = "Seeds {} to {} together took {:.1f} s, {:.1f} s each. {}"
CROSSED = "{} across and {} down, with seed {}, together took {:.1f} s. {}"
TWO_KNOBS = "A grid needs two different knobs of this method. Choose one across and another one down."


class Judged(NamedTuple):
    """The judgement on nine results. best : index of the framed one, None = none; words : about each; framed : sentence about the frame;
    more : row entries of the best"""

    best: int | None
    words: Sequence[str]
    headline: str
    framed: str
    more: Mapping[str, Any] = {}


class Kind(NamedTuple):
    """What differs between nine pictures and nine meshes.

    things : "pictures"; offer : name of the download; settings : of a race; words : by knob, texts of some values
    board : display of a run, with `picture` and `final`; progress : its words while it grows; judge : at the end
    """

    things: str
    offer: str
    settings: Callable[[Backbone], Sequence[Knob]]
    board: Callable[[Run], Any]
    progress: Callable[[Any], str]
    judge: Callable[[Sequence[Any], RaceRequest], Judged]
    words: Mapping[str, Mapping[float, str]] = {}


@dataclass(frozen=True)
class Cell:
    """A result of the grid. label : what it has and the others have not"""

    request: RaceRequest
    side: Side
    label: str = ""


class SeedGrid:
    """The button, the panel and their handlers."""

    def __init__(self, tab: RaceTab, kind: Kind):
        self.tab, self.kind, self.subject = tab, kind, tab.subject

    def build_button(self) -> None:
        """Builds the button that starts it."""
        look = {"elem_id": f"{self.subject.prefix}nine", "elem_classes": "ft-nine", "scale": 0, "min_width": 132}
        self.button = gr.Button("Nine at once", visible=isinstance(self.tab.studio.runner, LocalRunner), **look)

    def build(self) -> gr.HTML:
        """Builds the panel, hidden until then."""
        self.panel = grid.build(f"{self.subject.prefix}grid")
        return self.panel

    def wire(self) -> None:
        """Connects the button, and the panel's request for a grid of two knobs."""
        form, queue = self.tab.form, self.tab.queue
        inputs = [*self.subject.fields(), form.seed, form.method, form.knobs, form.settings]
        queue.wire_start([self.button.click], self.run, [gr.State(None), *inputs], self.tab.live)
        queue.wire_start([self.panel.input], self.run, [self.panel, *inputs], self.tab.live)

    def run(self, ticket: object, *fields: object) -> Iterator[dict[str, Any]]:
        """Decodes nine; yields values of panels. fields : the knobs to vary, None = the seed, then those of the subject, seed, method,
        knobs and settings, and Gradio's request"""
        wanted, *own, seed, name, knobs, values, request = fields
        visitor = request.session_hash

        def read(change: Mapping[str, float]) -> Cell:
            panel = checked_by_odds(with_values(knobs, change))[0]
            checked = self.subject.read(visitor, own, seed, with_values(values, change))
            return Cell(checked, checked_side(name, panel, checked.backbone), text_of(change, self.kind.words))

        def draw(number: int) -> Iterator[dict[str, Any]]:
            if waits := self.tab.queue.waits_for(visitor):
                raise BadPrompt(waits)
            first = read({})
            backbone = first.request.backbone
            offered = [knob for knob in (*self.kind.settings(backbone), *find(first.side[0])[0].knobs) if not knob.choices]
            axes, chosen = checked_axes(wanted, offered), {**first.side[1], **first.request.chosen}
            cells = of_seeds(first) if axes is None else [read(change) for change in changes(axes, chosen)]
            yield from self.draw(visitor, number, cells, axes, offered)

        yield from self.tab.queue.hold(visitor, ticket, draw)

    def draw(
        self, visitor: str, number: int, cells: Sequence[Cell], axes: tuple[Knob, Knob] | None, knobs: Sequence[Knob]
    ) -> Iterator[dict[str, Any]]:  # fmt: skip
        """Draws the results as they grow, and offers them as one file. number : of the ticket; knobs : that the next grid may vary"""
        kind, request = self.kind, cells[0].request
        started = [generate(c.request.backbone, find(c.side[0])[0], c.request.prompt, c.side[1], name=c.side[0]) for c in cells]
        boards, labels = [kind.board(run) for run in started], [cell.label for cell in cells]
        self.tab.sessions.hold(visitor, number, started)
        shown = [grid.cell(board, text) for board, text in zip(boards, labels, strict=True)]
        running = {"state": "running", "live": f"Nine {kind.things} grow together", "detail": "Their passes are computed as one."}
        yield self.subject.below.idle_values() | {"grid": grid.value(shown, "running"), "verdict": running}
        for changed in updates(boards, Throttle(), lambda runs: in_one_thread(race_together(runs))):
            for i in changed:
                shown[i] = grid.cell(boards[i], labels[i], kind.progress(boards[i]))
            yield {"grid": grid.value(shown, "running")}
        if not all(run.finished for run in started):
            yield {"verdict": {"state": "stopped", "headline": "Stopped", "detail": f"The {kind.things} are unfinished."}}
            return
        judged, seconds = kind.judge(boards, request), sum(run.seconds for run in started)
        best, described = judged.best or 0, [history.describe(run, request.shape) for run in started]
        shown = [grid.cell(*each) for each in zip(boards, labels, judged.words, described, strict=True)]
        seeds, named = [run.prompt.seed for run in started], axes and [knob.name for knob in axes]
        settings = described[best] | ({"seeds": seeds} if axes is None else {"across": named[0], "down": named[1], "values": labels})
        finals = [board.final() for board in boards]
        sheet = picture.sheet([finals[start : start + SIDE] for start in range(0, COUNT, SIDE)], gap=GAP)
        numbered = {"title": "Nine at once", "seed": f"{seeds[0]}–{seeds[-1]}" if axes is None else str(seeds[0])}
        row = runs.RunRow(boards[best], runs.thumbnail(sheet), request.shape, numbered | judged.more)
        table = runs.encode(self.subject.kind, [row], [[seconds]], self.subject.suits)
        what = DETAIL.format(seeds[0], seeds[-1], seconds, seconds / COUNT, judged.framed)
        if axes:
            what = CROSSED.format(label(axes[0]), label(axes[1]).lower(), seeds[0], seconds, judged.framed)
        line = self.subject.idle | {"state": "done", "headline": judged.headline, "detail": what, "tone": "even"}
        offered = [(knob.name, label(knob)) for knob in knobs]
        yield {"grid": grid.value(shown, "done", judged.best, offered, named), "verdict": line, "runs": table}
        button, lost = self.tab.write_picture(visitor, started[best], "-nine.png", sheet, settings)
        self.tab.queue.leave(visitor, {kind.offer: button, "messages": [*self.tab.queue.hints(visitor), *notice.error(*lost)]})


def of_seeds(cell: Cell) -> list[Cell]:
    """The result with its seed and the next ones."""
    first = min(cell.request.prompt.seed, LARGEST_SEED + 1 - COUNT)
    prompts = [replace(cell.request.prompt, seed=seed) for seed in range(first, first + COUNT)]
    return [replace(cell, request=cell.request._replace(prompt=prompt), label=f"Seed {prompt.seed}") for prompt in prompts]


def changes(axes: tuple[Knob, Knob], chosen: Mapping[str, Any]) -> list[dict[str, float]]:
    """The values of both knobs in each result, in rows. chosen : values to start from"""
    across, down = ([(knob.name, each) for each in three_values(knob, chosen[knob.name])] for knob in axes)
    return [dict((x, y)) for y in down for x in across]


def text_of(change: Mapping[str, float], words: Mapping[str, Mapping[float, str]]) -> str:
    """Values of knobs in words. words : see Kind"""
    return ", ".join(f"{knob.replace('_', ' ')} {words.get(knob, {}).get(each, f'{each:g}')}" for knob, each in change.items())


def checked_axes(wanted: object, knobs: Sequence[Knob]) -> tuple[Knob, Knob] | None:
    """The knobs across and down; None for nine seeds. Raises BadPrompt."""
    if wanted is None:
        return None
    names = [wanted.get(side) for side in ("across", "down")] if isinstance(wanted, Mapping) else []
    axes = tuple(next((knob for knob in knobs if knob.name == each), None) for each in names)
    if len(axes) != 2 or None in axes or axes[0] is axes[1]:
        raise BadPrompt(TWO_KNOBS)
    return axes


def with_values(panel: object, change: Mapping[str, float]) -> object:
    """A knob panel's value with other values of the knobs that it has."""
    if not isinstance(panel, Mapping) or not isinstance(panel.get("values"), Mapping):
        return panel
    return {**panel, "values": {key: change.get(key, value) for key, value in panel["values"].items()}}


def three_values(knob: Knob, value: float) -> list[float]:
    """The value with one below and one above, an eighth of the slider away or at its end; at an end, two on its other side."""
    places = stops(knob)
    last, away = len(places) - 1, max(1, len(places) // 8)
    own = min(range(len(places)), key=lambda i: abs(places[i] - value))
    chosen = {0: [0, away, 2 * away], last: [last - 2 * away, last - away, last]}.get(own, [own - away, own, own + away])
    return [places[min(max(each, 0), last)] for each in chosen]
