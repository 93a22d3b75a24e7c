"""Values in a request for pictures: numbers as clients send them, options of other servers, unknown words of a prompt."""

from __future__ import annotations

import io
import json
from typing import Any

import numpy as np
import pytest
from PIL import Image

from app.requests.limits import LARGEST_SEED
from app.server.fields import MOST_FIELDS, parse
from app.server.images_request import ImagesRequest, read
from app.server.picture_file import FORMATS
from app.server.refusals import Refused


def request_of(backbone: Any, any_model: bool = False, text: str = "", **fields: Any) -> ImagesRequest:
    """The request from these fields, or from a body as text."""
    return read(parse((text or json.dumps({"prompt": "a red apple", **fields})).encode()), backbone, any_model)


READ = [  # (fields, their meaning)
    ({"n": "2"}, {"n": 2}),
    ({"n": 4.0}, {"n": 4}),
    ({"n": "5.0"}, {"n": 5}),
    ({"n": "1e1"}, {"n": 10}),
    ({"n": ""}, {"n": 1}),
    ({"n": None}, {"n": 1}),
    ({"seed": "7"}, {"seed": 7}),
    ({"seed": "+7"}, {"seed": 7}),
    ({"seed": str(LARGEST_SEED)}, {"seed": LARGEST_SEED}),
    ({"guidance": "3.5"}, {"guidance": 3.5}),
    ({"temperature": ".5"}, {"temperature": 0.5}),
    ({"window": " 16.0 "}, {"window": 16}),
    ({"verify": " Match_Seed "}, {"verify": "match seed"}),
    ({"method": "mulo", "factor": 4}, {"factor": "4"}),
    ({"method": "mulo", "factor": "4.0"}, {"factor": "4"}),
    ({"method": "mulo", "stale_kv": True}, {"stale_kv": "on"}),
    ({"stream": "true", "partial_images": "3"}, {"stream": True, "partials": 3}),
    ({"stream": " False ", "compare": "TRUE"}, {"stream": False, "compare": True}),
    ({"size": " 64X64 "}, {"size": 64}),
    ({"size": "64 × 64"}, {"size": 64}),
    ({"size": 64}, {"size": 64}),
    ({"size": "256.0"}, {"size": 256}),
    ({"size": "AUTO"}, {"size": 128}),
    ({"width": 64, "height": "64"}, {"size": 64}),
    ({"width": 256.0}, {"size": 256}),
    ({"size": "auto", "height": 64}, {"size": 64}),
    ({"model": " pictogram "}, {"n": 1}),
    ({"cfg_scale": "3.5"}, {"guidance": 3.5}),
    ({"guidance_scale": 2}, {"guidance": 2}),
    ({"num_images": "2"}, {"n": 2}),
    ({"output_format": "JPG"}, {"format": "jpeg"}),
    ({"output_format": "webp", "output_compression": "50"}, {"format": "webp"}),
]


@pytest.mark.parametrize(("fields", "meant"), READ)
def test_a_value_that_is_clear_is_read(picto, fields, meant):
    request = request_of(picto, **fields)
    prompt = request.prompts[0]
    out = {
        "n": len(request.prompts), "seed": prompt.seed, "size": prompt.size, "guidance": prompt.sampling.guidance,
        "temperature": prompt.sampling.temperature, "stream": request.stream, "partials": request.partials, "compare": request.compare,
        "format": request.format.name, **request.knobs,
    }  # fmt: skip
    assert {name: out[name] for name in meant} == meant and not request.notes["ignored"]
    assert isinstance(prompt.seed, int) and isinstance(prompt.size, int) and isinstance(request.knobs.get("window", 0), int)


