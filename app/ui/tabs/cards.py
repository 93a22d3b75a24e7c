"""Facts about models, as plain data for the Models tab.

They come from the card that ships with a model or that the import wrote, and from the runs saved on this machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from app.ui.method_menu import title_of
from app.ui.tabs.speeds import SavedRun, Speed, runs_of_model, speed
from engine.backbones import DRAFTERS, imported_folders
from engine.backbones.trained import trained_in
from engine.checkpoints.families import FAMILIES, ModelFamily, family_named
from engine.converting import parameters_text
from engine.core import PLAIN, Backbone
from engine.errors import ForetokenError
from engine.memory import FORMS, size_text
from engine.methods import METHODS
from engine.networks.weights import read_card

PICTURES = frozenset({"raster", "wavefront", "text", "codebook", "hidden"})  # capabilities of every picture model
MESHES = frozenset({"mesh", "points", "condition", "hidden"})
RECIPES = {  # capability: what the method needs, and the recipe that trains it
    "feature_draft": ("a drafter trained for this model", "feature-draft"),
    "predictive_stream": ("an adapter trained for this model", "predictive-stream"),
    "mesh_heads": ("draft heads trained for this model", "mesh-heads"),
    "spatial_heads": ("row and column heads trained for this model", "spatial-heads"),
    "at_scale": ("a model with several picture sizes, and its resampler", ""),
    "codebook": ("a picture model", ""),
    "raster": ("a picture model", ""),
    "wavefront": ("a model that can commit tokens out of order", ""),
    "hidden": ("the model's hidden states", ""),
}
ELSEWHERE = {"mesh_heads": "a mesh model"}  # what a method needs if its recipe cannot run
TRAINABLE = {  # recipes by model
    "pictogram": ("feature-draft", "predictive-stream", "spatial-heads"),
    "lowpoly": ("feature-draft", "predictive-stream", "mesh-heads"),
}
ABOUT = {  # shipped models: description, command, tab
    "pictogram": ("Draws scenes of emoji from a sentence.", "python launch.py image", "Image"),
    "lowpoly": ("Turns a point cloud or a mesh into a mesh of few triangles.", "python launch.py mesh", "Mesh"),
}
IMPORTED = ("feature-draft", "predictive-stream", "spatial-heads")  # recipes for imported picture models
IMPORTED_MESHES = ("mesh-heads",)  # recipes for imported mesh models
MOST_PICTURES = 3


@dataclass(frozen=True)
class Lack:
    """A method that does not work yet, what it needs, and the command that trains it ("" = none)."""

    title: str
    needs: str
    command: str


@dataclass(frozen=True)
class Card:
    """Card of a model.

    about    : one sentence; state : "in use", "ready", "imported" or "damaged"; sample : name of a shipped picture, or ""
    pictures : results of runs here; speed : None = not run here; works, lacks : methods
    tab      : the tab that uses the model
    """

    name: str
    about: str
    state: str
    size: str
    licence: str
    speed: Speed | None
    works: tuple[str, ...]
    lacks: tuple[Lack, ...]
    command: str
    sample: str = ""
    pictures: tuple[Path, ...] = ()
    sizes: str = ""
    trained: str = ""
    data: str = ""
    words: tuple[str, ...] = ()
    damage: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)
    tab: str = ""


def shipped_card(name: str, folder: Path, runs: Iterable[SavedRun], in_use: bool, loaded: Backbone | None = None) -> Card:
    """Card of pictogram or lowpoly in a folder. loaded : the loaded model; None = its files show its capabilities"""
    about, command, tab = ABOUT[name]
    state, sample = "in use" if in_use else "ready", name
    try:
        card = read_card(folder)
    except ForetokenError as e:
        return Card(name, about, "damaged", "", "", None, (), (), f"python launch.py train {name}", sample, damage=str(e))
    able = loaded.capabilities if loaded else abilities(folder, MESHES if "model" in card else PICTURES, len(card.get("sides", ())) > 1)
    works, lacks = methods(able, name)
    trained_on = knowledge(card)
    count = f"{parameters_text(loaded.parameters)} parameters, " if loaded else ""
    return Card(
        name, f"{about} {trained_on}".strip(), state, f"{count}{size_of(folder)}", str(card.get("licence", "not stated")),
        speed(runs_of_model(runs, name)), works, lacks, command, sample,
        sizes=", ".join(f"{8 * side} px" for side in card.get("sides", ()) if isinstance(side, int)),
        trained=training(card), data=str(card.get("data", "")), words=tuple(sorted(card.get("words", ()))), tab=tab,
    )  # fmt: skip


def imported_card(folder: Path, runs: Sequence[SavedRun], in_use: str | None) -> Card:
    """Card of an imported model. in_use : hash of the loaded weights"""
    try:
        card = read_card(folder)
    except ForetokenError as e:
        return Card(folder.name, "", "damaged", "", "", None, (), (), f"python launch.py models remove {folder.name}", damage=str(e))
    family = family_named(str(card.get("name")))
    weights = card.get("weights_hash")
    mine = runs_of_model(runs, str(card.get("name")), weights)
    meshes = family is not None and family.reads == "points"
    makes = family.makes if family else str(card.get("makes", ""))
    base, recipes = (MESHES, IMPORTED_MESHES) if meshes else (PICTURES, IMPORTED)
    works, lacks = methods(abilities(folder / DRAFTERS, base), folder.name, recipes)
    stated = str(card.get("stated") or "")
    licence = f"{stated}. {card.get('licence', '')}" if stated else str(card.get("licence", "not stated"))
    number, count = card.get("parameters"), card.get("bytes")
    size = f"{parameters_text(number)} parameters, {size_text(count)}" if isinstance(number, int) and isinstance(count, int) else ""
    return Card(
        folder.name, f"{card.get('title', '')}: {makes}.", "in use" if weights is not None and weights == in_use else "imported",
        size, licence, speed(mine), works, lacks, f"python launch.py --backbone {folder.name}",
        pictures=tuple(path for each in mine if (path := each.folder / "result.png").is_file())[:MOST_PICTURES],
        sizes=", ".join(f"{side} px" for side in card.get("sizes", ()) if isinstance(side, int)),
        facts={
            "Tokens of a result": f"{card.get('tokens', 0):,}", "Weights as": ", ".join(card.get("dtypes", {})),
            "Linear layers": linear_layers(card),
        },
        tab="Mesh" if meshes else "Image",
    )  # fmt: skip


def imported_cards(runs: Sequence[SavedRun], in_use: str | None, mesh: Path) -> list[Card]:
    """Cards of all imported models. in_use : hash of the loaded weights; mesh : folder of the Mesh tab's model"""
    cards = [(folder, imported_card(folder, runs, in_use)) for folder in imported_folders()]
    return [replace(card, state="in use") if folder == mesh and not card.damage else card for folder, card in cards]


