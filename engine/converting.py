"""Imports a checkpoint: identifies it, checks it, and writes it as safetensors with its configuration and a card.

Weights that are safetensors already are linked, not copied, where the file system allows it; pickled ones are rewritten. The folder
appears complete or not at all. Code and other files next to the weights are not copied.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from engine.backbones import BACKBONES, WEIGHTS, adapter_of, imported_folder, imported_folders
from engine.checkpoints.families import ModelFamily, family_named, stated_licence, tokenizer_folder
from engine.checkpoints.reading import INDEX, PICKLED, SAFE, Checkpoint, names_of, need, open_checkpoint
from engine.checkpoints.writing import FORMAT, index_of, plan, write_shard
from engine.errors import BadFile, BadOutput, NotSupported, first_line
from engine.files import clean, refusal, whole_folder, write_text
from engine.memory import FULL, size_text
from engine.networks.card import CARD, read_card, write_entry

COPIED = (".json", ".txt", ".model", ".md", ".tiktoken", ".jinja")  # files that are copied: configuration, tokenizer, description
LARGEST_BESIDE = 64 * 2**20  # bytes
LICENCES = re.compile(r"(licen[cs]e|use[-_]policy|notice)", re.IGNORECASE)
FIRST = 64  # values of each tensor in the fingerprint
NAME = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True)
class CheckpointInfo:
    """Description of a checkpoint, obtained without reading its values.

    name : of the imported model; family : its adapter; dtypes : bytes by type; tokens : per result; codes : number of token ids
    sizes : of pictures, in pixels; stated : the licence that its files name, or ""; licence : of the family's published weights
    """

    name: str
    family: str
    title: str
    makes: str
    parameters: int
    bytes: int
    dtypes: dict[str, int]
    tensors: int
    tokens: int
    codes: int
    sizes: list[int]
    stated: str
    licence: str
    source: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        kinds = ", ".join(f"{kind} ({size_text(count)})" for kind, count in self.dtypes.items())
        sizes = f", {' or '.join(map(str, self.sizes))} pixels" if self.sizes else ""
        lines = (
            f"{self.name}: {self.title}, for {self.makes}",
            f"  {parameters_text(self.parameters)} parameters in {self.tensors:,} tensors: {kinds}",
            f"  up to {self.tokens:,} tokens of {self.codes:,} kinds{sizes}",
            f"  licence: {self.stated or 'not stated here'}; of the published weights: {self.licence}",
            f"  memory for the weights: {size_text(2 * self.parameters)} in bfloat16, {size_text(4 * self.parameters)} in float32",
        )
        return "\n".join(lines)


def parameters_text(parameters: int) -> str:
    """A number of parameters as text."""
    return f"{parameters / 1e9:.1f} billion" if parameters >= 1e9 else f"{parameters / 1e6:.1f} million"


@dataclass(frozen=True)
class ImportProgress:
    """Progress of an import. folder: the model's folder, once it is complete"""

    done: int
    total: int
    folder: Path | None = None


def identify(path: Path) -> CheckpointInfo:
    """Identify a file or folder; raises a ForetokenError, in one sentence, for anything that cannot be imported."""
    with open_checkpoint(path) as checkpoint:
        return describe(checkpoint)


def describe(checkpoint: Checkpoint) -> CheckpointInfo:
    """Identify an open checkpoint; raises NotSupported or MissingWeights."""
    family = need_family(adapter_of(checkpoint))
    folder = folder_of(checkpoint.path)
    tokenizer_folder(family, folder)
    tokens, codes, sizes = family.about(checkpoint.config, checkpoint.shapes)
    dtypes: dict[str, int] = {}
    for entry in checkpoint.entries.values():
        kind = str(entry.dtype).removeprefix("torch.")
        dtypes[kind] = dtypes.get(kind, 0) + entry.bytes
    return CheckpointInfo(
        name_of(checkpoint.path), family.name, family.title, family.makes, checkpoint.parameters, sum(dtypes.values()),
        dict(sorted(dtypes.items(), key=lambda pair: -pair[1])), len(checkpoint.entries), tokens, codes, sizes,
        stated_licence(folder), family.licence, source_of([*checkpoint.files, *extra_weights(checkpoint, family)]),
    )  # fmt: skip


def name_of(path: Path) -> str:
    """The name of an imported model: that of its folder or file; of a folder of the hub's cache, that of its repository."""
    path = path.resolve()
    if path.parent.name == "snapshots" and path.parent.parent.name.startswith("models--"):
        text = path.parent.parent.name.split("--")[-1]
    else:
        text = path.name if path.is_dir() else path.stem
    name = NAME.sub("-", text).strip("-.") or "model"
    return f"{name}-imported" if name in BACKBONES else name


def fingerprint(opened: Sequence[Checkpoint]) -> str:
    """A short hash of the names, shapes, types and first values of all tensors, which identifies a checkpoint without reading it all."""
    result = hashlib.sha256()
    for checkpoint in opened:
        for name in sorted(checkpoint.entries):
            entry = checkpoint.entries[name]
            result.update(f"{name} {entry.dtype} {entry.shape}".encode())
            if entry.count:
                first = checkpoint.read(name).reshape(-1)[:FIRST].contiguous()
                result.update(first.view(torch.uint8).numpy().tobytes())
    return result.hexdigest()[:16]


