"""The architecture, read from imports and tables: dependency directions and completeness, not line counts."""

from __future__ import annotations

import ast
import importlib.util
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from app.cli import COMMANDS, RESEARCH
from engine.backbones import BACKBONES
from engine.methods import METHODS, PRESETS
from research.train import RECIPES

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("engine", "app", "research", "integrations")
MEBIBYTE = 2**20


@cache
def sources() -> dict[str, Path]:
    """First-party modules by dotted name; a package has its folder's name."""
    paths = {"launch": ROOT / "launch.py"}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            paths[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return paths


@cache
def tree(module: str) -> ast.Module:
    """A module's syntax tree."""
    return ast.parse(sources()[module].read_text(encoding="utf-8"))


def imports_of(node: ast.AST, module: str) -> Iterator[str]:
    """Full names that one import statement brings in; of `from a import b` both a.b, if that is a module of ours, else a."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        assert node.level == 0, f"{module} line {node.lineno}: write the full name instead of a relative import"
        for alias in node.names:
            name = f"{node.module}.{alias.name}"
            yield name if name in sources() else node.module


def all_imports(module: str) -> set[str]:
    """Everything a module imports anywhere, inside functions too."""
    return {name for node in ast.walk(tree(module)) for name in imports_of(node, module)}


def is_type_checking(node: ast.AST) -> bool:
    """`if TYPE_CHECKING:`, which never runs."""
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def imports_at_load(module: str) -> set[str]:
    """Statements that run when the module is loaded: imports outside functions and outside `if TYPE_CHECKING`."""
    names: set[str] = set()
    waiting: list[ast.AST] = list(tree(module).body)
    while waiting:
        node = waiting.pop()
        names.update(imports_of(node, module))
        if is_type_checking(node):
            waiting += node.orelse
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            waiting += ast.iter_child_nodes(node)
    return names


def within(name: str, *packages: str) -> bool:
    """True if a dotted name is one of the packages or lies inside one."""
    return any(name == package or name.startswith(package + ".") for package in packages)


def offenders(group: tuple[str, ...], forbidden: tuple[str, ...], allowed: tuple[str, ...] = ()) -> list[str]:
    """Imports of something forbidden by a module of the group, as readable lines."""
    return [
        f"{module} imports {name}"
        for module in sources()
        if within(module, *group) and not within(module, *allowed)
        for name in sorted(all_imports(module))
        if within(name, *forbidden)
    ]


@pytest.mark.parametrize(
    ("group", "forbidden"),
    [
        (("engine",), ("app", "research", "gradio", "plotly", "launch")),
        (("engine.methods",), ("engine.backbones", "engine.run", "transformers")),
        (("engine.backbones",), ("engine.methods", "engine.run")),
    ],
)
def test_direction(group, forbidden):
    assert offenders(group, forbidden) == []


@cache
def reachable(module: str) -> frozenset[str]:
    """All modules that a module needs through any number of imports, including itself, imports in functions and for type hints."""
    modules: set[str] = set()
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name in modules or name not in sources():
            continue
        modules.add(name)
        parts = name.split(".")
        waiting += [".".join(parts[:end]) for end in range(1, len(parts))] + sorted(all_imports(name))
    return frozenset(modules)


def names_blocks(module: str) -> bool:
    """True if a module names Gradio's pages."""
    return any(isinstance(node, ast.Attribute) and node.attr == "Blocks" for node in ast.walk(tree(module)))


API = tuple(
    f"app.server.{name}"
    for name in ("routes", "drawing", "images_request", "images_reply", "foreign_options", "fields", "refusals", "metrics", "key")
)


@pytest.mark.parametrize("module", [m for m in sources() if within(m, "app.requests", "app.live", "app.runs", "app.batch", *API)])
def test_no_client_stands_on_the_page(module):
    """Requests, decoding, storage and answers need no tab and no page; drawing a replay's panels needs Gradio's HTML only."""
    modules = reachable(module)
    assert sorted(name for name in modules if within(name, "app.ui.tabs", "app.ui.page") or names_blocks(name)) == []
    if within(module, "app.requests", "app.live", *API):
        assert sorted(name for name in modules if any(within(each, "gradio") for each in all_imports(name))) == []


def test_only_the_page_itself_knows_the_tabs():
    knows = {m for m in sources() if any(within(name, "app.ui.tabs", "app.ui.page") for name in all_imports(m))}
    assert {m for m in knows if within(m, "app") and not within(m, "app.ui")} == {"app.server.studio"}


def test_no_import_circles():
    graph = {module: imports_at_load(module) & set(sources()) - {module} for module in sources()}
    done: set[str] = set()

    def visit(module: str, path: tuple[str, ...]) -> None:
        assert module not in path, "import circle: " + " -> ".join((*path[path.index(module) :], module))
        if module not in done:
            for name in sorted(graph[module]):
                visit(name, (*path, module))
            done.add(module)

    for module in graph:
        visit(module, ())


def defines(module: str, name: str) -> bool:
    """True if a module defines a name at its top level."""
    for node in tree(module).body:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        if any(isinstance(t, ast.Name) and t.id == name for t in targets) or getattr(node, "name", None) == name:
            return True
    return False


def modules_in(package: str) -> list[str]:
    """The modules of a package, without the package itself."""
    return [module for module in sources() if within(module, package) and module != package]


def test_every_method_file_is_in_the_table():
    files = {module for module in modules_in("engine.methods") if defines(module, "METHOD")}
    assert {f"engine.methods.{name}" for name in METHODS} == files
    assert [name for name, method in METHODS.items() if method.name != name] == []


def test_presets_name_methods_and_knobs():
    for name, (method, knobs) in PRESETS.items():
        assert name not in METHODS
        assert set(knobs) <= {knob.name for knob in METHODS[method].knobs}, name


@pytest.mark.parametrize("module", [module for module in modules_in("engine.methods") if defines(module, "METHOD")])
def test_method_docstring_has_its_headings(module):
    text = ast.get_docstring(tree(module)) or ""
    missing = [h for h in ("Paper", "Idea", "Exactness", "Deviations") if not re.search(rf"^{h}:", text, re.MULTILINE)]
    assert missing == []


def test_every_backbone_is_in_the_table():
    assert [module for module in BACKBONES.values() if module not in sources()] == []
    loaders = {module for module in modules_in("engine.backbones") if defines(module, "load")}
    assert loaders == set(BACKBONES.values())


@pytest.mark.parametrize("name", RECIPES)
def test_recipe_exists(name):
    assert importlib.util.find_spec(RECIPES[name]) is not None
    assert defines(RECIPES[name], "main")


def test_every_recipe_is_in_the_table():
    files = {module for module in modules_in("research.train") if defines(module, "main")}
    assert files == set(RECIPES.values())


def test_a_triton_kernel_has_a_reference_beside_it():
    for module in modules_in("engine.kernels"):
        functions = [node for node in ast.walk(tree(module)) if isinstance(node, ast.FunctionDef)]
        if any("triton.jit" in ast.unparse(d) for f in functions for d in f.decorator_list):
            assert any(f.name.endswith("_reference") for f in functions), module


def test_every_command_is_in_the_table():
    rooms = ("app.commands", "research.commands")
    app, research = ({module.rsplit(".", 1)[1] for module in modules_in(room) if defines(module, "main")} for room in rooms)
    assert set(COMMANDS) - set(RESEARCH) == app
    assert set(RESEARCH) == research


def test_every_tab_is_in_the_table():
    table = sources()["app.ui"].read_text(encoding="utf-8")
    tabs = [m.rsplit(".", 1)[1] for m in modules_in("app.ui.tabs") if m.endswith("_tab")]
    assert [tab for tab in tabs if tab not in table] == []


def missing_docstrings(module: str) -> list[str]:
    """Public functions and classes at a module's top level without a docstring, and the module itself if it has none."""
    silent = [
        node.name
        for node in tree(module).body
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_") and not ast.get_docstring(node)
    ]
    return silent + ([module] if tree(module).body and not ast.get_docstring(tree(module)) else [])


@pytest.mark.parametrize("module", sources())
def test_public_things_say_what_they_are(module):
    assert missing_docstrings(module) == []


@pytest.mark.parametrize("module", sources())
def test_no_bare_except(module):
    assert [node.lineno for node in ast.walk(tree(module)) if isinstance(node, ast.ExceptHandler) and node.type is None] == []


def test_no_file_is_named_after_nothing():
    assert [m for m in sources() if m.rsplit(".", 1)[-1] in ("utils", "helpers", "misc")] == []


def test_weights_stay_small():
    sizes = {path: path.stat().st_size for path in (ROOT / "assets" / "models").rglob("*") if path.is_file()}
    assert {path.name: size for path, size in sizes.items() if size >= 10_000_000} == {}
    assert sum(sizes.values()) <= 45 * MEBIBYTE


def test_every_class_has_a_name_of_its_own() -> None:
    places: dict[str, list[str]] = {}
    for module in sources():
        for node in ast.walk(tree(module)):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(module)
    assert {name: modules for name, modules in places.items() if len(modules) > 1} == {}
