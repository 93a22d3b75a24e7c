"""A public page: no address gives access to another visitor's files, and only results are served."""

from __future__ import annotations

import re
import secrets
import threading
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest

from app.requests import meshes
from tests.app.conftest import ROOT, Served
from tests.app.visitor import QUICK, Visitor, wait_until

SECRET = "seven violet bicycles"
CHAIR = (meshes.EXAMPLES / "chair.ply").read_bytes()


def status(visitor: Visitor, path: str) -> int:
    """Status of a request for a file."""
    return visitor.http.get(f"/gradio_api/file={quote(path, safe='/%')}").status_code


def uploads(served: Served) -> Path:
    """The folder from which Gradio serves files."""
    return served.home.parent / "gradio"


def files_of(text: str) -> list[str]:
    """Files offered in a response."""
    return re.findall(r'"path":"([^"]+)"', text)


@pytest.fixture
def owner(visit) -> tuple[Visitor, list[str]]:
    """(visitor with a picture and an uploaded cloud, their files, known only to them)."""
    visitor = visit()
    replies = visitor.generate(prompt=SECRET)
    visitor.upload("scan.ply", CHAIR)
    files = files_of(replies)
    assert files and status(visitor, files[0]) == 200
    return visitor, files


# ---------------------------------------------------------------- files


def test_the_name_of_a_visitors_folder_cannot_be_guessed(owner, visit, served):
    (owned, other) = owner[0], visit()
    other.generate()
    folders = [path for path in uploads(served).iterdir() if path.name.startswith("foretoken-")]
    assert len(folders) >= 2 and all(re.fullmatch(r"foretoken-[0-9a-f]{32}", path.name) for path in folders)
    theirs = Path(owner[1][0]).parent
    assert theirs in folders and owned.session not in str(theirs)
    if hasattr(theirs, "owner"):  # nor may another user of the machine read it
        assert theirs.stat().st_mode & 0o077 == 0


def test_nothing_that_another_visitor_is_told_names_what_somebody_made(owner, visit):
    folder = Path(owner[1][0]).parent.name
    other = visit()
    replies = [
        other.http.get(path).text for path in ("/", "/config", "/gradio_api/info", "/gradio_api/queue/status", "/gradio_api/startup-events")
    ]
    replies += [other.generate(), other.upload("mine.ply", CHAIR), other.ask(other.handler("recall"), [{}])]
    for number, handler in other.handlers.items():
        if not handler["inputs"] and handler["backend_fn"]:
            replies.append(other.ask(number, []))
    for each in replies:
        assert folder not in each and owner[0].session not in each and SECRET not in each


def test_guessed_paths_are_refused(owner, visit, served):
    theirs, other = Path(owner[1][0]), visit()
    root = uploads(served)
    known = {"name": theirs.name, "session": owner[0].session}
    guesses = [
        root, root / "..", theirs.parent, theirs.parent / "", root / "*" / known["name"], root / "foretoken-*" / known["name"],
        root / known["name"], root / f"foretoken-{known['session']}" / known["name"],
        root / f"foretoken-{secrets.token_hex(16)}" / known["name"], root / ("0" * 64) / "scan.ply", root / "deep_links",
    ]  # fmt: skip
    assert {status(other, str(guess)) for guess in guesses} <= {403, 404}


def test_nothing_outside_the_data_folder_is_served(owner, visit, served):
    (run,) = served.runs()[-1:]
    root = uploads(served)
    outside = [
        "/etc/passwd", "/proc/self/environ", str(run / "run.json"), str(run / "result.png"), str(served.log), str(ROOT / "launch.py"),
        str(ROOT / "assets" / "models" / "judge" / "judge.safetensors"), "launch.py", "app/server/studio.py", ".git/config",
        f"{root}/../home/runs/{run.name}/run.json", f"{root}/..%2fhome%2fruns%2f{run.name}%2frun.json", f"{root}/%2e%2e/log.txt",
        f"{root}//../log.txt", f"file://{run}/run.json", f"\\\\{root}\\..\\log.txt",
    ]  # fmt: skip
    other = visit()
    for path in outside:
        assert status(other, path) in (403, 404), path
        assert other.http.get(f"/gradio_api/file/{path}").status_code in (403, 404, 405), path
    (root / "link").symlink_to(run)
    assert status(other, f"{root}/link/run.json") in (403, 404), "a link leads out of the folder"


