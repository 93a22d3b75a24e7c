"""ADT-Tree: the next tree has the depth and width of a neighbouring token's tree, one step deeper if that tree was fully accepted.

Paper: ADT-Tree, section IV, equations 2 and 6 to 8; TokenFlock is its initialisation from all tokens within a radius.
Idea: acceptance varies over a picture but changes slowly, so the tree that produced the neighbouring token predicts a good depth. If at
least a share β of its levels was accepted, the next tree is deeper and narrower, else shallower and wider.
Exactness: the same as EAGLE-2's tree. Shapes and thresholds depend on earlier passes only, never on the tree that is being verified.
Deviations: no code is public, so we follow the text. Where the text says nothing: the left neighbour of the first token of a row is the end
of the row above; without a neighbour the shape is the initial one; β is compared with the neighbour's own acceptance; depth is the number
of levels, and acceptance does not count the bonus token. At depth 1 only `nodes` limits the width. With β = 1 the paper's controller
settles where a whole tree is accepted every second time, which is not the fastest point. So our default is another controller,
`throughput`: a tree grows while the expected tokens outweigh the cost of rows and levels, and at most one level deeper than the tree
before it. These costs are a line fitted to the cost curve of a machine (`doctor` measures it; the defaults are those of a CPU with two
cores). The preset `adt_tree_published` is the paper's.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from engine.core import VERIFY, Case, Knob, Knobs, Method, Preset, Sequence, Step
from engine.decoding import neighbours, trees
from engine.decoding.growth import CHILDREN, NODES, WIDTH, TreeSize
from engine.decoding.trees import Cycle, Schedule, tree_decoding
from engine.drafters.feature_draft import FeatureDraft
from engine.noise import SCHEDULE, Noise

CONTROLLER = Knob(
    "controller", "", "throughput", choices=("throughput", "adjacent"), live=False,
    help="adjacent: the paper's controller. throughput: the most expected tokens per unit of pass time.",
    label="Shape of the tree", words={"throughput": "fastest here", "adjacent": "the paper's"},
)  # fmt: skip
_ADJACENT, _THROUGHPUT = ("controller", "adjacent"), ("controller", "throughput")
START = Knob(
    "tree_init", "", "left", choices=("left", "above", "random", "flock"), when=_ADJACENT,
    help="Where the next shape starts: a neighbour's tree, a random shape, or the mean within a radius (TokenFlock).",
    label="The next tree begins as", words={"flock": "mean of the trees nearby"},
)  # fmt: skip
RADIUS = Knob("radius", "", 3, 1, 8, 1, help="Distance in tokens within which trees are averaged.", when=("tree_init", "flock"))
BASE_DEPTH = Knob(
    "base_depth", "d~", 0, 0, 12, 1, help="Depth that the next tree is adapted from; 0: taken from tree_init.", when=_ADJACENT
)
BASE_WIDTH = Knob(
    "base_width", "k~", 0, 0, 40, 1, help="Width that the next tree is adapted from; 0: taken from tree_init.", when=_ADJACENT
)
FULL = Knob("deepen_above", "β", 1.0, 0.1, 1, 0.05, help="Accepted share of levels from which the next tree is deeper.", when=_ADJACENT)
DEPTH_STEP = Knob("depth_step", "l_d", 1, 0, 3, 1, help="Change of the depth, in levels.", when=_ADJACENT)
WIDTH_STEP = Knob("width_step", "l_k", 3, 0, 15, 1, help="Change of the width, in nodes.", when=_ADJACENT)
DEPTH_LOW = Knob("depth_above", "", 0, 0, 10, 1, help="Exclusive lower bound of the depth.")
DEPTH_HIGH = Knob("depth_below", "", 10, 2, 13, 1, help="Exclusive upper bound of the depth.")
WIDTH_LOW = Knob("width_above", "", 3, 0, 38, 1, help="Exclusive lower bound of the width.", when=_ADJACENT)
WIDTH_HIGH = Knob("width_below", "", 14, 2, 41, 1, help="Exclusive upper bound of the width, except at depth 1.", when=_ADJACENT)
ROW_COST = Knob("row_cost", "", 0.05, 0, 1, 0.005, help="Cost of one more row in a pass, relative to a pass of one row.", when=_THROUGHPUT)
LEVEL_COST = Knob("level_cost", "", 0.25, 0, 2, 0.01, help="Cost of a drafter pass, relative to a model pass of one row.", when=_THROUGHPUT)

FIRST_DEPTH, FIRST_WIDTH = 5, 10  # size of the first tree (the paper's EAGLE-2 baseline)
MEMORY = 0.95  # decay of the sums of tokens and costs


@dataclass(frozen=True)
class Mark:
    """The size of the tree whose cycle committed a token. accepted : accepted share of its levels, 0 to 1"""

    depth: float
    width: float
    accepted: float


class AdjacentSchedule:
    """The paper's controller. `marks` maps each committed position to the tree that produced its token."""

    def __init__(self) -> None:
        self.marks: dict[int, Mark] = {}

    def next(self, sequence: Sequence, knobs: Knobs, noise: Noise, iteration: int) -> TreeSize:
        """The neighbour's shape, one step deeper or shallower."""
        position = sequence.length
        known = starting_mark(self.marks, sequence, knobs)
        if knobs.tree_init == "random":
            known = random_mark(known, knobs, noise, position, iteration)
        depth, width = (FIRST_DEPTH, FIRST_WIDTH) if known is None else adapt(known, knobs)
        depth, width = clip(depth, width, knobs)
        return TreeSize(depth, width, min(knobs.nodes, width + (depth - 1) * width**2))  # eq. 5

    def observe(self, cycle: Cycle) -> None:
        """Stores the tree's mark for each token that it committed."""
        mark = Mark(cycle.shape.depth, cycle.shape.width, cycle.accepted / max(1, cycle.levels))
        self.marks |= dict.fromkeys(range(cycle.start, cycle.start + cycle.committed), mark)


