"""SJD++: Improved Speculative Jacobi Decoding, Teng et al.: tables 1 to 10 and figures 1 to 14."""

from __future__ import annotations

from engine.methods.eagle import PUBLISHED
from research.papers.declaration import Arm, Claim, Drawing, Experiment, Paper, Pictures, knob_arms, not_run, setting_arms

LUMINA = "Lumina-mGPT 7B at 768 pixels"
OURS = "The pictures are small pictograms and the windows are short, so only the order of the factors is comparable."
REUSED = (
    "A pass that commits a of W drafts leaves W - a to reuse: in the paper 94 of 96 (SJD commits 2.2), here about half of 16, so there is "
    "less to gain."
)
THREE = (Arm("plain", "ar"), Arm("SJD", "sjd"), Arm("SJD++", "sjdpp_published"), Arm("SJD++, coupled (ours)", "sjdpp"))
FASTER = (
    Claim("SJD++ commits more tokens per pass than SJD", "SJD++", "more", "SJD", "step_compression"),
    Claim("SJD is faster than plain decoding", "SJD", "more", "plain", "speedup"),
)
ALIKE = Claim("SJD++ keeps the quality of plain decoding", "SJD++", "alike", "plain", "objects", 0.05)
TOP_K = (1, 10, 100, 2000)
SIZES = (64, 128, 256)
WINDOWS = (4.0, 8.0, 16.0, 32.0, 64.0, 128.0)
REFINED = (Arm("plain", "ar"), Arm("refined", "sjdpp", {"refresh": "redraw"}), Arm("not refined", "sjdpp", {"refresh": "initialise"}),
           Arm("refined, random", "sjdpp", {"refresh": "redraw", "init": "random"}),
           Arm("not refined, random", "sjdpp", {"refresh": "initialise", "init": "random"}))  # fmt: skip
STARTS = ("sample left", "sample above", "repeat left", "repeat above", "random")


def at_each(name: str, values: tuple[float, ...]) -> tuple[Arm, ...]:
    """The four decoders of the paper at each value of a setting."""
    methods = {"plain": "ar", "Jacobi": "jacobi", "SJD": "sjd", "SJD++": "sjdpp_published"}
    return tuple(arm for line, method in methods.items() for arm in setting_arms(line, method, name, values))


def benchmark(key: str, data: str, compression: tuple[float, float], faster: tuple[float, float]) -> Experiment:
    """A main table: plain decoding, SJD and SJD++ on one benchmark."""
    return Experiment(
        key=key, title=f"Table {key[6:]}: {data}", asks="How much faster are SJD and SJD++, and what do they cost in quality?",
        reports="SJD++ is 2 to 3 times as fast as plain decoding with nearly the same quality.",
        runs=Pictures(arms=THREE, count=60), reported_on=f"{LUMINA}, {data}", claims=(*FASTER, ALIKE), differs=f"{OURS} {REUSED}",
        reported={
            "SJD": {"step_compression": compression[0], "speedup": faster[0]},
            "SJD++": {"step_compression": compression[1], "speedup": faster[1]},
        },
    )  # fmt: skip


JACOBI_FAILS = Claim("Jacobi decoding gains nothing at a high top-k", "Jacobi, 2000", "alike", "plain, 2000", "step_compression", 0.1)
SHEETS = (1, 2, 7, 8, 9, 10, 14)  # figures of pictures; `bench image --sheet FILE` draws ours


