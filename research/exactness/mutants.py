"""All mutants, by the names that the cases of the methods use."""

from __future__ import annotations

from collections.abc import Callable

from research.exactness import wrong_loops, wrong_rules
from research.exactness.mutation import Patch

MUTANTS: dict[str, Callable[[], list[Patch]]] = wrong_rules.TABLE | wrong_loops.TABLE
