"""The table of command lines: the arguments, the exit code, and what the message must contain.

Most rows are products: every command with an option, times the wrong values of that option. A new failure becomes a line of EARLY or
LATE, or a value of OPTIONS.
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
    """A command line. word: a regular expression that the error message matches, or the output if the exit code is 0. early: refused
    before a model is loaded."""

    argv: tuple[str, ...]
    code: int
    word: str
    early: bool = False

    @property
    def title(self) -> str:
        """The typed line, shortened."""
        return " ".join(a if len(a) < 40 else f"{a[:12]}...({len(a)})" for a in self.argv).encode("unicode_escape").decode()


# What stands before an option. {words} are folders and files of the test.
STUDIO = ("studio", "--no-browser")
IMAGE = ("image", "a red cat", "--backbone", "{pictogram}")
MESH = ("mesh", "{cloud}", "--backbone", "{lowpoly}")
BENCH_IMAGE = ("bench", "image", "--backbone", "{pictogram}", "--count", "1")
BENCH_MESH = ("bench", "mesh", "--backbone", "{lowpoly}", "--count", "1")
RUNS, BENCHES, PICTURES = (IMAGE, MESH), (BENCH_IMAGE, BENCH_MESH), (IMAGE, BENCH_IMAGE)
ALL = (*RUNS, *BENCHES)

PICTURE, SJDPP = ("image", "a red cat"), ("--method", "sjdpp")  # auto takes no knobs
NO_CLOUD = ("mesh", "{missing}.ply")

OPTIONS: tuple[tuple[tuple[tuple[str, ...], ...], str, str, tuple[str, ...]], ...] = (  # commands, option, word, values; all are early
    ((STUDIO,), "--port", WHOLE, ("0", "-1", "65536", "x", "1.5", "", DIGITS)),
    ((STUDIO,), "--host", "address|host", ("256.1.1.1", "a b", "192.0.2.1", "..", "")),
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
    (PICTURES, "--size", "out of range|whole number|invalid|pixels", ("0", "-64", "x", "64.5", DIGITS)),
    ((MESH, BENCH_MESH), "--faces", WHOLE, ("0", "-1", "x", "nan", DIGITS)),
    ((MESH, BENCH_MESH), "--about", WHOLE, ("0", "10001", "Own", "1.5", DIGITS)),
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

EARLY: tuple[tuple[tuple[str, ...], str], ...] = (
    *(((command,), "no command") for command in ("paint", "", LONG, "IMAGE", SURROGATE)),
    (("--nothing",), UNKNOWN),
    (("studio", "--allow-host"), "expected one argument"),
    (("studio", "--backbone", "{other}"), "names the model 'other'"),
    (("studio", "--seed", "1"), UNKNOWN),
    (("image",), "A prompt is missing"),
    ((*PICTURE, "a dog"), "Unknown option: a dog"),
    (("image", "a red cat \udcff"), r"U\+DCFF"),
    (("image", "a red\0cat"), r"U\+0000"),
    ((*PICTURE, "--method", "sjdp"), "Did you mean 'sjd"),
    ((*PICTURE, *SJDPP, "--set", "window=9999"), "out of range"),
    ((*PICTURE, *SJDPP, "--set", "window=\uff11\uff16"), "needs a number"),
    ((*PICTURE, *SJDPP, "--set", "window=7.5"), "window = 7.5 is not a whole number"),
    ((*PICTURE, *SJDPP, "--set", "windw=4"), "no knob 'windw'"),
    ((*PICTURE, *SJDPP, "--set", "init=sideways"), "Choose one of"),
    ((*PICTURE, "--colour", "3"), UNKNOWN),
    ((*PICTURE, "--faces", "8"), UNKNOWN),
    ((*PICTURE, "--seed"), "expected one argument"),
    ((*PICTURE, "--out", ""), "not the name"),
    (("mesh",), "Give a file or a folder"),
    (NO_CLOUD, "Cannot read"),
    (("mesh", LONG + ".ply"), "Cannot read"),
    (("mesh", "a\0.ply"), "not the name"),
    *((("mesh", path), r"\.") for path in ("", SURROGATE)),
    (("mesh", "{void}.ply"), "is empty"),
    (("mesh", "{damaged}"), "damaged.ply"),
    (("mesh", "{file}"), "file"),
    (("mesh", "{empty}"), "has no readable file"),
    (("mesh", "{three}"), "three"),
    (("mesh", "{lines}", "--up", "w"), "axis that is up"),
    ((*NO_CLOUD, "--guide", "51"), "out of range"),
    ((*NO_CLOUD, "--size", "128"), UNKNOWN),
    ((*NO_CLOUD, "--guidance", "2"), UNKNOWN),
    (("bench",), "required: what"),
    (("bench", "music"), "invalid choice"),
    (("bench", "image", "--judge", "--prompts", "{file}"), "--judge compares pictures"),
    (("bench", "image", "--methods", "sjd,sjdp"), "Did you mean"),
    (("bench", "image", "--methods", "sjd", "--set", "windw=4"), "no knob 'windw' in sjd"),
    (("bench", "image", "--set", "windw=4"), "no knob 'windw'"),
    (("bench", "image", "--methods", "ar", "--verify", "match-seed"), "no knob 'verify' in plain decoding"),
    (("bench", "image", "--methods", "sjd", "--sweep", "window=4,9999"), "out of range"),
    (("bench", "image", "--grid"), "Add --sweep"),
    (("bench", "image", "--prompts", "{blank}"), "has no prompt"),
    (("bench", "image", "--prompts", "{latin}"), "cannot be read"),
    (("bench", "image", "--prompts", "{nul}"), r"U\+0000"),
    (("bench", "image", "--csv", "{crooked}"), "row 2 does not fit the header"),
    (("bench", "image", "--csv", "{latin}"), "cannot be read as CSV"),
    (("bench", "image", "--methods", "mulo", "--figure", "{missing}/theory.png"), "--figure"),
    (("bench", "image", "--sheet", "{missing}"), "known image format"),
    (("bench", "image", "--full"), UNKNOWN),
    (("bench", "image", "--faces", "8"), UNKNOWN),
    (("bench", "mesh", "--packs", "{missing}"), "is not a folder"),
    (("bench", "mesh", "--judge", "--packs", "{missing}"), "is not a folder"),
    (("bench", "mesh", "--up", "w"), "cannot be 'w'"),
    (("bench", "mesh", "--guidance", "2"), UNKNOWN),
    (("bench", "mesh", "--prompts", "{file}"), UNKNOWN),
    (("bench", "mesh", "--backbone", "pictogram"), "not pictogram"),
    (("bench", "mesh", "--set", "depth=2"), "--methods"),
    *((("verify", name), "no method") for name in ("nothing", "")),
    (("verify", "--count", "3"), UNKNOWN),
    (("models", "--device", "cpu"), UNKNOWN),
    (("models", "pictogram"), "no action"),
    (("doctor", "me"), "Unknown option: me"),
    *((("train", *name), "no recipe") for name in ((), ("nothing",), ("",))),
)

LATE: tuple[tuple[tuple[str, ...], int, str], ...] = (
    (("--help",), 0, "usage"),
    *(((name, "--help"), 0, "usage") for name in ("studio", "image", "mesh", "verify", "bench", "models", "doctor")),
    (("bench", "image", "--help"), 0, "usage"),
    (("models",), 0, "pictogram"),
    (("models", "--json"), 0, '"pictogram"'),
    ((*IMAGE, "--method", "ar", "--size", "64"), 0, "tokens"),
    ((*IMAGE, "--method", "sjdpp", "--size", "64", "--json"), 0, '"method": "sjdpp"'),
    ((*MESH, "--method", "ar", "--faces", "4"), 0, "tokens"),
    *((("image", prompt, "--backbone", "{pictogram}", *SJDPP), 2, word) for prompt, word in (
        ("", "prompt is empty"), ("   ", "prompt is empty"), ("a cat " * 1700, "10,1.* characters"), ("cats " * 40, "words"),
        ("zzz qqq", "knows no word"), ("!?", "no word of letters"), ("\U0001f9ff", "knows no word of this prompt"),
    )),
    *(((*command, "--size", "100"), 2, "not 100|pixels") for command in PICTURES),
    ((*IMAGE, "--method", "xspecmesh"), 2, "needs mesh_heads"),
    ((*IMAGE, "--method", "zipar", "--verify", "match-seed"), 2, "verif|exact"),
    ((*IMAGE, "--device", "cuda"), 2, "CUDA"),
    ((*IMAGE, "--set", "window=9" * 3), 2, "auto"),
    ((*MESH, "--method", "zipar"), 2, "needs"),
    ((*MESH, "--method", "xspecmesh", "--verify", "match-seed"), 2, "verif|exact"),
    ((*MESH, "--set", "window=4"), 2, "knob|auto"),
    ((*MESH, "--backbone", "{pictogram}"), 2, "makes pictures"),
)  # fmt: skip


def rows() -> Iterator[Row]:
    """All rows."""
    yield from (Row(*late) for late in LATE)
    yield from (Row(argv, 2, word, early=True) for argv, word in EARLY)
    for commands, option, word, values in OPTIONS:
        yield from (Row((*command, f"{option}={value}"), 2, word, early=True) for command in commands for value in values)
    yield from knob_rows()
    for recipe in RECIPES:
        yield from (Row(("train", recipe, f"--minutes={value}"), 2, "minutes") for value in ("-1", "0", "nan", "inf", "-inf", "1e400", "x"))
        yield Row(("train", recipe, "--preset", "tpu"), 2, f"{UNKNOWN}|invalid choice")  # not all have presets
        yield Row(("train", recipe, "--nothing"), 2, UNKNOWN)


def knob_rows() -> Iterator[Row]:
    """Every knob of every method, below and above its range, and with text that is no value."""
    for name, method in METHODS.items():
        command = MESH if "mesh_heads" in method.needs else IMAGE
        for knob in method.knobs:
            yield from (Row((*command, "--method", name, f"--set={knob.name}={value}"), 2, knob.name) for value in wrong_for(knob))


def wrong_for(knob: Knob) -> tuple[str, ...]:
    """Values that a knob does not take."""
    if knob.choices:
        return ("nothing", "")
    return (f"{knob.low - 1:g}", f"{knob.high * 2 + 1:g}", "nan", "x")
