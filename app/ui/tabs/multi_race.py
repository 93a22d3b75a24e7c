"""A race of two to four finished runs, shown in place of the last race: panels and downloads.

The runs are chosen in the table of runs, and the browser replays them from its own memory. The server only makes the files, from data
that the page sends back, and stores none of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gradio as gr

from app.live.session import Sessions
from app.runs import mesh_pictures, race_files, replay_page, video
from app.runs.replay_page import PageText
from app.runs.uploaded_runs import UploadedRun, read_runs
from app.ui.panels import canvas, mesh, notice, replay, runs
from app.ui.panels import lanes as lanes_panel
from app.ui.tabs.engine_queue import DIRECT
from app.ui.tabs.saving import try_save
from engine.errors import BadPrompt, ForetokenError
from engine.methods import METHODS

NAMES = canvas.LANES
# one at a time, because all frames are in memory; not queued behind pictures of runs, which may take minutes on a busy machine
MAKING = DIRECT | {"queue": True, "concurrency_id": "race", "concurrency_limit": 1, "trigger_mode": "once"}
FIRST = "the first run"


class Lanes:
    """Panels of a race of several runs, hidden until the table of runs starts one. kind : pictures or meshes"""

    def __init__(self, kind: runs.RunsTable):
        self.kind, self.meshes = kind, kind is runs.MESHES
        self.kinds = [name for name in lanes_panel.FILES if name != "mp4" or video.is_there()]
        file = f"{kind.lanes}-file"
        with gr.Column(elem_classes="ft-lanes", elem_id=f"{kind.lanes}-race"):
            ids = [kind.lanes + "-view"] if self.meshes else [f"canvas-{name}" for name in NAMES]
            self.head = lanes_panel.build(kind.lanes, kind.last, ids, file, self.kinds)
            self.views = self._build_views()
            self.replay = replay.build(f"{kind.lanes}-replay")
            self.file = gr.DownloadButton("File", visible="hidden", elem_id=file)

    def _build_views(self) -> dict[str, gr.HTML]:
        if self.meshes:
            return {"viewer": mesh.build(None, f"{self.kind.lanes}-view", NAMES)}
        with gr.Row(elem_classes="ft-lanes-row"):
            return {name: canvas.build(name, "", "") for name in NAMES}

    def wire(self, sessions: Sessions, messages: gr.HTML) -> None:
        """Connects the download buttons. messages : panel for errors"""

        def make(value: object, request: gr.Request) -> tuple[Any, Any]:
            try:
                path, lost = self.make(value, sessions.folder(request.session_hash))
            except ForetokenError as e:
                return gr.DownloadButton(value=None, interactive=False), notice.error(e)
            return gr.DownloadButton(value=str(path) if path else None, interactive=bool(path)), notice.error(*lost)

        event = self.head.input(make, self.head, [self.file, messages], **MAKING)
        script = f"() => window.dispatchEvent(new CustomEvent('foretoken:made', {{ detail: '{self.kind.lanes}' }}))"
        event.then(None, None, None, js=script)

    def make(self, value: object, folder: Path) -> tuple[Path | None, list[ForetokenError]]:
        """Makes the requested file; returns its path, or None and the disk's error. Raises ForetokenError for an invalid request."""
        kind = value.get("make") if isinstance(value, Mapping) else None
        if kind not in self.kinds:
            raise BadPrompt(f"Unknown file type for a race. Choose one of {', '.join(self.kinds)}.")
        lanes = read_runs(value, self.meshes)
        path = folder / f"foretoken-race-of-{len(lanes)}.{kind}"
        if kind == "html":
            parts = self.views | {"replay": self.replay}
            return try_save("file", lambda: write_page(lanes, parts, value, path))
        words, colours = [lane.words for lane in lanes], race_files.LANES[: len(lanes)]
        return try_save("file", lambda: mesh_pictures.write_any(lanes, words, path, self.meshes, colours))


def write_page(lanes: Sequence[UploadedRun], parts: Mapping[str, gr.HTML], value: Mapping[str, Any], path: Path) -> Path:
    """Writes a race as an HTML file that replays it. parts : panels of the page, by name; value : data sent by the page"""
    values = {
        name: {**lane.value, "side": name, "title": lane.title, "about": lane.about} for name, lane in zip(NAMES, lanes, strict=False)
    }
    if "viewer" in parts:
        points = value["lanes"][0].get("points")
        values = {"viewer": {"state": "done", "sides": values, "points": points if isinstance(points, str) else ""}}
    prompts = {str(lane.settings.get("prompt") or "") for lane in lanes}
    title = prompts.pop() if len(prompts) == 1 else ""
    lines = [(lane.words, facts(lane.settings, bool(title))) for lane in lanes]
    texts = PageText(title or f"A race of {len(lanes)} runs", "Each run on its own clock.", lines, lanes[0].settings, FIRST)
    return replay_page.write(path, replay_page.LANES, parts, values, texts)


def facts(settings: Mapping[str, Any], shared: bool) -> dict[str, str]:
    """Settings of a run as text, by name. shared : its prompt is in the title"""
    knobs, machine = (settings[name] if isinstance(settings.get(name), Mapping) else {} for name in ("knobs", "machine"))
    name, size = str(settings.get("method", "")), settings.get("size")
    entries = {
        "model": settings.get("backbone"), "prompt": None if shared else settings.get("prompt"), "seed": settings.get("seed"),
        "size": f"{size} px" if size and settings.get("input") is None else None,
        "method": METHODS[name].title if name in METHODS else name,
        "knobs": ", ".join(f"{str(knob).replace('_', ' ')} {value}" for knob, value in knobs.items()), "machine": machine.get("processor"),
    }  # fmt: skip
    return {name: str(value) for name, value in entries.items() if value not in (None, "")}