PAPER = Paper(
    name="sjdpp", title="SJD++", method="sjdpp", tables=(1, 10), figures=(1, 14),
    illustrations={"figure-3": "Jacobi decoding as a diagram", "figure-4": "an iteration of SJD++ as a diagram",
                   "figure-11": "maps of the tokens that a pass commits; the page draws ours",
                   **{f"figure-{n}": "pictures" for n in SHEETS}},
    experiments=(
        benchmark("table-1", "MS-COCO 2017", (2.22, 6.44), (2.04, 3.12)),
        benchmark("table-2", "GenEval", (2.23, 6.44), (2.04, 3.13)),
        not_run("table-3", "Table 3: PartiPrompt", "The same question as table 1.", "The same factors.",
               "HPSv2 and CLIP need models that are not here, and speed repeats table 1", "table-1"),
        Experiment(
            key="table-4", title="Table 4: quality by attribute", asks="Do the attributes of a prompt hold?", reports="They do.",
            runs=Pictures(arms=THREE, count=60), drawing=Drawing(y="relation"),
            differs="T2I-CompBench needs models that are not here. Our judge checks objects, numbers, colours and places. Few held-out "
            "prompts name a colour, and one in five a place, so these claims need more inputs.",
            claims=tuple(Claim(f"SJD++ keeps the {what}", "SJD++", "alike", "plain", metric, margin)
                         for what, metric, margin in (
                             ("numbers", "counts", 0.05), ("colours", "colours", 0.15), ("places", "relation", 0.15))),
        ),
        Experiment(
            key="table-5", title="Table 5: other methods", asks="How does SJD++ compare with other ways to accelerate?",
            reports="SJD++ commits the most tokens per pass.", reported_on=f"{LUMINA}, MS-COCO 2017", differs=OURS,
            runs=Pictures(count=20, arms=(Arm("plain", "ar"), Arm("Jacobi", "jacobi"), Arm("EAGLE", "eagle", PUBLISHED),
                                          Arm("LANTERN", "lantern"),
                                          Arm("ZipAR", "zipar"), Arm("SJD", "sjd"), Arm("SJD++", "sjdpp_published"))),
            reported={"Jacobi": {"step_compression": 1.04, "speedup": 1.02}, "EAGLE": {"step_compression": 2.94, "speedup": 2.10},
                      "LANTERN": {"step_compression": 3.63, "speedup": 2.56}, "ZipAR": {"step_compression": 4.0, "speedup": 1.82},
                      "SJD": {"step_compression": 2.23, "speedup": 2.05}, "SJD++": {"step_compression": 6.44, "speedup": 3.12}},
            claims=(Claim("SJD++ commits more tokens per pass than EAGLE", "SJD++", "more", "EAGLE", "step_compression"),
                    Claim("SJD++ is faster than LANTERN", "SJD++", "more", "LANTERN", "speedup")),
        ),
        Experiment(
            key="table-6", title="Table 6: quality by top-k", asks="Does the quality hold at each top-k?", reports="It does.",
            runs=Pictures(arms=at_each("top_k", TOP_K)), drawing=Drawing(kind="curve", x="top-k", y="objects"), differs=OURS,
            claims=(Claim("At top-k 2000 SJD keeps the quality", "SJD, 2000", "alike", "plain, 2000", "objects", 0.15),),
        ),
        Experiment(
            key="table-7", title="Table 7: quality by resolution", asks="Does the quality hold at each size?", reports="It does.",
            runs=Pictures(arms=at_each("size", SIZES), count=12), drawing=Drawing(kind="curve", x="pixels", y="objects"), differs=OURS,
            claims=(Claim("At the largest size SJD++ keeps the quality", "SJD++, 256", "alike", "plain, 256", "objects", 0.25),),
        ),
        Experiment(
            key="table-8", title="Table 8: quality by first draft", asks="Does the first draft change the quality?",
            reports="It does not.",
            runs=Pictures(arms=(Arm("plain", "ar"), *knob_arms("SJD", "sjd", "init", STARTS))), differs=OURS,
            drawing=Drawing(y="log_probability"),
            claims=(Claim("Drafts from the left keep log p", "SJD, sample left", "alike", "plain", "log_probability", 0.02),),
        ),
        Experiment(
            key="table-9", title="Table 9: token statistics", asks="Are SJD's tokens as probable as plain decoding's?",
            reports="They are: mean log p -4.90 for both.", runs=Pictures(arms=(Arm("plain", "ar"), Arm("SJD", "sjd")), count=100),
            drawing=Drawing(y="log_probability"), reported_on=LUMINA, differs="The deviation is over the tokens of a picture.",
            reported={"plain": {"log_probability": -4.895, "log_probability_deviation": 2.3457},
                      "SJD": {"log_probability": -4.9007, "log_probability_deviation": 2.3275}},
            claims=(Claim("SJD's tokens are as probable", "SJD", "alike", "plain", "log_probability", 0.02),),
        ),
        Experiment(
            key="table-10", title="Table 10: window", asks="Which window is best?", reports="96 of 576 tokens; larger ones gain nothing.",
            runs=Pictures(arms=knob_arms("SJD++", "sjdpp_published", "window", WINDOWS)), drawing=Drawing(kind="curve", x="window"),
            claims=(Claim("A window beyond the best gains nothing", "SJD++, 128.0", "alike", "SJD++, 64.0", "step_compression", 0.5),),
            reported_on="Janus-Pro 1B, GenEval",
            reported={f"SJD++, {w}.0": {"step_compression": round(1 / v, 2)}
                      for w, v in ((16, 0.3971), (32, 0.3438), (64, 0.3325), (128, 0.3330))},
            differs="The paper's windows are 16 to 512 of 576 tokens; ours 4 to 128 of 256. It prints passes per token, we the inverse.",
        ),
        Experiment(
            key="figure-5", title="Figure 5: speed by top-k", asks="Does the gain hold at each top-k?",
            reports="SJD and SJD++ gain over 2 times at each; Jacobi decoding gains at top-1 only.",
            runs=Pictures(arms=at_each("top_k", TOP_K)), drawing=Drawing(kind="curve", x="top-k"), claims=(JACOBI_FAILS,),
            differs=OURS,
        ),
        Experiment(
            key="figure-6", title="Figure 6: speed by resolution", asks="Does the gain grow with the size?",
            reports="Slightly, to 2.43 times at 1,024 pixels.",
            runs=Pictures(arms=at_each("size", SIZES), count=12), drawing=Drawing(kind="curve", x="pixels"), differs=OURS,
            claims=(Claim("SJD gains more at a larger size", "SJD, 256", "more", "SJD, 64", "step_compression"),),
        ),
        Experiment(
            key="figure-12", title="Figure 12: without refinement", asks="Does the speed come from refinement?",
            reports="Without it a picture takes 2,356 passes, or 2,254 to 2,300 with drafts repeated from the left; with it about 1,000.",
            differs=f"Refined rows are SJD, by another name. {OURS}",
            runs=Pictures(arms=REFINED, count=20),
            claims=(Claim("Refinement gives most of the speed", "refined", "more", "not refined", "step_compression"),
                    Claim("Random drafts without refinement gain nothing", "not refined, random", "alike", "plain", "step_compression",
                          0.1)),
        ),
        Experiment(
            key="figure-13", title="Figure 13: first draft", asks="Which first draft is best?",
            reports="Drafts from neighbours beat random ones on simple pictures.", differs=OURS,
            runs=Pictures(arms=knob_arms("SJD", "sjd", "init", STARTS)),
            claims=(Claim("Drafts from the left beat random ones", "SJD, sample left", "more", "SJD, random", "step_compression"),),
        ),
    ),
)  # fmt: skip
