"""The families of lowpoly's world, by name; the file of each kind defines them, with their lattices and held-out boxes."""

from __future__ import annotations

from engine.data.families.assemblies import ASSEMBLIES
from engine.data.families.buildings import BUILDINGS
from engine.data.families.family import Family
from engine.data.families.figures import FIGURES
from engine.data.families.furniture import FURNITURE
from engine.data.families.implements import IMPLEMENTS
from engine.data.families.nature import NATURE
from engine.data.families.vehicles import VEHICLES
from engine.data.families.vessels import VESSELS

GROUPS: dict[str, tuple[Family, ...]] = {
    "furniture": FURNITURE, "buildings": BUILDINGS, "vehicles": VEHICLES, "nature": NATURE,
    "vessels": VESSELS, "implements": IMPLEMENTS, "figures": FIGURES, "assemblies": ASSEMBLIES,
}  # fmt: skip
FAMILIES: dict[str, Family] = {family.name: family for group in GROUPS.values() for family in group}


def group_of(name: str) -> str:
    """The name of the group that a family belongs to. Raises KeyError."""
    return {family.name: group for group, families in GROUPS.items() for family in families}[name]