def families() -> tuple[ModelFamily, ...]:
    """Model families that can be imported."""
    from engine.backbones import BACKBONES

    return tuple(family for family in FAMILIES if family.name in BACKBONES)


def linear_layers(card: Mapping[str, Any]) -> str:
    """The form in which an imported model's linear layers are loaded, with its deviation from full weights; "" for full weights."""
    form, deviations = card.get("weights"), card.get("deviation")
    if form not in FORMS[1:]:
        return ""
    row = deviations.get(form) if isinstance(deviations, Mapping) else None
    if not isinstance(row, Mapping) or not isinstance(row.get("mean"), int | float):
        return f"{form}; deviation from full weights not yet measured (bench weights --write)"
    return f"{form}; total variation per token from full weights {row['mean']:.4f} on average"


# --- parts of a card --------------------------------------------------------------------------------------------------


def abilities(folder: Path, base: frozenset[str], has_scales: bool = False) -> frozenset[str]:
    """Capabilities of the model in a folder, given the drafter files next to its weights. has_scales : it has several sizes"""
    heads = {"mesh_heads"} if any(folder.glob("heads_*.safetensors")) else set()
    return base | trained_in(folder) | heads | ({"at_scale"} if has_scales else set())


def methods(able: frozenset[str], name: str, recipes: tuple[str, ...] | None = None) -> tuple[tuple[str, ...], tuple[Lack, ...]]:
    """The methods that work on a model, and those that lack something, with the command that trains it.

    recipes : available recipes; None = those of the shipped model of this name
    """
    recipes = TRAINABLE.get(name, ()) if recipes is None else recipes
    works, lacks = [], []
    for method in METHODS.values():
        if method.name == PLAIN:
            continue
        if missing := sorted(method.needs - able):
            needs, recipe = RECIPES.get(missing[0], (missing[0].replace("_", " "), ""))
            needs = needs if recipe in recipes else ELSEWHERE.get(missing[0], needs)
            command = f"python launch.py train {recipe}" if recipe and recipe in recipes else ""
            command += f" --backbone {name}" if command and (recipe, name) != ("mesh-heads", "lowpoly") else ""
            lacks.append(Lack(title_of(method.name), needs, command))
        else:
            works.append(title_of(method.name))
    return tuple(works), tuple(lacks)


def knowledge(card: Mapping[str, Any]) -> str:
    """Sentence about what a shipped model knows."""
    families = card.get("families")
    if isinstance(families, list):
        return f"It was trained on {', '.join(map(str, families))}."
    text = str(card.get("objects", ""))
    count, _, names = text.partition(":")
    first = [name.strip() for name in names.split(",") if name.strip()]
    return f"It knows {count.split(' of ')[0]} objects, such as {', '.join(first[:6])}." if first else ""


def size_of(folder: Path) -> str:
    """Size of a model's folder, as text."""
    return size_text(sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()))


def training(card: Mapping[str, Any]) -> str:
    """Training effort and command of the main network; "" if unknown."""
    for section in ("decoder", "model"):
        row = card.get(section)
        if isinstance(row, Mapping) and "steps" in row:
            effort = f"{row['steps']:,} steps in {row.get('minutes', 0):.0f} minutes on {row.get('device', 'an unknown machine')}"
            return f"{effort}: {row.get('command', '')}"
    return ""
