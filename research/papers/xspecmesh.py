"""XSpecMesh: Multi-Head Speculative Decoding, Chen et al.: tables 1 to 4 and figures 1 to 9."""

from __future__ import annotations

from research.bench.meshes import TABLE, MeshBenchRow
from research.papers.declaration import Claim, Drawing, Experiment, Meshes, Paper

ROWS = {name: TABLE[name] for name in ("A plain", "B MLP", "C MLP + LoRA", "D cross-attention", "E cross-attention + LoRA")}
BEST, PLAIN = "E cross-attention + LoRA", "A plain"
BPT = "BPT on an RTX 3090"
NEAR = Claim("The meshes are as near to their inputs", BEST, "alike", PLAIN, "chamfer_published", 0.01)
FASTER = Claim("The heads with LoRA are faster than plain decoding", BEST, "more", PLAIN, "speedup")
DIFFERS = (
    "Our backbone was trained together with heads; the paper's was not: `launch.py train lowpoly --later 0 --out FOLDER` trains a "
    "control whose states learn nothing from its heads, `launch.py train mesh-heads --start FOLDER` its heads and adapters, and "
    "`--backbone FOLDER` measures it. The speed-up is tokens per pass · plain step time / step time with heads, in the paper "
    "2.021 · 40.51 / 47.83 = 1.71; for a small model on a CPU, heads and rows cost a larger part of a step."
)
TABLE_3 = {  # Chamfer and Hausdorff distance, tokens per pass, milliseconds per step, speed
    PLAIN: (0.1165, 0.2223, 1.000, 40.51, 1.00), "B MLP": (0.1195, 0.2241, 1.181, 44.89, 1.07),
    "C MLP + LoRA": (0.1267, 0.2485, 1.909, 44.92, 1.65), "D cross-attention": (0.1167, 0.2229, 1.334, 47.81, 1.13),
    BEST: (0.1168, 0.2261, 2.021, 47.83, 1.71),
}  # fmt: skip
TABLE_4 = {BEST: (2.021, 47.83, 1.71), "PTS 2": (2.030, 48.06, 1.71), "PTS 3": (2.033, 48.47, 1.69), "PTS 4": (2.036, 49.08, 1.68)}
THRESHOLDS = {f"δ = {t}": MeshBenchRow("cross", knobs={"accept_probability": t}) for t in (0.1, 0.3, 0.5, 0.7, 0.9)}
DEPTHS = {f"D = {d}": MeshBenchRow("cross", knobs={"depth": d}) for d in (1, 2, 3, 4, 5, 6)}  # on the weights with LoRA, as the thresholds
TOPS = {f"top {k}": MeshBenchRow("cross", knobs={"accept": "top k", "accept_top": k}) for k in (1, 3, 5, 10)}


PAPER = Paper(
    name="xspecmesh", title="XSpecMesh", method="xspecmesh", tables=(1, 4), figures=(1, 9),
    illustrations={"table-1": "the sizes of vocabularies", "figure-1": "two frameworks as diagrams", "figure-2": "the method as a diagram",
                   "figure-3": "verification as a diagram", "figure-7": "samples of the test data",
                   **{f"figure-{n}": "meshes by method" for n in (4, 8, 9)}},
    experiments=(
        Experiment(
            key="table-2", title="Table 2: quality and latency", asks="Is it faster at equal quality?",
            reports="1.7 times as fast, as near.",
            runs=Meshes(rows={name: TABLE[name] for name in (PLAIN, BEST)}, count=40), reported_on=BPT, claims=(FASTER, NEAR),
            reported={PLAIN: {"chamfer_published": 0.1165, "hausdorff_published": 0.2223},
                      BEST: {"chamfer_published": 0.1168, "hausdorff_published": 0.2261, "speedup": 1.70}},
            drawing=Drawing(y="speedup"), differs="DeepMesh and the user study are left out. " + DIFFERS,
        ),
        Experiment(
            key="table-3", title="Table 3: heads and LoRA", asks="What do cross-attention and LoRA give?",
            reports="LoRA gives most of the speed, cross-attention keeps the quality.", runs=Meshes(rows=ROWS, count=40), reported_on=BPT,
            reported={label: dict(zip(("chamfer_published", "hausdorff_published", "step_compression", "milliseconds_per_step", "speedup"),
                                      values, strict=True)) for label, values in TABLE_3.items()},
            claims=(Claim("Cross-attention beats MLP heads", "D cross-attention", "more", "B MLP", "step_compression"),
                    Claim("LoRA raises the compression", BEST, "more", "D cross-attention", "step_compression"), FASTER, NEAR),
            differs=DIFFERS,
        ),
        Experiment(
            key="table-4", title="Table 4: independent drafts or a tree", asks="Is a probability tree worth its time?",
            reports="It commits slightly more tokens per pass and is not faster.", reported_on=BPT, differs=DIFFERS,
            runs=Meshes(rows={name: TABLE[name] for name in (PLAIN, BEST, "PTS 2", "PTS 3", "PTS 4")}, count=40),
            reported={label: dict(zip(("step_compression", "milliseconds_per_step", "speedup"), values, strict=True))
                      for label, values in TABLE_4.items()},
            claims=(Claim("A tree commits more tokens per pass", "PTS 4", "more", BEST, "step_compression"),
                    Claim("A tree is slower", "PTS 4", "less", BEST, "speedup")),
        ),
        Experiment(
            key="figure-5", title="Figure 5: heads and threshold", asks="How many heads, and which threshold?", reports="4 heads, δ = 0.5.",
            runs=Meshes(rows={PLAIN: TABLE[PLAIN], **DEPTHS, **THRESHOLDS}),
            drawing=Drawing(y="speedup"),
            reported={"D = 4": {"speedup": 1.71}, "δ = 0.5": {"speedup": 1.71}}, reported_on=BPT,
            claims=(Claim("Four heads are faster than one", "D = 4", "more", "D = 1", "speedup"),
                    Claim("A stricter threshold commits fewer tokens", "δ = 0.9", "less", "δ = 0.1", "step_compression")),
            differs=DIFFERS,
        ),
        Experiment(
            key="figure-6", title="Figure 6: threshold or top-k acceptance", asks="Which rule of acceptance is stable?",
            reports="A threshold; top-k acceptance breaks meshes above 1.", differs=DIFFERS,
            runs=Meshes(rows={PLAIN: TABLE[PLAIN], **THRESHOLDS, **TOPS}), drawing=Drawing(y="chamfer_published"),
            claims=(Claim("Top 10 moves meshes away from their inputs", "top 10", "more", PLAIN, "chamfer_published"),
                    Claim("δ = 0.5 keeps them near", "δ = 0.5", "alike", PLAIN, "chamfer_published", 0.01)),
        ),
    ),
)  # fmt: skip
