"""The endpoints as tools for MCP clients, tested with the protocol's own library. Without --mcp there is no MCP server."""

from __future__ import annotations

import asyncio
import base64
import io
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from mcp import ClientSession
from mcp.client.streamable_http import streamablehttp_client
from mcp.types import CallToolResult, ImageContent, TextContent
from PIL import Image

from app.commands import studio as command
from app.requests import meshes
from app.server import tools
from engine.errors import NotSupported
from engine.mesh.read import read

CHAIR = meshes.EXAMPLES / "chair.ply"


@pytest.fixture(scope="module")
def studio(open_studio) -> Iterator[Any]:
    """A studio with tools."""
    with open_studio(mcp=True) as address:
        yield address


def run_client(address: str, ask: Callable[[ClientSession], Any]) -> Any:
    """Result of a function called with a client in its own session."""

    async def session() -> Any:
        async with streamablehttp_client(f"{address}{tools.PATH}") as (reading, writing, _):
            async with ClientSession(reading, writing) as client:
                await client.initialize()
                return await ask(client)

    with ThreadPoolExecutor(1) as thread:  # a browser of other tests has a loop in this one
        return thread.submit(asyncio.run, session()).result()


def call(address: str, tool: str, progress: Callable | None = None, **arguments: Any) -> CallToolResult:
    """The result of a tool call. progress : called with its progress"""
    return run_client(address, lambda client: client.call_tool(tool, arguments, progress_callback=progress))


def tools_by_name(address: str) -> dict[str, Any]:
    """The tools by the ends of their names, which Gradio prefixes with the page's title."""
    tools = run_client(address, lambda client: client.list_tools()).tools
    return {end: tool for tool in tools for end in ("generate_image", "generate_mesh") if tool.name.endswith(end)}


def texts(result: CallToolResult) -> str:
    """Texts of a result."""
    return " ".join(part.text for part in result.content if isinstance(part, TextContent))


def test_both_endpoints_are_tools_with_a_description(studio):
    tools = tools_by_name(studio)
    assert set(tools) == {"generate_image", "generate_mesh"}
    assert len(run_client(studio, lambda client: client.list_tools()).tools) == 2, "the page's own handlers are no tools"
    assert all(tool.description for tool in tools.values())
    assert set(tools["generate_image"].inputSchema["properties"]) == {"prompt", "method", "seed", "size", "settings"}


@pytest.mark.parametrize("watched", [False, True])
def test_a_picture_comes_as_a_picture(studio, watched):
    updates: list[Any] = []

    async def progress(*news: Any) -> None:
        updates.append(news)

    name = tools_by_name(studio)["generate_image"].name
    result = call(studio, name, progress if watched else None, prompt="a red apple", size=64, seed=3, settings={"window": 5})
    assert bool(updates) == watched
    (picture,) = [part for part in result.content if isinstance(part, ImageContent)]
    with Image.open(io.BytesIO(base64.b64decode(picture.data))) as image:
        assert image.size == (64, 64)
    assert not result.isError and "'exact': True" in texts(result) and "'tokens': 64" in texts(result)


def test_a_mesh_comes_from_a_cloud_in_the_call(studio):
    lines = "\n".join(" ".join(map(str, point)) for point in read(CHAIR).points.tolist())  # x y z and a normal
    cloud = f"data:text/plain;base64,{base64.b64encode(lines.encode()).decode()}"
    result = call(studio, tools_by_name(studio)["generate_mesh"].name, cloud=cloud, settings={"face_budget": 8})
    assert not result.isError and ".glb" in texts(result) and "'watertight'" in texts(result), texts(result)


def test_a_wrong_value_is_the_sentence(studio):
    result = call(studio, tools_by_name(studio)["generate_image"].name, prompt="a cat", method="magic")
    assert result.isError and "There is no method 'magic'" in texts(result)


@pytest.mark.parametrize("cloud", ["http://127.0.0.1:1/x.ply", "https://example.org/x.ply", "/etc/passwd"])
def test_no_tool_fetches_or_reads_what_a_caller_names(studio, cloud):
    result = call(studio, tools_by_name(studio)["generate_mesh"].name, cloud=cloud)
    assert result.isError and "passwd:" not in texts(result), texts(result)


def test_without_being_asked_for_there_is_no_such_server(served):
    assert httpx.post(f"{served.address}{tools.PATH}", json={}).status_code in (404, 405)


def test_the_command_asks_for_it(monkeypatch):
    launched: list[bool] = []
    monkeypatch.setattr("app.server.studio.launch", lambda *_, mcp, **more: launched.append(mcp))
    command.main(["--mcp"])
    command.main([])
    assert launched == [True, False]


def test_a_missing_package_is_a_sentence(monkeypatch):
    monkeypatch.setattr(tools, "find_spec", lambda name: None)
    with pytest.raises(NotSupported, match="pip install 'mcp<2'"):
        tools.check_installed()
