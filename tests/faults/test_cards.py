"""Mutants of model folders: cards, weights and adapters work, or are refused with a sentence."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from tests.faults import folders, forked, mutate
from tests.faults.mutate import Mutator
from tests.faults.sentences import hold

CORPUS = Path(__file__).parent / "corpus" / "cards"
KINDS = {"pictogram": folders.pictogram, "lowpoly": folders.lowpoly, "judge": folders.picture_judge}
CARDS, WEIGHTS = 40, 14  # mutants of each file
JSON: tuple[Mutator, ...] = (mutate.json_file,) * 8 + (mutate.truncate, mutate.nothing, mutate.flip, mutate.other_text, mutate.number)
TENSORS: tuple[Mutator, ...] = (
    mutate.safetensors, mutate.safetensors, mutate.safetensors, mutate.safetensors_length, mutate.weights, mutate.weights, mutate.truncate,
    mutate.nothing, mutate.flip_early, mutate.append, mutate.remove, mutate.compress,
)  # fmt: skip


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A good folder of every kind."""
    return {name: make(tmp_path_factory.mktemp(name) / "good") for name, make in KINDS.items()}


def files_of(folder: Path) -> list[str]:
    """The files that can be mutated."""
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.suffix in (".json", ".safetensors"))


def users_of(kind: str, file: str) -> list[str]:
    """The readers of a file in a folder."""
    if kind == "lowpoly":
        return ["lowpoly:lora"] if "lora" in file else ["lowpoly"]
    return [kind]


def mutants(good: dict[str, Path]) -> Iterator[tuple[str, str, str, bytes | None]]:
    """(kind, file, name, content); None is a file that is missing."""
    for kind, folder in good.items():
        contents = {file: (folder / file).read_bytes() for file in files_of(folder)}
        for file, content in contents.items():
            yield kind, file, "missing", None
            mutators, count = (JSON, CARDS) if file.endswith(".json") else (TENSORS, WEIGHTS)
            for number in range(count):
                random = Random(f"{kind} {file} {number}")
                yield kind, file, f"{number:02}", random.choice(mutators)(random, content)
            other = next((f for f in contents if f != file and f.endswith(file[-5:])), None)
            if other is not None:
                yield kind, file, "other", contents[other]


def use_case(name: str, folder: Path) -> Callable[[], str]:
    """A case that uses a folder."""
    return lambda: folders.use(name)(folder)


def test_good_folders_can_be_used(good: dict[str, Path]) -> None:
    for name, kind in (("pictogram", "pictogram"), ("lowpoly", "lowpoly"), ("lowpoly:lora", "lowpoly"), ("judge", "judge")):
        assert folders.use(name)(good[kind])


def test_mutants_of_model_folders(good: dict[str, Path], tmp_path: Path) -> None:
    """One file is changed; all others are links to the good ones."""
    cases = []
    for kind, file, number, content in mutants(good):
        name = f"{kind}-{file.replace('/', '-')}-{number}"
        folder = folders.link_copy(good[kind], tmp_path / name, file, content)
        cases += [forked.Case(f"{name} as {user}", use_case(user, folder)) for user in users_of(kind, file)]
    outcomes = forked.run(cases)
    assert min(sum(o.end == end for o in outcomes) for end in ("value", "sentence")) > 30, "the mutants are all alike"
    hold(outcomes, f"Each is a folder in {tmp_path}. Keep the file of a failure as {CORPUS}/KIND--PATH-WITH-DASHES--WHAT-IS-WRONG")


@pytest.mark.parametrize("path", sorted(p for p in CORPUS.iterdir() if p.name != "README.md"), ids=lambda p: p.name)
def test_folders_that_failed_once(path: Path, good: dict[str, Path], tmp_path: Path) -> None:
    kind, dashed, _ = path.name.split("--", 2)
    file = next(f for f in files_of(good[kind]) if f.replace("/", "-") == dashed)
    folder = folders.link_copy(good[kind], tmp_path / "broken", file, corpus_content(path, good[kind] / file))
    outcomes = forked.run([forked.Case(f"{path.name} as {user}", use_case(user, folder)) for user in users_of(kind, file)])
    hold(outcomes)


def corpus_content(path: Path, good: Path) -> bytes:
    """The content of a corpus file. A ".patch.json" lists only the changed values of the good file, {"keys/on/the/way": value}, so that it
    does not depend on the rest of a card."""
    if not path.name.endswith(".patch.json"):
        return path.read_bytes()
    card = json.loads(good.read_bytes())
    for place, value in json.loads(path.read_bytes()).items():
        *way, last = place.split("/")
        above = card
        for key in way:
            above = above[key]
        above[last] = value
    return mutate.json_text(card).encode()
