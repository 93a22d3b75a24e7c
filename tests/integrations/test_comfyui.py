"""The node pack for ComfyUI, executed by a small host as ComfyUI does: validated inputs, links, a progress bar, an interrupt."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import pytest
import torch
from PIL import Image

import engine
import integrations.comfyui as pack
from engine import assets
from engine.core import Prompt
from engine.errors import ForetokenError
from engine.mesh.read import read
from engine.methods import METHODS
from integrations.comfyui import NODE_CLASS_MAPPINGS, NODE_DISPLAY_NAME_MAPPINGS

FOLDER = Path(pack.__file__).parent
NUMBERS = {"INT": int, "FLOAT": (int, float), "STRING": str}


class Host:
    """Executes a workflow in ComfyUI's API format; nodes that are not in the pack receive their inputs and return none."""

    def __init__(self) -> None:
        self.received: dict[str, dict[str, Any]] = {}

    def execute(self, workflow: dict[str, Any]) -> dict[str, tuple[Any, ...]]:
        """The outputs of all nodes by their ids."""
        outputs: dict[str, tuple[Any, ...]] = {}
        for number, node in workflow.items():  # in an order in which links point backwards
            values = {name: outputs[v[0]][v[1]] if isinstance(v, list) else v for name, v in node["inputs"].items()}
            if node["class_type"] not in NODE_CLASS_MAPPINGS:
                self.received[number] = values
                continue
            kind = NODE_CLASS_MAPPINGS[node["class_type"]]
            self.validate(kind, node["inputs"], workflow)
            outputs[number] = getattr(kind(), kind.FUNCTION)(**values)
            assert len(outputs[number]) == len(kind.RETURN_TYPES) == len(kind.RETURN_NAMES)
        return outputs

    def validate(self, kind: type, inputs: dict[str, Any], workflow: dict[str, Any]) -> None:
        """Checks inputs as ComfyUI does before it executes."""
        types = kind.INPUT_TYPES()
        assert types["required"].keys() <= inputs.keys() <= types["required"].keys() | types.get("optional", {}).keys()
        for name, value in inputs.items():
            wanted, *more = (types["required"] | types.get("optional", {}))[name]
            options = more[0] if more else {}
            if isinstance(value, list):
                assert NODE_CLASS_MAPPINGS[workflow[value[0]]["class_type"]].RETURN_TYPES[value[1]] == wanted
            elif isinstance(wanted, list):
                assert value in wanted
            else:
                assert isinstance(value, NUMBERS[wanted]) and options.get("min", value) <= value <= options.get("max", value), name


class Bar:
    """Stands in for comfy.utils.ProgressBar."""

    seen: ClassVar[list[tuple[float, float, Any]]] = []
    interrupt = False

    def __init__(self, total: int) -> None:
        type(self).seen = []

    def update_absolute(self, value: float, total: float | None = None, preview: Any = None) -> None:
        """Records an update, or raises as ComfyUI does when the user interrupts."""
        if self.interrupt:
            raise InterruptedError
        self.seen.append((value, total, preview))


@pytest.fixture
def bar(monkeypatch: pytest.MonkeyPatch) -> type[Bar]:
    utilities = ModuleType("comfy.utils")
    utilities.ProgressBar = Bar
    monkeypatch.setitem(sys.modules, "comfy.utils", utilities)
    monkeypatch.setattr(pack, "PREVIEWED", 0.0)
    monkeypatch.setattr(Bar, "interrupt", False)
    return Bar


def workflow_of(name: str, **inputs: Any) -> dict[str, Any]:
    """A workflow of the pack, with other inputs for its node 2."""
    workflow = json.loads((FOLDER / f"{name}_workflow.json").read_text(encoding="utf-8"))
    workflow["2"]["inputs"] |= inputs
    return workflow


