"""Endpoints for other programs: /generate_image and /generate_mesh, named, typed and streaming.

Each yields (file or None, summary of the run) several times per second; the last update contains the file. They share the engine, the
queue and the checks with the page. A wrong value ends a call with one sentence.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import gradio as gr
from gradio.data_classes import FileData
from gradio.utils import get_upload_folder

from app.live.boards.mesh import MeshBoard
from app.live.boards.picture import Board
from app.live.session import GOING
from app.live.stream import Growth, Throttle, updates
from app.live.uploads import adopt, read_upload
from app.requests import meshes, pictures, validation
from app.requests.sides import settings_and_knobs
from app.runs import history
from app.sentences import without_paths
from app.server.turns import arrival
from app.shared import StudioState
from app.ui.panels import canvas
from engine.core import Backbone, Prompt
from engine.errors import BadFile, BadPrompt, ForetokenError
from engine.mesh.quality import quality
from engine.mesh.read import Input
from engine.mesh.write import write

PERIOD = 0.25  # seconds between two updates
READING = 10  # seconds of processor time for reading a file, while the call occupies the engine
KEPT = 8  # files kept per caller; the oldest are deleted first
NO_FILE = "cloud must be a file uploaded with this call. Use gradio_client's handle_file."
NOT_BEGUN = "The call waited too long and lost its place. Call again."
NO_FACES = "The mesh has no faces. Choose another seed, or give points with normals that point outward."
Update = tuple[dict[str, Any] | None, dict[str, Any]]  # (file, summary of the run)


def build(page: gr.Blocks, studio: StudioState) -> None:
    """Adds both endpoints to the page."""
    api = Endpoints(page, studio)

    def generate_image(
        prompt: str, method: str = pictures.FAVOURITE, seed: int = 0, size: int = 128, settings: dict = EMPTY, request: gr.Request = None
    ) -> Iterator[Update]:  # fmt: skip
        """Generates a picture from a prompt.

        prompt: what to draw; method: a method or preset; seed: 0 to 2,147,483,647; size: side in pixels; settings: guidance, temperature
        and the method's knobs by name, and "prefix", ids of the first tokens, to go on from; the last update has the "ids" of all
        """
        yield from api.answer(
            request.session_hash, lambda number: api.picture(request.session_hash, number, prompt, method, seed, size, settings)
        )

    def generate_mesh(
        cloud: dict, method: str = meshes.FAVOURITE, seed: int = 0, settings: dict = EMPTY, request: gr.Request = None
    ) -> Iterator[Update]:  # fmt: skip
        """Generates a low-polygon mesh, a GLB, from a file with a point cloud or a mesh.

        cloud: the file; method: a method or preset; seed: 0 to 2,147,483,647; settings: temperature, about
        and face_budget (numbers of faces), the method's knobs by name, and "prefix" as for a picture
        """
        yield from api.answer(request.session_hash, lambda number: api.mesh(request.session_hash, number, cloud, method, seed, settings))

    for function in (generate_image, generate_mesh):
        # Gradio reads an endpoint's types here; for a generator it expects the types of the yielded values
        function.__annotations__ |= {"return": tuple[dict, dict], "request": gr.Request}
        added = gr.api(function, concurrency_id="engine", concurrency_limit=1)
        declare_files(page.fns[added["id"]], "cloud" in function.__annotations__)


EMPTY: dict[str, float | str] = {}  # the default of `settings`, never modified


def declare_files(endpoint: Any, takes_one: bool) -> None:
    """Declares the first result, and with `takes_one` the first argument, as files, so that clients download and upload them."""
    for component in [endpoint.outputs[0], *endpoint.inputs[: int(takes_one)]]:
        component._api_info = FileData.model_json_schema()


class Endpoints:
    """Implementation of the endpoints."""

    def __init__(self, page: gr.Blocks, studio: StudioState):
        self.page, self.studio, self.sessions, self.runner = page, studio, studio.sessions, studio.runner

    def answer(self, caller: str, work: Callable[[int], Iterator[Update]]) -> Iterator[Update]:
        """Yield the updates of one call while it has the engine; a user error becomes one sentence."""
        number = self.sessions.enter(caller, "api", arrival(self.page, caller))
        try:
            if number is None:
                raise BadPrompt(GOING)
            if not self.sessions.begin(caller, number):
                raise BadPrompt(NOT_BEGUN)
            for update in work(number):
                self.sessions.renew(caller, number)
                yield update
        except ForetokenError as e:
            raise gr.Error(without_paths(str(e)), print_exception=False) from e
        finally:
            if number is not None:
                self.sessions.end(caller, number)

    def picture(
        self, caller: str, number: int, prompt: object, method: object, seed: object, size: object, settings: object
    ) -> Iterator[Update]:
        """Yield the updates of one picture."""
        backbone, (prefix, others) = self.studio.backbone, prefix_and_others(settings)
        declared = pictures.sampling_knobs(backbone)
        name, entry = validation.method(method, backbone)
        chosen, knobs = settings_and_knobs(others, name, entry, declared, backbone)
        wanted = replace(pictures.read_prompt(prompt, seed, chosen, backbone), size=pictures.pixels(size), prefix=prefix)
        board = Board(self.start_run(caller, number, backbone, wanted, name, knobs))
        for _ in updates([board], Throttle(PERIOD), self.runner.race):
            if board.count and not board.ended:
                yield None, summary(board) | {"preview": canvas.data_url(board.picture(), lossless=False)}
        file = self.new_file(caller, f"foretoken-{name}-{wanted.seed}.png")
        history.picture_with_settings(board.final(), history.describe(board.run), file)
        yield file_payload(file), summary(board) | {"ids": board.run.in_order}

    def mesh(self, caller: str, number: int, cloud: object, method: object, seed: object, settings: object) -> Iterator[Update]:
        """Yield the updates of one mesh."""
        shape = self.take_input(caller, cloud)
        backbone, (prefix, others) = self.studio.mesh.get(), prefix_and_others(settings)
        name, entry = validation.method(method, backbone)
        chosen, knobs = settings_and_knobs(others, name, entry, meshes.settings(backbone.sampling), backbone)
        wanted = meshes.guided(backbone, replace(meshes.read_prompt(shape, seed, chosen, backbone.sampling), prefix=prefix))
        board = MeshBoard(self.start_run(caller, number, backbone, wanted, name, knobs))
        for _ in updates([board], Throttle(PERIOD), self.runner.race):
            if board.count and not board.ended:
                yield None, summary(board) | {"faces": len(board.faces)}
        result = board.run.result()
        if not len(result.faces):
            raise BadPrompt(NO_FACES)
        file = self.new_file(caller, f"foretoken-{name}-{wanted.seed}.glb")
        write(file, history.to_input_frame(result.vertices, shape), result.faces, metadata=history.describe(board.run, shape))
        numbers = quality(result.vertices, result.faces)
        notes = [meshes.NO_GUIDE] if meshes.misses_guide(backbone, wanted) else []
        faces = {key: numbers[key] for key in ("faces", "vertices", "watertight")}
        yield file_payload(file), summary(board) | faces | {"notes": notes, "ids": board.run.in_order}

    def start_run(self, caller: str, number: int, backbone: Backbone, prompt: Prompt, name: str, knobs: Mapping[str, Any]) -> Any:
        """Starts the run of a call; it stops when its caller disconnects."""
        (run,) = self.runner.start(backbone, prompt, [(name, knobs)])
        self.sessions.hold(caller, number, [run])
        return run

    def take_input(self, caller: str, cloud: object) -> Input:
        """Reads the uploaded file of a call and deletes it."""
        path = path_sent(cloud, NO_FILE)
        own = self.sessions.new_folder(caller)
        try:
            return read_upload(adopt(path, own), work=READING)
        finally:
            shutil.rmtree(own, ignore_errors=True)

    def new_file(self, caller: str, name: str) -> Path:
        """Path of a call's result, in a new folder; deletes the caller's oldest results."""
        root = self.sessions.folder(caller) / "api"
        root.mkdir(exist_ok=True)
        for old in sorted(root.iterdir(), key=lambda path: path.stat().st_mtime)[: 1 - KEPT]:
            shutil.rmtree(old, ignore_errors=True)
        folder = root / secrets.token_hex(8)
        folder.mkdir()
        return folder / name


def prefix_and_others(settings: object) -> tuple[tuple[int, ...], object]:
    """The ids of the first tokens in the settings of a call, and the other settings. Raises BadPrompt"""
    if not isinstance(settings, Mapping):
        return (), settings
    others = dict(settings)
    return validation.tokens(others.pop("prefix", [])), others


def path_sent(value: object, refusal: str) -> Path:
    """Path of a file uploaded with a call. Gradio has not checked the path, so only files in the upload folder are accepted; raises
    BadFile with the refusal."""
    path = Path(str(value.get("path"))) if isinstance(value, Mapping) and isinstance(value.get("path"), str) else None
    if path is None or "\0" in str(path) or path.resolve() != path or path.parent.parent != Path(get_upload_folder()).resolve():
        raise BadFile(refusal)
    if path.parent.name.startswith("foretoken-"):  # a visitor's folder
        raise BadFile(refusal)
    return path


def summary(board: Growth) -> dict[str, Any]:
    """State, method, exactness and totals of a run."""
    run = board.run
    return {"state": canvas.state(board), "method": run.name, "exact": run.exact, **run.totals}


def file_payload(path: Path) -> dict[str, Any]:
    """A file in the form that clients expect."""
    return FileData(path=str(path), orig_name=path.name, size=path.stat().st_size).model_dump()