def source_of(files: Sequence[Path]) -> dict[str, Any]:
    """Sizes and times of the files, without their folders: equal for a second import."""
    return {file.name: [(state := file.stat()).st_size, state.st_mtime_ns] for file in files}


def folder_of(path: Path) -> Path:
    """The folder of a checkpoint: the path itself, or the parent of a file."""
    return path if path.is_dir() else path.parent


def extra_weights(checkpoint: Checkpoint, family: ModelFamily) -> list[Path]:
    """Other weight files that a family needs, such as a picture decoder's."""
    folder = folder_of(checkpoint.path)
    files = {file for pattern in family.companion for file in folder.glob(pattern) if file.suffix in (SAFE, *PICKLED) and file.is_file()}
    return sorted(files - set(checkpoint.files))


def convert(path: Path, out: Path | None = None, weights: str | None = None) -> Iterator[ImportProgress]:
    """Imports a checkpoint into `out` (default: a folder of its name among the imported models); the last Progress has the folder.

    weights : the form that its linear layers are loaded in unless another is requested; None: full. The files stay as they are.
    Importing the same files again changes nothing but this form, if one is named. Raises a ForetokenError and leaves no folder for anything
    that cannot be imported.
    """
    with ExitStack() as stack:
        checkpoint = stack.enter_context(open_checkpoint(path))
        about = describe(checkpoint)
        family = need_family(about.family)
        target = out or imported_folder() / about.name
        if is_same(target, about):
            if weights not in (None, read_card(target).get(WEIGHTS, FULL)):
                write_entry(target, WEIGHTS, weights)
            yield ImportProgress(about.bytes, about.bytes, target)
            return
        if target.exists() and (not (target / CARD).is_file() or read_card(target).get("source") is None):
            raise BadOutput(f"{target} is there already and is no imported model. Choose another folder with --out.")
        opened = [checkpoint, *(stack.enter_context(open_checkpoint(file)) for file in extra_weights(checkpoint, family))]
        check_shapes(opened, family)
        parts = parts_of(checkpoint) if family.network else stems_of(checkpoint)
        parts += [part for each in opened[1:] for part in stems_of(each, indexed=False)]
        for folder in inner_folders(checkpoint, family):
            parts += parts_of(stack.enter_context(open_checkpoint(folder)), f"{folder.name}/")
        total = sum(part.bytes for part in parts)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            clean(target.parent)
            check_room(target.parent, total)
            with whole_folder(target.parent, target.name) as new:
                copy_beside(folder_of(path), new)
                if (tokenizer := tokenizer_folder(family, folder_of(path))) != folder_of(path):
                    (new / tokenizer.name).mkdir()
                    copy_beside(tokenizer, new / tokenizer.name)
                for folder in inner_folders(checkpoint, family):
                    (new / folder.name).mkdir()
                    copy_beside(folder, new / folder.name)
                yield from write_parts(parts, total, new)
                write_text(new / CARD, card_of(about, fingerprint(opened), weights or FULL))
                check_names(about, new)
        except OSError as e:
            raise refusal(target, e, "Nothing was imported; free some space, or choose another folder with --out.") from e
    yield ImportProgress(total, total, target)


def is_same(target: Path, about: CheckpointInfo) -> bool:
    """True if a folder is the import of these exact files."""
    return (target / CARD).is_file() and read_card(target).get("source") == json.loads(json.dumps(about.source))


def card_of(about: CheckpointInfo, fingerprint: str, weights: str) -> str:
    """The text of card.json: the adapter's name, fingerprint and form of the weights, and the result of `identify`."""
    entries = asdict(about) | {"name": about.family, "imported": about.name, "weights_hash": fingerprint, WEIGHTS: weights}
    return json.dumps({key: value for key, value in entries.items() if key != "family"}, indent=1, ensure_ascii=False) + "\n"


def check_room(folder: Path, size: int) -> None:
    """Raises BadOutput if the disk has too little space."""
    free = shutil.disk_usage(folder).free
    if free < size:
        raise BadOutput(
            f"{folder} has {size_text(free)} free, and this checkpoint takes {size_text(size)}. Choose another disk with --out."
        )


def copy_beside(source: Path, new: Path) -> None:
    """Copies configuration, tokenizer, description and licence; no code, and nothing large."""
    for file in sorted(source.iterdir()):
        wanted = file.suffix in COPIED or LICENCES.match(file.name)
        if wanted and file.is_file() and file.name not in (CARD, *INDEX) and file.stat().st_size <= LARGEST_BESIDE:
            shutil.copy(file, new / file.name)


@dataclass(frozen=True)
class Part:
    """One weight file to write: its path in the new folder, its tensors, and their source.

    linked : the source file, if it needs no rewriting; indexed : True if an index names it when there are several
    """

    name: str
    checkpoint: Checkpoint
    tensors: list[str]
    linked: Path | None = None
    indexed: bool = True

    @property
    def bytes(self) -> int:
        """Size of its tensors in bytes."""
        return sum(self.checkpoint.entries[name].bytes for name in self.tensors)