def test_the_picture_of_the_workflow_is_the_engines_and_is_previewed(bar: type[Bar]) -> None:
    host = Host()
    image, report = host.execute(workflow_of("picture", size=64))["2"]
    assert image.shape == (1, 64, 64, 3) and image.dtype == torch.float32 and 0 <= image.min() < image.max() <= 1
    backbone = engine.load("pictogram")
    run = engine.generate(backbone, METHODS["sjdpp"], Prompt("two cats on snow", seed=7, size=64, sampling=backbone.sampling)).finish()
    assert torch.equal((image[0] * 255).round().byte(), torch.from_numpy(run.result().copy()))
    assert report.startswith(f"64 tokens in {run.totals['forwards']} passes") and "by sjdpp, with the distribution of the model." in report
    assert host.received["3"]["images"] is image
    *before, last = bar.seen
    assert [value for value, _, _ in before] == sorted(value for value, _, _ in before) and last == (1, 1, None)
    assert {total for _, total, _ in before} == {64}
    assert all(form == "JPEG" and isinstance(picture, Image.Image) and most == 512 for _, _, (form, picture, most) in before)


def test_the_mesh_of_the_workflow_lies_in_the_clouds_coordinates(bar: type[Bar], tmp_path: Path) -> None:
    cloud, saved = assets.clouds() / "table.ply", tmp_path / "made" / "mesh.glb"
    mesh, path, report = Host().execute(workflow_of("mesh", cloud=str(cloud), save_as=str(saved), faces=40, up="y"))["2"]
    assert path == str(saved.resolve()) and read(saved).surface is not None and "passes" in report
    assert mesh.vertices.shape[::2] == mesh.faces.shape[::2] == (1, 3) and mesh.vertices.dtype == torch.float32
    assert mesh.faces.dtype == torch.int64 and mesh.faces.max() < mesh.vertices.shape[1]
    points = read(cloud, "y").reference[:, :3]
    assert abs(mesh.vertices[0].numpy().min(0) - points.min(0)).max() < 0.15 * (points.max() - points.min())


def test_the_folder_loads_under_another_name() -> None:
    """ComfyUI imports a folder of nodes by its path, whatever it is called."""
    spec = importlib.util.spec_from_file_location(
        "custom_nodes.fore-token", FOLDER / "__init__.py", submodule_search_locations=[str(FOLDER)]
    )
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules[spec.name]
    assert module.NODE_CLASS_MAPPINGS.keys() == NODE_CLASS_MAPPINGS.keys()


def test_an_interrupt_ends_the_run(bar: type[Bar], monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[bool] = []
    monkeypatch.setattr(bar, "interrupt", True)
    close = pack.Run.close
    monkeypatch.setattr(pack.Run, "close", lambda run: closed.append(run.finished) or close(run))
    with pytest.raises(InterruptedError):
        Host().execute(workflow_of("picture", size=64))
    assert closed == [False]


@pytest.mark.parametrize("name", METHODS)
def test_every_method_has_a_node_whose_defaults_are_the_models(name: str) -> None:
    kind = NODE_CLASS_MAPPINGS[f"Foretoken_{name}"]
    required = kind.INPUT_TYPES()["required"]
    defaults = {knob: options["default"] for knob, (_, options) in required.items()}
    Host().validate(kind, defaults, {})
    assert kind().choose(**defaults) == ((name, {}),)
    assert set(required) == {knob.name for knob in METHODS[name].knobs}
    assert NODE_DISPLAY_NAME_MAPPINGS.keys() == NODE_CLASS_MAPPINGS.keys()


@pytest.mark.parametrize(
    ("node", "inputs", "sentence"),
    [
        ("picture", {"prompt": "zzzz"}, "knows no word of this prompt"),
        ("picture", {"size": 100}, "makes pictures of"),
        ("picture", {"model": "lowpoly"}, "lowpoly does not read text"),
        ("picture", {"model": "nowhere"}, "nowhere"),
        ("mesh", {"cloud": "missing.ply"}, "missing.ply"),
        ("mesh", {"model": "pictogram"}, "pictogram does not read points"),
    ],
)
def test_what_a_node_refuses(node: str, inputs: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ForetokenError, match=sentence):
        Host().execute(workflow_of(node, **inputs))


def test_a_knob_of_a_methods_node_reaches_the_run() -> None:
    workflow = workflow_of("picture", size=64)
    workflow["1"]["inputs"]["window"] = 4
    small = Host().execute(workflow)["2"][1]
    assert small != Host().execute(workflow_of("picture", size=64))["2"][1]
