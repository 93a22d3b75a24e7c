"""The form of a tab: the method with its knobs, the left side, the seed, and their storage in the browser.

The left side is plain decoding or another method with its own knobs. The form can be filled from a row of the table of runs, a dropped
file, a link, or the browser's storage.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import gradio as gr
from gradio.components import Component

from app.live.session import Sessions
from app.requests import validation
from app.requests.limits import LARGEST_SEED
from app.requests.sides import CLASSICAL, start_values
from app.ui import knobs as knob_panel
from app.ui.method_menu import PLAIN_SIDE, badge, cards
from app.ui.panels import badge as badge_panel
from app.ui.panels import methods, notice
from app.ui.tabs import restoring
from app.ui.tabs.engine_queue import DIRECT, LATEST
from engine.core import PLAIN, Knobs, Suits
from engine.errors import BadKnob, ForetokenError

SEEDED = "match seed"
BY_ODDS = "Tolerance is on, so the picture may differ from plain decoding. Check is now “same odds as plain”."

Choices = list[tuple[str, str]]  # (title, name) of methods and presets


class MethodForm:
    """Components of the form and their handlers.

    prefix : of their ids; suits : the knob values that suit the model; model : its name, because the knobs must not steer a run of
    another tab
    """

    def __init__(self, sessions: Sessions, prefix: str, suits: Suits, model: str):
        self.sessions, self.prefix, self.suits, self.model = sessions, prefix, suits, model

    # --- parts ----------------------------------------------------------------------------------------------------

    def build_method(self, choices: Choices, favourite: str, sheet: bool = False) -> None:
        """Builds the menu of methods, and the badge and knobs of the selected one. sheet : adds a button that closes the settings on a
        phone"""
        close = '<button type="button" class="ft-sheet">Done</button>' if sheet else ""
        gr.HTML(f"{close}<h2>Method</h2>", elem_classes="ft-heading")
        self.method = methods.build(favourite, cards(choices, self.suits), f"{self.prefix}method")
        method, values = start_values(favourite, self.suits)
        self.badge = badge_panel.build(badge(favourite, values), f"{self.prefix}badge")
        self.knobs = knob_panel.build(knob_panel.encode(favourite, method.knobs, values), f"{self.prefix}knobs")

    def build_left(self, choices: Choices, others: Sequence[dict[str, Any]] = ()) -> None:
        """Builds the checkbox, menu and knobs of the left side. choices : methods other than plain decoding; others : further cards"""
        self.others = others
        gr.HTML("<h2>Left side</h2>", elem_classes="ft-heading")
        self.compare = gr.Checkbox(True, label="Compare", elem_id=f"{self.prefix}compare", elem_classes="ft-check", interactive=True)
        self.other = methods.build(PLAIN, self.left_cards(choices), f"{self.prefix}other")
        self.other_knobs = knob_panel.build(knob_panel.encode(PLAIN, ()), f"{self.prefix}other-knobs")

    def left_cards(self, choices: Choices, speeds: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
        """Cards of the left side's menu."""
        return [*cards([(PLAIN_SIDE[0], PLAIN), *choices], self.suits, speeds), *self.others]

    def menu_values(self, menu: Choices, speeds: Mapping[str, str], chosen: object = None, before: str = "") -> dict[str, Any]:
        """Updates for a menu: "cards" with the speeds measured here so far, by menu id; and if the method `before`, which was first until
        auto was measured, is still the chosen one, the first method of the menu in its place."""
        own = cards(menu, self.suits, speeds)
        values: dict[str, Any] = {"cards": {self.method.elem_id: own, self.other.elem_id: self.left_cards(menu, speeds)}}
        name = menu[0][1]
        if chosen != before or chosen == name:
            return values
        method, start = start_values(name, self.suits)
        return values | {"method": name, "knobs": knob_panel.encode(name, method.knobs, start), "badge": badge(name, start)}

    def build_seed(self) -> None:
        """Builds the seed, a button for a random seed, and a checkbox that locks it."""
        with gr.Row(elem_classes="ft-seed"):
            limits = {"minimum": 0, "maximum": LARGEST_SEED}
            self.seed = gr.Number(7, label="Seed", precision=0, elem_id=f"{self.prefix}seed", scale=1, min_width=90, **limits)
            self.dice = gr.Button("Random", size="sm", elem_id=f"{self.prefix}dice", elem_classes="ft-dice", scale=0, min_width=72)
            self.keep = gr.Checkbox(
                True, label="Lock", elem_id=f"{self.prefix}keep", elem_classes="ft-check", scale=0, min_width=72, interactive=True
            )

    def parts(self, names: Iterable[str]) -> dict[str, Component]:
        """Components by name."""
        return {name: getattr(self, name) for name in names}

    def wire(self, messages: gr.HTML) -> None:
        """Connects the handlers. messages : panel for errors"""
        self.knobs.input(self.move, self.knobs, [self.knobs, self.badge, messages], **LATEST)
        self.method.input(self.choose, [self.method, self.knobs], [self.knobs, self.badge, messages], **LATEST)
        self.dice.click(lambda: secrets.randbelow(LARGEST_SEED), None, self.seed, **DIRECT)
        self.other.input(self.choose_other, [self.other, self.other_knobs], [self.other_knobs, messages], **LATEST)
        self.other_knobs.input(self.move_other, self.other_knobs, [self.other_knobs, messages], **LATEST)

    # --- handlers -------------------------------------------------------------------------------------------------

    def choose(self, name: object, before: object = None) -> tuple[Any, ...]:
        """Shows the knobs of a method or preset. before : the panel's value, with the last values of each method"""
        try:
            value = self.chosen_knobs(name, before)
        except ForetokenError as e:
            return gr.skip(), gr.skip(), notice.error(e)
        return value, badge(str(name), value["values"]), gr.skip()

    def choose_other(self, name: object, before: object) -> tuple[Any, ...]:
        """Shows the knobs of the left side's method."""
        try:
            return self.chosen_knobs(name, before), gr.skip()
        except ForetokenError as e:
            return gr.skip(), notice.error(e)

    def chosen_knobs(self, name: object, before: object = None, suits: Suits | None = None) -> dict[str, Any]:
        """Panel value of a method's knobs: their last values, else the initial ones. Raises NotSupported. suits : of a model other than
        the tab's"""
        known: dict[str, Any] = {}
        if isinstance(before, Mapping) and isinstance(before.get("left"), Mapping) and isinstance(before.get("name"), str):
            known = {**before["left"], before["name"]: before.get("values")}
        if name == CLASSICAL:
            return knob_panel.encode(CLASSICAL, ()) | {"left": known}
        validation.method(name)
        method, values = start_values(str(name), self.suits if suits is None else suits)
        with suppress(BadKnob):  # the page may remember values of another version
            values = validation.knobs({"values": known[name]}, method.knobs) if name in known else values
        return knob_panel.encode(str(name), method.knobs, values) | {"left": known}

    def move(self, value: object, request: gr.Request) -> tuple[Any, ...]:
        """Applies moved knobs to the visitor's run and updates the badge."""
        value, changed = checked_by_odds(value)
        if notices := self.steer(value, request.session_hash, side=0):
            return gr.skip(), gr.skip(), notices
        return value if changed else gr.skip(), badge(value["name"], value["values"]), notice.hint(BY_ODDS) if changed else gr.skip()

    def move_other(self, value: object, request: gr.Request) -> tuple[Any, ...]:
        """Applies moved knobs to the visitor's left run."""
        value, changed = checked_by_odds(value)
        notices = self.steer(value, request.session_hash, side=1)
        return value if changed else gr.skip(), notices or (notice.hint(BY_ODDS) if changed else [])

    def steer(self, value: object, visitor: str, side: int) -> list[dict[str, str]]:
        """Applies the knobs of a panel to one of the visitor's runs; returns a notice if they are invalid."""
        try:
            _, method = validation.method(value.get("name") if isinstance(value, Mapping) else value)
            self.sessions.move(visitor, method.name, validation.knobs(value, method.knobs), self.model, side)
        except ForetokenError as e:
            return notice.error(e)
        return []

    # --- stored form ----------------------------------------------------------------------------------------------

    def remember(self, key: str, form: Mapping[str, Component]) -> gr.BrowserState:
        """Stores the form in the browser whenever it changes; returns the stored state. key : name in the browser's storage"""
        memory = gr.BrowserState({}, storage_key=key, secret="foretoken")  # constant, so that stored forms survive a restart of the server
        gr.on([part.change for part in form.values()], None, list(form.values()), memory, js=restoring.remember(form), **DIRECT)
        return memory


def checked_by_odds(value: Any) -> tuple[Any, bool]:
    """A knob panel's value, and whether it was changed: a relaxed rule cannot match the seed, so it gets the check that it can pass."""
    try:
        _, method = validation.method(value.get("name") if isinstance(value, Mapping) else value)
        values = validation.knobs(value, method.knobs)
    except ForetokenError:  # `steer` reports it
        return value, False
    if values.get("verify") != SEEDED or method.exact(Knobs(values)):
        return value, False
    return {**value, "values": values | {"verify": "residual"}}, True


def form_updates(values: Mapping[str, Any]) -> dict[str, Any]:
    """Updates of the form, the badge and the messages for new values."""
    badges = {"badge": badge(values["knobs"]["name"], values["knobs"]["values"])} if "knobs" in values else {}
    return {**values, **badges, "messages": []}
