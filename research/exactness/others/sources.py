"""Functions of another project, read from its installed package or from a wheel, without importing or installing the project.

Only the named functions and classes of a file are executed, with stand-ins for what they import. Nothing of another project is stored here.
"""

from __future__ import annotations

import ast
import linecache
import re
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zipfile import ZipFile


class Missing(Exception):
    """A project, a file or a function is not there. The message is the reason of a skipped row."""


@dataclass(frozen=True)
class Published:
    """One version of a project. wheel : its file, or None for the installed package"""

    project: str
    version: str
    wheel: Path | None

    def read(self, path: str) -> str:
        """The text of a file of the package; raises Missing."""
        if self.wheel is None:
            file = Path(distribution(self.project).locate_file(path))
            if not file.is_file():
                raise Missing(f"{self.project} {self.version} has no {path}")
            return file.read_text(encoding="utf-8")
        with ZipFile(self.wheel) as archive:
            if path not in archive.namelist():
                raise Missing(f"{self.project} {self.version} has no {path}")
            return archive.read(path).decode("utf-8")

    def load(self, path: str, names: tuple[str, ...], **stand_ins: Any) -> SimpleNamespace:
        """Executes the named top-level definitions of a file, in its order, and returns them. stand_ins : what they use of other files

        Raises Missing if one of them is not there.
        """
        text, file = self.read(path), f"{self.project}-{self.version}/{path}"
        tree = ast.parse(text, file)
        chosen = [node for node in tree.body if _names(node) & set(names)]
        absent = set(names) - set().union(*map(_names, chosen), set())
        if absent:
            raise Missing(f"{path} of {self.project} {self.version} has no {', '.join(sorted(absent))}")
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)  # Triton reads the text of its kernels
        future = ast.parse("from __future__ import annotations").body
        scope: dict[str, Any] = {"__name__": f"{self.project} {path}", **stand_ins}
        exec(compile(ast.Module([*future, *chosen], []), file, "exec"), scope)
        return SimpleNamespace(**{name: scope[name] for name in names})


def _names(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return {node.name}
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return {target.id for target in targets if isinstance(target, ast.Name)}


def find(project: str, folder: Path | None) -> Published:
    """The newest wheel of a project in a folder, else the installed package; raises Missing. project : its name in the package registry"""
    wheels = [] if folder is None else sorted(folder.glob(f"{re.sub('[-_.]+', '_', project)}-*.whl"), key=lambda each: each.stat().st_mtime)
    if wheels:
        return Published(project, wheels[-1].name.split("-")[1], wheels[-1])
    try:
        return Published(project, distribution(project).version, None)
    except PackageNotFoundError as absent:
        raise Missing(f"{project} is not installed, and no folder given to --others has its wheel") from absent
