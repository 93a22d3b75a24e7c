"""OpenAI's images API through OpenAI's own client: pictures, streams, errors in its form, and a place in the page's queue."""

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

from app.ui.asked import LARGEST_SEED

ASK: dict[str, Any] = {"prompt": "a red apple", "model": "pictogram", "size": "64x64"}


@pytest.fixture(scope="module")
def client(served) -> Iterator[openai.OpenAI]:
    """A program of a stranger, with any key: this studio asks for none."""
    with openai.OpenAI(base_url=f"{served.address}/v1", api_key="any", max_retries=0) as found:
        yield found


@pytest.fixture
def raw(served) -> Iterator[httpx.Client]:
    """Requests without a client."""
    with httpx.Client(base_url=served.address, timeout=120) as found:
        yield found


def picture_of(text: str) -> Image.Image:
    """The picture in a reply."""
    found = Image.open(io.BytesIO(base64.b64decode(text)))
    found.load()
    return found


def settings_of(text: str) -> dict[str, Any]:
    """The settings in a picture."""
    return json.loads(picture_of(text).text["foretoken"])


def test_the_models_are_listed_and_found(client):
    assert [model.id for model in client.models.list()] == ["pictogram"]
    assert client.models.retrieve("pictogram").owned_by == "foretoken"
    with pytest.raises(openai.NotFoundError, match="There is no model 'gpt-image-1'"):
        client.models.retrieve("gpt-image-1")


def test_a_prompt_alone_makes_a_picture_of_the_usual_size(client):
    made = client.images.generate(prompt="a red apple")
    (one,) = made.data
    assert picture_of(one.b64_json).size == (128, 128) and made.size == "128x128" and made.output_format == "png"
    told = one.foretoken
    assert told["method"] == "sjdpp" and told["exact"] is True and told["tokens"] == 256 == made.usage.output_tokens
    assert 0 < told["passes"] < 256 and told["tokens_per_pass"] == 256 / told["passes"] and "speedup" not in told
    assert settings_of(one.b64_json)["seed"] == told["seed"]


def test_what_is_asked_is_what_is_made(client):
    more = {"method": "sjd", "seed": 9, "window": 5, "verify": "match seed", "guidance": 2, "temperature": 0.5}
    made = client.images.generate(**ASK, n=2, response_format="b64_json", extra_body=more)
    again = client.images.generate(**ASK, extra_body={**more, "seed": 10})
    first, second = (settings_of(one.b64_json) for one in made.data)
    assert [first["seed"], second["seed"]] == [one.foretoken["seed"] for one in made.data] == [9, 10]
    assert first["method"] == "sjd" and first["knobs"]["window"] == 5 and first["size"] == 64
    assert (first["sampling"]["guidance"], first["sampling"]["temperature"]) == (2, 0.5)
    pictures = [picture_of(one.b64_json).tobytes() for one in (*made.data, *again.data)]
    assert pictures[0] != pictures[1] == pictures[2] and made.usage.output_tokens == 2 * 64


def test_a_picture_without_a_seed_is_another_one_each_time(client):
    seeds = {client.images.generate(**ASK).data[0].foretoken["seed"] for _ in range(3)}
    assert len(seeds) == 3


def test_a_comparison_gives_the_speed_up_and_the_same_picture(client):
    more = {"method": "sjdpp", "seed": 3, "verify": "match seed"}
    alone = client.images.generate(**ASK, extra_body=more).data[0]
    compared = client.images.generate(**ASK, extra_body={**more, "compare": True}).data[0]
    told = compared.foretoken
    assert told["speedup"] == pytest.approx(told["plain_seconds"] / told["seconds"]) and told["speedup"] > 0
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
        ({"model": "dall-e-3"}, 404, "model", "There is no model 'dall-e-3' that makes pictures here. There is: pictogram."),
        ({"model": "lowpoly"}, 404, "model", "There is no model 'lowpoly' that makes pictures"),
        ({"prompt": ""}, 400, "prompt", "The prompt is empty"),
        ({"prompt": " \n"}, 400, "prompt", "The prompt is empty"),
        ({"prompt": "x" * 2000}, 400, "prompt", "Shorten it"),
        ({"prompt": "qwxzy vwxqz"}, 400, None, "knows no word of this prompt"),
        ({"size": "100x100"}, 400, "size", "pictogram makes pictures of 64x64, 128x128, 256x256, not 100x100"),
        ({"size": "64x128"}, 400, "size", "not 64x128"),
        ({"size": "large"}, 400, "size", "not large"),
        ({"n": 0}, 400, "n", "n = 0 is not a whole number from 1 to 10"),
        ({"n": 11}, 400, "n", "n = 11"),
        ({"partial_images": 99}, 400, "partial_images", "from 0 to 16"),
        ({"response_format": "url"}, 400, "response_format", "response_format = url is not supported here"),
        ({"output_format": "webp"}, 400, "output_format", "say 'png'"),
        ({"background": "transparent"}, 400, "background", "not supported here"),
        ({"extra_body": {"method": "magic"}}, 400, "method", "There is no method 'magic'"),
        ({"extra_body": {"method": "xspecmesh"}}, 400, "method", "xspecmesh needs mesh_heads"),
        ({"extra_body": {"windoww": 4}}, 400, "windoww", "There is no knob 'windoww' here"),
        ({"extra_body": {"window": 10**6}}, 400, "window", "out of range"),
        ({"extra_body": {"window": [1]}}, 400, "window", "window cannot be [1]"),
        ({"extra_body": {"temperature": 9}}, 400, "temperature", "out of range"),
        ({"extra_body": {"seed": -1}}, 400, "seed", "The seed -1 is out of range"),
        ({"extra_body": {"compare": "yes"}}, 400, "compare", "compare must be true or false, not yes"),
    ],
)
def test_a_wrong_value_is_one_sentence_in_openais_form(client, served, wrong, status, param, sentence, stream):
    before = len(served.log.read_text())
    with pytest.raises(openai.APIStatusError) as caught:
        client.images.generate(**{**ASK, **wrong}, stream=stream)
    error = caught.value.body
    assert caught.value.status_code == status and error["param"] == param and error["type"] == "invalid_request_error"
    assert sentence in error["message"] and "\n" not in error["message"] and set(error) == {"message", "type", "param", "code"}
    assert "Traceback" not in served.log.read_text()[before:]


def test_the_last_seed_must_be_in_range_too(client):
    with pytest.raises(openai.BadRequestError, match="out of range") as e:
        client.images.generate(**ASK, n=2, extra_body={"seed": LARGEST_SEED})
    assert e.value.param == "seed"


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
    made = client.images.generate(**{**ASK, "prompt": prompt}).data[0]
    assert settings_of(made.b64_json)["prompt"] == prompt


@pytest.mark.parametrize("n", [10**30, -1, 2.0, "2", True, [2]])
def test_a_number_of_pictures_that_is_none_is_refused(raw, n):
    answer = raw.post("/v1/images/generations", json={**ASK, "n": n})
    assert answer.status_code == 400 and answer.json()["error"]["param"] == "n"


def test_no_other_path_leads_anywhere(raw):
    for method, path in (("GET", "/v1/images/generations"), ("POST", "/v1/images/edits"), ("GET", "/v1/"), ("POST", "/v1/models")):
        answer = raw.request(method, path)
        assert answer.status_code == 404 and f"There is no {method} {path} here" in answer.json()["error"]["message"]


def test_the_page_does_not_offer_the_event_behind_it(raw):
    info = raw.get("/gradio_api/info").json()
    assert not any("turn" in name for name in info["named_endpoints"]) and not info["unnamed_endpoints"]
