"""`bench kernels`: resource use of the compiled Triton kernels, their lower bounds of time, and, on a GPU, their measured times.

Compilation needs no GPU: Triton compiles for a compute capability, and the `cuobjdump` in its wheel reads registers, stack and
shared memory. A stack means spilled registers. The lower bound is bytes over bandwidth: computed, never measured.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from engine.cache import keep
from engine.dispatch.choice import choose
from engine.dispatch.language import LAUNCH, is_interpreted, version
from engine.errors import NotSupported
from engine.kernels import energy_scan, gate, pooled_mass, residual_norm, rotary_write, row_lora, tree_attention
from engine.machine import commit, device_of
from engine.noise import kernel as noise
from engine.tuning.roofline import ACCELERATORS
from engine.verify import triton as verify
from research.bench.kernel_cases import CASES, KernelCall
from research.bench.rows import Row, publish

CAPABILITIES = {80: "A100", 86: "RTX 30", 89: "RTX 40", 90: "H100, H200", 100: "B200", 120: "RTX 50"}  # GPUs of each
BANDWIDTH = {  # bytes per second, by the vendor
    "A100": 2.04e12, "H100": ACCELERATORS["H100"].bandwidth, "H200": ACCELERATORS["H200"].bandwidth, "B200": 8.0e12,
    "RTX 4090": ACCELERATORS["RTX 4090"].bandwidth,
}  # fmt: skip
USAGE = re.compile(r"REG:(\d+) STACK:(\d+) SHARED:(\d+)")


@dataclass(frozen=True)
class Program:
    """A kernel as compiled for the table, with every optional part switched on.

    types : Triton's types of the non-constant arguments; constants : values of the others; options : of the launch
    aligned : sizes assumed to be multiples of 16, as they are for the models' shapes; pointers always are
    """

    function: Any
    types: Mapping[str, str]
    constants: Mapping[str, Any]
    warps: int
    options: Mapping[str, Any] = field(default_factory=dict)
    aligned: str = ""


def _types(floats: str = "", longs: str = "", halves: str = "", sizes: str = "", numbers: str = "", **more: str) -> dict[str, str]:
    """Types by the names of arguments, separated by spaces: pointers to float32, int64 and half, 32-bit sizes, float32 numbers."""
    groups = {"*fp32": floats, "*i64": longs, "*bf16": halves, "i32": sizes, "fp32": numbers}
    return {name: kind for kind, names in groups.items() for name in names.split()} | more


_VERIFY = _types(
    "probs_at p_at numbers_at", "tokens_at base_at positions_at integers_at", "logits_at",
    "rows drafts vocabulary branch_stride row_stride allowed_stride probs_stride top_k", "guidance divisor last_divisor top_p",
    allowed_at="*u8", uniforms_at="*fp64", settings_at="*fp64",
)  # fmt: skip
_ALL = {name: True for name in ("PAIR", "MASKED", "DRAFT_PROBS", "TOP_K", "TOP_P", "STORE", "READ")} | {"GREEDY": False}
_TILE = verify.WIDEST
_ATTENTION = _types(
    "sums_at totals_at", "sets_at places_at positions_at kept_at padding_at", "q_at k_at v_at",
    "count kept words heads group width q_branch q_head q_row k_branch k_head k_row v_branch v_head v_row place_branch", "scale",
)  # fmt: skip
_TENSOR_CORES = {"PRECISION": "tf32"}

# All kernels. A kernel may have several programs.
KERNELS: dict[str, tuple[Program, ...]] = {
    "noise": (
        Program(noise._gumbel_kernel, _types("out_at", "base_at positions_at", "", "vocabulary"), {"BLOCK": 1024, "BITS": False}, 4),
    ),
    "verify": (
        Program(
            verify._verify_kernel, _VERIFY, _ALL | {"BLOCK": _TILE}, verify.warps_of(_TILE), {"maxnreg": verify.REGISTERS}
        ),
        Program(
            verify._settle_kernel,
            _types("", "answers_at fresh_at drawn_at out_at drafts_at", "", "drafts", accepted_at="*u8", sound_at="*u8"),
            {"SEEDED": False, "TOLD": True, "BLOCK": 128}, 1,
        ),
    ),
    "keep_rows": (
        Program(keep._keep_rows_kernel, _types("", "rows_at", "block_at", "start count stride width"), {"ROWS": 16, "SLICE": 16}, 1),
    ),
    "tree_attention": (
        Program(
            tree_attention._attend_part_kernel, _ATTENTION,
            {"PLACED": True, "TOLD": True, "PADDED": True, "ROWS": tree_attention.MOST_QUERIES, "KEYS": tree_attention.KEYS, "WIDTH": 128}
            | _TENSOR_CORES,
            tree_attention.warps_of(tree_attention.MOST_QUERIES, torch.bfloat16), {"num_stages": 2},
            "width q_branch q_head q_row k_branch k_head k_row v_branch v_head v_row",
        ),
        Program(
            tree_attention._merge_parts_kernel,
            _types("sums_at totals_at", "", "out_at", "lines count parts heads group width"),
            {"ROWS": tree_attention.MERGED, "WIDTH": 128}, 4, {}, "width",
        ),
    ),
    "residual_norm": (
        Program(
            residual_norm._residual_norm_kernel, _types("", "", "x_at more_at weight_at sum_at out_at", "width", "eps"),
            {"ADD": True, "BLOCK": 8192}, residual_norm.warps_of(8192), {}, "width",
        ),
    ),
    "rotary_write": (
        Program(
            rotary_write._rotary_write_kernel,
            _types(
                "", "rows_at",
                "q_at k_at v_at cos_at sin_at keys_at values_at out_at q_weight_at k_weight_at q_bias_at k_bias_at",
                "count group width turned q_branch q_row k_branch k_row v_branch v_row cos_branch keys_branch keys_head keys_row "
                "values_branch values_head values_row q_norm_head k_norm_head", "eps",
            ),
            {"NORM": True, "BIAS": True, "GROUP": 8, "WIDTH": 128}, 1, {},
            "width turned q_branch q_row k_branch k_row v_branch v_row cos_branch keys_branch keys_head keys_row values_branch values_head "
            "values_row q_norm_head k_norm_head",
        ),
    ),
    "gate": (
        Program(
            gate._gate_kernel, _types("", "", "gate_at up_at out_at", "inner gate_row up_row"), {"BLOCK": gate.BLOCK}, 4, {},
            "inner gate_row up_row",
        ),
    ),
    "pooled_mass": (
        Program(
            pooled_mass._pooled_mass_kernel,
            _types("p_at limits_at out_at", "tokens_at near_at", "", "row_stride near_stride count"), {"TILE": pooled_mass.TILE}, 1,
        ),
        Program(
            pooled_mass._ranked_kernel, _types("p_at", "tokens_at out_at", "", "vocabulary row_stride half"),
            {"BLOCK": pooled_mass.WIDEST}, 8,
        ),
    ),
    "row_lora": (
        Program(
            row_lora._shrink_kernel, _types("", "", "x_at down_at h_at", "count width branch_stride row_stride rank"),
            {"ROWS": row_lora.ROWS, "RANK": 32, "INNER": row_lora.INNER} | _TENSOR_CORES, 4, {}, "width branch_stride row_stride rank",
        ),
        Program(
            row_lora._expand_kernel, _types("", "first_at", "y_at h_at up_at", "count width branch_stride row_stride rank", "scale"),
            {"TOLD": True, "ROWS": row_lora.ROWS, "RANK": 32, "OUTER": row_lora.OUTER} | _TENSOR_CORES, 4, {},
            "width branch_stride row_stride rank",
        ),
    ),
    "energy_scan": (
        Program(
            energy_scan._energy_kernel,
            _types("p_at q_at", "tokens_at", "", "count vocabulary p_stride q_stride", "", u_at="*fp64", out_at="*fp64",
                   accepted_at="*u8", smoothing="fp64", tolerance="fp64", horizon="fp64"),
            {"LITERAL": False, "SMOOTH": True, "BLOCK": 64}, 4,
        ),
    ),
}  # fmt: skip


def select_kernels(text: str | None) -> list[str]:
    """Kernels named in `text`, separated by commas; all without a text. Raises NotSupported for an unknown name."""
    wanted = [name.strip() for name in text.split(",")] if text else list(KERNELS)
    unknown = next((name for name in wanted if name not in KERNELS), None)
    if unknown is not None:
        raise NotSupported(f"There is no kernel '{unknown}'. There are: {', '.join(KERNELS)}.")
    return wanted


def bench(wanted: list[str], csv: Path | None) -> list[Row]:
    """Compiles these kernels and, on a GPU, measures them. Prints and returns the rows, and appends them to `csv` if it is not None."""
    device = torch.device(device_of("auto"))
    print(f"Kernels on {device.type}: {choose(device).reason}")
    rows = publish(compile_rows(wanted), compile_line, {"triton": version(), "commit": commit()}, csv)
    for work in (work for work in WORK if work.kernel in wanted):
        print(f"{work.kernel}, {work.what}: {work.bytes_moved:,} bytes; computed lower bound in us: " + lower_bounds(work))
    if wanted == list(KERNELS):
        from research.bench.nodes import node_line, node_rows  # imports transformers, which takes seconds

        for row in node_rows(BANDWIDTH):
            print(node_line(row))
    if device.type == "cuda":
        stamp = {"gpu": torch.cuda.get_device_name(device), "triton": version(), "torch": torch.__version__, "commit": commit()}
        rows += publish(measured_rows(wanted, device), measured_line, stamp, csv)
    return rows


def compile_program(program: Program, capability: int) -> dict[str, Any]:
    """A program for a compute capability (80 = 8.0): registers and spilled bytes per thread, shared bytes per program, seconds."""
    if version() is None:
        raise NotSupported("Triton is not installed, so its kernels cannot be compiled. Install triton; it has wheels for Linux.")
    if is_interpreted():
        raise NotSupported("TRITON_INTERPRET=1 replaces the compiler by an interpreter. Unset it to compile kernels.")
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    order = program.function.arg_names
    types = {name: program.types.get(name, "constexpr") for name in order}
    even = {(i,): [["tt.divisibility", 16]] for i, name in enumerate(order) if types[name][0] == "*" or name in program.aligned.split()}
    source = ASTSource(program.function, types, {(order.index(name),): value for name, value in program.constants.items()}, even)
    start = time.perf_counter()
    options = {"num_warps": program.warps, **program.options, **LAUNCH}
    binary = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
    registers, stack, static = _usage(binary.asm["cubin"])
    return {
        "program": program.function.fn.__name__.strip("_"),
        "capability": f"{capability // 10}.{capability % 10}",
        "warps": program.warps,
        "registers": registers,
        "spilled_bytes": stack,
        "shared_bytes": max(binary.metadata.shared, static),
        "seconds": round(time.perf_counter() - start, 2),
    }


def _usage(cubin: bytes) -> tuple[int, int, int]:
    """Registers, stack and shared memory of a compiled program, as the disassembler of Triton's wheel prints them."""
    from triton.backends import nvidia

    tool = Path(nvidia.__file__).parent / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        printed = subprocess.run([str(tool), "--dump-resource-usage", file.name], capture_output=True, text=True, check=True).stdout
    match = USAGE.search(printed)
    assert match, f"cuobjdump printed no resource usage: {printed!r}"
    return int(match[1]), int(match[2]), int(match[3])


