"""The command line: studio | image | mesh | verify | bench | train | models | doctor | test.

Tests, scripts and the page use the same functions. A bad value is one sentence on stderr and exit code 2; a bug keeps its traceback.
With --json the last line of stdout is one JSON object, as written down in the design.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

ROOT = Path(__file__).resolve().parents[1]


def main(argv: Sequence[str]) -> int:
    """Runs one command; returns the exit code."""
    arguments = list(argv) or ["studio"]
    if arguments[0].startswith("-") and arguments[0] not in ("-h", "--help"):
        arguments.insert(0, "studio")
    from engine.errors import ForetokenError

    try:
        options, rest = _parser().parse_known_args(arguments)
        if rest and options.command not in ("test", "train"):
            raise ForetokenError(f"Unknown option: {' '.join(rest)}. See: python launch.py {options.command} --help")
        options.rest = rest
        return COMMANDS[options.command](options)
    except ForetokenError as e:
        print(e, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def main_from_command_line() -> None:
    """The `foretoken` script."""
    sys.exit(main(sys.argv[1:]))


class _Parser(argparse.ArgumentParser):
    """A parser whose complaints are one sentence."""

    def error(self, message: str) -> NoReturn:
        from engine.errors import ForetokenError

        raise ForetokenError(f"{message[:1].upper()}{message[1:]}. See: python {self.prog} --help")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser("launch.py", description="Fast autoregressive image generation, and why it is fast.")
    commands = parser.add_subparsers(dest="command", required=True)
    studio = commands.add_parser("studio", help="open the page (the default)")
    studio.add_argument("--port", type=int)
    studio.add_argument("--host", default="127.0.0.1")
    studio.add_argument("--no-browser", action="store_true")
    _model_options(studio)
    image = commands.add_parser("image", help="one picture from a prompt")
    image.add_argument("prompt")
    _run_options(image)
    image.add_argument("--method", default="sjdpp")
    image.add_argument("--compare", action="store_true", help="time plain decoding beside it")
    image.add_argument("--out", type=Path, help="folder that receives a copy of the run")
    image.add_argument("--seed", type=int, default=0)
    mesh = commands.add_parser("mesh", help="a mesh from a point cloud or from another mesh")
    mesh.add_argument("input", type=Path, help="a file (PLY, OBJ, GLB, STL, OFF, XYZ, NPY, PCD ...), or a folder of them")
    _run_options(mesh, "lowpoly")
    mesh.add_argument("--method", default="xspecmesh")
    mesh.add_argument("--compare", action="store_true", help="time plain decoding beside it")
    mesh.add_argument("--out", type=Path, help="folder that receives a copy of the run")
    mesh.add_argument("--seed", type=int, default=0)
    mesh.add_argument("--faces", type=int, help="the most faces the mesh may have")
    mesh.add_argument("--up", default="auto", help="the input's axis that is up: x, y, z, -x, -y, -z or auto")
    mesh.add_argument("--formats", default="glb", help="result files besides acceptance.glb: glb,obj,ply,stl")
    verify = commands.add_parser("verify", help="the table of exactness, on the toy")
    verify.add_argument("methods", nargs="*")
    verify.add_argument("--full", action="store_true", help="150,000 runs and three seeds")
    verify.add_argument("--json", action="store_true")
    bench = commands.add_parser("bench", help="the table of speed")
    bench.add_argument("what", choices=["image", "mesh"])
    bench.add_argument("--methods", default="all")
    bench.add_argument("--prompts", type=Path, help="a file with one prompt a line (default: 20 held-out prompts)")
    bench.add_argument("--count", type=int, help="how many prompts (20) or clouds (40)")
    bench.add_argument("--full", action="store_true", help="mesh: 200 clouds and three seeds")
    bench.add_argument("--repeats", type=int, default=1)
    bench.add_argument("--sweep", action="append", default=[], metavar="NAME=A,B", help="a row for each value of this knob")
    bench.add_argument("--grid", action="store_true", help="a row for each combination of the swept values")
    bench.add_argument(
        "--figure",
        type=Path,
        help="image: a PNG of mulo's points on the theory line, of adt_tree's controller, or of cross_regression's speed and fidelity",
    )
    bench.add_argument("--csv", type=Path, help="append rows to this file")
    bench.add_argument("--judge", action="store_true", help="image: instead of timing, count how often pictures show what was asked for")
    bench.add_argument(
        "--eye", type=Path, help="image, with --judge: hold the judge against what a person said of the sheet's pictures, a CSV"
    )
    bench.add_argument("--sheet", type=Path, help="instead of timing, draw the prompts' pictures into this PNG")
    _run_options(bench)
    train = commands.add_parser("train", help="a training recipe", add_help=False)
    train.add_argument("name", nargs="?")
    models = commands.add_parser("models", help="what can be loaded")
    models.add_argument("--json", action="store_true")
    doctor = commands.add_parser("doctor", help="what this machine offers")
    doctor.add_argument("--json", action="store_true")
    commands.add_parser("test", help="the whole test suite (pytest options go through)", add_help=False)
    return parser


def _model_options(parser: argparse.ArgumentParser, backbone: str = "pictogram") -> None:
    parser.add_argument("--backbone", default=backbone, metavar="NAME|PATH")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument(
        "--dtype",
        default="auto",
        choices=["auto", "float32", "bfloat16"],
        help="auto is float32; bfloat16 makes wide passes cheaper on CPUs that multiply it in hardware",
    )


def _run_options(parser: argparse.ArgumentParser, backbone: str = "pictogram") -> None:
    _model_options(parser, backbone)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a knob of the method")
    parser.add_argument("--verify", choices=["residual", "match-seed"])
    parser.add_argument("--size", type=int, help="pixels")
    parser.add_argument("--temperature", type=float)
    parser.add_argument("--top-k", type=int)
    parser.add_argument("--top-p", type=float)
    parser.add_argument("--guidance", type=float)
    parser.add_argument("--json", action="store_true")


# --- shared by commands -----------------------------------------------------------------------------------------------


def load_backbone(name_or_path: str, device: str, dtype: str = "auto") -> Any:
    """A backbone by name, or weights from a folder."""
    import torch

    from engine.backbones import BACKBONES, load
    from engine.errors import NotSupported
    from engine.networks.weights import read_card

    if device == "cuda" and not torch.cuda.is_available():
        raise NotSupported("No CUDA device is visible to PyTorch here. Use --device cpu, or see: python launch.py doctor")
    if name_or_path in BACKBONES:
        return load(name_or_path, None, device, dtype)
    folder = Path(name_or_path)
    if not folder.is_dir():
        raise NotSupported(f"'{name_or_path}' is neither a backbone ({', '.join(BACKBONES)}) nor a folder of weights.")
    named = read_card(folder)["name"] if (folder / "card.json").exists() else "janus"
    return load(named, str(folder), device, dtype)


def sampling_of(options: argparse.Namespace, backbone: Any) -> Any:
    """The backbone's sampling with what the person changed; raises BadPrompt for values out of range."""
    from dataclasses import replace

    from engine.errors import BadPrompt

    given = {k: getattr(options, k) for k in ("temperature", "top_k", "top_p", "guidance") if getattr(options, k) is not None}
    ranges = {"temperature": (0, 5), "top_k": (0, 10**6), "top_p": (0.01, 1), "guidance": (0, 20)}
    for name, value in given.items():
        low, high = ranges[name]
        if not low <= value <= high:
            raise BadPrompt(f"{name} = {value:g} is out of range. Choose {low:g} to {high:g}.")
    return replace(backbone.sampling, **given)


