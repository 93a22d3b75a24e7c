"""Trees: verification, growth, relaxed rules and controllers, on hand-made numbers. Exactness is tested in test_exactness.py."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from engine.core import NO_DRAFT, Knobs, Prompt, Sampling
from engine.decoding import neighbours
from engine.decoding.growth import Tree, TreeSize, drawn_acceptance, grow, rank
from engine.decoding.trees import Cycle
from engine.errors import NotSupported
from engine.layout import Raster
from engine.methods import METHODS, adt_tree
from engine.methods.adt_tree import AdjacentSchedule, Mark, flock
from engine.noise import Noise
from engine.rules import (
    additive_mass,
    after_one_draw,
    deviation,
    first_above,
    multi_round,
    multiplicative_mass,
    walk,
)
from engine.run import Run, generate
from engine.tree import depths
from research.exactness.toy import Toy

P = torch.tensor([0.5, 0.3, 0.15, 0.05], dtype=torch.float64)
Q = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64)
NEAR = torch.tensor([[1, 2], [0, 2], [3, 1], [2, 1]])


# --- verification -----------------------------------------------------------------------------------------------------


def test_the_walk_of_a_worked_trace() -> None:
    """Two levels, two children of the root, one of each: the second child is the model's draw, its own child is not."""
    parents, tokens = [-1, -1, 0, 1], [7, 8, 5, 6]
    assert walk(parents, tokens, [8, 5, 9, 0, 0]) == ([1], 9)
    assert walk(parents, tokens, [8, 5, 6, 0, 4]) == ([1, 3], 4)
    assert walk(parents, tokens, [3, 0, 0, 0, 0]) == ([], 3)
    assert walk([], [], [2]) == ([], 2)


def test_of_equal_children_the_first_is_walked() -> None:
    assert walk([-1, -1], [4, 4], [4, 1, 2]) == ([0], 1)


def test_a_chosen_child_is_struck_out_when_refused() -> None:
    probs = torch.eye(4, dtype=torch.float64)[[0, 1]]
    which, left, chances = multi_round(P, torch.tensor([0, 1]), probs, [0.9, 0.9])
    assert which == -1 and chances == pytest.approx([0.5, 0.6])
    assert torch.allclose(left, torch.tensor([0, 0, 0.75, 0.25], dtype=torch.float64))
    assert multi_round(P, torch.tensor([0, 1]), probs, [0.9, 0.5])[0] == 1


# --- relaxed rules ----------------------------------------------------------------------------------------------------


def test_masses_by_hand() -> None:
    everything = torch.arange(4)
    assert additive_mass(P, everything, NEAR, 0.0).tolist() == P.tolist()
    assert multiplicative_mass(P, everything, NEAR, 0.0).tolist() == P.tolist()
    # 0 borrows 0.3 and then 0.15; 1 nothing, its nearest is too heavy; 2 takes 0.05 and 0.3; 3 takes 0.15 and not 0.3
    assert additive_mass(P, everything, NEAR, 0.4).tolist() == pytest.approx([0.8, 0.3, 0.5, 0.2])
    assert multiplicative_mass(P, everything, NEAR, 1.0).tolist() == pytest.approx([0.95, 0.3, 0.2, 0.05])


def test_more_budget_never_credits_less() -> None:
    masses = torch.stack([additive_mass(P, torch.arange(4), NEAR, most / 20) for most in range(21)])
    assert (masses.diff(dim=0) >= 0).all()


def test_distributions_behind_a_relaxed_rule() -> None:
    relaxed = after_one_draw(P, Q, additive_mass(P, torch.arange(4), NEAR, 0.4))
    assert relaxed.sum() == pytest.approx(1) and deviation(P, relaxed) > 0.05
    assert torch.allclose(after_one_draw(P, Q, P), P)


def test_multiplication_bounds_what_a_token_gains() -> None:
    gained = torch.minimum(Q, multiplicative_mass(P, torch.arange(4), NEAR, 0.7))
    assert (gained <= 1.7 * P + 1e-12).all()


@pytest.mark.parametrize("distance", ["raw", "cosine"])
def test_neighbours_are_nearest_first_and_never_oneself(distance: str) -> None:
    codes = torch.tensor([[1.0, 0.0], [4.0, 0.1], [0.0, 1.0], [1.2, 0.9]])
    nearest = neighbours.neighbours(codes, 2, distance)
    assert all(own not in row for own, row in enumerate(nearest.tolist()))
    assert nearest[0].tolist() == ([3, 2] if distance == "raw" else [1, 3])