COUNT, SEED = " is not a whole number from 1 to 10.", " is not a whole number from 0 to 2,147,483,647."
REFUSED = [  # (fields, field in the error, sentence)
    *(({"n": value}, "n", f"n = {shown}{COUNT}") for value, shown in [
        (0, "0"), (11, "11"), (-1, "-1"), (1.5, "1.5"), ("1.5", "'1.5'"), (True, "true"), (False, "false"), ("two", "'two'"), ([2], "[2]"),
        ({}, "{}"), ("١", "'١'"), ("２", "'２'"), ("1_0", "'1_0'"), ("0x2", "'0x2'"), ("1,0", "'1,0'"), ("nan", "'nan'"),
        ("inf", "'inf'"), ("1e400", "'1e400'"), ("9" * 50, f"'{'9' * 37}...'"), ("true", "'true'"),
    ]),
    *(({"seed": value}, "seed", f"seed = {shown}{SEED}") for value, shown in [(-1, "-1"), (2**31, "2147483648"), ("random", "'random'")]),
    ({"guidance": "high"}, "guidance", "guidance needs a number, not 'high'."),
    ({"guidance": "99"}, "guidance", "guidance = '99' is out of range. Choose 1 to 10."),
    ({"cfg_scale": 99}, "cfg_scale", "cfg_scale = 99 is out of range. Choose 1 to 10."),
    ({"num_images": 99}, "num_images", "num_images = 99 is not a whole number"),
    ({"window": "1_6"}, "window", "window needs a number, not '1_6'."),
    ({"window": 7.5}, "window", "window = 7.5 is not a whole number."),
    ({"window": 10**30}, "window", "is out of range. Choose"),
    ({"verify": True}, "verify", "verify cannot be true. Choose one of: residual, match seed."),
    ({"verify": 3}, "verify", "verify cannot be '3'. Choose one of"),
    ({"stream": 1}, "stream", "stream must be true or false, not 1."),
    ({"compare": "yes"}, "compare", "compare must be true or false, not 'yes'."),
    ({"partial_images": 17, "stream": True}, "partial_images", "partial_images = 17 is not a whole number from 0 to 16."),
    ({"size": "512x512"}, "size", "pictogram makes pictures of 64x64, 128x128, 256x256, not 512x512. Choose one of these"),
    ({"size": "64x128"}, "size", "not 64x128"),
    ({"size": True}, "size", "not true"),
    ({"width": 512, "height": 512}, "width", "not 512x512"),
    ({"width": "wide"}, "width", "width = 'wide' is not a whole number"),
    ({"prompt": 7}, "prompt", "The prompt must be text, not 7."),
    ({"prompt": ""}, "prompt", "The prompt is empty."),
    ({"model": 7}, "model", "There is no picture model 7 here"),
    ({"output_format": "gif"}, "output_format", "output_format = 'gif' is not supported here. Choose one of: jpeg, png, webp."),
    ({"output_format": "webp", "output_compression": 101}, "output_compression", "is not a whole number from 0 to 100."),
    ({"response_format": "file"}, "response_format", "response_format = 'file' is not supported here. Choose one of: b64_json"),
    ({"windoww": 4}, "windoww", "There is no knob 'windoww' here. Did you mean 'window'?"),
    ({"seeds": 4}, "seeds", "Did you mean 'seed'?"),
    ({"image": "data:image/png;base64,AA=="}, "image", "image is an input picture, but pictures are drawn from the prompt alone here."),
    ({"mask": "x"}, "mask", "mask is an input picture"),
    ({"nodes": 4}, "nodes", "sjdpp has no knob 'nodes'. There are: "),
    ({"seed": LARGEST_SEED, "n": 2}, "seed", "2 pictures from seed 2147483647 need seeds above 2,147,483,647."),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "param", "sentence"), REFUSED)
def test_a_value_that_is_not_clear_is_quoted(picto, fields, param, sentence):
    with pytest.raises(Refused) as caught:
        request_of(picto, **fields)
    assert sentence in str(caught.value) and caught.value.param == param


BODIES = [  # (rest of the body after the prompt, sentence)
    ('"n": 1e400', "n = 1e400 is not a whole number from 1 to 10."),
    ('"seed": 1e400', "seed = 1e400 is not a whole number"),
    (f'"n": {"9" * 5000}', "n = 9999999999"),
    ('"guidance": 1e999', "guidance = 1e999 is out of range."),
    ('"window": -1e999', "window = -1e999 is out of range."),
    ('"window": NaN', "The body contains NaN, which is not valid JSON. Send a finite number."),
    ('"seed": -Infinity', "The body contains -Infinity"),
    (", ".join(f'"a{i}": 1' for i in range(MOST_FIELDS)), f"The body has {MOST_FIELDS + 1} fields"),
    ('"n"', "The body must be a JSON object with a prompt"),
]


@pytest.mark.parametrize(("rest", "sentence"), BODIES)
def test_numbers_that_only_text_can_hold_are_quoted_too(picto, rest, sentence):
    with pytest.raises(Refused) as caught:
        request_of(picto, text=f'{{"prompt": "a red apple", {rest}}}')
    assert sentence in str(caught.value)


