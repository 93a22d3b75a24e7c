"""Forks: a finished run goes on from one of its tokens in another way, beside its old future.

The page sends the run's settings and tokens, because the server may not have kept it. They are untrusted, so everything is checked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from app.requests import validation
from app.requests.sides import Side, start_values
from app.runs.history import identity
from app.ui import knobs as knob_panel
from app.ui.tabs import restoring
from engine.core import PLAIN, Backbone, Knob, Origin, Prompt
from engine.errors import BadPrompt
from engine.mesh.read import Input
from engine.methods import find

INCOMPLETE = "The run arrived incomplete ({}). Show it again in the table of runs."
NOTHING_LEFT = "{} of {} tokens cannot be kept. Choose at least 1, and fewer than all."
FUTURES, FORKED = ("The old future", "The new future"), "From the shared tokens on."  # titles and text of the sides
ReadPrompt = Callable[[Mapping[str, Any], restoring.WishedInput | None], tuple[Prompt, Input | None]]


class Fork(NamedTuple):
    """A run to go on from. before : prompt of its old future; tokens : all of its tokens, in the order of positions; at : number of them
    that both futures share; shape : input of a mesh"""

    before: Prompt
    tokens: tuple[int, ...]
    at: int
    shape: Input | None = None


def read_fork(value: object, backbone: Backbone, declared: tuple[Knob, ...], read: ReadPrompt) -> tuple[Fork, Prompt, list[Side]]:
    """The run to go on from, the prompt of its new future, and both sides, the new one first. Raises ForetokenError.

    value : of the panel of forks, see app/ui/panels/forks.js; declared : settings of a run, with a temperature
    read : makes the prompt of the run, and its shape, from its values of the form and its input
    """
    request = value.get("fork") if isinstance(value, Mapping) else None
    if not isinstance(request, Mapping):
        raise BadPrompt(INCOMPLETE.format("no request"))
    form, origin = restoring.from_run({"ask": request}, backbone, knob_panel.encode("settings", declared), declared)
    old, shape = read(form, origin)
    text = old.text
    old = replace(old, text=backbone.words_read(old))  # another seed would choose another background in the middle of the picture
    tokens, at = validation.tokens(request.get("tokens")), validation.whole(request.get("at"), "The number of kept tokens")
    if not 0 < at < len(tokens):
        raise BadPrompt(NOTHING_LEFT.format(at, len(tokens)))
    own = request["settings"].get("prefix")  # of a run that is a fork itself: it may have been given tokens behind this place
    kept = max(at, min(len(own), len(tokens) - 1)) if isinstance(own, list) else at
    fork = Fork(replace(old, prefix=tokens[:kept], origin=Origin(identity(tokens), at)), tokens, at, shape)
    (temperature,) = (knob for knob in declared if knob.name == "temperature")
    return fork, _new_prompt(fork, request, temperature, text, backbone), _sides(form, request.get("method"), backbone)


def _new_prompt(fork: Fork, request: Mapping[str, Any], knob: Knob, before: str | None, backbone: Backbone) -> Prompt:
    """The prompt of the new future. knob : of the temperature; before : text of the old one, without the background that its seed chose"""
    old, token = fork.before, request.get("token")
    temperature = validation.knobs({"values": {"temperature": request.get("temperature")}}, (knob,))["temperature"]
    text, seed = old.text, validation.seed(request.get("seed"))
    if old.points is None:
        own = backbone.understand(validation.text(request.get("prompt"))).text
        text = text if own == before else own
    prefix = (*fork.tokens[: fork.at], *(() if token is None else (validation.whole(token, "A token"),)))
    return replace(old, text=text, seed=seed, sampling=replace(old.sampling, temperature=float(temperature)), prefix=prefix)


def _sides(form: Mapping[str, Any], chosen: object, backbone: Backbone) -> list[Side]:
    """The new future's method with its knobs, and the old one's: plain decoding, if the run's method cannot start after a prefix."""
    old = form["method"], form["knobs"]["values"]
    name, _ = validation.method(chosen, backbone)
    new = old if name == old[0] else (name, start_values(name, backbone.suits)[1])
    return [new, old if find(old[0])[0].forks else (PLAIN, {})]
