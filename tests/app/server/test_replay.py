"""/replay through gradio_client: a finished run's exact steps, from its file or by its name; a sentence for anything else."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gradio_client import Client, handle_file
from gradio_client.exceptions import AppError

from app.limits import STRANGERS
from app.requests import pictures
from app.runs import history
from app.runs.finished import read_trace
from app.server import replaying
from engine.diagnostics import per_token
from engine.errors import BadFile
from engine.methods import find
from engine.run import Run, generate


@pytest.fixture(scope="module")
def studio(open_studio) -> Iterator[Any]:
    """A local studio with runs."""
    with open_studio() as address:
        yield address


@pytest.fixture(scope="module")
def client(studio, tmp_path_factory) -> Client:
    """A program on this machine."""
    return Client(studio, verbose=False, download_files=tmp_path_factory.mktemp("downloads"))


@pytest.fixture(scope="module")
def run(picto) -> Run:
    """A finished run."""
    return generate(picto, find("sjdpp")[0], pictures.read_prompt("a red apple", 2, {"values": {"size": "64 px"}}, picto)).finish()


@pytest.fixture(scope="module")
def folder(studio, run) -> Path:
    """Folder of the saved run."""
    return studio.run_store.save(run)


def near(value: Any) -> Any:
    """A number as stored in a trace: rounded to float32."""
    return pytest.approx(value) if isinstance(value, float) else value


def expected_events(run: Run) -> list[dict[str, Any]]:
    """Expected output of the endpoint for every step of a run."""
    return [
        {
            "step": number,
            "positions": step.positions,
            "tokens": step.tokens,
            "accepted": [bool(each) for each in per_token(step, "accepted")],
            "drafted": step.drafted,
            "passes": step.forwards,
            "draft_passes": step.draft_forwards,
            "seconds": near(step.seconds),
            "exact": step.exact,
            "knobs": {name: near(value) for name, value in step.knobs.items()},
        }
        for number, step in enumerate(run.steps)
    ]


@pytest.mark.parametrize("way", ["file", "name"])
def test_every_step_comes_as_it_was_and_the_totals_last(client, folder, run, way):
    source = {"trace": handle_file(str(folder / "trace.npz"))} if way == "file" else {"run": folder.name}
    job = client.submit(**source, api_name="/replay")
    totals = job.result()
    *steps, last = job.outputs()
    assert last == totals and steps == expected_events(run)
    accepted = sum(sum(each["accepted"]) for each in steps)
    assert (totals["steps"], totals["tokens"], totals["accepted"]) == (len(run.steps), 64, accepted) and accepted > 0
    assert totals["passes"] == run.totals["forwards"] and totals["exact"] is True
    assert sorted(position for each in steps for position in each["positions"]) == list(range(64))


def test_a_sent_trace_is_deleted_and_a_saved_one_is_not(client, studio, folder):
    before = set(Path(studio.page.GRADIO_CACHE).rglob("*.npz"))
    client.predict(trace=handle_file(str(folder / "trace.npz")), api_name="/replay")
    client.predict(run=folder.name, api_name="/replay")
    assert set(Path(studio.page.GRADIO_CACHE).rglob("*.npz")) <= before and (folder / "trace.npz").exists()


@pytest.mark.parametrize("name", ["nothing", "../runs", ".", "..", "/etc", "x" * 500, "\0"])
def test_only_saved_runs_have_names(client, folder, name):
    with pytest.raises(AppError, match="There is no run"):
        client.predict(run=name, api_name="/replay")
    with pytest.raises(AppError, match="There is no run"):
        client.predict(run=f"{folder.name}/../{folder.name}", api_name="/replay")


def test_nothing_asked_is_a_sentence(client):
    with pytest.raises(AppError, match="There is nothing to replay"):
        client.predict(api_name="/replay")


def test_only_a_file_that_was_sent_is_read(client, folder):
    for trace in ({"path": str(folder / "trace.npz")}, {"path": "/etc/passwd"}, {"url": "http://127.0.0.1/x"}, "trace.npz", 7):
        with pytest.raises(AppError, match=r"trace must be a file|was not uploaded by a user"):
            client.predict(trace=trace, api_name="/replay")


def test_strangers_name_no_runs_but_send_their_own(open_studio, run, tmp_path):
    saved = history.save(run, tmp_path)
    with open_studio(STRANGERS, local=False) as shared:
        other = Client(shared, verbose=False, download_files=tmp_path)
        with pytest.raises(AppError, match="shared, so runs cannot be named"):
            other.predict(run=saved.name, api_name="/replay")
        assert other.predict(trace=handle_file(str(saved / "trace.npz")), api_name="/replay")["tokens"] == 64


def replace_arrays(**arrays: Any) -> Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]:
    """A function that replaces arrays of a trace."""
    return lambda stored: {**stored, **arrays}


DAMAGES: dict[str, Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]] = {
    "no tokens": lambda arrays: {name: values for name, values in arrays.items() if name != "tokens"},
    "no counts": lambda arrays: {name: values for name, values in arrays.items() if name != "step_tokens"},
    "a step too many": lambda arrays: replace_arrays(step_drafted=np.append(arrays["step_drafted"], 1))(arrays),
    "negative counts": lambda arrays: replace_arrays(step_tokens=arrays["step_tokens"] * -1)(arrays),
    "other counts": lambda arrays: replace_arrays(step_tokens=arrays["step_tokens"] + 1)(arrays),
    "tokens of text": lambda arrays: replace_arrays(tokens=arrays["tokens"].astype(str))(arrays),
    "accepted too short": lambda arrays: replace_arrays(accepted=arrays["accepted"][:-1])(arrays),
    "a knob for no step": replace_arrays(knob_window=np.zeros(0)),
    "scalars": replace_arrays(step_tokens=np.int32(3)),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_trace_is_a_sentence(folder, tmp_path, damage):
    with np.load(folder / "trace.npz") as stored:
        arrays = DAMAGES[damage](dict(stored))
    np.savez_compressed(tmp_path / "trace.npz", **arrays)
    with pytest.raises(BadFile, match=r"trace.npz is not the trace of a run"):
        read_trace(tmp_path / "trace.npz", replaying.BYTES)


@pytest.mark.parametrize("content", [b"", b"nothing of the kind", b"PK\x05\x06" + b"\0" * 18, b"\x93NUMPY"])
def test_another_file_is_a_sentence(client, tmp_path, content):
    (tmp_path / "other.npz").write_bytes(content)
    with pytest.raises(AppError, match=r"other.npz is not the trace of a run"):
        client.predict(trace=handle_file(str(tmp_path / "other.npz")), api_name="/replay")


def test_pickled_objects_are_not_opened(folder, tmp_path):
    with np.load(folder / "trace.npz") as stored:
        np.savez(tmp_path / "trace.npz", **{**stored, "knob_window": np.array([{}] * len(stored["step_tokens"]), object)})
    with pytest.raises(BadFile, match="not the trace"):
        read_trace(tmp_path / "trace.npz", replaying.BYTES)


def test_a_file_that_swells_is_refused_before_it_is_unpacked(tmp_path):
    with zipfile.ZipFile(tmp_path / "trace.npz", "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("tokens.npy", bytes(replaying.BYTES + 1))
    with pytest.raises(BadFile, match="the limit is"):
        read_trace(tmp_path / "trace.npz", replaying.BYTES)
