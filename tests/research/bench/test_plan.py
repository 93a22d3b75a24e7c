"""A benchmark's options are checked when its plan is made."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest
import torch

from engine.errors import BadKnob, BadPrompt, NotSupported
from research.bench.plan import ImageBench, MeshBench, read_prompts

TOY = {"backbone": "pictogram"}
ALL = frozenset(
    {"raster", "wavefront", "mesh", "hidden", "mesh_heads", "feature_draft", "predictive_stream", "codebook", "at_scale", "spatial_heads"}
)


@pytest.mark.parametrize(
    ("kind", "changes", "error"),
    [
        (ImageBench, {"size": 0}, BadPrompt),
        (ImageBench, {"sampling": {"temperature": float("nan")}}, BadPrompt),
        (ImageBench, {"sampling": {"warmth": 1.0}}, BadPrompt),
        (ImageBench, {"prompts": ("a red cat", "\ud83d")}, BadPrompt),
        (ImageBench, {"methods": ("sjd",), "knobs": {"window": "inf"}}, BadKnob),
        (ImageBench, {"sweep": (("window", ("4", "-1")),)}, BadKnob),
        (ImageBench, {"sweep": (("temperature", ("warm",)),)}, BadKnob),
        (ImageBench, {"sweep": (("top_k", ("2.5",)),)}, BadKnob),
        (ImageBench, {"sweep": (("temperature", ("9",)),)}, BadPrompt),
        (ImageBench, {"sweep": (("size", ("0",)),)}, BadPrompt),
        (ImageBench, {"device": "abacus"}, NotSupported),
        (MeshBench, {}, NotSupported),  # the toy makes no meshes
        (MeshBench, {"backbone": "lowpoly", "seeds": 0}, BadPrompt),
        (MeshBench, {"backbone": "lowpoly", "size": 0}, BadPrompt),
        (MeshBench, {"backbone": "lowpoly", "size": 10**6}, BadPrompt),
        (MeshBench, {"backbone": "lowpoly", "about": 10**6}, BadPrompt),
        (ImageBench, {"count": 10**9}, BadPrompt),
        (MeshBench, {"backbone": "lowpoly", "sampling": {"guidance": 2.0}}, NotSupported),
        (MeshBench, {"backbone": "lowpoly", "verify": "residual"}, BadKnob),  # the table's rows have their own knobs
    ],
)
def test_a_wrong_plan_cannot_be_made(kind: type, changes: dict, error: type[Exception]) -> None:
    with pytest.raises(error):
        kind(**(TOY | changes))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("kind", [ImageBench, MeshBench])
def test_a_gpu_that_is_not_there_is_a_sentence(kind: type) -> None:
    with pytest.raises(NotSupported, match="No CUDA device is visible"):
        kind(backbone="lowpoly", device="cuda")


def test_a_plan_does_not_change() -> None:
    with pytest.raises(FrozenInstanceError):
        ImageBench(**TOY).count = 3


def test_knobs_go_to_the_methods_that_have_them() -> None:
    plan = ImageBench(**TOY, methods=("sjd", "ar", "zipar", "sjd", "sjdpp_published"), knobs={"init": "random"}, verify="match seed")
    knobs = {name: entry.knobs for name, entry in plan.entries(ALL).items()}
    assert knobs["sjd"] == {"init": "random", "verify": "match seed"} and knobs["zipar"] == {"verify": "match seed"}
    assert knobs["sjdpp_published"]["refresh"] == "reuse published" and knobs["sjdpp_published"]["init"] == "random"
    assert list(knobs) == ["sjd", "zipar", "sjdpp_published"]


def test_all_methods_are_those_that_the_model_can_serve() -> None:
    plan = ImageBench(**TOY)
    assert set(plan.entries(frozenset({"raster"}))) < set(plan.entries(ALL))
    with pytest.raises(BadKnob, match="no knob 'heads'"):
        ImageBench(**TOY, knobs={"heads": "multilayer"}).entries(frozenset({"raster"}))


def test_prompts_of_a_file_say_where_they_come_from(tmp_path: Path) -> None:
    path = tmp_path / "mine.txt"
    path.write_bytes(b"\xef\xbb\xbfa red cat\r\n\n  a dog \n")
    (prompts, source), (others, _) = read_prompts(path, 20), read_prompts(path, 1)
    assert prompts == ("a red cat", "a dog") and others == ("a red cat",)
    name, short = source.split()
    assert name == "mine.txt" and len(short) == 12
    path.write_bytes(b"another\n")
    assert read_prompts(path, 20)[1] not in (source, name)


def test_a_swept_setting_makes_a_plan_for_each_value() -> None:
    swept = (("temperature", ("0.5", "1")), ("size", ("8",)), ("window", ("4", "8")))
    parts = ImageBench(**TOY, methods=("sjd",), sampling={"top_k": 3}, sweep=swept).parts()
    assert list(parts) == ["", "temperature=0.5", "temperature=1", "size=8"]
    assert list(parts[""].entries(ALL)) == ["sjd window=4", "sjd window=8"] and parts[""].sampling == {"top_k": 3}
    assert parts["temperature=0.5"].sampling == {"top_k": 3, "temperature": 0.5} and parts["temperature=0.5"].size is None
    assert list(parts["size=8"].entries(ALL)) == ["sjd"] and parts["size=8"].size == 8 and parts["size=8"].sampling == {"top_k": 3}


def test_a_grid_of_settings_and_knobs_has_every_combination() -> None:
    swept = (("temperature", ("0.5", "1")), ("top_k", ("2",)), ("window", ("4", "8")))
    parts = ImageBench(**TOY, methods=("sjd",), sweep=swept, grid=True).parts()
    assert list(parts) == ["temperature=0.5 top_k=2", "temperature=1 top_k=2"]
    assert all(list(part.entries(ALL)) == ["sjd window=4", "sjd window=8"] for part in parts.values())


def test_a_mesh_s_size_is_its_number_of_faces() -> None:
    parts = MeshBench(backbone="lowpoly", methods=("lookup",), sweep=(("size", ("20", "40")),)).parts()
    assert [part.size for part in parts.values()] == [20, 40]