def compile_rows(wanted: list[str]) -> Iterator[Row]:
    """One row per program and compute capability."""
    for name in wanted:
        for program in KERNELS[name]:
            for capability in CAPABILITIES:
                yield {"kernel": name} | compile_program(program, capability)


def compile_line(row: Row) -> str:
    """A compiled program in one line."""
    needs = (
        f"{row['registers']:3} registers, {row['spilled_bytes']} bytes spilled, {row['shared_bytes']:,} bytes shared, {row['warps']} warps"
    )
    return f"{row['kernel']:15} {row['program']:22} {row['capability']:>5}  {needs}, {row['seconds']} s"


# --- lower bounds -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TypicalCall:
    """A typical call of a kernel, and the fewest bytes that it must move."""

    kernel: str
    what: str
    bytes_moved: int


def _verify_bytes(rows: int, vocabulary: int, stored: bool = True) -> int:
    """Logits of both branches in half precision, q read, p written."""
    return 2 * rows * vocabulary * 2 + (2 * rows * vocabulary * 4 if stored else 0)


WORK = (
    TypicalCall("noise", "16 rows of 65,536", 16 * 65536 * 4),
    TypicalCall("verify", "32 rows of 16,384, q and p", _verify_bytes(32, 16384)),
    TypicalCall("verify", "96 rows of 65,536, q and p", _verify_bytes(96, 65536)),
    TypicalCall("verify", "96 rows of 65,536, match seed, p not stored", _verify_bytes(96, 65536, stored=False)),
    TypicalCall("keep_rows", "4 rows, 32 layers of 4,096, two branches", 2 * 32 * 2 * 2 * 4 * 4096 * 2),
    TypicalCall("tree_attention", "60 rows after 2,400, a layer of 4,096, two branches", 2 * 2 * 2460 * 4096 * 2 + 2 * 2 * 60 * 4096 * 2),
    TypicalCall("residual_norm", "32 rows of 4,096, two branches", 4 * 64 * 4096 * 2 + 4096 * 2),
    TypicalCall("rotary_write", "32 rows of 32 + 2 x 8 heads of 128, two branches", 2 * 64 * 48 * 128 * 2 + 2 * 32 * 128 * 2),
    TypicalCall("gate", "32 rows of 14,336, two branches", 3 * 64 * 14336 * 2),
    TypicalCall("pooled_mass", "60 nodes, 1,000 neighbours, all read", 60 * 1000 * (8 + 32)),
    TypicalCall("row_lora", "rank 32, 4,096 to 11,008, 16 rows of two branches", (32 * (4096 + 11008) + 32 * (4096 + 2 * 11008)) * 2),
    TypicalCall("energy_scan", "16 drafts", 16 * (2 * 32 + 8 + 8 + 16 + 1)),
)