def knobs_of(options: argparse.Namespace, method: Any, preset: dict[str, Any]) -> dict[str, Any]:
    """Knob values from --set and --verify on top of a preset's; raises BadKnob."""
    from engine.errors import BadKnob

    knobs = dict(preset)
    for pair in options.set:
        name, equals, value = pair.partition("=")
        if not equals:
            raise BadKnob(f"--set needs NAME=VALUE, not '{pair}'.")
        knobs[name.strip()] = value.strip()
    if options.verify and any(k.name == "verify" for k in method.knobs):
        knobs["verify"] = options.verify
    elif options.verify and method.name != "ar":
        raise BadKnob(f"{method.name} has no verification mode; leave --verify out.")
    return knobs


def check_seed(seed: int) -> int:
    """The seed; raises BadPrompt for a negative or huge one."""
    from engine.errors import BadPrompt

    if not 0 <= seed < 2**63:
        raise BadPrompt(f"The seed {seed} is out of range. Choose 0 to 2^63 - 1.")
    return seed


# --- commands ---------------------------------------------------------------------------------------------------------


def studio(options: argparse.Namespace) -> int:
    """Opens the page."""
    from app.studio import launch

    name, path = options.backbone, None
    if Path(name).is_dir():
        name, path = "pictogram", options.backbone
    launch(name, path, options.device, options.port, options.host, not options.no_browser, options.dtype)
    return 0