def starting_mark(marks: dict[int, Mark], sequence: Sequence, knobs: Knobs) -> Mark | None:
    """The mark that the next tree starts from (equation 6 and its alternatives); None if there is none."""
    position, layout = sequence.length, sequence.layout
    if knobs.tree_init == "flock":
        return flock(marks, sequence, knobs.radius)
    left = layout.left(position)
    left = position - 1 if left is None else left
    above = layout.above(position) if knobs.tree_init == "above" else None
    return marks.get(left if above is None else above)


def flock(marks: dict[int, Mark], sequence: Sequence, radius: int) -> Mark | None:
    """Equations 7 and 8: the mean over past tokens within a radius; a token in a nearer row has a greater weight."""
    place = sequence.layout.place
    row, column = place(sequence.length)
    near = [(row - place(at)[0], mark) for at, mark in marks.items() if math.dist(place(at), (row, column)) <= radius]
    weights = [(radius - rows + 1) / radius for rows, _ in near]
    total = sum(weights)
    if not near:
        return None

    def mean(values: list[float]) -> float:
        return sum(w * v for w, v in zip(weights, values, strict=True)) / total

    depth, width = mean([mark.depth for _, mark in near]), mean([mark.width for _, mark in near])
    return Mark(math.floor(depth + 0.5), math.floor(width + 0.5), mean([mark.accepted for _, mark in near]))


def random_mark(known: Mark | None, knobs: Knobs, noise: Noise, position: int, iteration: int) -> Mark | None:
    """A random shape from the open intervals, with the left neighbour's acceptance."""
    u = [noise.host_uniform(SCHEDULE, position, 1, iteration, slot).item() for slot in (2, 3)]
    depth = knobs.depth_above + 1 + int(u[0] * max(1, knobs.depth_below - knobs.depth_above - 1))
    width = knobs.width_above + 1 + int(u[1] * max(1, knobs.width_below - knobs.width_above - 1))
    return None if known is None else Mark(depth, width, known.accepted)


def adapt(known: Mark, knobs: Knobs) -> tuple[int, int]:
    """Equation 2: deeper and narrower, or shallower and wider; table V: starting from fixed values if the knobs set them."""
    sign = 1 if known.accepted >= knobs.deepen_above else -1
    depth, width = knobs.base_depth or int(known.depth), knobs.base_width or int(known.width)
    return depth + sign * knobs.depth_step, width - sign * knobs.width_step


def clip(depth: int, width: int, knobs: Knobs) -> tuple[int, int]:
    """The shape clipped to the open intervals. At depth 1 the cost is linear in the width, so only `nodes` limits it."""
    depth = max(knobs.depth_above + 1, min(depth, knobs.depth_below - 1))
    width = max(knobs.width_above + 1, width if depth == 1 else min(width, knobs.width_below - 1))
    return depth, max(1, min(width, knobs.nodes))


