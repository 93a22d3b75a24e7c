"""Limits on uploads and stored runs, for a local page and for a page that is open to strangers."""

from __future__ import annotations

from dataclasses import dataclass

from app.live.uploads import BYTES

LOCAL = "Foretoken runs on this machine only: no prompt, picture or number leaves it."
SHARED = (
    "This page runs on a server. Your prompts and files are sent to it and are deleted when you close the page; nobody else who uses "
    "the page can see them, and the server keeps no history. The runs that the page lists are stored only in your browser."
)


@dataclass(frozen=True)
class Limits:
    """The limits of one studio.

    upload    : maximum bytes of an uploaded file
    leftovers : seconds between Gradio's deletions of files that nobody fetched, and their minimum age in seconds
    idle      : seconds after which a visit expires if its page never reported that it closed
    waiting   : maximum requests in the queue; None = unlimited
    runs, run_bytes : maximum finished runs and their total bytes; the oldest are deleted first. 0 runs: none is stored
    shared    : the page is open to strangers
    privacy   : the page's statement about visitors' data
    """

    upload: int = BYTES
    leftovers: tuple[int, int] = (3600, 86_400)
    idle: float = 86_400.0
    waiting: int | None = None
    runs: int = 1000
    run_bytes: int = 4 * 2**30
    shared: bool = False
    privacy: str = LOCAL


STRANGERS = Limits(
    upload=16 * 2**20, leftovers=(300, 1800), idle=3600.0, waiting=60, runs=0, run_bytes=0, shared=True, privacy=SHARED
)  # fmt: skip
