"""What a page may keep and take: for the people of one machine, and for strangers on a shared page."""

from __future__ import annotations

from dataclasses import dataclass

from app.live.uploads import BYTES

LOCAL = "Foretoken runs on this machine only: no prompt, picture or number leaves it."
SHARED = (
    "This page runs on a server. Your prompts and files are sent to it and are deleted when you close the page; nobody else who uses "
    "the page can see them, and the server keeps no history. The runs that the page lists are kept by your browser alone."
)


@dataclass(frozen=True)
class Limits:
    """The limits of one studio.

    upload    : most bytes of an uploaded file
    leftovers : seconds; how often Gradio deletes files that nobody fetched, and how old they must be
    idle      : seconds after which a visit ends whose page was never seen to close
    waiting   : most requests in the queue; None = any number
    runs, run_bytes : how many finished runs are kept, and how many bytes in all; the oldest go first. 0 runs: none is kept
    shared    : strangers use the page
    privacy   : what the page says about their data
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
