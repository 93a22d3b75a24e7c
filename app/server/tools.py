"""The named endpoints as tools for MCP clients, through Gradio's own MCP server; off by default."""

from __future__ import annotations

import asyncio
from importlib.util import find_spec
from typing import Any

from engine.errors import NotSupported

PATH = "/gradio_api/mcp/"
INSTALL = "--mcp needs the package mcp below version 2, which Gradio's server speaks. Install it: .venv/bin/python -m pip install 'mcp<2'."


def check_installed() -> None:
    """Raises NotSupported unless the package `mcp` is installed in a version that Gradio's server can use."""
    if find_spec("mcp") is None or find_spec("mcp.server.lowlevel.helper_types") is None or find_spec("mcp.server.fastmcp") is None:
        raise NotSupported(INSTALL)


def mend(server: Any) -> None:
    """Makes Gradio's MCP server return several results of an endpoint separately. Otherwise, unless a client asks for progress, it merges
    them, and a picture arrives as the text of its path."""

    async def results(job: Any) -> list[Any]:
        result = await asyncio.to_thread(job.result)
        return list(result) if isinstance(result, tuple | list) else [result]

    server._execute_tool_without_progress = results
