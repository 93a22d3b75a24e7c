"""ADT-Tree: Adjacency-Adaptive Dynamical Draft Trees, Lei et al.: tables I to V and figures 1 to 9."""

from __future__ import annotations

from dataclasses import replace

from engine.methods.eagle import PUBLISHED
from research.papers.declaration import Arm, Claim, Drawing, Experiment, Paper, Pictures, knob_arms, not_run

ARMS = (Arm("plain", "ar"), Arm("EAGLE-2", "eagle", PUBLISHED), Arm("LANTERN", "lantern"), Arm("ADT-Tree", "adt_tree_published"),
        Arm("ADT-Tree + LANTERN", "adt_tree_lantern"), Arm("ADT-Tree, throughput (ours)", "adt_tree"))  # fmt: skip
AT_ONE = {"temperature": 1.0}
BOTH = tuple(replace(arm, settings={"temperature": t}, x=f"T = {t:g}") for t in (0.0, 1.0) for arm in ARMS)
TABLE_1 = {  # speed, tokens per pass and depth, at T = 0 and at T = 1
    "EAGLE-2": ((1.62, 2.91, 5.00), (0.76, 1.11, 5.00)), "LANTERN": ((3.03, 4.25, 5.00), (1.38, 2.00, 5.00)),
    "ADT-Tree": ((2.21, 3.40, 3.86), (1.06, 1.10, 2.09)), "ADT-Tree + LANTERN": ((3.13, 4.86, 5.15), (1.53, 1.87, 2.10)),
}  # fmt: skip
DRIFT = "The drafter and the model are ours, and small: a level of the tree costs about as much as a pass."
KEEPS = Claim("ADT-Tree keeps the quality", "ADT-Tree, T = 1", "alike", "plain, T = 1", "log_probability", 0.02)
MODELS = "IS, FID and aesthetic scores need models and data that are not here"
FIXED = {"depth": 5, "width": 10, "children": "deterministic"}
LLAMAGEN, ITS_STEPS = "adt_tree_published", {"width_step": 10, "width_below": 40}  # the paper's for LlamaGen
BASES = (Arm("TokenFlock", LLAMAGEN, ITS_STEPS | {"tree_init": "flock"}), Arm("base depth 1", LLAMAGEN, ITS_STEPS | {"base_depth": 1}),
         Arm("base width 25", LLAMAGEN, ITS_STEPS | {"base_width": 25}),
         Arm("base depth 1, width 25", LLAMAGEN, ITS_STEPS | {"base_depth": 1, "base_width": 25}),
         Arm("ADT-Tree", LLAMAGEN, ITS_STEPS))  # fmt: skip
PAPER = Paper(
    name="adt_tree", title="ADT-Tree", method="adt_tree_published", tables=(1, 5), figures=(1, 9),
    illustrations={"figure-2": "two regions of a picture as a diagram", "figure-6": "the adapting phase as a diagram",
                   "figure-4": "a map of the top-1 probability", "figure-5": "two distributions", "figure-7": "pictures",
                   "figure-9": "maps of three pictures"},
    experiments=(
        Experiment(
            key="table-1", title="Table I: speed", asks="Is an adaptive tree faster than a fixed one?",
            reports="It is: 2.21 times plain decoding against 1.62 at T = 0, 1.06 against 0.76 at T = 1.",
            reported_on="Anole, MS-COCO 2017", differs=DRIFT, runs=Pictures(arms=BOTH, count=16), drawing=Drawing(y="speedup"),
            reported={f"{line}, T = {t}": dict(zip(("speedup", "step_compression", "depth"), both[t], strict=True))
                      for t in (0, 1) for line, both in TABLE_1.items()},
            claims=(*(Claim(f"ADT-Tree is faster than EAGLE-2 at T = {t}", f"ADT-Tree, T = {t}", "more", f"EAGLE-2, T = {t}", "speedup")
                      for t in (0, 1)),
                    Claim("At T = 1 ADT-Tree's trees are less deep", "ADT-Tree, T = 1", "less", "EAGLE-2, T = 1", "depth"),
                    Claim("LANTERN makes it faster still", "ADT-Tree + LANTERN, T = 1", "more", "ADT-Tree, T = 1", "speedup"), KEEPS),
        ),
        not_run("table-2", "Table II: PartiPrompt", "The same as table I.", "1.57 times at T = 1.", "other prompts, same question",
               "table-1"),
        not_run("table-3", "Table III: quality", "Does the quality hold?", "It does.", MODELS, "table-1, which has log p and the judge"),
        not_run("table-4", "Table IV: quality", "Does the quality hold?", "It does.", MODELS, "table-1, which has log p and the judge"),
        Experiment(
            key="table-5", title="Table V: first depth and width", asks="What should a tree begin with?",
            reports="With the neighbour's or a flock's values; a fixed depth of 1 is slower.", reported_on="LlamaGen GPT-XL, ImageNet",
            runs=Pictures(arms=BASES, settings=AT_ONE),
            reported={"TokenFlock": {"speedup": 1.36, "step_compression": 2.52, "depth": 3.35},
                      "base depth 1": {"speedup": 1.32, "step_compression": 2.42, "depth": 3.12},
                      "base width 25": {"speedup": 1.36, "step_compression": 2.55, "depth": 3.37},
                      "base depth 1, width 25": {"speedup": 1.32, "step_compression": 2.41, "depth": 3.09},
                      "ADT-Tree": {"speedup": 1.39, "step_compression": 2.53, "depth": 3.51}},
            claims=(Claim("A flock gains nothing over the neighbour", "TokenFlock", "alike", "ADT-Tree", "step_compression", 0.1),
                    Claim("A base depth of 1 is slower", "base depth 1", "less", "ADT-Tree", "speedup")),
            differs="All rows have LlamaGen's settings. " + DRIFT,
        ),
        not_run("figure-1", "Figure 1: the drafter's accuracy", "How often is the drafter right?", "Half as often as for text.",
               "there is no language model to compare with", "accuracy_held_out and accuracy_seen in the drafter's card"),
        Experiment(
            key="figure-3", title="Figure 3: acceptance lengths and ranks", asks="How many drafts does a pass accept, and of which rank?",
            reports="At T = 1 most passes accept none; ranks are spread widely.", reported_on="Anole", drawing=Drawing(y="accepted_a_pass"),
            runs=Pictures(arms=tuple(Arm("EAGLE-2", "eagle", FIXED, {"temperature": t}, x=f"T = {t:g}") for t in (0.0, 1.0))),
            claims=(Claim("At T = 1 fewer drafts are accepted", "EAGLE-2, T = 1", "less", "EAGLE-2, T = 0", "accepted_a_pass"),),
            differs="The ranks of accepted drafts are not measured. " + DRIFT,
        ),
        Experiment(
            key="figure-8", title="Figure 8: first tree", asks="Which neighbour gives the best first tree?", reports="The left one.",
            runs=Pictures(arms=knob_arms("ADT-Tree", "adt_tree_published", "tree_init", ("left", "above", "random")), settings=AT_ONE),
            drawing=Drawing(y="speedup"), differs=DRIFT,
            claims=(Claim("Left is faster than above", "ADT-Tree, left", "more", "ADT-Tree, above", "speedup"),
                    Claim("Random trees are deeper", "ADT-Tree, random", "more", "ADT-Tree, left", "depth")),
        ),
    ),
)  # fmt: skip