class ThroughputSchedule:
    """The controller that maximises tokens per cost, where a pass of one row costs 1. The rate is the run's tokens per cost so far.

    A node is added if its acceptance probability exceeds the rate times the cost of its row; a level, if the sum over the nodes above it
    exceeds the rate times the cost of a row and a drafter pass (Dinkelbach's condition for the greatest ratio). The probabilities are
    estimated from the drafter's distributions while the tree grows. In each level only the best node and its siblings count
    (`is_worth_expanding`). These estimates promise too much where the picture has just become hard, and a device runs every level that
    the tree may have; so a tree is at most one level deeper than the newest one needed.
    """

    def __init__(self) -> None:
        self.tokens, self.cost = 1.5, 1.0
        self.row, self.level = 0.0, 0.0  # cost of a row and of a level of the newest tree
        self.depth = FIRST_DEPTH  # limit of the next tree

    def next(self, sequence: Sequence, knobs: Knobs, noise: Noise, iteration: int) -> TreeSize:
        """The largest width that the knobs allow, and depth, with thresholds that limit the growth."""
        self.row, self.level = knobs.row_cost, knobs.level_cost
        rate = self.tokens / self.cost
        depth = max(1, min(knobs.depth_below - 1, self.depth))
        return TreeSize(depth, knobs.width, knobs.nodes, rate * self.row, rate * (self.row + self.level))

    def observe(self, cycle: Cycle) -> None:
        """Updates the decayed sums of tokens and costs."""
        self.tokens = MEMORY * self.tokens + cycle.committed
        self.cost = MEMORY * self.cost + 1 + self.row * cycle.nodes + self.level * cycle.passes
        self.depth = cycle.passes + 1


def decode(sequence: Sequence, knobs: Knobs, noise: Noise, drafter: FeatureDraft) -> Iterator[Step]:
    """Yields one Step per pass."""
    schedule: Schedule = ThroughputSchedule() if knobs.controller == "throughput" else AdjacentSchedule()
    return tree_decoding(sequence, knobs, noise, drafter, schedule)


_TINY = {"controller": "adjacent", "depth_below": 4, "width_above": 0, "width_below": 3, "width_step": 1, "nodes": 5, "width": 2}
_STRIP = {"rows": 2, "columns": 2}
# The second sibling's token would decide whether a level pays; three nodes have room for that sibling or for the best path's next token.
_FEW = {"controller": "throughput", "depth_below": 4, "width": 2, "nodes": 3, "row_cost": 0.0, "level_cost": 0.48}
_UNEVEN = {"rows": 5, "columns": 1, "guidance": 4.0, "uneven": True}


def _case(name: str, mutants: tuple[str, ...], **knobs: float | str) -> Case:
    return Case(f"ADT-EXACT {name}", "same distribution", _TINY | knobs, _STRIP, mutants)


METHOD = Method(
    name="adt_tree",
    title="ADT-Tree",
    about="A tree of guesses that is wide where the picture is hard, and deep where it is easy.",
    decode=decode,
    knobs=(
        CONTROLLER, NODES, START, RADIUS, BASE_DEPTH, BASE_WIDTH, FULL, DEPTH_STEP, WIDTH_STEP, DEPTH_LOW, DEPTH_HIGH, WIDTH_LOW,
        WIDTH_HIGH, WIDTH, CHILDREN, ROW_COST, LEVEL_COST, *neighbours.KNOBS, VERIFY,
    ),
    paper="ADT-Tree; TokenFlock",
    exact=neighbours.is_exact,
    why=trees.why,
    needs=frozenset({"hidden", "feature_draft"}),
    drafters=("feature_draft",),
    common=_TINY | {"children": "sampled"},
    presets=(
        Preset(
            "adt_tree_published", "ADT-Tree as in its paper, with trees of up to 60 guesses.",
            {"controller": "adjacent", "children": "auto"},
        ),
        Preset(
            "adt_tree_lantern", "ADT-Tree as in its paper, with LANTERN's exchange of similar tokens.",
            {"controller": "adjacent", "children": "auto", "relax": "additive", "added_mass": 0.4}, title="ADT-Tree with LANTERN",
            needs=frozenset({"codebook"}),
        ),
    ),
    candidates=lambda backbone: [("adt_tree", {})],
    cases=(
        _case("left", ("tree: drawn nodes ranked by their tokens",), children="sampled"),
        _case("flock", ("tree: parents missing",), tree_init="flock", children="deterministic"),
        _case("base", ("tree: parents missing",), base_depth=2, base_width=2, children="deterministic"),
        _case("throughput", ("tree: residual is p",), controller="throughput", children="sampled"),
        Case(
            "ADT-EXACT few nodes", "same distribution", _FEW | {"children": "sampled"}, _UNEVEN,
            mutants=("tree: a level pays by the sum of its nodes",),
        ),
        Case("SEED-EXACT", "same tokens", _TINY | {"verify": "match seed", "tree_init": "above"}, mutants=("iteration in the noise",)),
    ),
)  # fmt: skip