@pytest.mark.parametrize(("method", "knobs"), [("eagle", {"relax": "additive"}), ("gsd", {})])
def test_a_relaxed_rule_needs_a_codebook(method: str, knobs: dict[str, str]) -> None:
    toy = Toy()
    toy.codes = None
    with pytest.raises(NotSupported, match="codebook"):
        generate(toy, METHODS[method], Prompt(), knobs).finish()


def test_at_temperature_0_a_child_wins_by_what_it_borrows() -> None:
    """The model's token is 0. With δ = 0.4 its sibling 2 is worth 0.25 + 0.05 + 0.3 and wins; with less it lacks the 0.3."""
    sure, siblings = torch.tensor([1.0, 0, 0, 0], dtype=torch.float64), torch.tensor([2, 3, 0])

    def borrow(soft: Tensor, most: float) -> tuple[int, list[float]]:
        which, left, chances = first_above(sure, soft, siblings, lambda p, tokens: additive_mass(p, tokens, NEAR, most))
        assert torch.equal(left, sure)
        return which, chances

    soft = torch.tensor([0.4, 0.3, 0.25, 0.05], dtype=torch.float64)
    assert borrow(soft, 0.0) == borrow(soft, 0.3) == (2, [0, 0, 1])
    assert borrow(soft, 0.4) == (0, [1])
    assert borrow(P, 0.9) == (2, [0, 0, 1])  # 0.15 + 0.05 + 0.3 is a tie, and a tie is the model's
    assert first_above(sure, P, siblings[:2], lambda p, tokens: p[tokens])[0] == -1


def greedy(toy: Toy, **values: float | str) -> Run:
    """A relaxed run at temperature 0."""
    toy.sampling = Sampling(temperature=0.0, guidance=1.4)
    knobs = {"relax": "additive", "neighbour_share": 0.5, "depth": 2, "width": 3, "nodes": 9, **values}
    return generate(toy, METHODS["eagle"], Prompt(), knobs).finish()


def test_at_temperature_0_relaxing_leaves_the_greedy_path_by_what_the_meter_says() -> None:
    differing = 0
    for seed in range(12):
        plain = generate(Toy(5, 3, 3, seed), METHODS["ar"], Prompt(sampling=Sampling(0.0, guidance=1.4))).finish().tokens
        assert greedy(Toy(5, 3, 3, seed), added_mass=0.0).tokens == plain
        assert greedy(Toy(5, 3, 3, seed), allowed_deviation=0.0).tokens == plain
        run = greedy(Toy(5, 3, 3, seed), added_mass=0.6, allowed_deviation=0.995)
        seen = [s.trace.deviation.latest * len(s.tokens) for s in run.steps[1:]]
        assert all(min(abs(each - count) for count in range(4)) < 0.02 for each in seen)  # a token is the model's, or it is not
        differing += run.tokens != plain
    assert differing > 3


# --- growth -----------------------------------------------------------------------------------------------------------


def grow_tree(toy: Toy, shape: TreeSize, kind: str, first: int = 1, seeded: bool = False, iteration: int = 1) -> Tree:
    """The tree behind a first token."""
    sequence = toy.start(Prompt())
    hidden = sequence.forward(NO_DRAFT).hidden
    sequence.commit([], first)
    growth = toy.drafter("feature_draft").start(sequence)
    room = sequence.limit - 2
    noise = Noise(3, toy.vocabulary)
    return grow(growth, growth.root(hidden, [first]), sequence, shape, room, kind, noise, iteration, seeded)


