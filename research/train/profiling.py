"""Where the time of a training step goes: `launch.py train RECIPE --profile N`."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

from torch.profiler import ProfilerActivity, profile

KINDS = {  # by the beginning of an operator's name, or of one that it is part of; the first that fits counts
    "attention": ("foretoken::attend", "foretoken::learned_attention", "aten::_scaled_dot_product", "aten::scaled_dot_product"),
    "optimiser": ("Optimizer.step",),
    "convolutions": ("aten::convolution", "aten::mkldnn_convolution", "mkldnn_convolution"),
    "products": ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "mkldnn::"),
    "softmax of logits": ("MeanLoss", "aten::_log_softmax", "aten::nll_loss"),
    "copies and casts": ("aten::copy_", "aten::fill_", "aten::cat", "aten::clone"),
    "compiled": ("graph_",),  # fused loops
}


def kind_of(names: list[str]) -> str:
    """Returns the kind of an operator, from its name and the names of those that it is part of."""
    return next((kind for kind, starts in KINDS.items() if any(name.startswith(starts) for name in names)), "other operators")


def shares(steps: int, step: Callable[[], object]) -> tuple[float, float, dict[str, float]]:
    """Makes `steps` steps. Returns wall-clock and processor milliseconds of one without the profiler; and from as many more with it, the
    share of operator time by kind."""
    step()  # compiles, and fills the caches
    wall, used = time.perf_counter(), time.process_time()
    for _ in range(steps):
        step()
    wall, used = (time.perf_counter() - wall) / steps * 1e3, (time.process_time() - used) / steps * 1e3
    with profile(activities=[ProfilerActivity.CPU]) as found:
        for _ in range(steps):
            step()
    spent: Counter[str] = Counter()
    for event in found.events():
        names, above = [event.name], event.cpu_parent
        while above is not None:
            names.append(above.name)
            above = above.cpu_parent
        spent[kind_of(names)] += event.self_cpu_time_total
    total = sum(spent.values())
    return wall, used, {kind: each / total for kind, each in spent.most_common()}


def report(steps: int, step: Callable[[], object]) -> str:
    """Returns the lines that `--profile` prints."""
    wall, used, kinds = shares(steps, step)
    lines = [f"{wall:.0f} ms a step by the clock, {used:.0f} ms of processor time (mean of {steps}); operators:"]
    return "\n".join(lines + [f"  {share:6.1%} {kind}" for kind, share in kinds.items()])
