"""MuLo-SD: Multi-Scale Local Speculative Decoding; the supplement: table 2 and figures 6 to 13. The main text was not available."""

from __future__ import annotations

from engine.methods.eagle import PUBLISHED
from research.papers.declaration import Arm, Claim, Drawing, Experiment, Paper, Pictures, setting_arms

MASSES = (1e-5, 1e-4, 1e-3, 1e-2)
DIFFERS = "Our judge measures quality, on pictograms of 128 pixels from drafts of 64. Rows draft and redraw serially or in parallel."
PARALLEL = {"block_rows": 4, "draft_window": 4, "repair": "wavefront", "redraw_window": 8}  # steps 1 and 6 by ZipAR
SERIAL = {"repair": "in order"}
FORMS = (Arm("plain", "ar"), *(Arm(f"{factor}x", "mulo", {"factor": factor} | more, x=form) for factor in "24"
                               for form, more in (("serial", SERIAL), ("parallel", PARALLEL))))  # fmt: skip


QUICKER, AS_GOOD = "In parallel it is faster", "And as good"
EQUAL = 0.15  # of the pictures may have other objects; 20 pictures can show it


def forms(at: str, serial: str, parallel: str) -> tuple[Claim, Claim]:
    """The two claims about the parallel form: it is faster, and the judge finds equally many right objects."""
    return (Claim(f"{QUICKER}, {at}", parallel, "more", serial, "speedup"),
            Claim(f"{AS_GOOD}, {at}", parallel, "alike", serial, "objects", EQUAL))  # fmt: skip


def masses(line: str, radius: float, **more: float | str) -> tuple[Arm, ...]:
    """A line of the plane: a sweep over τ at one radius."""
    return tuple(Arm(line, "mulo", {"least_mass": mass, "radius": radius} | more, x=mass) for mass in MASSES)


PAPER = Paper(
    name="mulo_sd", title="MuLo-SD", method="mulo", tables=(2, 2), figures=(6, 13),
    illustrations={"figure-6": "three methods as diagrams", **{f"figure-{n}": "pictures" for n in (10, 11, 12, 13)}},
    experiments=(
        Experiment(
            key="table-2", title="Table 2: time by resolution", asks="How long does plain decoding take at each size?",
            reports="5, 18 and 80 seconds for 256, 1,024 and 4,096 tokens.", reported_on="Tar 1.5B on an A100",
            runs=Pictures(arms=setting_arms("plain", "ar", "size", (64, 128, 256)), count=12),
            drawing=Drawing(kind="curve", x="pixels", y="seconds"),
            reported={f"plain, {side}": {"seconds": seconds} for side, seconds in ((64, 5.0), (128, 18.0), (256, 80.0))},
            differs="The sizes are a quarter of the paper's: 64, 256 and 1,024 tokens. Compare the growth, not the seconds.",
        ),
        Experiment(
            key="figure-7", title="Figure 7: time by step", asks="Where does the time go, serial and in parallel?",
            reports="Into drafting and redrawing; redrawing in parallel (steps 1 and 6) removes most of it.",
            runs=Pictures(arms=FORMS, count=54, settings={"size": 256}), drawing=Drawing(y="seconds"),
            differs="Pictograms of 256 pixels, drafted at 128 and 64. The judge reads them at 128. The parallel form drafts blocks of 4 "
            "small rows. With C columns each, they take C + 12 passes instead of 4 C: 28 instead of 64 at 2x, 20 instead of 32 at 4x, and "
            "one verification instead of four. But repairs in a block reach the small picture later, so more drafts may be refused.",
            claims=tuple(claim for factor in ("2x", "4x") for claim in forms(factor, f"{factor}, serial", f"{factor}, parallel")),
        ),
        Experiment(
            key="figure-8", title="Figure 8: speed and quality", asks="What does speed cost in quality?",
            reports="A lower τ is faster and worse; ZipAR dominates, then MuLo-SD, then LANTERN.", differs=DIFFERS,
            runs=Pictures(arms=(*masses("MuLo-SD", 3.0, **SERIAL), *masses("MuLo-SD, parallel", 3.0, **PARALLEL),
                                Arm("plain", "ar"), Arm("ZipAR", "zipar"), Arm("EAGLE-2", "eagle", PUBLISHED),
                                Arm("LANTERN", "lantern"))),
            drawing=Drawing(kind="plane", x="speedup", y="objects"),
            claims=(Claim("A lower τ is faster", "MuLo-SD, 1e-05", "more", "MuLo-SD, 0.001", "speedup"),
                    Claim("ZipAR is faster than MuLo-SD", "ZipAR", "more", "MuLo-SD, 0.0001", "speedup"),
                    *(claim for mass in MASSES[1:3] for claim in forms(f"τ = {mass:g}", f"MuLo-SD, {mass}", f"MuLo-SD, parallel, {mass}"))),
        ),
        Experiment(
            key="figure-9", title="Figure 9: radius", asks="Which radius of rejection is best?", reports="3, closely followed by 1.",
            runs=Pictures(arms=tuple(arm for r in (1.0, 3.0, 5.0) for arm in masses(f"radius {r:g}", r, **SERIAL)), count=12),
            drawing=Drawing(kind="plane", x="speedup", y="objects"), differs=DIFFERS,
            claims=(Claim("A smaller radius is faster", "radius 1, 0.0001", "more", "radius 5, 0.0001", "speedup"),),
        ),
    ),
)  # fmt: skip
