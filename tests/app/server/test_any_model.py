"""A studio that accepts any model name, for programs with a fixed model and size."""

from __future__ import annotations

from collections.abc import Iterator

import openai
import pytest


@pytest.fixture(scope="module")
def client(open_studio) -> Iterator[openai.OpenAI]:
    """OpenAI's client of such a studio."""
    with open_studio(any_model=True) as address, openai.OpenAI(base_url=f"{address}/v1", api_key="any", max_retries=0) as client:
        yield client


def test_any_model_name_is_answered_and_the_answer_says_by_which(client):
    response = client.images.generate(model="dall-e-3", prompt="a red apple", size="1024x1024", quality="hd", style="vivid", n=1)
    assert response.size == "256x256" and response.foretoken["model"] == response.data[0].foretoken["model"] == "pictogram"
    assert "size" in response.foretoken["ignored"]


def test_a_stream_says_which_model_it_is(client):
    events = [*client.images.generate(model="gpt-image-1", prompt="a red apple", size="1024x1024", stream=True)]
    assert {each.foretoken["model"] for each in events} == {"pictogram"}


@pytest.mark.parametrize("name", ["dall-e-3", "openai/dall-e-3", "pictogram"])
def test_any_model_is_there_and_its_root_is_ours(client, name):
    model = client.models.retrieve(name)
    assert model.id == name and model.root == "pictogram"


def test_the_list_names_the_model_that_is_there(client):
    assert [model.id for model in client.models.list()] == ["pictogram"]
