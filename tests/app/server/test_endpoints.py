"""The endpoints through gradio_client, as other programs use them: named, typed, streaming, with a sentence for a wrong value."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from gradio_client import Client, handle_file
from gradio_client.exceptions import AppError
from PIL import Image

from app.requests import meshes
from engine.mesh.read import read
from engine.methods import METHODS

CHAIR = str(meshes.EXAMPLES / "chair.ply")
NAMES = {"/generate_image": ["prompt", "method", "seed", "size", "settings"], "/generate_mesh": ["cloud", "method", "seed", "settings"]}


@pytest.fixture(scope="module")
def client(served, tmp_path_factory) -> Iterator[Client]:
    """A program of a stranger."""
    yield Client(served.address, verbose=False, download_files=tmp_path_factory.mktemp("downloads"))


def refusal(client: Client, *values: object, endpoint: str, **named: object) -> str:
    """The error sentence of a call."""
    with pytest.raises(AppError) as caught:
        client.predict(*values, api_name=endpoint, **named)
    return str(caught.value)


def test_both_are_named_and_typed_and_all_but_the_first_argument_have_a_default(client):
    endpoints = client.view_api(return_format="dict", print_info=False)["named_endpoints"]
    assert set(endpoints) == set(NAMES)
    for name in NAMES:
        endpoint = endpoints[name]
        parameters = {each["parameter_name"]: each for each in endpoint["parameters"]}
        assert list(parameters) == NAMES[name]
        assert [each["parameter_has_default"] for each in parameters.values()] == [False] + [True] * (len(parameters) - 1)
        kinds = [each["python_type"]["type"] for each in parameters.values()]
        assert kinds[:3] == ["filepath" if name == "/generate_mesh" else "str", "str", "int"] and kinds[-1].startswith("dict")
        assert [each["python_type"]["type"].split("(")[0] for each in endpoint["returns"]] == ["filepath", "dict"]


def test_a_picture_goes_on_from_tokens_of_another(client):
    def drawn(seed: int, **settings: object) -> dict:
        return client.predict("a cat", "sjdpp", seed, 64, {"verify": "match seed", **settings}, api_name="/generate_image")[1]

    whole = drawn(9)
    same, other = drawn(9, prefix=whole["ids"][:40]), drawn(8, prefix=whole["ids"][:40])
    assert same["ids"] == whole["ids"] != other["ids"] and other["ids"][:40] == whole["ids"][:40]
    assert same["forwards"] < whole["forwards"]
    wrong = {"prefix": ["a"]}, {"prefix": 7}, {"prefix": [10**6]}, {"prefix": whole["ids"]}
    for settings in wrong:
        assert refusal(client, "a cat", "sjdpp", 9, 64, settings, endpoint="/generate_image")


def test_a_picture_of_only_a_prompt_streams_and_comes_as_a_file_with_its_settings(client):
    job = client.submit("a red apple", api_name="/generate_image")
    file, totals = job.result()
    *before, last = job.outputs()
    assert last == (file, totals) and before, "nothing came before the last"
    assert all(each[0] is None and each[1]["state"] == "running" and each[1]["preview"].startswith("data:image/") for each in before)
    tokens = [each[1]["tokens"] for each in job.outputs()]
    assert tokens == sorted(tokens) and totals["state"] == "done" and totals["method"] == "sjdpp" and totals["forwards"] > 0
    with Image.open(file) as picture:
        settings = json.loads(picture.text["foretoken"])
        assert picture.size == (128, 128) and settings["prompt"] == "a red apple" and settings["seed"] == 0


def test_what_is_asked_is_what_is_made(client):
    chosen = {"window": 5, "verify": "match seed", "guidance": 2, "temperature": 0.5}
    file, totals = client.predict("a cat", "sjd", 9, 64, chosen, api_name="/generate_image")
    again, _ = client.predict(prompt="a cat", method="sjd", seed=9, size=64, settings=chosen, api_name="/generate_image")
    with Image.open(file) as picture, Image.open(again) as twin:
        settings = json.loads(picture.text["foretoken"])
        assert picture.tobytes() == twin.tobytes() and picture.size == (64, 64)
    assert totals["method"] == settings["method"] == "sjd" and settings["seed"] == 9
    assert settings["knobs"]["window"] == 5 and (settings["sampling"]["guidance"], settings["sampling"]["temperature"]) == (2, 0.5)


def test_a_mesh_of_only_a_cloud_streams_and_comes_as_a_glb(client):
    job = client.submit(handle_file(CHAIR), settings={"face_budget": 16, "about": 12}, api_name="/generate_mesh")
    file, totals = job.result()
    assert Path(file).suffix == ".glb" and totals["method"] == "xspecmesh" and 0 < totals["faces"] <= 16
    assert len(read(Path(file)).surface[1]) == totals["faces"]
    assert all(each[0] is None and "faces" in each[1] for each in job.outputs()[:-1])


def test_a_mesh_goes_on_from_tokens_of_another(client):
    def decode(seed: int, **settings: object) -> list[int]:
        chosen = {"verify": "match seed", "face_budget": 16, **settings}
        return client.predict(handle_file(CHAIR), "sjdpp", seed, chosen, api_name="/generate_mesh")[1]["ids"]

    whole = decode(9)
    assert decode(9, prefix=whole[:12]) == whole != decode(8, prefix=whole[:12])
    assert refusal(client, handle_file(CHAIR), "sjdpp", 9, {"prefix": [10**6]}, endpoint="/generate_mesh")


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"method": "magic"}, "There is no method 'magic'"),
        ({"method": "xspecmesh"}, "xspecmesh needs mesh_heads"),
        ({"seed": -1}, "The seed -1 is out of range"),
        ({"size": 77}, "77"),
        ({"size": "large"}, "size = large is not a whole number of pixels"),
        ({"settings": {"window": 10**6}}, "out of range"),
        ({"settings": {"windoww": 4}}, "There is no knob 'windoww'"),
        ({"settings": [1, 2]}, "settings must be an object of names"),
        ({"settings": {"temperature": 9}}, "out of range"),
        ({"prompt": 7}, "The prompt must be text"),
        ({"prompt": "x" * 2000}, "Shorten it"),
    ],
)
def test_a_wrong_value_is_one_sentence_and_the_next_call_is_answered(client, served, values, sentence):
    before = len(served.log.read_text())
    error = refusal(client, endpoint="/generate_image", **{"prompt": "a cat", **values})
    assert sentence in error and "Traceback" not in error and "\n" not in error.strip()
    assert client.predict("a cat", size=64, api_name="/generate_image")[1]["state"] == "done"
    assert "Traceback" not in served.log.read_text()[before:]


def test_only_a_file_that_was_sent_is_read(visit, served, tmp_path):
    (tmp_path / "secret.ply").write_bytes(Path(CHAIR).read_bytes())
    other, uploads = visit(), served.home.parent / "gradio"
    reply = other.upload("secret-scan.ply", Path(CHAIR).read_bytes())
    (theirs,) = uploads.glob("foretoken-*/upload-*/secret-scan.ply") or [reply]
    caller = visit()  # gradio_client itself would send these files
    paths = [str(tmp_path / "secret.ply"), "/etc/passwd", CHAIR, "", f"{uploads}/a/../../x.ply", str(theirs), str(theirs.parent)]
    for cloud in (*({"path": path, "meta": {"_type": "gradio.FileData"}} for path in paths), "chair.ply", None, 7, {"url": "http://x"}):
        response = caller.ask(caller.handler("generate_mesh"), [cloud, "xspecmesh", 0, {}])
        refused = "cloud must be a file" in response or "was not uploaded by a user" in response  # Gradio's own message
        assert '"success":false' in response and refused, f"{cloud}: {response[-500:]}"
    assert (tmp_path / "secret.ply").exists() and theirs.exists()


def test_a_file_that_is_no_cloud_is_one_sentence(client, tmp_path):
    (tmp_path / "bad.ply").write_text("nothing of the kind")
    assert "bad.ply is damaged" in refusal(client, handle_file(str(tmp_path / "bad.ply")), endpoint="/generate_mesh")


def test_every_method_that_fits_makes_a_picture(client, picto):
    fits = [name for name, method in METHODS.items() if method.needs <= picto.capabilities]
    for name in fits:
        size = 128 if name == "mulo" else 64  # it drafts at half the size
        assert client.predict("a cat", name, 1, size, api_name="/generate_image")[1]["method"] == name
