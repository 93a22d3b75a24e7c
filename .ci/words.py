"""Counts private words in code and prose, or prints a random sample of sentences to judge.

usage: .venv/bin/python .ci/words.py              counts, in the code and in all text files
       .venv/bin/python .ci/words.py --sample 7   forty docstrings and comments, and forty labels and messages, drawn with seed 7
"""

from __future__ import annotations

import argparse
import ast
import random
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

from sizes import text, tracked_files

CODE = ("app", "engine", "research", "launch.py")
PRIVATE = ("found", "told", "said", "asked", "given", "kept", "made", "law", "laws", "worn", "apart", "twins", "coins", "luck")
OPENINGS = re.compile(r'"""(?:What|How|Whether)\b')
RATE = re.compile(r"\b(?:bits|drafts|kernels|launches|milliseconds|ms|nodes|places|reads|rows|[Tt]okens) a pass\b")  # for "per pass"
LABELS = {"about", "help", "info", "label", "placeholder", "title", "why"}  # keyword arguments shown to users
SAMPLE = 40


def is_code(path: Path) -> bool:
    """True for a Python file of the product, tests excluded."""
    return path.suffix == ".py" and path.parts[0] in CODE


def prose(path: Path) -> Iterator[str]:
    """Docstrings and whole-line comments of a Python file."""
    for node in ast.walk(ast.parse(text(path))):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield from filter(None, [ast.get_docstring(node)])
    with path.open("rb") as file:
        yield from (
            t.string for t in tokenize.tokenize(file.readline) if t.type == tokenize.COMMENT and not re.search("noqa|fmt:", t.string)
        )


def labels(path: Path) -> Iterator[str]:
    """Labels, help texts and error messages in a Python file, with their expressions in braces."""
    for node in ast.walk(ast.parse(text(path))):
        if isinstance(node, ast.keyword) and node.arg in LABELS:
            yield from sentence(node.value)
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args:
            yield from sentence(node.exc.args[0])


def sentence(node: ast.expr) -> Iterator[str]:
    """The text of a literal or an f-string; nothing for another expression."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
        yield node.value
    if isinstance(node, ast.JoinedStr):
        yield ast.unparse(node)[2:-1]


def print_counts(files: list[Path]) -> None:
    """Prints how often each word occurs in the code and in all files."""
    readable = {path: text(path) for path in files if path.suffix in {".py", ".js", ".md"}}
    print(f"{'word':28}{'code':>6}{'all':>8}")
    patterns = {word: re.compile(rf"\b{word}\b") for word in PRIVATE} | {
        "tokens a pass (rate)": RATE,
        "What, How, Whether openings": OPENINGS,
    }
    for name, pattern in patterns.items():
        counts = {path: len(pattern.findall(content)) for path, content in readable.items()}
        print(f"{name:28}{sum(n for path, n in counts.items() if is_code(path)):>6}{sum(counts.values()):>8}")


def print_sample(files: list[Path], seed: int) -> None:
    """Prints random sentences with their files."""
    for title, sentences in (("Docstrings and comments", prose), ("Labels and messages", labels)):
        everything = [(path, each) for path in files if is_code(path) for each in sentences(path)]
        print(f"\n== {title}\n")
        for path, each in random.Random(seed).sample(everything, SAMPLE):
            print(f"{path}: {each}\n")


def main() -> None:
    """Prints the counts or a sample."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sample", type=int, metavar="SEED", help="print a random sample of sentences instead")
    seed = parser.parse_args().sample
    files = [path for path in sorted(tracked_files()) if path.name != "words.py"]
    print_counts(files) if seed is None else print_sample(files, seed)


if __name__ == "__main__":
    main()