IGNORED = [  # (fields, reported fields)
    *(({"quality": value}, ["quality"]) for value in ("low", "medium", "high", "hd", "ultra", 5)),
    *(({"quality": value}, []) for value in ("auto", "standard", "Standard", "", None)),
    ({"style": "vivid"}, ["style"]),
    ({"safety_identifier": "u-1"}, ["safety_identifier"]),
    ({"background": "transparent"}, ["background"]),
    ({"background": "opaque"}, []),
    ({"output_compression": 50}, ["output_compression"]),
    ({"output_compression": "x"}, ["output_compression"]),
    ({"partial_images": 2}, ["partial_images"]),
    ({"steps": 25}, ["steps"]),
    ({"negative_prompt": "blur"}, ["negative_prompt"]),
    ({"guidance": 2, "cfg_scale": 7}, ["cfg_scale"]),
    ({"size": "64x64", "width": 512, "height": 512}, ["width", "height"]),
    ({"clip_skip": 2, "scheduler": "euler_a", "metadata": {"a": 1}}, ["clip_skip", "scheduler", "metadata"]),
    ({"response_format": "b64_json", "quality": "hd", "style": "natural", "user": "x", "n": "1"}, ["quality", "style", "user"]),
    ({"\ud800\n" * 99: 1}, ["?" * 37 + "..."]),
]


@pytest.mark.parametrize(("fields", "names"), IGNORED)
def test_an_option_that_changes_nothing_is_reported_with_a_reason(picto, fields, names):
    request = request_of(picto, **fields)
    assert sorted(request.notes["ignored"]) == sorted(names) and all(request.notes["ignored"].values())


PROMPTS = [  # (prompt, unknown words, beginnings of the warnings)
    ("a red apple", [], []),
    ("a red apple BREAK a blue ball", ["break", "ball"], []),
    ("a cat and no red apple", [], []),
    ("a cat without an apple, never blue", ["never"], ["pictogram does not understand 'never'"]),
    ("a cat, don't draw a dog", ["don", "t", "draw"], ["pictogram does not understand 'don'"]),
    ("negative prompt: blue", ["negative", "prompt"], ["pictogram does not know anything", "pictogram does not understand 'negative'"]),
    ("a red apple яблоко", ["яблоко"], []),
    ("BREAK, red", ["break"], ["pictogram does not know anything"]),
]


@pytest.mark.parametrize(("prompt", "unknown", "warnings"), PROMPTS)
def test_words_that_a_prompt_loses_are_named(picto, prompt, unknown, warnings):
    notes = request_of(picto, prompt=prompt).notes
    assert list(notes["unknown_words"]) == unknown
    assert len(notes["warnings"]) == len(warnings)
    assert all(text.startswith(start) for text, start in zip(notes["warnings"], warnings, strict=True))


ANY_MODEL = [  # (fields, side of the picture, report)
    ({"model": "dall-e-3", "size": "1024x1024", "quality": "hd"}, 256, {"size", "quality"}),
    ({"model": "dall-e-3", "size": "1792x1024"}, 256, {"size"}),
    ({"model": "dall-e-2", "size": "256x256"}, 256, set()),
    ({"model": "gpt-image-1"}, 128, set()),
    ({"model": "gpt-image-1", "size": "auto"}, 128, set()),
    ({"model": "flux", "width": 90, "height": 90}, 64, {"width"}),
    ({"model": "gemini", "size": "2K"}, 128, {"size"}),
    ({"size": "100x50"}, 64, {"size"}),
]


@pytest.mark.parametrize(("fields", "side", "reported"), ANY_MODEL)
def test_any_model_is_answered_by_ours_in_the_nearest_size(picto, fields, side, reported):
    request = request_of(picto, any_model=True, **fields)
    assert request.prompts[0].size == side and set(request.notes["ignored"]) == reported and request.notes["model"] == "pictogram"
    assert all(f"{side}x{side}" in request.notes["ignored"][name] for name in reported & {"size", "width"})


def test_a_model_that_is_no_name_is_refused_by_any_studio(picto):
    with pytest.raises(Refused, match="There is no picture model 7"):
        request_of(picto, any_model=True, model=7)


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_a_picture_is_written_in_each_format(name):
    picture = np.zeros((16, 24, 3), np.uint8)
    picture[:, 12:] = (250, 10, 60)
    file = FORMATS[name].write(picture, {"seed": 7})
    with Image.open(io.BytesIO(file)) as read_again:
        assert read_again.format == FORMATS[name].name.upper() and ("foretoken" in read_again.info) == (name == "png")
        assert np.abs(np.asarray(read_again.convert("RGB")).astype(int) - picture).max() <= (40 if FORMATS[name].name == "jpeg" else 0)


def test_a_low_quality_is_a_small_file():
    picture = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    for name in ("jpeg", "webp"):
        small, large = (len(FORMATS[name].with_quality(quality).write(picture)) for quality in (0, 100))
        assert small < large / 2
