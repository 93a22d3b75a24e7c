"""Inputs of a batch: every line is an entry, an invalid one with a sentence; equal inputs differ in seed and key."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from app.batch.inputs import BatchInput, read_inputs
from engine.errors import BadFile, BadPrompt


def write(folder: Path, name: str, text: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_text_has_a_prompt_a_line(tmp_path: Path) -> None:
    inputs = read_inputs(write(tmp_path, "prompts.txt", "\ufeffa red apple\r\n\n  two cats  \na red apple\n"), seed=5)
    assert [(e.number, e.text, e.seed) for e in inputs.entries] == [(1, "a red apple", 5), (3, "two cats", 5), (4, "a red apple", 6)]
    assert not inputs.are_files and len({e.key for e in inputs.entries}) == 3


def test_the_three_formats_say_the_same(tmp_path: Path) -> None:
    table = 'Prompt;seed;size;top_k;id\n"a cat; asleep";7;64;5;x\na dog;;;;y\n'
    lines = '{"prompt": "a cat; asleep", "seed": 7, "size": 64, "top_k": 5, "id": "x"}\n"a dog"\n'
    csv, jsonl = read_inputs(write(tmp_path, "a.csv", table)), read_inputs(write(tmp_path, "a.jsonl", lines))
    assert [e.key for e in csv.entries] == [e.key for e in jsonl.entries]
    first, second = csv.entries
    assert (first.text, first.seed, dict(first.changes)) == ("a cat; asleep", 7, {"size": 64, "top_k": 5})
    assert (second.seed, dict(second.changes)) == (0, {}) and csv.unused == jsonl.unused == ["id"]


def test_a_key_depends_on_all_that_a_line_says(tmp_path: Path) -> None:
    lines = ['"a"', '"b"', '{"prompt": "a", "seed": 1}', '{"prompt": "a", "size": 64}', '{"prompt": "a", "guidance": 2}', '"a"']
    entries = read_inputs(write(tmp_path, "a.jsonl", "\n".join(lines))).entries
    assert len({entry.key for entry in entries}) == len(lines)
    again = read_inputs(write(tmp_path, "b.jsonl", "\n".join(['"new"', *lines]))).entries
    assert [entry.key for entry in again[1:]] == [entry.key for entry in entries]  # a new line does not change the others


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_the_encodings_and_line_ends_of_other_systems_say_the_same(encoding: str, end: str, tmp_path: Path) -> None:
    lists = {
        "a.txt": ["a grün apple", "two cats"],
        "a.csv": ["prompt,seed", "a grün apple,", "two cats,"],
        "a.jsonl": ['"a grün apple"', '{"prompt": "two cats"}'],
    }
    for name, lines in lists.items():
        entries = read_inputs(write(tmp_path, name, (end.join(lines) + end).encode(encoding))).entries
        assert [(e.text, e.problem) for e in entries] == [("a grün apple", ""), ("two cats", "")], name


BAD = [
    ("a.txt", "a red apple\nhalf a \ud83d cat\n".encode("utf-8", "surrogatepass"), "U+DC"),
    ("a.txt", b"a red apple\n\xff\xfe\n", "U+DCFF"),
    ("a.jsonl", b'"a red apple"\n{"prompt": \n', "not JSON"),
    ("a.jsonl", b'"a red apple"\n[1, 2]\n', "neither a string nor an object"),
    ("a.jsonl", b'"a red apple"\n{"seed": 1}\n', "no prompt"),
    ("a.jsonl", b'"a red apple"\n{"prompt": 7}\n', "no prompt"),
    ("a.jsonl", b'"a red apple"\n{"prompt": "x", "seed": true}\n', "'True' is not a whole number"),
    ("a.csv", b"prompt,seed\na red apple,1\n,2\n", "no prompt"),
    ("a.csv", b"prompt,seed\na red apple,1\nx,-2\n", "seed = -2 is out of range"),
    ("a.csv", b"prompt,seed\na red apple,1\nx,two\n", "'two' is not a whole number"),
    ("a.csv", b"prompt,seed\na red apple,1\nx,1,2,3\n", "4 values for 2 columns"),
    ("a.csv", b"prompt,top_p\na red apple,1\nx,nan\n", "top_p = 'nan' is not a number"),
    ("a.csv", b"prompt,size\na red apple,64\nx,9999999\n", "size = 9999999 is out of range"),
]


@pytest.mark.parametrize(("name", "content", "sentence"), BAD)
def test_a_bad_line_is_an_entry_with_a_sentence(name: str, content: bytes, sentence: str, tmp_path: Path) -> None:
    good, bad = read_inputs(write(tmp_path, name, content)).entries
    assert (good.text, good.problem) == ("a red apple", "")
    assert sentence in bad.problem and bad.problem.endswith(".") and bad.key == ""
    bad.text.encode()  # results.csv can store it


REFUSED = [
    ("a.txt", b"\n \n", BadPrompt, "no input"),
    ("a.csv", b"", BadFile, "no column 'prompt'"),
    ("a.csv", b"text\na red apple\n", BadFile, "no column 'prompt'"),
    ("a.csv", b'prompt\n\na red apple\n"never closed\ntwo cats\n', BadFile, "Correct its quotes"),
    ("a.csv", b"prompt,seed,Prompt\na red apple,1,two cats\n", BadFile, "names the column 'prompt' twice"),
    ("a.json", b'["a red apple", "two cats"]', BadFile, "name the file .jsonl"),
    ("chair.ply", b"ply\nformat ascii 1.0\n", BadFile, "is a cloud or a mesh, not a list"),
    ("chair.NPZ", b"PK", BadFile, "is a cloud or a mesh, not a list"),
    ("a.png", b"\x89PNG\r\n\x1a\n\0\0\0", BadFile, "contains NUL characters. Save it as UTF-8"),
    ("a.txt", "a red apple".encode("utf-16-le"), BadFile, "contains NUL characters. Save it as UTF-8"),
    ("a.txt", "a red apple".encode("utf-16")[:-1], BadFile, "begins like UTF-16 but is damaged"),
]


@pytest.mark.parametrize(("name", "content", "kind", "sentence"), REFUSED)
def test_a_file_that_hides_lines_is_refused(name: str, content: bytes, kind: type, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(kind, match=sentence):
        read_inputs(write(tmp_path, name, content))


def test_a_missing_file_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(BadFile, match="Cannot read"):
        read_inputs(tmp_path / "none.txt")


def test_a_folder_of_clouds(tmp_path: Path) -> None:
    for name in ("b.xyz", "a.ply", "notes.md"):
        write(tmp_path, name, "1 2 3\n")
    inputs = read_inputs(tmp_path)
    assert inputs.are_files
    assert [(e.text, e.path) for e in inputs.entries] == [(n, str((tmp_path / n).resolve())) for n in ("a.ply", "b.xyz")]
    before = inputs.entries[0].key
    write(tmp_path, "a.ply", "other")
    assert read_inputs(tmp_path).entries[0].key != before  # the content decides


def test_a_list_of_clouds_names_files_beside_it(tmp_path: Path) -> None:
    write(tmp_path, "a.xyz", "1 2 3\n")
    rows = [{"file": "a.xyz", "faces": 90, "about": 40}, {"file": "none.xyz"}, {"prompt": "a cat"}]
    here, missing, other = read_inputs(write(tmp_path, "list.jsonl", "\n".join(map(json.dumps, rows)))).entries
    assert (here.path, dict(here.changes)) == (str(tmp_path / "a.xyz"), {"faces": 90, "about": 40})
    assert "Cannot read" in missing.problem and "no file" in other.problem


def test_an_entry_has_a_name_for_messages() -> None:
    assert BatchInput(3, "a cat").name == "input 3 (a cat)" and BatchInput(4, "").name == "input 4"