def parts_of(checkpoint: Checkpoint, folder: str = "") -> list[Part]:
    """The files to write for a checkpoint, with transformers' names. folder : inside the new one, with a slash"""
    if all(is_whole(file) for file in checkpoint.files):
        if len(checkpoint.files) == 1:
            return [Part(f"{folder}model.safetensors", checkpoint, list(checkpoint.entries), checkpoint.files[0])]
        return [replace(part, name=f"{folder}{part.name}") for part in stems_of(checkpoint)]
    planned = plan(checkpoint.entries, list(names_of(checkpoint)))
    last = len(planned)
    called = [f"model-{i:05}-of-{last:05}{SAFE}" for i in range(1, last + 1)] if last > 1 else ["model.safetensors"]
    return [Part(f"{folder}{name}", checkpoint, tensors) for name, tensors in zip(called, planned, strict=True)]


def stems_of(checkpoint: Checkpoint, indexed: bool = True) -> list[Part]:
    """The same, but each file keeps its name, which may be meaningful."""
    of_file = {file: [name for name, entry in checkpoint.entries.items() if entry.file == file] for file in checkpoint.files}
    return [Part(f"{file.stem}{SAFE}", checkpoint, names, file if is_whole(file) else None, indexed) for file, names in of_file.items()]


def inner_folders(checkpoint: Checkpoint, family: ModelFamily) -> list[Path]:
    """The subfolders of a checkpoint with weights that belong to it."""
    folders = sorted(path for path in folder_of(checkpoint.path).iterdir() if path.is_dir()) if family.inside else []
    return [path for path in folders if any(file.suffix in (SAFE, *PICKLED) for file in path.iterdir())]


def write_parts(parts: Sequence[Part], total: int, new: Path) -> Iterator[ImportProgress]:
    """Links or writes all files, and writes an index into each folder with several weight files."""
    done = 0
    for part in parts:
        if part.linked is not None:
            link(part.linked, new / part.name)
            done += part.bytes
            yield ImportProgress(done, total)
        else:
            for piece in write_shard(new / part.name, part.checkpoint.entries, part.tensors, part.checkpoint.read):
                done += piece
                yield ImportProgress(done, total)
    for checkpoint in {id(part.checkpoint): part.checkpoint for part in parts if part.indexed}.values():
        mine = [part for part in parts if part.checkpoint is checkpoint]
        if len(mine) > 1:
            text = index_of({Path(part.name).name: part.tensors for part in mine}, sum(part.bytes for part in mine))
            (new / mine[0].name).with_name(INDEX[0]).write_text(text, encoding="utf-8")


def is_whole(file: Path) -> bool:
    """True if a file is safetensors in the form that transformers reads."""
    if file.suffix != SAFE:
        return False
    with safe_open(file, "pt") as reader:
        return (reader.metadata() or {}).get("format") == FORMAT["format"]


def link(file: Path, target: Path) -> None:
    """Creates a hard link, or a copy on another file system."""
    try:
        os.link(file.resolve(), target)
    except OSError:
        shutil.copyfile(file, target)


# --- checks -----------------------------------------------------------------------------------------------------------


def check_shapes(opened: Sequence[Checkpoint], family: ModelFamily) -> None:
    """Raises MissingWeights if tensors that the adapter names are missing or have another shape. For a family in transformers' form, the
    written folder is checked (`check_names`), because transformers renames tensors of older versions."""
    if family.network:
        return
    adapter, main = importlib.import_module(family.names), opened[0]
    shapes = {name: shape for checkpoint in opened for name, shape in checkpoint.shapes.items()}
    settings = adapter.configure(shapes) if hasattr(adapter, "configure") else main.config
    need(Path(main.path.name), shapes, adapter.expected_shapes(settings), family.name)


def check_names(about: CheckpointInfo, folder: Path) -> None:
    """Raises MissingWeights if transformers' class does not find all of its tensors in a folder, or finds other shapes, and BadFile if it
    cannot read it. Nothing is allocated."""
    family = need_family(about.family)
    if not family.network:
        return
    import transformers  # takes seconds to import; the studio's page does not need it

    from engine.backbones.checkpoint_files import UNREADABLE, complete, quiet_transformers

    try:
        with quiet_transformers(), torch.device("meta"):
            complete(folder, getattr(transformers, family.network), about.name, device_map="meta")
    except UNREADABLE as e:
        raise BadFile(f"{about.name} does not fit its config.json ({first_line(e)}). Download it again.") from e


def need_family(name: str) -> ModelFamily:
    """The family with a name returned by `identify`."""
    family = family_named(name)
    assert family is not None, name
    return family


def remove(name: str) -> Path:
    """Deletes an imported model and returns its folder; raises NotSupported if there is none of that name."""
    folder = next((path for path in imported_folders() if path.name == name), None)
    if folder is None:
        here = ", ".join(path.name for path in imported_folders()) or "none"
        raise NotSupported(f"There is no imported model '{name}'. There are: {here}.")
    shutil.rmtree(folder)
    return folder
