"""The public API: load a model, generate with a method, one run or many at once, race two runs.

`methods` is the package of methods: `methods.find("sjdpp")`, `methods.METHODS`, `methods.PRESETS`. Each name is imported on first use,
so that `import engine` does not import PyTorch and the command line prints its help at once.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine import methods
    from engine.core import Prompt, Sampling
    from engine.loading import load
    from engine.many import generate_many
    from engine.run import generate, race

__all__ = ["Prompt", "Sampling", "generate", "generate_many", "load", "methods", "race"]

_HOMES = {
    "Prompt": "engine.core",
    "Sampling": "engine.core",
    "generate": "engine.run",
    "generate_many": "engine.many",
    "load": "engine.loading",
    "race": "engine.run",
}


def __getattr__(name: str) -> Any:
    if name == "methods":
        return import_module("engine.methods")
    if name not in _HOMES:
        raise AttributeError(f"module 'engine' has no attribute '{name}'")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
