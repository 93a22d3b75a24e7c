"""Wrong command lines: one sentence on stderr, nothing on stdout, exit code 2, and no model is loaded.

A row for each way to be wrong; faults/command_lines.py has every command with every wrong value of its options.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from app import cli
from engine import backbones
from engine.backbones import lowpoly

PICTURE, IMAGE, MESH = ["image", "a red cat"], ["bench", "image"], ["bench", "mesh"]

# Arguments, and a part of the sentence. {here} is a folder that holds the files of `here` below.
SJDPP = ("--method", "sjdpp")  # auto takes no knobs
WRONG: dict[str, tuple[list[str], str]] = {
    "unknown command": (["paint"], "no command 'paint'"),
    "half a character as a command": (["\udcff"], "no command"),
    "port 0": (["studio", "--port", "0"], "choose 1 to 65,535"),
    "host of nobody": (["studio", "--host", "256.1.1.1"], "not an address of this machine"),
    "empty host": (["studio", "--host", ""], "not an address of this machine"),
    "allowed host left out": (["studio", "--allow-host"], "expected one argument"),
    "studio of nothing": (["studio", "--backbone", "nowhere"], "neither a backbone"),
    "studio of an unknown model": (["studio", "--backbone", "{here}/other"], "names the model 'other'"),
    "studio with a seed": (["studio", "--seed", "1"], "Unknown option"),
    "no prompt": (["image"], "required: prompt"),
    "two prompts": ([*PICTURE, "a dog"], "Unknown option: a dog"),
    "half a character": (["image", "a red cat \udcff"], "U+DCFF"),
    "a NUL": (["image", "a red\0cat"], "U+0000"),
    "unknown method": ([*PICTURE, "--method", "sjdp"], "Did you mean 'sjd"),
    "knob out of range": ([*PICTURE, *SJDPP, "--set", "window=9999"], "out of range"),
    "knob not a number": ([*PICTURE, *SJDPP, "--set", "window=nan"], "needs a number"),
    "knob in other digits": ([*PICTURE, *SJDPP, "--set", "window=１６"], "needs a number"),
    "knob with a fraction": ([*PICTURE, *SJDPP, "--set", "window=7.5"], "window = 7.5 is not a whole number"),
    "unknown knob": ([*PICTURE, *SJDPP, "--set", "windw=4"], "no knob 'windw'"),
    "unknown choice": ([*PICTURE, *SJDPP, "--set", "init=sideways"], "Choose one of"),
    "malformed set": ([*PICTURE, *SJDPP, "--set", "window"], "NAME=VALUE"),
    "unknown verification mode": ([*PICTURE, "--verify", "blindly"], "invalid choice"),
    "negative temperature": ([*PICTURE, "--temperature", "-1"], "out of range"),
    "adherence out of range": (["mesh", "{here}/no.ply", "--adherence", "201"], "out of range"),
    "temperature no number": ([*PICTURE, "--temperature", "hot"], "'hot' is not a number"),
    "negative top-k": ([*PICTURE, "--top-k", "-1"], "out of range"),
    "top-p 0": ([*PICTURE, "--top-p", "0"], "out of range"),
    "guidance nan": ([*PICTURE, "--guidance", "nan"], "is not a number"),
    "size 0": ([*PICTURE, "--size", "0"], "out of range"),
    "negative seed": ([*PICTURE, "--seed", "-3"], "out of range"),
    "unknown option": ([*PICTURE, "--colour", "3"], "Unknown option"),
    "faces of a picture": ([*PICTURE, "--faces", "8"], "Unknown option"),
    "unknown backbone": ([*PICTURE, "--backbone", "nowhere"], "neither a backbone"),
    "unknown device": ([*PICTURE, "--device", "tpu"], "invalid choice"),
    "empty out": ([*PICTURE, "--out", ""], "not the name"),
    "out below a file": ([*PICTURE, "--out", "{here}/prompts.txt/out"], "Cannot write"),
    "no input": (["mesh"], "required: input"),
    "missing input": (["mesh", "{here}/no.ply"], "Cannot read"),
    "input of a long name": (["mesh", "n" * 5000 + ".ply"], "Cannot read"),
    "input with a NUL": (["mesh", "a\0.ply"], "not the name"),
    "empty input": (["mesh", "{here}/empty.ply"], "is empty"),
    "damaged input": (["mesh", "{here}/damaged.ply"], "damaged.ply"),
    "input of another kind": (["mesh", "{here}/prompts.txt"], "prompts.txt"),
    "folder without inputs": (["mesh", "{here}/empty"], "holds no file"),
    "axis of a folder": (["mesh", "{here}", "--up", "w"], "axis that is up"),
    "no faces": (["mesh", "{here}/no.ply", "--faces", "0"], "out of range"),
    "unknown format": (["mesh", "{here}/no.ply", "--formats", "glb,fbx"], "no mesh format 'fbx'"),
    "size of a mesh": (["mesh", "{here}/no.ply", "--size", "128"], "Unknown option"),
    "guidance of a mesh": (["mesh", "{here}/no.ply", "--guidance", "2"], "Unknown option"),
    "bench of nothing": (["bench"], "required: what"),
    "bench of music": (["bench", "music"], "invalid choice"),
    "count 0": ([*IMAGE, "--count", "0"], "out of range"),
    "repeats below 0": ([*IMAGE, "--repeats", "-1"], "out of range"),
    "bench that judges other prompts": ([*IMAGE, "--judge", "--prompts", "{here}/prompts.txt"], "--judge compares pictures"),
    "bench of packs that are no folder": ([*MESH, "--packs", "{here}/nowhere"], "is not a folder"),
    "bench with an axis that is none": ([*MESH, "--up", "w"], "cannot be 'w'"),
    "bench of an unknown method": ([*IMAGE, "--methods", "sjd,sjdp"], "Did you mean"),
    "bench with an unknown knob": ([*IMAGE, "--methods", "sjd", "--set", "windw=4"], "no knob 'windw' in sjd"),
    "bench of all with an unknown knob": ([*IMAGE, "--set", "windw=4"], "no knob 'windw'"),
    "bench without a mode": ([*IMAGE, "--methods", "ar", "--verify", "match-seed"], "no knob 'verify' in plain decoding"),
    "half a sweep": ([*IMAGE, "--sweep", "window"], "NAME=A,B"),
    "a sweep out of range": ([*IMAGE, "--methods", "sjd", "--sweep", "window=4,9999"], "out of range"),
    "a grid without sweeps": ([*IMAGE, "--grid"], "Add --sweep"),
    "missing prompts": ([*IMAGE, "--prompts", "{here}/no.txt"], "cannot be read"),
    "no prompts": ([*IMAGE, "--prompts", "{here}/blank.txt"], "has no prompt"),
    "prompts not in UTF-8": ([*IMAGE, "--prompts", "{here}/latin.txt"], "cannot be read"),
    "prompts with a NUL": ([*IMAGE, "--prompts", "{here}/nul.txt"], "U+0000"),
    "csv in no folder": ([*IMAGE, "--csv", "{here}/no/rows.csv"], "--csv"),
    "csv that is no table": ([*IMAGE, "--csv", "{here}/crooked.csv"], "row 2 does not fit the header"),
    "csv that is no text": ([*IMAGE, "--csv", "{here}/latin.txt"], "cannot be read as CSV"),
    "figure in no folder": ([*IMAGE, "--methods", "mulo", "--figure", "{here}/no/theory.png"], "--figure"),
    "sheet in no folder": ([*IMAGE, "--sheet", "{here}/no/sheet.png"], "--sheet"),
    "sheet of no kind": ([*IMAGE, "--sheet", "{here}/sheet"], "known image format"),
    "pictures in full": ([*IMAGE, "--full"], "Unknown option"),
    "pictures with faces": ([*IMAGE, "--faces", "8"], "Unknown option"),
    "meshes with guidance": ([*MESH, "--guidance", "2"], "Unknown option"),
    "meshes with prompts": ([*MESH, "--prompts", "{here}/prompts.txt"], "Unknown option"),
    "no such packs": ([*MESH, "--judge", "--packs", "{here}/none"], "is not a folder"),
    "meshes of a picture's model": ([*MESH, "--backbone", "pictogram"], "not pictogram"),
    "no clouds": ([*MESH, "--count", "0"], "out of range"),
    "knobs of the table": ([*MESH, "--set", "depth=2"], "--methods"),
    "meshes without faces": ([*MESH, "--faces", "0"], "out of range"),
    "unknown method to verify": (["verify", "nothing"], "no method"),
    "verify with a count": (["verify", "--count", "3"], "Unknown option"),
    "models with a device": (["models", "--device", "cpu"], "Unknown option"),
    "doctor of something": (["doctor", "me"], "Unknown option: me"),
    "no recipe": (["train"], "no recipe"),
    "unknown recipe": (["train", "nothing"], "no recipe"),
    "recipe with an unknown option": (["train", "judge", "--colour", "3"], "Unknown option: --colour"),
    "recipe with odd minutes": (["train", "judge", "--minutes", "soon"], "--minutes"),
}


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """Files that are wrong in a way each."""
    for name in ("empty", "folder.png", "other"):
        (tmp_path / name).mkdir()
    (tmp_path / "other" / "card.json").write_text('{"name": "other"}')
    content = {
        "prompts.txt": b"a red cat\n", "blank.txt": b"\n \n", "latin.txt": "a caf\xe9\n".encode("latin-1"), "nul.txt": b"a red\0cat\n",
        "crooked.csv": b"a,b\n1,2,3\n", "empty.ply": b"", "damaged.ply": b"ply\nformat ascii 1.0\nelement vertex 3\n",
    }  # fmt: skip
    for name, given in content.items():
        (tmp_path / name).write_bytes(given)
    return tmp_path


@pytest.fixture(autouse=True)
def no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading a model here is a failure."""

    def load(*arguments: object, **named: object) -> None:
        raise AssertionError("a model was loaded before the command line was checked")

    for owner in (backbones, lowpoly):
        monkeypatch.setattr(owner, "load", load)


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_command_line_is_one_sentence(name: str, here: Path, capsys: pytest.CaptureFixture) -> None:
    arguments, part = WRONG[name]
    before = sorted(here.iterdir())
    assert cli.main([argument.replace("{here}", str(here)) for argument in arguments]) == 2
    captured = capsys.readouterr()
    assert part in captured.err
    assert captured.err.count("\n") == 1 and "Traceback" not in captured.err and captured.out == ""
    assert sorted(here.iterdir()) == before
