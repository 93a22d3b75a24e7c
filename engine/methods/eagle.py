"""EAGLE-2: a draft tree grown by a small drafter that extrapolates the model's features, verified in one pass.

Paper: EAGLE-2: Faster Inference of Language Models with Dynamic Draft Trees, Li et al., arXiv 2406.16858; for pictures with guidance
LANTERN (arXiv 2410.03355) and ADT-Tree, section III, equations 1 and 3 to 5.
Idea: the drafter grows a tree level by level, expanding the `width` nodes of highest score, and the best `nodes` of all are verified
at once. Verification goes down the tree as long as it accepts a child.
Exactness: always, unless a relaxed rule is on. Chosen children: the model's draw at a node does not depend on the tree, so a child
equal to it only saves a pass. Sampled children: drawn without replacement from the drafter's distribution, verified one after another
(`multi_round`). The value of a drawn token must not decide whether it is kept. Here the score of a drawn node depends on its place among
its siblings (`drawn_acceptance`: the probability that it is reached and accepted), never on its token, and only nodes of higher rank
decide about it: none of those depends on its token. The proof is in engine/decoding/growth.py. With `width=1` the tree is a chain, drawn
again for every pass, so `verify=block` is exact: a block allows that a chain ends because of its own earlier tokens.
Deviations: the published trees have chosen children also above temperature 0, where the model's draw from a flat distribution rarely equals
one of them. `sampled` draws the children, and `auto` chooses at every node, from the drafter's distribution alone, the kind more likely to
be accepted. Depth is the number of levels (the public code builds one more than its setting says). The first pass of a run proposes
nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from engine.core import VERIFY_BLOCK, Case, Knobs, Method, Preset, Sequence, Step
from engine.decoding import neighbours, trees
from engine.decoding.growth import CHILDREN, DEPTH, NODES, WIDTH
from engine.decoding.policy import verifies_block
from engine.decoding.trees import FixedSchedule, tree_decoding
from engine.drafters.feature_draft import FeatureDraft
from engine.errors import BadKnob
from engine.noise import Noise


def decode(sequence: Sequence, knobs: Knobs, noise: Noise, drafter: FeatureDraft) -> Iterator[Step]:
    """Yields one Step per pass. Raises BadKnob for a block of a tree that is not a chain."""
    if verifies_block(knobs) and knobs.width > 1:
        raise BadKnob(f"verify=block needs a chain, and width={knobs.width} grows a tree. Set width=1, or verify=residual.")
    return tree_decoding(sequence, knobs, noise, drafter, FixedSchedule())


PUBLISHED = {"depth": 5, "width": 10, "nodes": 60, "children": "auto"}  # the paper's tree, whatever suits a model
KNOBS = (DEPTH, WIDTH, NODES, CHILDREN, *neighbours.KNOBS, VERIFY_BLOCK)
_SMALL = {"depth": 2, "width": 2, "nodes": 5}
_LOAN_AT_0 = {"depth": 2, "width": 3, "nodes": 9, "relax": "additive", "added_mass": 0.0, "neighbour_share": 0.4}
_SQUARE = {"rows": 2, "columns": 2}
_FOUR = {"rows": 2, "columns": 2, "vocabulary": 4, "sharpness": 1.2}  # flat enough for auto to choose both kinds
_LINE = {"rows": 1, "columns": 3, "vocabulary": 5, "guidance": 1.0, "temperature": 0.7}


def _relaxed_knobs(rule: str, strength: float, kind: str) -> dict[str, float | str]:
    """Knobs of a relaxed tree of one level with three children; every token has two neighbours."""
    name = "added_mass" if rule == "additive" else "multiplied_mass"
    return {"children": kind, "depth": 1, "width": 3, "nodes": 3, "relax": rule, name: strength, "neighbour_share": 0.4}


METHOD = Method(
    name="eagle",
    title="EAGLE-2",
    about="A small drafter grows a tree of guesses; the model checks the whole tree at once.",
    decode=decode,
    knobs=KNOBS,
    paper="EAGLE-2, Li et al., arXiv 2406.16858; LANTERN, Jang et al., arXiv 2410.03355",
    exact=neighbours.is_exact,
    why=trees.why,
    needs=frozenset({"hidden", "feature_draft"}),
    drafters=("feature_draft",),
    common=_SMALL | {"children": "sampled"},
    presets=(
        Preset(
            "lantern", "A tree of guesses that accepts a token if similar ones are likely.", PUBLISHED | {"relax": "additive"},
            title="LANTERN",
            needs=frozenset({"codebook"}),
        ),
        Preset(
            "lantern_static", "LANTERN++: a tree of fixed shape, and a milder exchange of similar tokens.",
            PUBLISHED | {"relax": "multiplicative", "children": "sampled"}, title="LANTERN++",
            needs=frozenset({"codebook"}),
        ),
    ),
    candidates=lambda backbone: [("eagle", {"nodes": nodes}) for nodes in (4, 12)],
    cases=(
        Case(
            "TREE-EXACT deterministic", "same distribution", _SMALL | {"children": "deterministic"}, _SQUARE,
            mutants=("tree: parents missing", "keep one row more"),
        ),
        Case(
            "TREE-EXACT sampled", "same distribution", _SMALL | {"children": "sampled"}, _SQUARE,
            mutants=("tree: drawn nodes ranked by their tokens", "tree: siblings' distributions not conditional", "tree: residual is p",
                     "keep the first rows"),
        ),
        Case(
            "TREE-EXACT auto", "same distribution", _SMALL | {"children": "auto"}, _FOUR,
            mutants=("tree: chosen as if drawn", "tree: residual is p"),
        ),
        Case(
            "BLOCK-EXACT", "same distribution", {"depth": 2, "width": 1, "children": "sampled", "verify": "block"},
            {"rows": 1, "columns": 4}, mutants=("block: residual is p",),
        ),
        Case("TREE-T0", "same tokens", _SMALL, {"temperature": 0.0}, mutants=("tree: row of the parent",)),
        *(
            Case(
                f"SEED-EXACT {kind}", "same tokens", _SMALL | {"children": kind, "verify": "match seed"},
                mutants=("iteration in the noise",),
            )
            for kind in ("deterministic", "sampled")
        ),
        Case(
            "LAN-0", "same as unrelaxed", _SMALL | {"children": "sampled", "relax": "additive", "added_mass": 0.0, "neighbour_share": 0.4},
            mutants=("lantern: the nearest always counts",),
        ),
        Case(
            "LAN-0 T0", "same tokens", _LOAN_AT_0, {"temperature": 0.0, "vocabulary": 5, "sharpness": 0.6},
            mutants=("lantern: the nearest always counts",),
        ),
        *(
            Case(f"LAN-LAW {rule} {kind}", "closed form", _relaxed_knobs(rule, strength, kind), _LINE, mutants, "relaxed tree")
            for rule, strength, kind, mutants in (
                ("additive", 0.3, "sampled", ("lantern: counts one neighbour too many",)),
                ("additive", 0.3, "deterministic", ("lantern: refused neighbourhood struck", "lantern: refused table struck")),
                ("multiplicative", 1.0, "sampled", ("lantern: budget of the other rule",)),
            )
        ),
        *(
            Case(
                f"BUDGET {kind}", "closed form", _relaxed_knobs("additive", 0.6, kind) | {"allowed_deviation": 0.03}, _LINE,
                ("budget: ignored",), "relaxed tree",
            )
            for kind in ("sampled", "deterministic")
        ),
        Case("LANTERN", "not exact", _relaxed_knobs("additive", 0.4, "sampled"), _LINE),
    ),
)  # fmt: skip
