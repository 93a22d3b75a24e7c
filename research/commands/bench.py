"""`launch.py bench KIND`: measures the speed of methods and kernels; each kind has its own options."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from app.commands.options import (
    CommandParser,
    add_device,
    add_json,
    add_knobs,
    add_model,
    add_sampling,
    add_size,
    file_path,
    number,
    pairs_of,
    sampling_of,
    whole,
)  # fmt: skip
from app.commands.report import print_json
from app.requests.limits import MOST_FACES

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class BenchMode:
    """A kind of measurement: short and long description, a function that adds options (besides --json), and one that measures."""

    about: str
    description: str
    add: Callable[[CommandParser], object]
    measure: Callable[[argparse.Namespace], Rows]


def parser() -> CommandParser:
    """The parser of the benchmark's kind."""
    p = CommandParser(
        "bench", "Measures speed. " + "; ".join(f"{name}: {kind.about}" for name, kind in KINDS.items()) + ". Each has its own --help."
    )
    p.add_argument("what", choices=list(KINDS))
    return p


def parser_of(name: str) -> CommandParser:
    """The parser of a kind's options."""
    p = CommandParser(f"bench {name}", KINDS[name].description)
    KINDS[name].add(p)
    add_json(p)
    return p


def main(arguments: Sequence[str]) -> int:
    """Runs a benchmark. The kind may also come after options."""
    at = next((i for i, argument in enumerate(arguments) if argument in KINDS), 0)
    what = parser().read(arguments[at : at + 1]).what
    options = parser_of(what).read([*arguments[:at], *arguments[at + 1 :]])
    rows = KINDS[what].measure(options)
    if options.json:
        print_json(rows)
    return 0


# --- methods on pictures and meshes -----------------------------------------------------------------------------------


def add_plan(p: CommandParser) -> None:
    """The options of methods, knobs, repeats, the judge, and files."""
    p.add_argument("--methods", default="all", help="methods and presets, separated by commas (all that the backbone supports)")
    p.add_argument(
        "--sweep", action="append", default=[], metavar="NAME=A,B",
        help="one row per value of this knob; for temperature, top_k, top_p, guidance or size: all rows at each value",
    )  # fmt: skip
    p.add_argument("--grid", action="store_true", help="one row per combination of the swept values")
    add_knobs(p)
    p.add_argument(
        "--repeats", type=whole(0, 1_000), default=1, help="repeats of each input by each row, two runs each; 0: one run, rough times (1)"
    )
    p.add_argument("--judge", action="store_true", help="also count how often results match their prompts")
    p.add_argument("--csv", type=file_path, help="append the rows to this file")
    p.add_argument("--sheet", type=file_path, help="draw the results of the last row to this picture file")
    p.add_argument("--figure", type=file_path, help="draw speed over quality to this PNG")


def plan_of(options: argparse.Namespace) -> dict[str, Any]:
    """The fields of a plan; raises BadKnob for text that is not NAME=VALUE."""
    from engine.errors import BadKnob

    sweep = []
    for text in options.sweep:
        name, equals, values = text.partition("=")
        if not equals or not name.strip():
            raise BadKnob(f"--sweep needs NAME=A,B, not '{text}'.")
        sweep.append((name.strip(), tuple(value for value in values.split(",") if value)))
    same = ("backbone", "device", "dtype", "weights", "grid", "repeats", "size", "judge", "csv", "sheet", "figure")
    return {name: getattr(options, name) for name in same} | {
        "sampling": sampling_of(options),
        "methods": () if options.methods == "all" else tuple(name.strip() for name in options.methods.split(",")),
        "knobs": pairs_of(options),
        "verify": options.verify and options.verify.replace("-", " "),
        "sweep": tuple(sweep),
        "count": options.count,
    }


def add_image(p: CommandParser) -> None:
    """The options of `bench image`."""
    add_plan(p)
    p.add_argument("--prompts", type=file_path, help="a file with one prompt per line (default: held-out prompts)")
    p.add_argument("--count", type=whole(1, 10_000), default=20, help="number of prompts (20)")
    add_size(p)
    add_sampling(p)
    add_model(p)


