"""The diagram of the rooms in CONTRIBUTING.md against the imports: a room imports only from rooms below it."""

from __future__ import annotations

import re
from functools import cache

import pytest

from tests.test_architecture import ROOT, all_imports, modules_in, sources

FENCE = re.compile(r"^```rooms\n(.*?)^```", re.MULTILINE | re.DOTALL)


@cache
def floors() -> dict[str, int]:
    """The height of each room in the diagram: 0 is the lowest line."""
    picture = FENCE.search((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))
    assert picture, "CONTRIBUTING.md has no block ```rooms"
    lines = [re.split(r"\s{2,}", line.strip()) for line in picture.group(1).splitlines() if line.strip()]
    return {room: floor for floor, rooms in enumerate(reversed(lines)) for room in rooms}


def room_of(module: str) -> str | None:
    """The innermost room that contains a module."""
    inside = [room for room in floors() if module == room or module.startswith(room + ".")]
    return max(inside, key=len, default=None)


def test_every_module_lies_in_a_room():
    packages = {"engine"}  # the library's door: it opens all rooms
    assert [module for module in sources() if module not in packages and room_of(module) is None] == []


def test_every_room_exists():
    assert [room for room in floors() if not any(room_of(module) == room for module in sources())] == []


@pytest.mark.parametrize("module", sorted(set(sources()) - {"engine"}))
def test_imports_run_down(module):
    here = room_of(module)
    wrong = [
        name
        for name in sorted(all_imports(module) & set(sources()))
        if (there := room_of(name)) is not None and there != here and floors()[there] >= floors()[here]
    ]
    assert wrong == [], f"{module} lies in {here}, which does not stand on " + ", ".join(f"{room_of(name)} ({name})" for name in wrong)


def test_methods_hardly_import_each_other():
    for module in modules_in("engine.methods"):
        others = {name for name in all_imports(module) & set(modules_in("engine.methods")) if name != module}
        assert len(others) <= 2, f"{module} imports {', '.join(sorted(others))}: what methods share belongs in engine/decoding"
