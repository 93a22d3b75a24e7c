"""A studio with --api-key-file answers only requests under /v1 that carry the key."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import openai
import pytest

from app.server import key
from app.server.key import ApiKey, read_key
from app.server.refusals import Refused
from engine.errors import NotSupported


@pytest.fixture(scope="module")
def address(open_studio) -> Iterator[str]:
    """A studio with a key."""
    with open_studio(api_key="hunter2-ü") as address:
        yield address


def test_the_key_opens_and_another_does_not(address):
    right = "hunter2-ü"
    assert httpx.get(f"{address}/v1/models", headers={"Authorization": f"Bearer {right}".encode()}).status_code == 200
    for wrong_key in ("hunter2", "hunter2-", "HUNTER2-ü", "x" * 5000, right + "x"):
        wrong = httpx.get(f"{address}/v1/models", headers={"Authorization": f"Bearer {wrong_key}".encode()})
        assert wrong.status_code == 401 and wrong.json()["error"]["code"] == "invalid_api_key", wrong_key


@pytest.mark.parametrize("headers", [{}, {"Authorization": ""}, {"Authorization": "Bearer"}, {"Authorization": "Basic aHVudGVyMg=="}])
def test_no_key_is_a_sentence_on_every_path(address, headers):
    for method, path in (("POST", "images/generations"), ("GET", "models"), ("GET", "models/pictogram"), ("GET", "elsewhere")):
        answer = httpx.request(method, f"{address}/v1/{path}", headers=headers)
        assert answer.status_code == 401 and "asks for an API key" in answer.json()["error"]["message"]


def test_openais_client_says_what_it_is(address):
    with openai.OpenAI(base_url=f"{address}/v1", api_key="another", max_retries=0) as client:
        with pytest.raises(openai.AuthenticationError) as e:
            client.images.generate(prompt="a cat", model="pictogram")
    assert e.value.code == "invalid_api_key" and "hunter2" not in str(e.value)


def test_keys_are_compared_in_constant_time(monkeypatch):
    compared = []
    monkeypatch.setattr(key.hmac, "compare_digest", lambda a, b: compared.append((a, b)) or a == b)
    ApiKey("secret").check({"authorization": "Bearer secret"})
    with pytest.raises(Refused):
        ApiKey("secret").check({"authorization": "Bearer secreT"})
    assert compared == [(b"secret", b"secret"), (b"secreT", b"secret")]


def test_without_a_key_nothing_is_asked():
    ApiKey("").check({})


@pytest.mark.parametrize("key", ["secret", " secret", "secret\n", "\tsecret\r\n"])
def test_blanks_around_the_key_do_not_count(key, tmp_path):
    (tmp_path / "key.txt").write_text(key)
    key = read_key(tmp_path / "key.txt")
    ApiKey(key).check({"authorization": "Bearer secret"})
    with pytest.raises(Refused):
        ApiKey(key).check({"authorization": "Bearer other"})


@pytest.mark.parametrize("content", [b" ", b"\n", b"", b"\xff\xfe"])
def test_a_file_without_a_key_does_not_open_the_studio(content, tmp_path):
    (tmp_path / "key.txt").write_bytes(content)
    with pytest.raises(NotSupported, match=r"holds no key|cannot be read"):
        read_key(tmp_path / "key.txt")
    with pytest.raises(NotSupported, match="cannot be read"):
        read_key(tmp_path / "nothing.txt")
