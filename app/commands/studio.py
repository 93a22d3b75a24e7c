"""`launch.py studio`: opens the studio in the browser (the default)."""

from __future__ import annotations

import argparse
import re
import socket
from collections.abc import Sequence

from app.commands.options import CommandParser, add_model, file_path, whole

ROOT_PATH = re.compile(r"(/[\w.~-]+)*", re.ASCII)


def parser() -> CommandParser:
    """The parser of the command's options."""
    p = CommandParser("studio", "Opens the studio in the browser.")
    p.add_argument("--port", type=whole(1, 65_535), help="the first port to try (7860)")
    p.add_argument("--host", default="127.0.0.1", help="the address to listen on; 0.0.0.0 allows other machines")
    p.add_argument("--allow-host", action="append", default=[], metavar="HOST", help="another host name for the page; may be repeated")
    p.add_argument("--no-browser", action="store_true")
    p.add_argument("--data", type=file_path, metavar="FOLDER", help="where finished runs are stored (the user's data folder)")
    p.add_argument("--keep", type=whole(1, 1_000_000), metavar="RUNS", help="maximum stored runs; then the oldest are deleted (1000)")
    p.add_argument("--mcp", action="store_true", help="also offer the endpoints as tools to MCP clients")
    p.add_argument("--any-model", action="store_true", help="let the images API accept any model name, such as dall-e-3, and any size")
    p.add_argument("--root-path", type=root_path, metavar="PATH", help="path under which a proxy serves the studio, such as /foretoken")
    p.add_argument("--api-key-file", type=file_path, metavar="FILE", help="a text file with the key that is required under /v1")
    add_model(p)
    return p


def main(arguments: Sequence[str]) -> int:
    """Serves the page until it is interrupted; always returns 130."""
    options = parser().read(arguments)
    check_host(options.host)
    from app.limits import Limits
    from app.runs.history import check_writable
    from app.server.key import read_key
    from app.server.studio import launch
    from engine.backbones import resolve

    name, path = resolve(options.backbone)
    if options.data:
        check_writable(options.data)
    limits = Limits(runs=options.keep) if options.keep else None
    launch(
        name, path, options.device, options.port, options.host, not options.no_browser, options.dtype, allowed_hosts=options.allow_host,
        data=options.data and options.data.resolve(), limits=limits, mcp=options.mcp, any_model=options.any_model,
        root_path=options.root_path, weights=options.weights, api_key=read_key(options.api_key_file) if options.api_key_file else "",
    )  # fmt: skip
    return 130


def root_path(text: str) -> str:
    """Option type for a path that begins with a slash; removes slashes at its end. "" is the root."""
    path = text.rstrip("/")
    if not text.startswith("/") or not ROOT_PATH.fullmatch(path):
        raise argparse.ArgumentTypeError(f"{text!r} is not a path such as /foretoken")
    return path


def check_host(host: str) -> None:
    """Raises NotSupported unless the host is an address of this machine."""
    from engine.errors import NotSupported

    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        try:
            if not host.strip():
                raise OSError("it is empty")
            probe.bind((host, 0))
        except (OSError, ValueError) as e:  # ValueError: a name that no resolver accepts
            reason = getattr(e, "strerror", None) or e
            raise NotSupported(f"'{host}' is not an address of this machine ({reason}). Use --host 127.0.0.1, or 0.0.0.0 for all.") from e
