"""The meanings of words for pictogram, from meanings.toml: synonyms, and the nearest objects to every noun."""

from __future__ import annotations

import tomllib
from pathlib import Path

_TABLES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
READ_AS: dict[str, str] = _TABLES["read_as"]
PHRASES: dict[str, str] = _TABLES["phrases"]
DECEPTIVE: list[str] = _TABLES["deceptive"]
NEAR: dict[str, list[str]] = _TABLES["near"]
OTHER: frozenset[str] = frozenset(_TABLES["other"].split())
