"""The table of command lines: the arguments, the exit code, and what the message must contain.

Most rows are products: every command that has an option, times the wrong values of that option. A failure that was found becomes a line
of SINGLE or a value of OPTIONS.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from engine.core import Knob
from engine.methods import METHODS
from research.train import RECIPES

LONG, DIGITS, SURROGATE = "n" * 5000, "9" * 5000, "\udcff"
UNKNOWN = "(?i)unknown option|unrecognized"
WHOLE = "out of range|whole number|invalid"


@dataclass(frozen=True)
class Row:
    """A command line. word: a regular expression that is found in the sentence, or in the output where the exit code is 0."""

    argv: tuple[str, ...]
    code: int
    word: str

    @property
    def title(self) -> str:
        """The line as it is typed, shortened."""
        return " ".join(a if len(a) < 40 else f"{a[:12]}...({len(a)})" for a in self.argv).encode("unicode_escape").decode()


# What stands before an option. {words} are folders and files of the test.
STUDIO = ("studio", "--no-browser")
IMAGE = ("image", "a red cat", "--backbone", "{pictogram}")
MESH = ("mesh", "{cloud}", "--backbone", "{lowpoly}")
BENCH_IMAGE = ("bench", "image", "--backbone", "{pictogram}", "--count", "1")
BENCH_MESH = ("bench", "mesh", "--backbone", "{lowpoly}", "--count", "1")
RUNS, BENCHES, PICTURES = (IMAGE, MESH), (BENCH_IMAGE, BENCH_MESH), (IMAGE, BENCH_IMAGE)
ALL = (*RUNS, *BENCHES)

OPTIONS: tuple[tuple[tuple[tuple[str, ...], ...], str, str, tuple[str, ...]], ...] = (  # commands, option, word, values
    ((STUDIO,), "--port", WHOLE, ("0", "-1", "65536", "x", "1.5", "", DIGITS)),
    ((STUDIO,), "--host", "address|host", ("256.1.1.1", "a b", "192.0.2.1", "..")),
    ((STUDIO, *ALL), "--backbone", "backbone|folder|model", ("nowhere", "{empty}", "{file}", "{other}", LONG)),
    ((STUDIO, *ALL), "--device", "invalid choice", ("tpu", "CPU", "")),
    ((STUDIO, *ALL), "--dtype", "invalid choice", ("float16", "double")),
    (RUNS, "--seed", WHOLE, ("-1", "x", "1.5", "nan", "", "9223372036854775808", DIGITS)),
    (RUNS, "--method", "method", ("nothing", "", "sjdp", SURROGATE)),
    (RUNS, "--verify", "invalid choice", ("x", "match seed")),
    (RUNS, "--out", "write|file|folder|name", ("{file}/out", "{file}", LONG)),
    (ALL, "--set", "NAME=VALUE|knob", ("x", "=", "=3", "nothing=3", "window", SURROGATE)),
    (ALL, "--temperature", "out of range|number", ("-1", "x", "nan", "inf", "1e9", "")),
    (ALL, "--top-k", "out of range|number", ("-1", "x", "1.5", DIGITS)),
    (ALL, "--top-p", "out of range|number", ("-1", "0", "1.5", "nan", "x")),
    (PICTURES, "--guidance", "out of range|number", ("-1", "nan", "inf", "x")),
    (PICTURES, "--size", "out of range|whole number|invalid|pixels", ("0", "-64", "100", "x", "64.5", DIGITS)),
    ((MESH, BENCH_MESH), "--faces", WHOLE, ("0", "-1", "x", "nan", DIGITS)),
    ((MESH,), "--up", "up", ("w", "", "xyz", SURROGATE)),
    ((MESH,), "--formats", "format", ("fbx", "", "glb,,", "glb,x")),
    (BENCHES, "--methods", "method", ("nothing", "sjd,nothing", ",", "")),
    (BENCHES, "--count", WHOLE, ("0", "-1", "x", "1.5", DIGITS)),
    (BENCHES, "--repeats", WHOLE, ("-1", "x", "nan")),
    (BENCHES, "--sweep", "NAME=A,B|sweep|knob", ("x", "=1", "nothing=1,2", "window=")),
    (BENCHES, "--sheet", "write|picture|Cannot|PNG|format", ("{file}/sheet.png", "{folder}", "{missing}/sheet.png")),
    (BENCHES, "--csv", "write|Cannot", ("{file}/rows.csv", "{folder}", "{missing}/rows.csv")),
    ((BENCH_IMAGE,), "--prompts", "read|prompt|No such|Cannot|empty", ("{missing}", "{folder}", "{binary}", "{nothing}")),
)

SINGLE: tuple[tuple[tuple[str, ...], int, str], ...] = (  # beside the table of test_cli_refusals.py
    (("--help",), 0, "usage"),
    *(((name, "--help"), 0, "usage") for name in ("studio", "image", "mesh", "verify", "bench", "models", "doctor")),
    (("bench", "image", "--help"), 0, "usage"),
    (("models",), 0, "pictogram"),
    (("models", "--json"), 0, '"pictogram"'),
    ((*IMAGE, "--method", "ar", "--size", "64"), 0, "tokens"),
    ((*IMAGE, "--method", "sjdpp", "--size", "64", "--json"), 0, '"method": "sjdpp"'),
    ((*MESH, "--method", "ar", "--faces", "4"), 0, "tokens"),
    *(((command,), 2, "command|choice") for command in ("", LONG, "IMAGE")),
    (("--nothing",), 2, UNKNOWN),
    (("image", "", "--backbone", "{pictogram}"), 2, "empty"),
    (("image", "a red cat " * 400, "--backbone", "{pictogram}"), 2, "characters"),
    (("image", "cats " * 40, "--backbone", "{pictogram}"), 2, "words"),
    ((*IMAGE, "--seed"), 2, "expected one argument"),
    ((*IMAGE, "--method", "zipar", "--verify", "match-seed"), 2, "verif|exact"),
    ((*IMAGE, "--device", "cuda"), 2, "CUDA"),
    ((*IMAGE, "--set", "window=9" * 3), 2, "auto"),
    (("mesh", "{nothing}.ply", "--backbone", "{lowpoly}"), 2, "No such file"),
    *((("mesh", path, "--backbone", "{lowpoly}"), 2, ".") for path in ("", SURROGATE)),
    ((*MESH, "--method", "zipar"), 2, "needs"),
    ((*MESH, "--backbone", "{pictogram}"), 2, "makes pictures"),
    (("verify", ""), 2, "no method"),
    (("models", "pictogram"), 2, "no action"),
    (("train", ""), 2, "no recipe"),
)


def rows() -> Iterator[Row]:
    """All rows."""
    yield from (Row(*single) for single in SINGLE)
    for commands, option, word, values in OPTIONS:
        yield from (Row((*command, f"{option}={value}"), 2, word) for command in commands for value in values)
    yield from knob_rows()
    for recipe in RECIPES:
        yield from (Row(("train", recipe, f"--minutes={value}"), 2, "minutes") for value in ("-1", "0", "nan", "inf", "x"))
        yield Row(("train", recipe, "--preset", "tpu"), 2, f"{UNKNOWN}|invalid choice")  # not all have presets
        yield Row(("train", recipe, "--nothing"), 2, UNKNOWN)


def knob_rows() -> Iterator[Row]:
    """Every knob of every method, below and above what it allows, and with what is no value at all."""
    for name, method in METHODS.items():
        command = MESH if "mesh_heads" in method.needs else IMAGE
        for knob in method.knobs:
            yield from (Row((*command, "--method", name, f"--set={knob.name}={value}"), 2, knob.name) for value in wrong_for(knob))


def wrong_for(knob: Knob) -> tuple[str, ...]:
    """Values that a knob does not take."""
    if knob.choices:
        return ("nothing", "")
    return (f"{knob.low - 1:g}", f"{knob.high * 2 + 1:g}", "nan", "x")
