"""Fills the form from the settings of a run, or as this browser stored it.

The settings are untrusted JSON from a file, a link or the browser's storage, so everything is checked.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from app.requests import validation
from app.requests.sides import CLASSICAL
from app.sentences import brief
from app.ui import knobs as knob_panel
from engine.backbones import current_name
from engine.core import Backbone, Knob
from engine.errors import BadFile, ForetokenError
from engine.methods import AUTO, PRESETS

PICTURE = ("prompt", "seed", "method", "knobs", "settings", "compare", "other", "other_knobs")  # the Image tab's form
MESH = ("seed", "method", "knobs", "settings", "compare", "other", "other_knobs")  # the Mesh tab's, without its input
NOT_OURS = "This file does not contain the settings of a run. Drop a PNG, GLB or run.json written by Foretoken, or the folder of a run."
A_MESH = "These settings made a mesh, so the Image tab cannot use them. Load them in the Mesh tab."
A_PICTURE = "These settings made a picture, so the Mesh tab cannot use them. Load them in the Image tab."
READY = "<i></i>"  # settings are restored once the page has this; see panels/runs.py
RESTORED = '<i></i><b data-number="{}"></b>'  # the form of this request is filled, so the page runs it
OTHER = "This run was made by {}, but the page uses {}. Start the studio with that model."


class WishedInput(NamedTuple):
    """Input of a run of a mesh: the file's name and its up axis."""

    name: str
    up: str


def remember(form: Iterable[str]) -> str:
    """JavaScript that packs the form's values into one object, without a request to the server."""
    return f"(...values) => [Object.fromEntries({json.dumps(list(form))}.map((name, i) => [name, values[i]]))]"


def from_run(
    value: object, backbone: Backbone, panel: dict[str, Any], declared: tuple[Knob, ...]
) -> tuple[dict[str, Any], WishedInput | None]:
    """New values of the form for a request of the runs panel: a run's settings for the whole form, or for the left side only. Also
    returns the input of a mesh, or None.

    panel : value of the settings panel, whose values are replaced; declared : the panel's knobs. Raises ForetokenError unless the
    settings are of a run of this model.
    """
    run_settings, is_left = _requested_settings(value)
    source, meshes = run_settings.get("input"), "mesh" in backbone.capabilities
    if (source is not None) != meshes or not isinstance(source, Mapping | None):
        raise BadFile(A_PICTURE if meshes else A_MESH)
    if current_name(str(run_settings.get("backbone"))) != backbone.name:
        raise BadFile(OTHER.format(brief(run_settings.get("backbone")), backbone.name))
    name, knobs = _method(run_settings, backbone)
    if is_left:
        return {"compare": True, "other": name, "other_knobs": knobs}, None
    checks = {"seed": validation.seed} if meshes else {"seed": validation.seed, "prompt": validation.text}
    fields = {key: check(run_settings[key]) for key, check in checks.items() if key in run_settings}  # a row of a benchmark has neither
    settings = panel | {"values": validation.knobs({"values": _settings_values(run_settings, declared)}, declared)}
    origin = WishedInput(validation.text(run_settings["prompt"]), brief(source.get("up"))) if meshes and "prompt" in run_settings else None
    return {**fields, "method": name, "knobs": knobs, "settings": settings}, origin


def ready_to_run(value: object) -> dict[str, str]:
    """Update that makes the page run the restored form, if the request says so; else {}."""
    request = value.get("ask") if isinstance(value, Mapping) else None
    runs = isinstance(request, Mapping) and request.get("linked") is True and isinstance(request.get("number"), int | float)
    return {"ready": RESTORED.format(int(request["number"]))} if runs else {}


def _requested_settings(value: object) -> tuple[Mapping[str, Any], bool]:
    """The requested settings, and whether they are for the left side; raises BadFile if there are none."""
    request = value.get("ask") if isinstance(value, Mapping) else None
    run_settings = request.get("settings") if isinstance(request, Mapping) else None
    if not isinstance(run_settings, Mapping) or not isinstance(run_settings.get("method"), str):
        raise BadFile(NOT_OURS)
    return run_settings, request.get("side") == "left"


def _method(run_settings: Mapping[str, Any], backbone: Backbone) -> tuple[str, dict[str, Any]]:
    """Method or preset of some settings, and the panel value of its knobs."""
    preset = run_settings.get("preset")  # a former choice of auto may be missing from the menu: then use the method
    name, method = validation.method(preset if preset in PRESETS else run_settings["method"], backbone)
    return name, knob_panel.encode(name, method.knobs, validation.knobs({"values": run_settings.get("knobs")}, method.knobs))


def _settings_values(run_settings: Mapping[str, Any], declared: tuple[Knob, ...]) -> dict[str, Any]:
    """Values of the settings panel for some settings: sampling and size."""
    names, sampling = {knob.name for knob in declared}, run_settings.get("sampling")
    chosen = (
        {name: value for name, value in ({"guide": 0.0} | dict(sampling)).items() if name in names} if isinstance(sampling, Mapping) else {}
    )
    numbers = run_settings.get("size"), run_settings.get("about")
    size, about = (value if isinstance(value, int) and not isinstance(value, bool) else 0 for value in numbers)
    if "size" in names and size:
        chosen["size"] = f"{size} px"
    return chosen | {name: value for name, value in (("face_budget", size), ("about", about)) if name in names}


def from_memory(value: object, backbone: Backbone, panel: dict[str, Any], declared: tuple[Knob, ...], auto: str = "") -> dict[str, Any]:
    """Values of the form as stored in the browser, without invalid or outdated ones.

    panel : value of the settings panel, whose values are replaced; declared : its knobs
    auto  : the current choice of auto; an earlier choice is ignored, because it is no longer in the menu
    """
    remembered = value if isinstance(value, Mapping) else {}
    updates: dict[str, Any] = {}

    def take(name: str, check: Callable[[], Any]) -> None:
        with suppress(ForetokenError):
            if name in remembered:
                updates[name] = check()

    take("prompt", lambda: validation.text(remembered["prompt"]))
    take("seed", lambda: validation.seed(remembered["seed"]))
    take("compare", lambda: validation.flag(remembered["compare"]))
    take("settings", lambda: panel | {"values": validation.knobs(remembered["settings"], declared)})
    for menu, panel in (("method", "knobs"), ("other", "other_knobs")):
        with suppress(ForetokenError):
            if remembered.get(menu) == CLASSICAL and menu == "other" and "mesh" in backbone.capabilities:
                updates |= {menu: CLASSICAL, panel: knob_panel.encode(CLASSICAL, ())}
            elif panel in remembered:
                name, method = validation.method(remembered.get(menu), backbone)
                if name.startswith(f"{AUTO}:") and name != auto:
                    continue
                values = validation.knobs(remembered[panel], method.knobs)
                updates |= {menu: name, panel: knob_panel.encode(name, method.knobs, values)}
    return updates