def image(options: argparse.Namespace) -> int:
    """One picture; with --compare plain decoding is timed beside it."""
    from app.history import check_writable, deliver, home
    from engine.core import Prompt
    from engine.methods import find

    method, preset = find(options.method)
    knobs = knobs_of(options, method, preset)
    check_writable(options.out or home() / "runs")
    backbone = load_backbone(options.backbone, options.device, options.dtype)
    prompt = Prompt(options.prompt, seed=check_seed(options.seed), size=options.size, sampling=sampling_of(options, backbone))
    unknown = backbone.unknown_words(options.prompt) if hasattr(backbone, "unknown_words") else {}
    run, comparison = go(options, backbone, method, prompt, knobs)
    for word, near in unknown.items():
        print(f"{backbone.name} does not know '{word}'; nearest: {', '.join(near) or 'nothing alike'}.", file=sys.stderr)
    start = time.perf_counter()
    shown, complaint = deliver(run, options.out)
    rendering = time.perf_counter() - start
    if complaint:
        print(complaint, file=sys.stderr)
    line = report(run, knobs, shown) | {"rendering_seconds": round(rendering, 4), "unknown_words": unknown} | comparison
    print(json.dumps(line, ensure_ascii=False) if options.json else readable(line))
    return 0


def go(options: argparse.Namespace, backbone: Any, method: Any, prompt: Any, knobs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """One finished run; with --compare also what plain decoding took beside it."""
    from engine.run import generate

    if options.compare:
        return compare(backbone, method, prompt, knobs, options.method)
    return generate(backbone, method, prompt, knobs, name=options.method).finish(), {}


def mesh(options: argparse.Namespace) -> int:
    """One mesh, or one for every file of a folder; with --compare plain decoding is timed beside it."""
    from app.history import MESH_FORMATS, check_writable, home
    from engine.errors import BadPrompt, ForetokenError, NotSupported
    from engine.mesh.read import READERS
    from engine.methods import find

    method, preset = find(options.method)
    knobs = knobs_of(options, method, preset)
    formats = tuple(options.formats.lower().split(","))
    if unknown := set(formats) - set(MESH_FORMATS):
        raise NotSupported(f"There is no mesh format '{min(unknown)}'. Choose some of: {', '.join(MESH_FORMATS)}.")
    files = [options.input]
    if options.input.is_dir():
        files = sorted(p for p in options.input.iterdir() if p.suffix.lower() in READERS)
        if not files:
            raise BadPrompt(f"{options.input} holds no file that can be read ({', '.join(READERS)}). Give another folder.")
    check_writable(options.out or home() / "runs")
    backbone = load_backbone(options.backbone, options.device, options.dtype)
    lines, failed = [], False
    for path in files:
        try:
            lines.append(one_mesh(options, backbone, method, knobs, path, formats, several=len(files) > 1))
        except ForetokenError as e:
            if len(files) == 1:
                raise
            failed = True
            print(f"{path.name}: {e}", file=sys.stderr)
    if options.json:
        print(json.dumps(lines if options.input.is_dir() else lines[0], ensure_ascii=False))
    return 2 if failed else 0


def one_mesh(
    options: argparse.Namespace, backbone: Any, method: Any, knobs: dict[str, Any], path: Path, formats: tuple[str, ...], several: bool
) -> dict[str, Any]:
    """The contract line of one file; prints it for a person unless --json."""
    import torch

    from app.history import deliver, placed
    from engine.core import Prompt
    from engine.mesh.distance import distance
    from engine.mesh.quality import quality
    from engine.mesh.read import read

    given = read(path, options.up)
    sampling, seed = sampling_of(options, backbone), check_seed(options.seed)
    prompt = Prompt(points=torch.from_numpy(given.points), seed=seed, size=options.faces, sampling=sampling)
    run, comparison = go(options, backbone, method, prompt, knobs)
    start = time.perf_counter()
    shown, complaint = deliver(run, options.out / path.stem if options.out and several else options.out, given, formats)
    rendering = time.perf_counter() - start
    if complaint:
        print(complaint, file=sys.stderr)
    result = run.result()
    found = quality(result.vertices, result.faces)
    apart = distance((placed(result.vertices, given), result.faces), given.reference)
    line = report(run, knobs, shown) | {"input": str(path), "notes": given.notes, "rendering_seconds": round(rendering, 4)}
    line |= {k: found[k] for k in ("faces", "vertices", "watertight")} | {k: apart[k] for k in ("chamfer", "hausdorff", "floor")}
    line |= {"quality": found, "ended": bool(run.tokens) and run.tokens[-1] == backbone.end} | comparison
    if not options.json:
        print(f"{path.name}: {' '.join(given.notes)}")
        print(readable(line))
        if found["faces"]:
            print(f"{found['faces']} faces, {found['vertices']} vertices, chamfer {apart['chamfer']:.4f} (floor {apart['floor']:.4f})")
    if not found["faces"]:
        print(f"{path.name} gave no face. Try another --seed, --up y, or more points with outward normals.", file=sys.stderr)
    return line


def compare(backbone: Any, method: Any, prompt: Any, knobs: dict[str, Any], name: str = "") -> tuple[Any, dict[str, Any]]:
    """One unmeasured run of each, then plain, accelerated, accelerated, plain; the speed-up is the ratio of the medians."""
    from statistics import median

    from engine.methods import METHODS
    from engine.run import generate

    def go(which: Any, values: dict[str, Any]) -> Any:
        return generate(backbone, which, prompt, values, name=name if which is method else "").finish()

    plain = METHODS["ar"]
    go(plain, {}), go(method, knobs)
    runs = [go(plain, {}), go(method, knobs), go(method, knobs), go(plain, {})]
    slow, fast = median([runs[0].seconds, runs[3].seconds]), median([runs[1].seconds, runs[2].seconds])
    same = runs[0].in_order == runs[1].in_order
    return runs[1], {"compare": {"method": "ar", "seconds": round(slow, 4), "speedup": round(slow / fast, 3), "same_tokens": same}}


def report(run: Any, knobs: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The contract line of `image`."""
    totals = run.totals
    return {
        "backbone": run.backbone.name,
        "dtype": getattr(run.backbone, "dtype", None),
        "method": run.method.name,
        "preset": run.name if run.name != run.method.name else None,
        "exact": run.exact,
        "verify": run.fixed.get("verify", "residual"),
        "seed": run.prompt.seed,
        "tokens": totals["tokens"],
        "forwards": totals["forwards"],
        "draft_forwards": totals["draft_forwards"],
        "step_compression": round(totals["step_compression"], 3),
        "seconds": round(totals["seconds"], 4),
        "tokens_per_second": round(totals["tokens_per_second"], 2),
        "knobs": run.steps[-1].knobs if run.steps else {},
        "files": {p.stem: str(p) for p in sorted(folder.iterdir())},
    }


def readable(line: dict[str, Any]) -> str:
    """The same line for a person."""
    text = (
        f"{line['method']} ({'exact' if line['exact'] else 'not exact'}): {line['tokens']} tokens in {line['forwards']} passes "
        f"({line['step_compression']:.2f} a pass), {line['seconds']:.2f} s, {line['tokens_per_second']:.0f} tokens/s"
    )
    if "compare" in line:
        c = line["compare"]
        text += f"\nplain decoding: {c['seconds']:.2f} s, so {c['speedup']:.2f}x; same tokens: {'yes' if c['same_tokens'] else 'no'}"
    return text + "\n" + "\n".join(line["files"].values())


def verify(options: argparse.Namespace) -> int:
    """The table of exactness; exit code 1 if any claim is false."""
    from engine.errors import NotSupported
    from engine.measure.verify import exactness

    table = exactness.table()
    for name in options.methods:
        if name not in table:
            raise NotSupported(f"There is no method '{name}' to verify. There are: {', '.join(table)}.")
    rows, holds, seconds = exactness.verify(options.methods or list(table), options.full)
    for key, row in rows.items():
        mutants = ", ".join(f"{m} {z:.0f}" for m, z in row["mutants"].items())
        print(f"{key:42} {'exact' if row['exact'] else 'NOT EXACT':9} z = {row['z']:8.2f}   mutants: {mutants or '-'}")
    print(f"{'Every claim holds' if holds else 'A CLAIM IS FALSE'} ({len(rows)} rows, {seconds:.0f} s)")
    if options.json:
        print(json.dumps(rows))
    return 0 if holds else 1


def bench(options: argparse.Namespace) -> int:
    """The table of speed."""
    from engine.errors import NotSupported
    from engine.measure.bench import judged, meshes, speed
    from engine.measure.figures import by_eye, sheet

    if options.figure and (options.what == "mesh" or options.judge or options.sheet):
        raise NotSupported("--figure is drawn by bench image, without --judge and --sheet.")
    if options.what == "mesh":
        return bench_mesh(options, meshes)
    options.count = options.count or 20
    backbone = load_backbone(options.backbone, options.device, options.dtype)
    if options.sheet:
        prompts = speed.read_prompts(options.prompts, options.count, backbone)
        sheet.draw(backbone, prompts, options.sheet, options.size, sampling_of(options, backbone))
        print(json.dumps({"sheet": str(options.sheet)}) if options.json else options.sheet)
        return 0
    if options.eye and not options.judge:
        raise NotSupported("--eye holds the judge against a person's eye: add --judge.")
    measured = by_eye if options.eye else judged if options.judge else speed
    rows = measured.bench(backbone, options, sampling_of(options, backbone))
    if options.json:
        print(json.dumps(rows))
    return 0


def bench_mesh(options: argparse.Namespace, meshes: Any) -> int:
    """The table of mesh methods, or a sheet of results."""
    if options.sheet:
        meshes.sheet(options.backbone if Path(options.backbone).is_dir() else None, options.sheet, options.count or 24)
        print(json.dumps({"sheet": str(options.sheet)}) if options.json else options.sheet)
        return 0
    rows = meshes.bench(options)
    if options.json:
        print(json.dumps(rows))
    return 0


def train(options: argparse.Namespace) -> int:
    """A training recipe."""
    from engine.errors import NotSupported
    from engine.train import RECIPES
    from engine.train.loop import Options

    if options.name not in RECIPES:
        raise NotSupported(f"There is no recipe '{options.name or ''}'. There are: {', '.join(RECIPES)}.")
    recipe = importlib.import_module(RECIPES[options.name])
    asked = getattr(recipe, "Options", Options)  # a recipe may ask for more than all do
    recipe.main(asked(**vars(asked.parser(options.name).parse_args(options.rest))))
    return 0


def models(options: argparse.Namespace) -> int:
    """What can be loaded, and whether its weights are here."""
    from engine.backbones import BACKBONES

    found = {}
    for name in BACKBONES:
        card = ROOT / "assets" / "models" / name / "card.json"
        shipped = json.loads(card.read_text(encoding="utf-8")) if card.exists() else {}
        ready = bool(shipped) or name == "toy"
        found[name] = {"ready": ready, "how": "shipped" if ready else f"give a local folder: --backbone PATH ({name})"}
        if "decoder" in shipped:
            found[name] |= {"sizes": [8 * s for s in shipped["sides"]], "held_out": shipped["decoder"]["held_out"]}
        if "model" in shipped:
            found[name] |= {"families": shipped["families"], "held_out": shipped["model"]["held_out"]}
    for name, row in found.items():
        print(f"{name:12} {row['how']}" + (f", sizes {row['sizes']}" if "sizes" in row else ""))
    if options.json:
        print(json.dumps(found))
    return 0


def doctor(options: argparse.Namespace) -> int:
    """This machine: versions, devices, browser, font, and the cost of a pass by its width."""
    from engine.data.emoji_scenes import font_path
    from engine.errors import ForetokenError
    from engine.machine import facts
    from engine.measure.bench.speed import cost_curve

    found: dict[str, Any] = facts() | {"browser": browser()}
    checks = {"font": lambda: str(font_path()), "pass_milliseconds": lambda: cost_curve(load_backbone("pictogram", "cpu"))}
    for name, check in checks.items():
        try:
            found[name] = check()
        except ForetokenError as e:  # a doctor says what is missing instead of failing on it
            found[name] = f"missing: {e}"
    for key, value in found.items():
        print(f"{key:20} {value}")
    if options.json:
        print(json.dumps(found))
    return 0


def browser() -> str | None:
    """The browser that the page's tests would use."""
    import shutil

    names = (os.environ.get("FORETOKEN_CHROMIUM", ""), "chromium", "google-chrome")
    return next((found for n in names if n and (found := shutil.which(n))), None)


def test(options: argparse.Namespace) -> int:
    """The whole test suite."""
    return subprocess.call([sys.executable, "-m", "pytest", *options.rest], cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)})


COMMANDS = {
    "studio": studio,
    "image": image,
    "mesh": mesh,
    "verify": verify,
    "bench": bench,
    "train": train,
    "models": models,
    "doctor": doctor,
    "test": test,
}

if __name__ == "__main__":
    main_from_command_line()