def lower_bound(work: TypicalCall, gpu: str) -> float:
    """Lower bound of a call's microseconds on a GPU: bytes over bandwidth."""
    return 1e6 * work.bytes_moved / BANDWIDTH[gpu]


def lower_bounds(work: TypicalCall) -> str:
    """Lower bounds in microseconds on every GPU of the table."""
    return ", ".join(f"{gpu} {lower_bound(work, gpu):.3g}" for gpu in BANDWIDTH)


# --- on a GPU ---------------------------------------------------------------------------------------------------------


def measured_rows(wanted: list[str], device: torch.device) -> Iterator[Row]:
    """One row per case: median microseconds of kernel, reference and a copy of as many bytes, on this GPU."""
    for name in wanted:
        for make in CASES[name]:
            case = make(device)
            yield {"kernel": name, "case": case.name} | time_case(case, device)


def measured_line(row: Row) -> str:
    """A timed case in one line."""
    times = ", ".join(f"{name} {row[f'{name}_microseconds']:,} us" for name in ("kernel", "reference", "copy"))
    return f"{row['kernel']:15} {row['case']}: {times}"


def time_case(case: KernelCall, device: torch.device) -> dict[str, float]:
    """Microseconds of kernel, reference and copy. The copy moves the fewest bytes that the kernel must move."""
    block = torch.empty(max(1, case.bytes_moved // 2), dtype=torch.uint8, device=device)
    other = torch.empty_like(block)
    calls: dict[str, Callable[[], Any]] = {"kernel": case.kernel, "reference": case.reference, "copy": lambda: other.copy_(block)}
    return {f"{name}_microseconds": round(_median(call), 2) for name, call in calls.items()} | {"bytes": case.bytes_moved}


def _median(call: Callable[[], Any], repeats: int = 30) -> float:
    """The median microseconds of a call, by the GPU's own clock."""
    for _ in range(3):
        call()
    times = []
    for _ in range(repeats):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        call()
        end.record()
        end.synchronize()
        times.append(1000 * start.elapsed_time(end))
    return sorted(times)[repeats // 2]
