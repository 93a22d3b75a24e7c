"""A tiny pictogram and a tiny lowpoly with random weights, a studio that serves them, and a browser that opens it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from engine.backbones import lowpoly
from engine.backbones.pictogram import Pictogram, PictogramModel, load
from engine.drafters.feature_draft import NAME, FeatureDrafter, weights_file
from engine.drafters.mesh_heads import MeshHeads
from engine.drafters.predictive_stream import folder_of
from engine.mesh.bpt_tokens import BPT
from engine.networks.mesh_decoder import MeshModel, MeshSettings
from engine.networks.mesh_decoder import describe as describe_model
from engine.networks.vq import PictureTokenizer
from engine.networks.weights import ship, split
from research.train.adapters import new_adapter, write_adapter
from research.worlds.emoji_scenes import vocabulary
from tests.app.shipped import FLAGS, START_LIMIT, chromium, wait_for
from tests.app.visitor import Visitor
from tests.engine.backbones.tiny import spread

ROOT = Path(__file__).resolve().parents[2]
LEVELS = (5, 5, 5)
MESH_TOKENS = 1024  # of a mesh that is not given a budget
PATIENCE = 120_000  # milliseconds: a busy machine is slow, not wrong
# every page is a separate visitor, whose browser shares no state with others; its state survives a reload
FRESH = """if (!sessionStorage.visited) {
  sessionStorage.visited = 1; localStorage.clear(); indexedDB.deleteDatabase('foretoken');
  localStorage.setItem('foretoken-settings', 'open'); localStorage.setItem('foretoken-theme', 'dark');
  sessionStorage.setItem('foretoken-race', 'none'); // so that no example is shown
}"""
ONE_PROCESS = "--process-per-site"  # of the browser, shared by all pages, which then open 12 % faster


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Sets one thread: with tiny tensors, more threads mostly wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def picto_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder as `load` wants it, with a drafter for trees and a predictive stream. At 256 pixels a run is slow enough to be touched
    while it goes."""
    torch.manual_seed(0)
    words = list(vocabulary())
    model = PictogramModel(LEVELS, len(words), layers=4, width=128, heads=2, inner=256)
    torch.nn.init.normal_(model.head_rows, std=0.3)
    tokenizer = PictureTokenizer(LEVELS, encoder=8, decoder=8, blocks=1)
    drafter = FeatureDrafter(128, 2, 192)
    spread(drafter, 0.05)
    folder = tmp_path_factory.mktemp("picto")
    weights = {"tokenizer.safetensors": tokenizer.state_dict(), "decoder-1.safetensors": model.state_dict()}
    weights[weights_file(folder).name] = drafter.state_dict()
    card = {
        "name": "pictogram",
        "words": words,
        "sides": [8, 16, 32],
        "tokenizer": {"settings": tokenizer.settings},
        "decoder": {"settings": model.settings, "files": 1},
        NAME: {"settings": drafter.settings},
    }
    ship(folder, weights, card)
    backbone = load(str(folder))
    stream = new_adapter(backbone.model.decoder, ("query_key_value", "attention_out", "gate_up", "feed_out"), 4, 8.0)
    spread(stream, 0.05)
    write_adapter(folder_of(folder), stream, "pictogram", backbone.weights_hash, 8.0)
    return folder


@pytest.fixture(scope="session")
def picto(picto_folder: Path) -> Pictogram:
    """The tiny pictogram."""
    return load(str(picto_folder))


@pytest.fixture(scope="session")
def lowpoly_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of a tiny lowpoly with draft heads. Its meshes are nonsense, and long enough to change knobs while they grow."""
    torch.manual_seed(3)
    settings = MeshSettings(
        layers=4, width=64, heads=2, inner=128, length=MESH_TOKENS, memories=2, encoder_width=32, encoder_blocks=1, latents=9
    )  # fmt: skip
    model = MeshModel(settings)
    spread(model, 0.25)
    torch.nn.init.normal_(model.decoder.start, std=0.5)
    heads = MeshHeads(4, settings.width, settings.heads, BPT.vocabulary, "cross")
    folder = tmp_path_factory.mktemp("lowpoly")
    card = {
        "name": "lowpoly", "families": ["table"], "model": {"settings": describe_model(settings), "files": 1, "held_out": {}},
        "heads": {"heads_cross": {"settings": heads.settings}},
    }  # fmt: skip
    ship(folder, split(model.state_dict(), "model") | {"heads_cross.safetensors": heads.state_dict()}, card)
    return folder


@pytest.fixture(scope="session")
def low(lowpoly_folder: Path) -> lowpoly.Lowpoly:
    """The tiny lowpoly."""
    return lowpoly.load(str(lowpoly_folder))


@dataclass(frozen=True)
class Served:
    """A studio in another process."""

    address: str
    home: Path
    log: Path

    def runs(self) -> list[Path]:
        """Folders of its saved runs, oldest first."""
        return sorted((f for f in (self.home / "runs").glob("[0-9]*")), key=lambda f: f.stat().st_mtime)


@contextmanager
def serving(folder: Path, picto_folder: Path, lowpoly_folder: Path) -> Iterator[tuple[Served, subprocess.Popen]]:
    """Serves the real studio on a free port, in a separate process. folder: for its files"""
    log = folder / "log.txt"
    folders = f"path={str(picto_folder)!r}, mesh_path={str(lowpoly_folder)!r}"
    port = 20_000 + os.getpid() % 20_000  # two test runs at the same time must not choose the same port
    command = f"from app.server.studio import launch; launch({folders}, port={port}, open_browser=False, dtype='float32')"
    own = {"FORETOKEN_HOME": str(folder / "home"), "GRADIO_TEMP_DIR": str(folder / "gradio"), "OMP_NUM_THREADS": "1"}
    own |= {"FORETOKEN_KERNELS": "reference"}  # slow enough for a run to be touched while it goes, with or without a compiler
    with log.open("w") as file:
        process = subprocess.Popen([sys.executable, "-c", command], cwd=ROOT, stdout=file, stderr=file, env={**os.environ, **own})
    try:
        yield Served(wait_for(process, log), folder / "home", log), process
    finally:
        process.terminate()
        process.wait(START_LIMIT)


@pytest.fixture(scope="session")
def served(picto_folder: Path, lowpoly_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The studio that the tests share."""
    with serving(tmp_path_factory.mktemp("studio"), picto_folder, lowpoly_folder) as (studio, _):
        yield studio


