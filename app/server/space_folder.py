"""The folder of a Hugging Face Space: code, shipped models, a README whose front matter configures the Space, requirements.

Everything is copied from the checkout or generated from pyproject.toml and constraints.txt, so that the folder cannot differ from them.
"""

from __future__ import annotations

import re
import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path

from PIL import Image

from engine import files
from engine.assets import checkout
from engine.errors import BadOutput, NotSupported

LARGEST = 10 * 2**20  # maximum bytes of a file without large-file storage on the hub
CPU, ZERO = "cpu-basic", "zero-a10g"  # the hub's names for its hardware
CPU_INDEX = "https://download.pytorch.org/whl/cpu"  # else pip installs gigabytes of CUDA on a machine without a GPU
CODE = (".py", ".js", ".css", ".svg", ".png", ".c", ".h", ".toml")
FOLDERS = {
    "app": CODE,
    "engine": CODE,
    "research": CODE,
    "assets": (),
    "docs/bench": (".csv",),
}  # folder: endings of the files to copy, () = all
SINGLE = ("launch.py", "pyproject.toml", "constraints.txt", "LICENSE", ".gitattributes")
THUMBNAIL, WIDTH = "docs/studio.png", 1200  # the picture shown with links to the Space, and its width in pixels
SUMMARY = "Pictures and meshes, several tokens per pass, verified"  # the hub shows at most 60 characters
PACKAGES = {  # Debian package: its purpose
    "libegl1": "draws meshes off screen",
    "libgl1": "the same",
    "libgl1-mesa-dri": "the same, without a GPU",
    "fonts-noto-color-emoji": "draws the training scenes: launch.py train and doctor",
}
APP = '''"""Serves Foretoken on Hugging Face Spaces."""

from app.server.spaces import serve

if __name__ == "__main__":
    serve()
'''
TEXT = """
# Foretoken

Makes autoregressive picture and mesh generators fast, and shows why they are fast: it drafts several tokens, verifies them in one pass of
the model, and states for each method whether its output has the distribution of plain decoding.

Both models are small and were trained from scratch on synthetic data. They run on the Space's processor.
"""
ENDPOINTS = """
## Endpoints

```python
from gradio_client import Client, handle_file

client = Client("{name}")
picture, summary = client.predict("two cats under a green balloon", api_name="/generate_image")
mesh, summary = client.predict(handle_file("chair.ply"), api_name="/generate_mesh")
```
"""
LACKING = "A Space needs a checkout, and this is an installed package. Clone the repository and run: python launch.py space OUT"
TAKEN = "{} is not empty. Choose a folder that does not exist yet."
TOO_LARGE = "{} has {:.1f} MB; a file of a Space may have at most 10 MB. Move it out of the checkout's assets."
NAME = re.compile(r"[\w.-]+/[\w.-]+")


def make(out: Path, name: str = "", hardware: str = CPU) -> list[Path]:
    """Writes the folder atomically; returns its files, relative to it.

    name : OWNER/NAME of the Space, for its thumbnail and its README; hardware : CPU or ZERO
    Raises BadOutput if the folder is not empty or cannot be written, NotSupported without a checkout or for a wrong name.
    """
    root = checkout()
    if root is None:
        raise NotSupported(LACKING)
    if name and not NAME.fullmatch(name):
        raise NotSupported(f"'{name}' is not the name of a Space. Write OWNER/NAME.")
    sources = dict(files_to_copy(root))
    try:
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise BadOutput(TAKEN.format(out))
        out.parent.mkdir(parents=True, exist_ok=True)
        with files.whole_folder(out.resolve().parent, out.resolve().name) as part:
            for relative, source in sources.items():
                (part / relative).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, part / relative)
            generate(root, part, name, hardware)
    except OSError as e:
        raise files.refusal(out, e, "Choose another folder.") from e
    return sorted(path.relative_to(out) for path in out.rglob("*") if path.is_file())


def files_to_copy(root: Path) -> Iterator[tuple[Path, Path]]:
    """Yield (path in the folder, source) of every file to copy; raises BadOutput for one that is too large."""
    paths = [root / name for name in SINGLE]
    for folder, endings in FOLDERS.items():
        paths += sorted(path for path in (root / folder).rglob("*") if path.is_file() and (not endings or path.suffix in endings))
    for path in paths:
        relative = path.relative_to(root)
        if any(part == "__pycache__" or part.startswith(files.PART) or part.startswith(files.ASIDE) for part in relative.parts):
            continue
        if path.stat().st_size > LARGEST:
            raise BadOutput(TOO_LARGE.format(path, path.stat().st_size / 1e6))
        yield relative, path


def generate(root: Path, folder: Path, name: str, hardware: str) -> None:
    """Writes the files that exist only in a Space."""
    pyproject, constraints = ((root / each).read_text(encoding="utf-8") for each in ("pyproject.toml", "constraints.txt"))
    front = front_matter(pyproject, constraints, name, hardware)
    contents = {
        "README.md": front + TEXT + (ENDPOINTS.format(name=name) if name else ""),
        "requirements.txt": requirements(pyproject, constraints, hardware),
        "packages.txt": "".join(f"{package}\n" for package in PACKAGES),
        "app.py": APP,
    }
    for path, text in contents.items():
        (folder / path).write_text(text, encoding="utf-8")
    with Image.open(root / THUMBNAIL) as picture:
        picture.convert("RGB").resize((WIDTH, round(WIDTH * picture.height / picture.width))).save(folder / "thumbnail.jpg", quality=85)


def front_matter(pyproject: str, constraints: str, name: str, hardware: str) -> str:
    """The YAML at the top of the README. It names the tested Gradio version, which the hub installs."""
    project = tomllib.loads(pyproject)["project"]
    values = {
        "title": "Foretoken",
        "emoji": "⏩",
        "colorFrom": "green",
        "colorTo": "blue",
        "sdk": "gradio",
        "sdk_version": pins(constraints)["gradio"],
        "python_version": f'"{project["requires-python"].removeprefix(">=")}"',
        "app_file": "app.py",
        "suggested_hardware": hardware,
        "license": project["license"].lower(),
        "short_description": SUMMARY,
        "fullWidth": "true",
        "header": "mini",
    }
    if name:
        values["thumbnail"] = f"https://huggingface.co/spaces/{name}/resolve/main/thumbnail.jpg"
    return "---\n" + "".join(f"{key}: {value}\n" for key, value in values.items()) + "---\n"


def requirements(pyproject: str, constraints: str, hardware: str = CPU) -> str:
    """requirements.txt: the project's direct dependencies in the tested versions. Indirect ones are not pinned: they could conflict with
    packages that the hub installs."""
    tested = pins(constraints)
    lines = [f"--extra-index-url {CPU_INDEX}"] if hardware == CPU else ["spaces"]
    for wanted in tomllib.loads(pyproject)["project"]["dependencies"]:
        package = re.match(r"[\w.-]+", wanted).group().replace("_", "-")
        lines.append(wanted if "==" in wanted else f"{package}=={tested[package]}")
    return "\n".join(lines) + "\n"


def pins(constraints: str) -> dict[str, str]:
    """Versions by name of constraints.txt."""
    return dict(line.strip().split("==") for line in constraints.splitlines() if "==" in line and not line.startswith("#"))