def test_a_visitor_cannot_take_anothers_upload_as_input(owner, visit, served):
    theirs, *_ = uploads(served).glob("foretoken-*/upload-*/scan.ply")
    other = visit()
    for path in (f"{theirs.parent.parent}/../{theirs.name}", str(served.runs()[-1] / "run.json"), "/etc/passwd"):
        file = {"path": path, "orig_name": "scan.ply", "meta": {"_type": "gradio.FileData"}}
        data = [file, *other.values(other.handler("drop", "mesh"))[1:]]
        assert "passwd:" not in other.ask(other.handler("drop", "mesh"), data)
    assert theirs.exists()


def test_what_a_visitor_made_is_gone_when_they_leave(visit, served):
    with Visitor(served.address).present() as leaving:
        file = files_of(leaving.generate())[0]
    assert wait_until(lambda: not Path(file).parent.exists()) and status(visit(), file) == 403


# ---------------------------------------------------------------- events and history


def listen(served: Served, session: str) -> str:
    """Responses to a client that claims to be a session."""
    with httpx.Client(base_url=served.address, timeout=30) as http:
        return events_of(http, "/gradio_api/queue/data", session_hash=session)


def events_of(http: httpx.Client, path: str, **query: str) -> str:
    """Everything that an address sends until the server closes the connection; nothing if it aborts."""
    try:
        return http.get(path, params=query).text
    except httpx.RemoteProtocolError:
        return ""


def test_another_visitors_events_are_neither_heard_nor_read_nor_cancelled(owner, visit, served):
    running, other = owner[0], visit()
    number = running.handler("run")
    lines: list[str] = []
    data = running.inputs_for("image", {"size": "256 px"}, compare=False)
    following = threading.Thread(target=lambda: lines.extend(running.follow(number, data)))
    following.start()
    overheard = [
        listen(served, guess) for guess in ("", running.session[:-1], running.session.upper() + "0", secrets.token_hex(6), "*", "%")
    ]
    assert all("process_generating" not in each and "event_id" not in each for each in overheard)
    for event in ("", "0", secrets.token_hex(16)):
        body = {"session_hash": other.session, "fn_index": number, "event_id": event}
        other.http.post("/gradio_api/cancel", json=body)
        other.http.post("/gradio_api/reset", json={"event_id": event})
        assert "process_generating" not in events_of(other.http, f"/gradio_api/call/generate_image/{event or 'x'}")
    other.ask(other.handler("stop"), [])
    other.ask(other.handler("move"), [{"name": "sjdpp", "values": {"window": 4}}])
    following.join()
    paths = files_of(running.ask(running.handler("deliver"), []))
    assert '"success":true' in lines[-1] and paths, "another visitor ended the run"
    settings = running.http.get(f"/gradio_api/file={paths[0]}").content
    assert b'"finished": true' in settings and b'"moves": []' in settings


def test_a_ticket_of_another_visitor_starts_nothing(owner, visit):
    waiting, other = owner[0], visit()
    ticket = waiting.ticket()
    data = other.inputs_for("image", QUICK["image"], ticket=ticket, compare=False)
    other.ask(other.handler("run"), data)
    assert files_of(other.ask(other.handler("deliver"), [])) == []


@pytest.mark.parametrize(
    "path", ["/monitoring", "/monitoring/summary", "/gradio_api/vibe-code/", "/gradio_api/profiling/traces", "/gradio_api/runs"]
)
def test_nothing_that_watches_all_visitors_is_open(visit, path):
    answer = visit().http.get(path)
    assert answer.status_code >= 400 or "session" not in answer.text
