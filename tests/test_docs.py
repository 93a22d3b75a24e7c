"""The documentation against the code: length, names, tables, links, commands and paths."""

from __future__ import annotations

import importlib.util
import io
import re
import shlex
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

from app import cli
from app.server.space_folder import THUMBNAIL
from engine.methods import METHODS, PRESETS

ROOT = Path(__file__).resolve().parent.parent
README, CHANGELOG = ROOT / "README.md", ROOT / "CHANGELOG.md"
PAGES = [README, ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
SHOWN = re.compile(r"^(?:\$ )?python launch\.py(.*)$", re.MULTILINE)
IN_A_SENTENCE = re.compile(r"`python launch\.py([^`]*)`")


def text(path: Path) -> str:
    """A page's text."""
    return path.read_text(encoding="utf-8")


def names(paths: list[Path]) -> list[str]:
    """Paths as the ids of a parametrized test."""
    return [str(path.relative_to(ROOT)) for path in paths]


def outside_fences(page: str) -> str:
    """A page without its fenced blocks."""
    return re.sub(r"^```.*?^```", "", page, flags=re.DOTALL | re.MULTILINE)


def anchors(path: Path) -> set[str]:
    """Anchors of a page: its headings, as GitHub writes them."""
    headings = re.findall(r"^#+ (.+)$", outside_fences(text(path)), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def links(path: Path) -> list[str]:
    """The relative links and images of a page."""
    return [link for link in LINK.findall(outside_fences(text(path))) if not re.match(r"[a-z]+:", link)]


def commands(path: Path) -> list[list[str]]:
    """The command lines of a page as words, without `python launch.py` and comments; a backslash at the end of a line joins the next."""
    page = text(path).replace("\\\n", " ")
    return [shlex.split(line, comments=True) for line in SHOWN.findall(page) + IN_A_SENTENCE.findall(page)]


@cache
def help_of(*command: str) -> tuple[int, str]:
    """Return code and text of a command's --help; a process for each of sixty commands would take half a minute."""
    shown = io.StringIO()
    with redirect_stdout(shown), redirect_stderr(shown):
        try:
            code = cli.main([*command, "--help"])
        except SystemExit as e:
            code = e.code
    return int(code or 0), shown.getvalue()


@pytest.fixture(scope="module")
def make() -> ModuleType:
    """docs/make.py, which belongs to no package."""
    spec = importlib.util.spec_from_file_location("docs_make", ROOT / "docs/make.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_readme_is_short():
    assert len(text(README).splitlines()) <= 110


def test_the_newest_release_of_the_changelog_is_the_version_of_the_package():
    newest = re.search(r"^## (\S+)$", text(CHANGELOG), re.MULTILINE)
    assert f'version = "{newest[1]}"' in text(ROOT / "pyproject.toml")


def test_readme_counts_the_methods_and_presets():
    assert f"**{len(METHODS)} methods and {len(PRESETS)} presets**" in text(README)


@pytest.mark.parametrize("path", PAGES, ids=names(PAGES))
def test_generated_tables_are_up_to_date(path, make):
    assert make.fill(text(path)) == text(path), "run: python docs/make.py"


def parts(make: ModuleType, kind: str) -> list[str]:
    """Arguments of the generated parts of one kind, over all pages."""
    return [part[2] for path in PAGES for part in make.PART.findall(text(path)) if part[1] == kind]


def test_every_method_has_one_knob_table(make):
    own_names = [name for names in parts(make, "knobs") for name in names.split()]
    assert "others" in own_names and set(own_names) <= {*METHODS, "others"} and len(set(own_names)) == len(own_names)


def test_every_knob_stands_in_the_table_of_its_method_or_among_the_shared_ones(make):
    assert len(parts(make, "shared knobs")) == 1
    shared = make.shared_table()
    for method in METHODS.values():
        own = make.table(method)
        for knob in method.knobs:
            assert make.row(knob) in (shared if make.row(knob) in make.shared_knobs() else own), f"{method.name}: {knob.name}"
            assert f"`{knob.name}`" in own


def test_a_row_describes_a_knob(make):
    window = next(k for k in METHODS["sjdpp"].knobs if k.name == "window")
    assert all(part in make.row(window) for part in ("`window`", "| W |", "| 16 |", "1 to 256, log scale", window.help))
    ratio = next(k for k in METHODS["sjdpp"].knobs if k.name == "reuse_ratio")
    assert make.acts(ratio) == "refresh = reuse published or reuse mixture"


@pytest.mark.parametrize("path", [*PAGES, CHANGELOG], ids=names([*PAGES, CHANGELOG]))
def test_links_lead_somewhere(path):
    for link in links(path):
        file, _, anchor = link.partition("#")
        target = (path.parent / file).resolve() if file else path
        assert target.exists(), f"{link} does not exist"
        assert not anchor or anchor in anchors(target), f"{link}: no such heading"


def test_no_page_is_an_orphan():
    reached: set[Path] = set()
    waiting = [README]
    while waiting:
        path = waiting.pop()
        if path not in reached and path.suffix == ".md":
            reached.add(path)
            waiting += [(path.parent / link.partition("#")[0]).resolve() for link in links(path)]
    assert set(PAGES) <= reached


@pytest.mark.parametrize("path", PAGES, ids=names(PAGES))
def test_commands_exist_with_their_options(path):
    for words in commands(path):
        line = shlex.join(words)
        while words and words[0].startswith("--"):  # the launcher's own
            assert words[0] in text(ROOT / "launch.py"), line
            words = words[2:] if words[0] == "--torch" else words[1:]
        if not words or words[0] == "test":  # the studio; pytest's options are pytest's
            continue
        code, shown = help_of(*words[: 2 if words[0] in ("bench", "train") else 1])
        assert code == 0, f"{line}: there is no such command"
        for option in (word.split("=")[0] for word in words if word.startswith("--")):
            assert re.search(rf"(?<![\w-]){re.escape(option)}(?![\w-])", shown), f"{line}: {option} is not in its --help"


def test_readme_shows_commands():
    assert {"image", "mesh"} <= {words[0] for words in commands(README) if words}


@pytest.mark.parametrize("path", PAGES, ids=names(PAGES))
def test_files_that_are_named_exist(path):
    for name in re.findall(r"`((?:app|engine|research|tests|docs|assets)/[\w./-]+)`", text(path)):
        assert (ROOT / name).exists(), f"{name} does not exist"


def test_a_benchmark_s_table_has_the_rows_of_its_file_after_the_settings_and_the_machine(make, tmp_path):
    header = "method,exact,prompts,size,step_compression,milliseconds_per_pass,speedup,log_probability,processor,dtype,torch,commit,weights"
    sampling = ",temperature,top_k,top_p,guidance"
    row = '4,128,"[7.5, 6.0, 8.0]",5.1,"[3.5, 3.0, 4.0]","[-0.08, -0.1, -0.06]",P,float32,2,abc,def,0.6,0,1.0,1.8'
    (tmp_path / "x.csv").write_text(f"{header}{sampling}\nsjdpp,True,{row}\nsjdpp: cost of a step{',' * 16}\n", encoding="utf-8")
    table = make.bench_table(tmp_path / "x.csv", "bench image").splitlines()
    assert table[0] == (
        "`python launch.py bench image`: 4 prompts, 128 px, temperature 0.6, top-k 0, top-p 1.0, guidance 1.8; P, float32, PyTorch 2, "
        "commit abc, weights def."
    )
    assert table[4:] == ["| `sjdpp` | yes | 7.50 (6.00-8.00) | 5.1 | 3.50x (3.00-4.00) | -0.080 (-0.100--0.060) |"]


def test_every_file_of_measurements_stands_in_a_page(make):
    shown = {argument.partition(": ")[0] for kind in ("bench", "compiled", "passes") for argument in parts(make, kind)}
    assert {path.name for path in (ROOT / "docs/bench").glob("*.csv")} == shown != set()


def test_every_picture_of_the_docs_is_shown():
    shown = {(path.parent / link).resolve() for path in PAGES for link in links(path)} | {ROOT / THUMBNAIL}
    pictures = [path for kind in ("png", "jpg", "gif", "webp") for path in (ROOT / "docs").rglob(f"*.{kind}")]
    assert [path.name for path in pictures if path not in shown] == []
