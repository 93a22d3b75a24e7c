"""OpenAI's images API through OpenAI's own client: pictures, streams, errors in its form, and the page's queue."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest
from PIL import Image

ASK: dict[str, Any] = {"prompt": "a red apple", "model": "pictogram", "size": "64x64"}


@pytest.fixture(scope="module")
def client(served) -> Iterator[openai.OpenAI]:
    """OpenAI's client with an arbitrary key: this studio requires none."""
    with openai.OpenAI(base_url=f"{served.address}/v1", api_key="any", max_retries=0) as client:
        yield client


@pytest.fixture
def raw(served) -> Iterator[httpx.Client]:
    """A plain HTTP client."""
    with httpx.Client(base_url=served.address, timeout=120) as client:
        yield client


def picture_of(text: str) -> Image.Image:
    """The picture in a response."""
    picture = Image.open(io.BytesIO(base64.b64decode(text)))
    picture.load()
    return picture


def settings_of(text: str) -> dict[str, Any]:
    """The settings in a picture."""
    return json.loads(picture_of(text).text["foretoken"])


def test_the_models_are_listed_and_found(client):
    assert [model.id for model in client.models.list()] == ["pictogram"]
    assert client.models.retrieve("pictogram").owned_by == "foretoken"
    with pytest.raises(openai.NotFoundError, match="There is no picture model 'gpt-image-1'"):
        client.models.retrieve("gpt-image-1")


def test_a_prompt_alone_makes_a_picture_of_the_usual_size(client):
    response = client.images.generate(prompt="a red apple")
    (one,) = response.data
    assert picture_of(one.b64_json).size == (128, 128) and response.size == "128x128" and response.output_format == "png"
    about = one.foretoken
    assert about["method"] == "sjdpp" and about["exact"] is True and about["tokens"] == 256 == response.usage.output_tokens
    assert 0 < about["passes"] < 256 and about["tokens_per_pass"] == 256 / about["passes"] and "speedup" not in about
    assert settings_of(one.b64_json)["seed"] == about["seed"]


def test_what_is_asked_is_what_is_made(client):
    more = {"method": "sjd", "seed": 9, "window": 5, "verify": "match seed", "guidance": 2, "temperature": 0.5}
    response = client.images.generate(**ASK, n=2, response_format="b64_json", extra_body=more)
    again = client.images.generate(**ASK, extra_body={**more, "seed": 10})
    first, second = (settings_of(one.b64_json) for one in response.data)
    assert [first["seed"], second["seed"]] == [one.foretoken["seed"] for one in response.data] == [9, 10]
    assert first["method"] == "sjd" and first["knobs"]["window"] == 5 and first["size"] == 64
    assert (first["sampling"]["guidance"], first["sampling"]["temperature"]) == (2, 0.5)
    pictures = [picture_of(one.b64_json).tobytes() for one in (*response.data, *again.data)]
    assert pictures[0] != pictures[1] == pictures[2] and response.usage.output_tokens == 2 * 64


def test_a_picture_without_a_seed_is_another_one_each_time(client):
    seeds = {client.images.generate(**ASK).data[0].foretoken["seed"] for _ in range(3)}
    assert len(seeds) == 3


def test_a_comparison_gives_the_speed_up_and_the_same_picture(client):
    more = {"method": "sjdpp", "seed": 3, "verify": "match seed"}
    alone = client.images.generate(**ASK, extra_body=more).data[0]
    compared = client.images.generate(**ASK, extra_body={**more, "compare": True}).data[0]
    about = compared.foretoken
    assert about["speedup"] == pytest.approx(about["plain_seconds"] / about["seconds"]) and about["speedup"] > 0
    assert picture_of(compared.b64_json).tobytes() == picture_of(alone.b64_json).tobytes()


def test_a_relaxed_method_says_that_it_is_not_exact(client):
    more = {"method": "gsd"}
    assert client.images.generate(**ASK, extra_body=more).data[0].foretoken["exact"] is False