def image(options: argparse.Namespace) -> Rows:
    """Measures methods on pictures."""
    from research.bench import speed
    from research.bench.plan import ImageBench, read_prompts

    plan = plan_of(options)
    if options.prompts is not None:
        plan["prompts"], plan["prompts_from"] = read_prompts(options.prompts, options.count)
    return speed.bench(ImageBench(**plan))


def add_mesh(p: CommandParser) -> None:
    """The options of `bench mesh`."""
    add_plan(p)
    p.add_argument("--count", type=whole(1, 10_000), default=40, help="number of point clouds, or of files of --packs (40)")
    p.add_argument("--seeds", type=whole(1, 1_000), default=1, help="seeds of each cloud (1)")
    p.add_argument("--faces", "--size", type=whole(1, MOST_FACES), dest="size", help="most faces of a mesh (unlimited)")
    p.add_argument(
        "--about", type=lambda text: text if text == "own" else whole(1, MOST_FACES)(text), metavar="N|own",
        help="number of faces that a mesh should have, or own: as many as its input; also measures the error (any)",
    )  # fmt: skip
    p.add_argument("--packs", type=file_path, nargs="+", default=(), metavar="DIR", help="point clouds of all mesh files in these folders")
    p.add_argument(
        "--up", default="auto", help="with --packs: the axis of the files that is up: x, y, z or auto; a negative one as --up=-x (auto)"
    )
    add_sampling(p, guidance=False, guide=True)
    add_model(p, "lowpoly")


def mesh(options: argparse.Namespace) -> Rows:
    """Measures methods on meshes."""
    from research.bench import meshes
    from research.bench.plan import MeshBench

    own = {name: getattr(options, name) for name in ("seeds", "up", "about")}
    return meshes.bench(MeshBench(**plan_of(options), packs=tuple(options.packs), **own))


# --- the other kinds --------------------------------------------------------------------------------------------------


def add_generate(p: CommandParser) -> None:
    """The options of `bench generate`."""
    p.add_argument("--size", default="1b", help="1b: 1.3 billion parameters, in the shape of Janus-Pro-1B; tiny (1b)")
    p.add_argument("--method", default="sjdpp", help="a method that needs no trained drafter (sjdpp)")
    p.add_argument("--window", type=whole(1, 256), default=16, help="window of the method (16)")
    p.add_argument("--tokens", type=whole(2, 4000), default=32, help="new tokens per generation (32)")
    p.add_argument("--guidance", type=number, default=1.0, help="scale of the guidance; 1: none (1)")
    p.add_argument("--repeats", type=whole(1, 1_000), default=1, help="repeats of each row, two runs each (1)")
    add_device(p)
    p.add_argument("--dtype", default="auto", choices=["auto", "float32", "bfloat16"], help="auto is bfloat16 where it is fast")
    add_csv(p)


def add_csv(p: CommandParser) -> None:
    """The option --csv."""
    p.add_argument("--csv", type=file_path, help="append the rows to this file")


def fields_of(options: argparse.Namespace) -> dict[str, Any]:
    """A kind's options as fields of its plan."""
    return {name: value for name, value in vars(options).items() if name != "json"}


def generate(options: argparse.Namespace) -> Rows:
    """Measures methods inside transformers."""
    from engine.machine import device_of
    from research.bench import generation

    device_of(options.device)
    return generation.bench(generation.GenerateBench(**fields_of(options)))


def add_kernels(p: CommandParser) -> None:
    """The options of `bench kernels`."""
    p.add_argument("--only", metavar="NAMES", help="kernels by name, separated by commas (all)")
    add_csv(p)


def kernels(options: argparse.Namespace) -> Rows:
    """Compiles the kernels, and times them where there is a GPU."""
    from research.bench import kernels
    from research.bench.rows import check_csv

    check_csv(options.csv)
    return kernels.bench(kernels.select_kernels(options.only), options.csv)


