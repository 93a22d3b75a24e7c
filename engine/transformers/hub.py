"""Writes the folder that transformers loads by name: `model.generate(..., custom_generate="you/foretoken", trust_remote_code=True)`.

transformers copies `custom_generate/generate.py` and the files next to it that it imports relatively, but no subfolder. So each
module of the engine that the callable needs becomes one file next to it, with its imports rewritten: `engine.methods.sjd` is
`engine_methods_sjd.py`. The folder needs no installation; its requirements are those of the copied files.
"""

from __future__ import annotations

import ast
import sys
from importlib.util import find_spec
from pathlib import Path

from engine.errors import BadOutput

FIRST = "engine.transformers.call"  # the module that generate.py imports from
LEAST = {"transformers": "transformers>=5"}  # minimum versions
HEAD = "# Written by `launch.py models custom-generate` from {}. Apache-2.0.\n"

GENERATE = '''"""Exact speculative decoding without a drafter: Foretoken's methods for any decoder-only model with a cache.

    model.generate(**inputs, custom_generate="{folder}", trust_remote_code=True, method="sjdpp", window=32)
"""

from transformers import GenerationMixin

from .engine_transformers_call import foretoken

if False:  # transformers copies the files that it finds in lines like these
{files}


def generate(model, method="auto", streamer=None, assistant_model=None, **arguments):
    """Output of `model.generate`. method: auto, sjdpp, sjd, lookup, ...; other new names are knobs of the method, seed, grid, ..."""
    if assistant_model is not None:
        raise ValueError("Foretoken drafts without an assistant. Leave assistant_model out.")
    chosen = {{name: value for name, value in arguments.items() if value is not None}}
    if streamer is not None:
        chosen["stream_to"] = streamer
    own = GenerationMixin.generate if arguments.get("generation_mode") == "image" else type(model).generate
    return own(model, custom_generate=foretoken(method), **chosen)
'''

README = """---
library_name: transformers
license: apache-2.0
tags:
- custom_generate
---

# Foretoken

Speculative decoding that needs no drafter and keeps the distribution of plain decoding. It works on decoder-only models of transformers
with a cache.

```python
output = model.generate(**inputs, custom_generate="{folder}", trust_remote_code=True, method="sjdpp", window=32, max_new_tokens=256)
```

`method` is `sjdpp` (default), `sjd`, `jacobi`, `lookup`, `gsd`, `zipar` or `ar`. Further names are the method's own settings, such as
`window`, and `seed`, `grid`, `processors`. Temperature, top-k, top-p, guidance and the other processors of transformers that depend on
nothing but ids and scores keep their meaning. What cannot be kept is refused with a sentence.
"""


def write(folder: Path) -> list[str]:
    """Writes the folder; returns the names of its files. Raises BadOutput if it exists and is not empty, or cannot be written."""
    sources = closure()
    inside = folder / "custom_generate"
    texts = {flat_name(module) + ".py": HEAD.format(module) + flatten(text, sources) for module, text in sources.items()}
    files = "\n".join(f"    from .{name.removesuffix('.py')} import __doc__" for name in texts)
    texts["generate.py"] = GENERATE.format(files=files, folder=folder.name)
    texts["requirements.txt"] = "\n".join(requirements(sources)) + "\n"
    try:
        if folder.exists() and any(folder.iterdir()):
            raise BadOutput(f"{folder} is not empty. Name a new folder.")
        inside.mkdir(parents=True, exist_ok=True)
        (folder / "README.md").write_text(README.format(folder=folder.name), encoding="utf-8")
        for name, text in texts.items():
            (inside / name).write_text(text, encoding="utf-8")
    except OSError as e:
        raise BadOutput(f"Cannot write {folder} ({e.strerror or e}). Name another folder.") from e
    return ["README.md", *(f"custom_generate/{name}" for name in sorted(texts))]


def closure() -> dict[str, str]:
    """The text of every module of the engine that FIRST needs, by name."""
    texts: dict[str, str] = {}
    waiting = [FIRST]
    while waiting:
        module = waiting.pop()
        if module in texts:
            continue
        texts[module] = Path(find_spec(module).origin).read_text(encoding="utf-8")
        waiting += [name for node in imports(texts[module]) for name in needed_modules(node)]
    return dict(sorted(texts.items()))


def imports(text: str) -> list[ast.ImportFrom]:
    """The statements of a module that import from the engine, in order. No module of ours writes `import engine.x`."""
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom)]
    return sorted((node for node in nodes if (node.module or "").split(".")[0] == "engine"), key=lambda node: node.lineno)


def needed_modules(node: ast.ImportFrom) -> list[str]:
    """The modules that an import statement names: modules of a package, or the one that the names come from."""
    modules = [f"{node.module}.{alias.name}" for alias in node.names if _is_module(f"{node.module}.{alias.name}")]
    return modules if len(modules) == len(node.names) else [*modules, node.module]


def flat_name(module: str) -> str:
    """The name of a module's file next to generate.py."""
    return module.replace(".", "_")


def flatten(text: str, sources: dict[str, str]) -> str:
    """A module's source, with its imports rewritten to files next to it."""
    lines = text.splitlines(keepends=True)
    for node in reversed(imports(text)):
        new = []
        for alias in node.names:
            name, module = alias.asname or alias.name, f"{node.module}.{alias.name}"
            if module in sources:
                new.append(f"from . import {flat_name(module)} as {name}")
            else:
                new.append(f"from .{flat_name(node.module)} import {alias.name} as {name}")
        lines[node.lineno - 1 : node.end_lineno] = [" " * node.col_offset + line + "\n" for line in new]
    return "".join(lines)


def requirements(sources: dict[str, str]) -> list[str]:
    """The packages that the modules need, as lines of requirements.txt. transformers refuses the folder where one is not installed."""
    tops = {name.split(".")[0] for text in sources.values() for name in _imported_names(text)} - {"engine", *sys.stdlib_module_names}
    return [LEAST.get(name, name) for name in sorted(tops)]


def _imported_names(text: str) -> list[str]:
    """Names of the packages that a module imports when it is loaded, without imports in functions and optional ones."""
    names = []
    for node in ast.parse(text).body:
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names.append(node.module)
    return names


def _is_module(name: str) -> bool:
    """True if a dotted name is a module rather than an attribute."""
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:  # its parent is no package
        return False
