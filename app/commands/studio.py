"""`launch.py studio`: opens the studio in the browser (the default)."""

from __future__ import annotations

import socket
from collections.abc import Sequence

from app.commands.options import Parser, add_model, file_path, whole


def parser() -> Parser:
    """The parser of the command's options."""
    p = Parser("studio", "Opens the studio in the browser.")
    p.add_argument("--port", type=whole(1, 65_535), help="the first port to try (7860)")
    p.add_argument("--host", default="127.0.0.1", help="the address to listen on; 0.0.0.0 allows other machines")
    p.add_argument("--allow-host", action="append", default=[], metavar="HOST", help="another host name for the page; may be repeated")
    p.add_argument("--no-browser", action="store_true")
    p.add_argument("--data", type=file_path, metavar="FOLDER", help="where finished runs are kept (the user's data folder)")
    p.add_argument("--keep", type=whole(1, 1_000_000), metavar="RUNS", help="how many runs are kept; then the oldest are deleted (1000)")
    p.add_argument("--mcp", action="store_true", help="offers the endpoints as tools to MCP clients, too")
    add_model(p)
    return p


def main(arguments: Sequence[str]) -> int:
    """Serves the page until it is interrupted; always returns 130."""
    options = parser().read(arguments)
    check_host(options.host)
    from app.history import check_writable
    from app.limits import Limits
    from app.studio import launch
    from engine.backbones import resolve

    name, path = resolve(options.backbone)
    more = {"allowed_hosts": tuple(options.allow_host)} if options.allow_host else {}
    if options.data:
        check_writable(options.data)
        more["data"] = options.data.resolve()
    if options.mcp:
        more["mcp"] = True
    if options.keep:
        more["limits"] = Limits(runs=options.keep)
    launch(name, path, options.device, options.port, options.host, not options.no_browser, options.dtype, **more)
    return 130


def check_host(host: str) -> None:
    """Raises NotSupported if the host is not an address of this machine."""
    from engine.errors import NotSupported

    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        try:
            if not host.strip():
                raise OSError("it is empty")
            probe.bind((host, 0))
        except (OSError, ValueError) as e:  # ValueError: a name that no resolver accepts
            said = getattr(e, "strerror", None) or e
            raise NotSupported(f"'{host}' is not an address of this machine ({said}). Use --host 127.0.0.1, or 0.0.0.0 for all.") from e
