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

FAMILIES: dict[str, Family] = {
    family.name: family for family in (*FURNITURE, *BUILDINGS, *VEHICLES, *NATURE, *VESSELS, *IMPLEMENTS, *FIGURES, *ASSEMBLIES)
}