def test_a_stream_shows_previews_in_order_and_ends_with_the_picture(client):
    with client.images.generate(**ASK, stream=True, partial_images=3, extra_body={"seed": 4}) as stream:
        *partial, last = stream
    assert [event.type for event in partial] == ["image_generation.partial_image"] * len(partial) and partial
    assert [event.partial_image_index for event in partial] == list(range(len(partial))) and len(partial) <= 3
    tokens = [event.foretoken["tokens"] for event in (*partial, last)]
    assert tokens == sorted(set(tokens)) and tokens[-1] == 64
    assert last.type == "image_generation.completed" and last.usage.output_tokens == 64 and last.size == "64x64"
    alone = client.images.generate(**ASK, extra_body={"seed": 4}).data[0]
    assert picture_of(last.b64_json).tobytes() == picture_of(alone.b64_json).tobytes()
    assert all(picture_of(event.b64_json).tobytes() != picture_of(alone.b64_json).tobytes() for event in partial)


def test_a_stream_without_previews_is_the_picture(client):
    assert [event.type for event in client.images.generate(**ASK, stream=True)] == ["image_generation.completed"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("wrong", "status", "param", "sentence"),
    [
        ({"model": "dall-e-3"}, 404, "model", "There is no picture model 'dall-e-3' here. There is: pictogram."),
        ({"prompt": ""}, 400, "prompt", "The prompt is empty"),
        ({"prompt": "qwxzy vwxqz"}, 400, None, "knows no word of this prompt"),
        ({"size": "100x100"}, 400, "size", "pictogram makes pictures of 64x64, 128x128, 256x256, not 100x100"),
        ({"extra_body": {"method": "magic"}}, 400, "method", "There is no method 'magic'"),
        ({"extra_body": {"window": 10**6}}, 400, "window", "out of range"),
    ],
)
def test_a_wrong_value_is_one_sentence_in_openais_form(client, served, wrong, status, param, sentence, stream):
    """One error of each kind; test_images_request.py has all of them."""
    before = len(served.log.read_text())
    with pytest.raises(openai.APIStatusError) as caught:
        client.images.generate(**{**ASK, **wrong}, stream=stream)
    error = caught.value.body
    assert caught.value.status_code == status and error["param"] == param and error["type"] == "invalid_request_error"
    assert sentence in error["message"] and "\n" not in error["message"] and set(error) == {"message", "type", "param", "code"}
    assert "Traceback" not in served.log.read_text()[before:]


def test_a_stream_has_one_picture(client):
    with pytest.raises(openai.BadRequestError, match="A stream has one picture, not n = 2"):
        client.images.generate(**ASK, n=2, stream=True)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"7", b"\xff", b"[" * 100_000, b'{"prompt": "a cat", "window": NaN}', b'{"size": {}}'])
def test_any_body_is_answered(raw, served, body):
    before = len(served.log.read_text())
    answer = raw.post("/v1/images/generations", content=body)
    assert answer.status_code == 400 and answer.json()["error"]["message"]
    assert "Traceback" not in served.log.read_text()[before:]


def test_what_the_door_refuses_is_in_openais_form_too(client, raw):
    with pytest.raises(openai.APIStatusError, match="at most 1,048,576 bytes") as e:
        client.images.generate(prompt="a red apple " * 100_000)
    assert e.value.status_code == 413 and e.value.body["type"] == "invalid_request_error"
    with pytest.raises(openai.PermissionDeniedError, match=r"Requests from http://evil\.example are refused"):
        client.images.generate(**ASK, extra_headers={"Origin": "http://evil.example"})


@pytest.mark.parametrize("prompt", ["a red apple 🍎 яблоко", "a red\napple\tон", "\u202ea red apple", "a red apple " + "é" * 300])
def test_any_text_with_a_known_word_is_drawn_and_kept(client, prompt):
    image = client.images.generate(**{**ASK, "prompt": prompt}).data[0]
    assert settings_of(image.b64_json)["prompt"] == prompt


CLIENTS = [  # bodies as other programs send them: (client, body without prompt, fields that are ignored)
    ("open-webui", {"model": "pictogram", "n": 1, "size": "64x64", "response_format": "b64_json", "quality": "medium"}, ["quality"]),
    ("LibreChat", {"model": "pictogram", "size": "auto", "quality": "auto", "background": "transparent", "n": 1, "output_format": "png"},
     ["background"]),
    ("LiteLLM", {"model": "pictogram", "user": "u-1", "moderation": "low", "style": "vivid"}, ["user", "moderation", "style"]),
    ("LocalAI", {"width": 64, "height": 64, "steps": 20, "negative_prompt": "blur", "cfg_scale": 2}, ["steps", "negative_prompt"]),
    ("strings", {"n": "1", "seed": "7", "guidance": "3.5", "window": "8", "size": "64x64"}, []),
]  # fmt: skip


