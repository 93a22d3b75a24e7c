"""A studio under a path of a reverse proxy: page, files, theme, images API and gradio_client, all through the proxy."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urljoin

import httpx
import pytest
from gradio_client import Client
from PIL import Image

from app.commands import studio as command
from app.server import studio
from app.server.prefix import Prefix
from engine.errors import ForetokenError
from tests.app.server.proxy import serve_proxy

PREFIX = "/tools/foretoken"
BY_HEADER = {"X-Forwarded-Prefix": PREFIX}
NOT_MOVED = "/manifest.json"  # Gradio's template omits the path, so such a page cannot be installed as an app
CASES = {  # name: (option --root-path, True if the proxy removes the path, headers that it adds)
    "option": (PREFIX, True, {}),
    "option, path passed on": (PREFIX, False, {}),
    "option and header": (PREFIX, True, BY_HEADER),
    "header": ("", True, BY_HEADER),
    "header, path passed on": ("", False, BY_HEADER),
}

pytestmark = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")  # of Gradio's threads


@pytest.fixture(scope="module")
def studios(open_studio) -> Iterator[dict[str, str]]:
    """Addresses of two studios, by their option."""
    with open_studio(root_path=PREFIX) as with_option, open_studio(root_path="") as without:
        yield {PREFIX: with_option, "": without}


@pytest.fixture(scope="module", params=list(CASES))
def outer(request, studios) -> Iterator[str]:
    """The address of a studio behind a proxy."""
    option, strips, headers = CASES[request.param]
    with serve_proxy(studios[option], PREFIX, strips, headers, studio.free_port("127.0.0.1", 38_400)) as address:
        yield address


def test_the_page_and_all_that_it_loads_lie_under_the_path(outer):
    page = httpx.get(f"{outer}/", timeout=60)
    assert page.status_code == 200 and f'"root":"{outer}"' in page.text.replace(" ", "")
    links = {urljoin(f"{outer}/", link) for link in re.findall(r'(?:src|href)="([^"#]+)"', page.text) if not link.startswith("data:")}
    own = {link for link in links if link.startswith(outer.removesuffix(PREFIX))} - {outer.removesuffix(PREFIX) + NOT_MOVED}
    assert len(own) > 2 and all(link.startswith(outer) for link in own)
    assert {link: httpx.get(link, timeout=60).status_code for link in own} == dict.fromkeys(own, 200)


@pytest.mark.parametrize("path", ["", "/", "/config", "/theme.css", "/manifest.json", "/gradio_api/info", "/metrics", "/v1/models"])
def test_a_path_is_served(outer, path):
    assert httpx.get(f"{outer}{path}", timeout=60).status_code == 200


def test_the_configuration_names_the_outer_address(outer):
    assert httpx.get(f"{outer}/config", timeout=60).json()["root"] == outer


def test_the_images_api_is_served(outer):
    response = httpx.post(f"{outer}/v1/images/generations", json={"prompt": "a red apple", "size": "64x64"}, timeout=120)
    assert response.status_code == 200 and response.json()["size"] == "64x64"
    nowhere = httpx.post(f"{outer}/images/generations", json={}, timeout=60)
    assert nowhere.status_code == 404 and "There is no POST /images/generations here" in nowhere.json()["error"]["message"]


def test_gradio_client_calls_an_endpoint_and_fetches_its_file(outer, tmp_path):
    client = Client(f"{outer}/", verbose=False, download_files=str(tmp_path))
    file, totals = client.predict("a red apple", "sjdpp", 7, 64, {}, api_name="/generate_image")
    client.close()
    with Image.open(file) as picture:
        assert picture.size == (64, 64) and totals["state"] == "done"


def test_the_forwarded_host_and_scheme_count_too(studios):
    sent = {"X-Forwarded-Prefix": f"{PREFIX}/, /other", "X-Forwarded-Host": "a.example, b.example", "X-Forwarded-Proto": "https"}
    assert httpx.get(f"{studios['']}/config", headers=sent).json()["root"] == f"https://a.example{PREFIX}"


@pytest.mark.parametrize("sent", ["", "/", "foretoken", "//evil.example", "/a b", '/a"><script>', "/../..?x", "http://evil.example/x"])
def test_a_header_that_is_no_path_is_ignored(studios, sent):
    root = httpx.get(f"{studios['']}/config", headers={"X-Forwarded-Prefix": sent}).json()["root"]
    assert root == studios[""]


def test_the_studio_itself_still_answers_without_the_path(studios):
    for path in ("/", "/v1/models", f"{PREFIX}/v1/models"):
        assert httpx.get(f"{studios[PREFIX]}{path}", timeout=60).status_code == 200
    assert httpx.get(f"{studios[PREFIX]}{PREFIX}x/v1/models").status_code == 404


PASSED_ON = [  # (option, path of a request, path that the studio sees)
    ("/a", "/a/b", "/b"),
    ("/a", "/a", "/"),
    ("/a", "/ab", "/ab"),
    ("/a", "/b", "/b"),
    ("https://example.org/a/", "/a/b", "/b"),
    ("", "/a/b", "/a/b"),
]


@pytest.mark.parametrize(("root", "path", "inner"), PASSED_ON)
def test_the_path_of_the_proxy_is_removed_once(root, path, inner):
    scopes = []

    async def app(scope, receive, send):
        scopes.append(scope)

    call = Prefix(app, root)({"type": "http", "path": path, "raw_path": path.encode(), "headers": []}, None, None)
    with ThreadPoolExecutor(1) as thread:  # a browser of other tests has a loop in this one
        thread.submit(asyncio.run, call).result()
    assert [(scope["path"], scope["raw_path"]) for scope in scopes] == [(inner, inner.encode())]


@pytest.mark.parametrize(("text", "path"), [("/foretoken", "/foretoken"), ("/a/b.c-d~e_f/", "/a/b.c-d~e_f"), ("/", ""), ("//", "")])
def test_the_option_is_a_path(text, path):
    assert command.parser().read(["--root-path", text]).root_path == path


@pytest.mark.parametrize("text", ["foretoken", "", "/a b", "/a?b", "https://example.org/a", "/a//b", "/ä"])
def test_an_option_that_is_no_path_is_a_sentence(text):
    with pytest.raises(ForetokenError, match="is not a path such as /foretoken"):
        command.parser().read(["--root-path", text])


@pytest.mark.parametrize(
    ("arguments", "launched"),
    [
        ([], {}),
        (["--any-model"], {"any_model": True}),
        (["--root-path", "/foretoken/"], {"root_path": "/foretoken"}),
        (["--root-path", "/"], {"root_path": ""}),
    ],
)
def test_the_command_passes_its_options_on(monkeypatch, arguments, launched):
    out = {}
    monkeypatch.setattr("app.server.studio.launch", lambda *_, **more: out.update(more))
    command.main(arguments)
    assert out.items() >= launched.items()
