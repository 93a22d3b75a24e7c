"""The endpoint /replay: the steps of a finished run, in order, from its trace. It needs no model, so it does not wait for the engine.

It yields {"step", "positions", "tokens", "accepted", "drafted", "passes", "draft_passes", "seconds", "exact", "knobs"} for each step, where
`accepted` is true for each token that was a draft (None: not recorded), and finally the totals of the run.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gradio as gr
import numpy as np
from gradio.data_classes import FileData

from app.live.uploads import adopt
from app.runs.finished import read_trace
from app.runs.history import TRACE
from app.sentences import brief, without_paths
from app.server.endpoints import path_sent
from app.shared import StudioState
from engine.core import Step
from engine.diagnostics import per_token, replay
from engine.errors import BadFile, BadPrompt, ForetokenError

BYTES = 64 * 2**20  # maximum size of a trace's arrays
NO_FILE = "trace must be a file uploaded with this call. Use gradio_client's handle_file."
NO_RUN = "There is no run '{}' in this studio. Give the folder of a saved run, such as 20260101-120000-sjdpp-7."
NOT_HERE = "This studio is shared, so runs cannot be named. Send the run's trace.npz."
NOTHING = "There is nothing to replay. Send a run's trace.npz, or name its folder."


def build(page: gr.Blocks, studio: StudioState) -> None:
    """Adds the endpoint to the page."""

    def replay(trace: dict | None = None, run: str = "", request: gr.Request = None) -> Iterator[dict]:
        """Replays a finished run step by step: the positions and tokens of every step, and which of them were accepted drafts.

        trace: the run's trace.npz; run: instead of the file, the name of the run's folder among the saved runs of this studio
        """
        try:
            path, own = locate(studio, request.session_hash, trace, run)
            try:
                arrays = read_trace(path, BYTES)
            finally:
                if own:
                    shutil.rmtree(path.parent, ignore_errors=True)
            yield from events(arrays)
        except ForetokenError as e:
            raise gr.Error(without_paths(str(e)), print_exception=False) from e

    replay.__annotations__ |= {"return": dict, "trace": dict, "request": gr.Request}  # Gradio reads types here
    added = gr.api(replay, concurrency_id="replaying", concurrency_limit=2)
    page.fns[added["id"]].inputs[0]._api_info = FileData.model_json_schema()


def locate(studio: StudioState, caller: str, trace: object, run: object) -> tuple[Path, bool]:
    """(path of a call's trace, True if it is a copy to delete with its folder); raises BadFile or BadPrompt."""
    if trace:
        return adopt(path_sent(trace, NO_FILE), studio.sessions.new_folder(caller)), True
    if not run:
        raise BadPrompt(NOTHING)
    if not studio.local:
        raise BadPrompt(NOT_HERE)
    names = {stored.folder.name: stored.folder for stored in studio.run_store.runs()}
    if not isinstance(run, str) or run not in names:
        raise BadFile(NO_RUN.format(brief(run)))
    return names[run] / TRACE, False


def events(arrays: dict[str, np.ndarray]) -> Iterator[dict[str, Any]]:
    """Yield the endpoint's values for a trace."""
    steps: list[Step] = []
    for number, step in enumerate(replay(arrays)):
        steps.append(step)
        yield {
            "step": number,
            "positions": step.positions,
            "tokens": step.tokens,
            "accepted": acceptance(step),
            "drafted": step.drafted,
            "passes": step.forwards,
            "draft_passes": step.draft_forwards,
            "seconds": step.seconds,
            "exact": step.exact,
            "knobs": step.knobs,
        }
    yield totals(steps)


def acceptance(step: Step) -> list[bool | None]:
    """For each token of a step, True if it was an accepted draft; None if the method recorded nothing."""
    return [None if np.isnan(each) else bool(each) for each in per_token(step, "accepted")]


def totals(steps: list[Step]) -> dict[str, Any]:
    """Totals of a run."""
    tokens, passes = sum(len(step.tokens) for step in steps), sum(step.forwards for step in steps)
    return {
        "steps": len(steps),
        "tokens": tokens,
        "drafted": sum(step.drafted for step in steps),
        "accepted": sum(each is True for step in steps for each in acceptance(step)),
        "passes": passes,
        "draft_passes": sum(step.draft_forwards for step in steps),
        "tokens_per_pass": tokens / passes if passes else 0.0,
        "seconds": sum(step.seconds for step in steps),
        "exact": all(step.exact for step in steps),
    }