@pytest.mark.parametrize("kind", ["deterministic", "sampled", "auto"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_tree_keeps_to_its_shape(kind: str, temperature: float) -> None:
    toy = Toy(vocabulary=5, columns=5, temperature=temperature, sharpness=1.0)
    tree = grow_tree(toy, TreeSize(3, 4, 9), kind)
    assert 0 < len(tree.tokens) <= 9
    assert max(depths(tree.parents)) <= 3
    assert all(parent < node for node, parent in enumerate(tree.parents))
    assert len(set(zip(tree.parents, tree.tokens, strict=True))) == len(tree.tokens)  # siblings differ
    assert (tree.probs is None) == (not any(tree.drawn))
    if tree.probs is not None:
        assert torch.allclose(tree.probs.sum(-1), torch.ones(len(tree.tokens), dtype=torch.float64))
        assert (tree.probs[range(len(tree.tokens)), tree.tokens] > 0).all()


def test_few_candidates_are_no_error() -> None:
    assert len(grow_tree(Toy(), TreeSize(1, 3, 60), "deterministic").tokens) == 3


def test_what_is_drawn_does_not_decide_how_many_siblings_stay() -> None:
    """The first level has one distribution, so one shape; below it, distributions and shapes depend on the drawn tokens."""
    shapes = {tuple(grow_tree(Toy(vocabulary=5, columns=5), TreeSize(1, 4, 3), "sampled", first).parents) for first in range(5)}
    assert shapes == {(-1, -1, -1)}


@pytest.mark.parametrize("least_level", [0.0, 0.7])
def test_a_drawn_sibling_stays_or_goes_whatever_its_token_is(least_level: float) -> None:
    """The root's second child against the path below the first, on a drafter whose next level's sum depends on the second child's token."""
    toy, stays = Toy(rows=5, columns=1, uneven=True), {}
    for iteration in range(1, 80):
        whole, few = (grow_tree(toy, TreeSize(3, 2, nodes, 0.0, least_level), "sampled", 2, iteration=iteration) for nodes in (60, 3))
        path = (whole.tokens[0], *(token for token, parent in zip(whole.tokens, whole.parents, strict=True) if parent == 0))
        stays.setdefault(path, {}).setdefault(whole.tokens[1], set()).add(few.parents.count(-1) == 2)
    fates = [set().union(*by_token.values()) for by_token in stays.values() if len(by_token) > 1]
    assert fates and all(len(fate) == 1 for fate in fates), stays


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_children_of_a_sure_distribution_are_ranked_by_the_logits(dtype: torch.dtype) -> None:
    """At temperature 0 a distribution has one token, but the drafter still ranks the next ones."""
    logits = torch.tensor([[0.0, 3.0, 2.0, 1.0]], dtype=dtype)
    sure = torch.tensor([[0.0, 1.0, 0.0, 0.0]], dtype=dtype)
    torch.testing.assert_close(rank(sure, logits), torch.softmax(logits, -1))
    torch.testing.assert_close(rank(torch.softmax(logits / 2, -1), logits), torch.softmax(logits / 2, -1))


def test_auto_finds_both_kinds() -> None:
    toy = Toy(vocabulary=4, columns=4, sharpness=2.0)
    kinds = [kind for first in range(4) for kind in grow_tree(toy, TreeSize(3, 2, 12), "auto", first).drawn]
    assert True in kinds and False in kinds


def test_a_perfect_drafter_is_always_accepted() -> None:
    toy = Toy(rows=1, columns=13, vocabulary=5, counting=True)
    run = generate(toy, METHODS["eagle"], Prompt(seed=1), {"depth": 3, "width": 2, "nodes": 6}).finish()
    assert [len(step.tokens) for step in run.steps] == [1, 4, 4, 4]
    assert [step.draft_forwards for step in run.steps] == [3, 3, 3, 0]


def test_a_live_knob_reshapes_the_next_tree() -> None:
    run = generate(Toy(columns=8), METHODS["eagle"], Prompt(seed=2), {"depth": 1, "nodes": 3})
    next(run)
    run.set(depth=4, nodes=12)
    run.finish()
    assert run.steps[1].drafted == 3 and run.steps[2].drafted > 3


# --- controllers ------------------------------------------------------------------------------------------------------


class At:
    """The part of a sequence that a controller may see."""

    def __init__(self, length: int, rows: int = 4, columns: int = 8):
        self.length, self.layout = length, Raster(rows, columns)


def knobs(**values: float | str) -> Knobs:
    """ADT-Tree's knobs with some changed."""
    return Knobs({k.name: k.to_value(k.to_number(values.get(k.name, k.default))) for k in adt_tree.METHOD.knobs})


def controller_shapes(accept: bool, steps: int, **values: float | str) -> list[TreeSize]:
    """The shapes of a controller whose trees are always, or never, accepted in full; one token is committed each time."""
    controller, shapes = AdjacentSchedule(), []
    for n in range(1, steps):
        shape = controller.next(At(n, 1, 99), knobs(**values), Noise(0, 8), n)
        shapes.append(shape)
        accepted = shape.depth if accept else 0
        controller.observe(Cycle(n, shape, shape.depth, shape.depth, shape.depth, accepted, 1))
    return shapes


def test_full_acceptance_drives_the_depth_to_its_end() -> None:
    shapes = controller_shapes(True, 12)
    assert (shapes[0].depth, shapes[0].width) == (5, 10)
    assert [s.depth for s in shapes[:5]] == [5, 6, 7, 8, 9]
    assert (shapes[-1].depth, shapes[-1].width) == (9, 4)  # the intervals (0, 10) and (3, 14) are open


def test_rejection_drives_the_depth_to_one_and_the_width_beyond_its_end() -> None:
    shapes = controller_shapes(False, 30)
    assert [(s.depth, s.width) for s in shapes[:5]] == [(5, 10), (4, 13), (3, 13), (2, 13), (1, 16)]
    assert (shapes[-1].depth, shapes[-1].width, shapes[-1].nodes) == (1, 60, 60)


def test_a_tree_has_no_more_nodes_than_candidates() -> None:
    assert controller_shapes(False, 8, width_below=6, width_above=1, nodes=128)[0].nodes == 5 + 4 * 25


def test_neighbours_of_a_controller() -> None:
    marks = {at: Mark(at, 5, 0.0) for at in range(12)}
    assert adt_tree.starting_mark(marks, At(12), knobs()).depth == 11
    assert adt_tree.starting_mark(marks, At(12), knobs(tree_init="above")).depth == 4
    assert adt_tree.starting_mark(marks, At(8), knobs()).depth == 7  # the end of the row above stands in for the left neighbour
    assert adt_tree.starting_mark(marks, At(5), knobs(tree_init="above")).depth == 4  # nothing above the first row
    assert adt_tree.starting_mark({}, At(5), knobs()) is None


def test_a_flock_is_weighted_by_rows_and_rounded_half_up() -> None:
    assert flock({}, At(12), 3) is None
    marks = {11: Mark(4, 10, 1.0), 4: Mark(7, 4, 0.0), 0: Mark(9, 9, 1.0)}  # left, above, too far away
    shape = flock(marks, At(12), 2)  # weights 1.5 and 1
    assert (shape.depth, shape.width, shape.accepted) == (5, 8, pytest.approx(0.6))
    assert flock({11: Mark(4, 5, 1.0), 10: Mark(5, 5, 1.0)}, At(12), 2).depth == 5


def test_a_random_shape_stays_inside_the_intervals() -> None:
    shapes = [adt_tree.random_mark(Mark(1, 1, 1.0), knobs(), Noise(seed, 8), 5, 1) for seed in range(200)]
    assert {s.depth for s in shapes} == set(range(1, 10)) and {s.width for s in shapes} == set(range(4, 14))


def test_the_chances_of_siblings_fall_and_add_up_to_less_than_one() -> None:
    peaks = torch.tensor([[0.05], [0.5], [0.95], [1.0]], dtype=torch.float64)
    chances = drawn_acceptance(peaks, 20)
    assert torch.equal(chances[:, :1], peaks) and (chances.diff() <= 0).all() and (chances.sum(-1) <= 1).all()


def test_a_tree_grows_where_it_is_worth_its_cost() -> None:
    """No node is verified or extended that is less likely than its cost requires; if nodes cost nothing, the tree is complete."""
    toy = Toy(columns=12, vocabulary=6, sharpness=2.0)

    def nodes(row: float, level: float) -> float:
        knobs = {"children": "sampled", "row_cost": row, "level_cost": level}
        steps = [s for seed in range(4) for s in generate(toy, METHODS["adt_tree"], Prompt(seed=seed), knobs).finish().steps[1:-1]]
        return sum(s.drafted for s in steps) / len(steps)

    assert nodes(0, 0) == pytest.approx(60, rel=0.2) and nodes(0.05, 0.25) < 15 and nodes(0.5, 1) < 2


def test_the_schedule_counts_tokens_and_what_they_cost() -> None:
    schedule, wanted = adt_tree.ThroughputSchedule(), knobs(row_cost=0.1, level_cost=0.3)
    for n in range(200):
        shape = schedule.next(At(n), wanted, Noise(0, 8), n)
        schedule.observe(Cycle(n, shape, levels=2, nodes=4, passes=2, accepted=2, committed=3))
    rate = 3 / (1 + 0.1 * 4 + 0.3 * 2)
    assert (shape.least_node, shape.least_level) == (pytest.approx(0.1 * rate, rel=0.01), pytest.approx(0.4 * rate, rel=0.01))


@pytest.mark.parametrize("init", ["left", "above", "random", "flock"])
@pytest.mark.parametrize("controller", ["adjacent", "throughput"])
def test_every_controller_paints_the_whole_picture(controller: str, init: str) -> None:
    run = generate(Toy(columns=5), METHODS["adt_tree"], Prompt(seed=4), {"controller": controller, "tree_init": init}).finish()
    assert run.positions == list(range(10)) and run.exact
    assert all(step.trace.tree.width is not None for step in run.steps[1:-1])