@pytest.fixture
def visit(served: Served) -> Iterator[Callable[[], Visitor]]:
    """A function that returns a new visitor without a browser."""
    visitors: list[Visitor] = []

    def one() -> Visitor:
        visitors.append(Visitor(served.address))
        return visitors[-1]

    yield one
    for visitor in visitors:
        visitor.http.close()


@pytest.fixture(scope="session")
def browser() -> Iterator:
    """A Chromium. Without one, tests are skipped, or fail if CI is set."""
    try:
        from playwright.sync_api import Error, expect, sync_playwright
    except ImportError as e:
        lacking(f"Playwright is not installed ({e}).")
    expect.set_options(timeout=PATIENCE)
    with sync_playwright() as playwright:
        try:
            instance = playwright.chromium.launch(executable_path=chromium(), args=[*FLAGS, ONE_PROCESS])
        except Error as e:
            lacking(f"No Chromium starts ({str(e).splitlines()[0]}). Install one.")
        yield instance
        instance.close()


def lacking(reason: str) -> None:
    """Skips with a reason; fails in CI, where a skipped test would look like a passed one."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


class Watched:
    """A page that records what must not happen: errors, and requests to other addresses.

    script : runs before the page's own; alive : what is there once the page is
    """

    def __init__(self, context, address: str, width: int, height: int, script: str = FRESH, alive: str = "#knobs .ft-knob"):
        self.wrong: list[str] = []
        self.page = context.new_page()
        self.page.set_viewport_size({"width": width, "height": height})
        self.page.set_default_timeout(PATIENCE)
        self.page.add_init_script(script or "0")
        self.page.on("pageerror", lambda e: self.wrong.append(f"page error: {e}"))
        self.page.on("console", lambda m: self.wrong.append(f"console: {m.text}") if m.type == "error" else None)
        inside = (f"{address}/", "data:", "blob:") if address.startswith("http") else (address, "data:", "blob:")
        self.page.on("request", lambda r: None if r.url.startswith(inside) else self.wrong.append(f"left the machine: {r.url}"))
        self.page.on("response", lambda r: self.wrong.append(f"{r.status}: {r.url}") if r.status >= 400 else None)
        self.page.goto(address)
        self.page.wait_for_selector(alive, state="attached")


def settle(page) -> None:
    """Waits until the server has ended the stream of the page's only run. The stream outlives the run's last value, and a page that is left
    before cuts it off, which Gradio reports on the console as an error."""
    page.wait_for_function("performance.getEntriesByType('resource').some((each) => each.name.includes('/queue/data'))")


@pytest.fixture(scope="session")
def context(browser) -> Iterator:
    """Share between the visitors' pages: the browser's memory of the studio's scripts. Every page is a visitor of its own."""
    shared = browser.new_context()
    yield shared
    shared.close()


@pytest.fixture(scope="session")
def raced(browser, served: Served) -> Iterator:
    """The page of a visitor who has raced two small pictures: for tests that only look at the result and change nothing of it."""
    own = browser.new_context()
    visit = Watched(own, served.address, 1366, 1000)
    visit.page.locator("#settings .ft-knob[data-knob=size] select").select_option("64 px")
    visit.page.click("#generate")
    visit.page.wait_for_selector("#download:not([disabled])")
    visit.page.wait_for_selector(".ft-runs tbody tr")
    yield visit.page
    own.close()
    assert visit.wrong == []


@pytest.fixture
def open_page(context, served: Served) -> Iterator:
    """A function that opens the studio as a new visitor. At the end no page may have recorded an error."""
    visits = []
    before = len(served.log.read_text())  # the endpoints' tests send requests that Gradio refuses with a traceback

    def visit(width: int = 1366, height: int = 1000):
        visits.append(Watched(context, served.address, width, height))
        return visits[-1].page

    yield visit
    for each in visits:
        each.page.close()
    assert [line for v in visits for line in v.wrong] == []
    log = served.log.read_text()[before:]
    assert "Traceback" not in log, log[-3000:]
