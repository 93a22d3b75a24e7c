"""All mutants, by the names that the cases of the methods use."""

from __future__ import annotations

from research.exactness import wrong_loops, wrong_rules
from research.exactness.mutation import Patches

MUTANTS: dict[str, Patches] = wrong_rules.TABLE | wrong_loops.TABLE
