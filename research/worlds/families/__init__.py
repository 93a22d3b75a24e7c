"""The families of lowpoly's world, by name; the file of each kind defines them, with their lattices and held-out boxes."""

from __future__ import annotations

from research.worlds.families.assemblies import ASSEMBLIES
from research.worlds.families.buildings import BUILDINGS
from research.worlds.families.family import ShapeFamily
from research.worlds.families.figures import FIGURES
from research.worlds.families.furniture import FURNITURE
from research.worlds.families.implements import IMPLEMENTS
from research.worlds.families.nature import NATURE
from research.worlds.families.vehicles import VEHICLES
from research.worlds.families.vessels import VESSELS

GROUPS: dict[str, tuple[ShapeFamily, ...]] = {
    "furniture": FURNITURE, "buildings": BUILDINGS, "vehicles": VEHICLES, "nature": NATURE,
    "vessels": VESSELS, "implements": IMPLEMENTS, "figures": FIGURES, "assemblies": ASSEMBLIES,
}  # fmt: skip
FAMILIES: dict[str, ShapeFamily] = {family.name: family for group in GROUPS.values() for family in group}