@pytest.mark.parametrize(("body", "ignored"), [case[1:] for case in CLIENTS], ids=[case[0] for case in CLIENTS])
def test_a_request_of_another_client_is_served_and_says_what_it_ignored(raw, body, ignored):
    answer = raw.post("/v1/images/generations", json={"prompt": "never a red apple BREAK", **body})
    assert answer.status_code == 200, answer.text
    response = answer.json()
    for about in (response["foretoken"], response["data"][0]["foretoken"]):
        assert list(about["ignored"]) == ignored and about["model"] == "pictogram"
        assert list(about["unknown_words"]) == ["never", "break"] and "does not understand 'never'" in about["warnings"][0]
    assert picture_of(response["data"][0]["b64_json"]).size == tuple(map(int, response["size"].split("x")))


def test_every_event_of_a_stream_says_what_was_ignored_and_lost(client):
    events = [*client.images.generate(**{**ASK, "prompt": "a red apple BREAK"}, quality="high", stream=True, partial_images=2)]
    assert len(events) > 1
    assert all(set(each.foretoken["ignored"]) == {"quality"} and "break" in each.foretoken["unknown_words"] for each in events)


@pytest.mark.parametrize(("name", "stream"), [("jpeg", False), ("webp", True)])
def test_the_picture_comes_in_the_format_that_was_asked_for(client, name, stream):
    response = client.images.generate(**ASK, output_format=name, output_compression=80, stream=stream)
    one = [*response][-1] if stream else response.data[0]
    assert picture_of(one.b64_json).format == name.upper() and (one if stream else response).output_format == name


NOWHERE = [
    "/images/generations", "/v1", "/v1/", "/v1/v1/images/generations", "/v1/images/edits", "/v1/chat/completions", "/v2/images/generations",
    "/openai/deployments/x/images/generations?api-version=1", "/sdapi/v1/txt2img", "/api/generate", "/api/v1/models", "/engines",
    "/nothing/at/all",
]  # fmt: skip


@pytest.mark.parametrize("path", NOWHERE)
def test_a_path_that_leads_nowhere_names_v1_in_openais_form(raw, path):
    for method in ("GET", "POST", "PUT", "DELETE", "OPTIONS"):
        answer = raw.request(method, path)
        error = answer.json()["error"]
        assert answer.status_code == 404 and set(error) == {"message", "type", "param", "code"} and error["code"] == "unknown_url"
        assert f"There is no {method} {path.split('?')[0][:30]}" in error["message"] and "under /v1: POST /v1/images/" in error["message"]


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/v1/images/generations", "POST"),
        ("PUT", "/v1/images/generations/", "POST"),
        ("OPTIONS", "/v1/images/generations", "POST"),
        ("POST", "/v1/models", "GET"),
        ("DELETE", "/v1/models/pictogram", "GET"),
        ("POST", "/metrics", "GET"),
        ("POST", "/", "GET"),
        ("PUT", "/login", "POST"),
    ],
)
def test_a_method_that_a_path_does_not_take_is_405_in_openais_form(raw, method, path, allowed):
    answer = raw.request(method, path)
    assert answer.status_code == 405 and allowed in answer.headers["allow"]
    assert answer.json()["error"]["message"] == f"{method} is not allowed on {path}. Send {allowed}."


@pytest.mark.parametrize("path", ["/v1/models/", "/v1/models"])
def test_a_slash_at_the_end_changes_nothing(raw, path):
    assert [model["id"] for model in raw.get(path, follow_redirects=False).json()["data"]] == ["pictogram"]
    assert raw.post("/v1/images/generations/", json=ASK, follow_redirects=False).status_code == 200


@pytest.mark.parametrize("path", ["/gradio_api/nothing", "/assets/nothing.js", "/static/nothing", "/gradio_api/file=/nowhere.png"])
def test_gradio_answers_what_is_its_own(raw, path):
    answer = raw.get(path)
    assert answer.status_code in (403, 404) and "error" not in answer.json()


def test_the_page_does_not_offer_the_event_behind_it(raw):
    info = raw.get("/gradio_api/info").json()
    assert not any("turn" in name for name in info["named_endpoints"]) and not info["unnamed_endpoints"]