def add_cpu(p: CommandParser) -> None:
    """The options of `bench cpu`."""
    p.add_argument("--threads", type=int, help="threads per pass (PyTorch's default); with 1, times are processor time")
    add_csv(p)


def cpu(options: argparse.Namespace) -> Rows:
    """Times runs on a CPU."""
    import torch

    from research.bench import passes

    if options.threads is not None:
        torch.set_num_threads(max(1, options.threads))
    return passes.bench(options.csv)


def add_gpu(p: CommandParser) -> None:
    """The options of `bench gpu`."""
    p.add_argument("--tokens", type=whole(8, 900), default=64, help="tokens per generation, and number of timed steps (64)")
    p.add_argument(
        "--first",
        action="store_true",
        help="for a GPU that nobody has tried: first check kernels, graphs and the exactness of five methods, and stop at the first fault",
    )
    add_csv(p)


def gpu(options: argparse.Namespace) -> Rows:
    """Times steps on a GPU."""
    from research.bench import gpu

    return gpu.bench(gpu.GpuBench(**fields_of(options)))


def add_expected(p: CommandParser) -> None:
    """The options of `bench expected`."""
    p.add_argument("--count", type=whole(1, 10_000), default=8, help="number of inputs (8)")
    p.add_argument("--write", action="store_true", help="store the numbers in the model's card")
    add_model(p)


def record_expected(options: argparse.Namespace) -> Rows:
    """Records tokens per pass."""
    from research.bench import expected

    return expected.bench(expected.ExpectedBench(**fields_of(options)))


def add_weights_bench(p: CommandParser) -> None:
    """The options of `bench weights`."""
    p.add_argument("--count", type=whole(1, 10_000), default=4, help="number of inputs (4)")
    p.add_argument("--tokens", type=whole(1, 10_000), default=128, help="tokens of each input (128)")
    p.add_argument("--write", action="store_true", help="store the numbers in the model's card")
    add_csv(p)
    add_model(p)


def weights(options: argparse.Namespace) -> Rows:
    """Measures the deviation of compressed weights."""
    from research.bench import weights

    return weights.bench(weights.WeightsBench(**fields_of(options)))


KINDS = {
    "image": BenchMode("methods on pictures", "Times plain decoding and methods on pictures, in alternation.", add_image, image),
    "mesh": BenchMode("methods on meshes", "Times plain decoding and methods on point clouds, in alternation.", add_mesh, mesh),
    "generate": BenchMode(
        "methods inside transformers", "Times our methods inside transformers' generate, on random weights in the shape of a real model.",
        add_generate, generate,
    ),
    "kernels": BenchMode(
        "the GPU's kernels", "Compiles the Triton kernels for compute capabilities 8.0 to 12.0 and prints what they need, and the nodes "
        "of a pass. Needs no GPU; with one, also times them against their references and against copying as many bytes.",
        add_kernels, kernels,
    ),
    "cpu": BenchMode(
        "runs on a CPU", "Times runs of pictogram and lowpoly on a CPU, alternating PyTorch's operations and compiled functions.",
        add_cpu, cpu,
    ),
    "gpu": BenchMode(
        "graphs and windows on a GPU", "Times plain decoding with CUDA graphs against transformers' generate, and a window's step against "
        "a plain one, after 4k and 8k keys with guidance and top-k, on random weights of the sizes of lowpoly, Janus and Emu3. Needs an "
        "NVIDIA GPU and 10 minutes at most.", add_gpu, gpu,
    ),
    "expected": BenchMode(
        "tokens per pass, for auto", "Records the tokens per pass of the exact methods on held-out inputs, for auto to choose by.",
        add_expected, record_expected,
    ),
    "weights": BenchMode(
        "deviation of int8 and nf4 weights", "Measures how far int8 and nf4 weights move the distribution of each token from the one with "
        "full weights.", add_weights_bench, weights,
    ),
}  # fmt: skip
