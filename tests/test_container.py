"""Dockerfile and compose.yaml, read: their commands exist, the image gets what the package needs, and nothing runs as root."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import yaml

from app.commands import studio

ROOT = Path(__file__).resolve().parents[1]
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")


def instructions(name: str) -> list[str]:
    """Arguments of every instruction of a kind."""
    return re.findall(rf"^\s*{name}\s+(.*)$", DOCKERFILE, re.MULTILINE)


def test_it_starts_a_studio_that_others_reach() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert json.loads(instructions("ENTRYPOINT")[0])[0] in project["scripts"]
    command, *options = json.loads(instructions("CMD")[-1])
    read = studio.parser().read(options)
    assert command == "studio" and (read.host, read.port, read.no_browser) == ("0.0.0.0", 7860, True)
    assert instructions("EXPOSE") == ["7860"] and "7860/metrics" in instructions("HEALTHCHECK")[0]


def test_nothing_runs_as_root() -> None:
    user = DOCKERFILE.index("\nUSER foretoken")
    assert user < DOCKERFILE.index("\nENTRYPOINT") and DOCKERFILE.count("\nUSER ") == 1
    service = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))["services"]["studio"]
    assert service["cap_drop"] == ["ALL"] and "no-new-privileges:true" in service["security_opt"]
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])


def test_data_lies_in_the_volume() -> None:
    volumes = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))["services"]["studio"]["volumes"]
    assert volumes == ["data:/data"] and instructions("VOLUME") == ["/data"] and "FORETOKEN_HOME=/data" in instructions("ENV")[0]


def test_the_image_gets_what_the_package_needs() -> None:
    copied = {word for line in instructions("COPY") for word in line.split()[:-1]}
    assert all((ROOT / name).exists() for name in copied)
    assert {"app", "engine", "research", "assets", "docs/bench", "pyproject.toml", "setup.py", "constraints.txt"} <= copied
    exceptions = {line[1:] for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines() if line.startswith("!")}
    assert exceptions == copied


def test_it_has_the_libraries_that_draw_meshes() -> None:
    wanted = re.search(r"packages=\((.*)\)", (ROOT / ".ci/run").read_text(encoding="utf-8"))[1].split()
    drawing = {name for name in wanted if name.startswith("lib")}
    assert drawing and drawing <= set(instructions("RUN")[0].split())
