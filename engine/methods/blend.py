"""Blend: one window whose slots are filled by several proposers, each slot by the one that is most likely to be accepted.

Paper: none; ours. The parts: coupled refresh (MC-SJD, arXiv 2510.24211), prompt lookup (Saxena 2023), heads (XSpecMesh,
arXiv 2507.23777), row and column heads (SSD, arXiv 2606.20543), initialisation of windows (SJD, arXiv 2410.01699; MuLo-SD, arXiv
2601.05149), surface drafts (engine/methods/surface.py).
Idea: methods differ in where their drafts come from, and none is best in every slot. For each slot, every proposer makes an offer: the
draft of the last pass redrawn as in SJD++, the token that followed the last time, the guess of a head, a draw from a neighbour's
distribution. The offer with the greatest expected acceptance is drafted. What to expect is learned during the run, for each proposer
and grade of certainty.
Exactness: always. The choice for a slot looks at earlier slots, at what offers were worth at committed positions, and at offers' grades,
which are known before anything is drawn. So a draft has the distribution of the proposer that drew it, and speculative sampling against
it is exact. A proposer that chooses its token has a one-hot distribution, and may be judged by the token itself.
Deviations: there is no paper.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from math import exp
from typing import Any

import torch
from torch import Tensor

from engine.core import VERIFY, Case, Draft, Knob, Knobs, Method, Rows, Sequence, Step
from engine.decoding import proposals
from engine.decoding.foreseen import BOTH, Foreseen, foreseen
from engine.decoding.head_drafts import best_guess
from engine.decoding.initializers import WINDOW, Initializer
from engine.decoding.policy import matches_seed
from engine.decoding.proposals import Proposal, Recall, Worth, grade
from engine.decoding.verdict import Judged, describe, judge, told
from engine.kernels.cpu.heads import best_allowed
from engine.kernels.cpu.library import native
from engine.mesh.next_vertices import NextVertices
from engine.noise import INITIAL, Noise
from engine.sampling import draw, draw_gumbel

ON_OFF = ("off", "on")
COUPLED = Knob("coupled", "", "on", choices=ON_OFF, live=False, help="Drafts of the last pass that were not reached, redrawn as in SJD++.")
LOOKUP = Knob(
    "lookup", "", "on", choices=ON_OFF,
    help="The token that followed the same newest tokens the last time; in a picture, the one that stood beside the same neighbours.",
)  # fmt: skip
NEIGHBOURS = Knob(
    "neighbours", "", "left",
    choices=("off", "left", "above", "left and above", "up-sampled", "left and up-sampled", "foreseen", "left and foreseen"),
    help="Draws for new slots: from the distribution of a neighbour, from the same picture at the model's smallest size, or from row and "
    "column heads where the model has them.",
)  # fmt: skip
HEADS = Knob("head_drafts", "", "on", choices=ON_OFF, live=False, help="The guesses of the heads of XSpecMesh, where the model has them.")
SURFACE = Knob(
    "surface", "", "on", choices=ON_OFF,
    help="In a mesh: the vertex that closes the surface, or the step that followed the same steps the last time.",
)  # fmt: skip
LEAST = Knob("least_chance", "", 0.0, 0.0, 0.9, 0.01, help="The window ends before a draft that is less likely to be reached and accepted.")

KINDS = {"left": "sample left", "above": "sample above", "up-sampled": "up-sampled"}  # of neighbours: how slots are filled
FORESEEN = "foreseen"  # filled by row and column heads
FIRST = {  # expected before anything is committed
    "coupled": 0.7, "lookup": 0.3, "heads": 0.5, "left": 0.3, "above": 0.3, "up-sampled": 0.3, FORESEEN: 0.5,
    "surface": 0.8,
}  # fmt: skip


def decode(sequence: Sequence, knobs: Knobs, noise: Noise, drafter: Any) -> Iterator[Step]:
    """Yields one Step per pass. State: the drafts that were not reached, what was offered for their slots, and what offers were worth."""
    recall, worth = Recall(sequence.layout), Worth(FIRST)
    vertices = NextVertices(sequence.levels) if sequence.levels is not None else None
    mesh, spatial = ((drafter or {}).get(name) for name in ("mesh_heads", "spatial_heads"))
    heads = None if mesh is None or knobs.head_drafts == "off" else mesh.of("cross-attention")
    guess = None if heads is None else heads.start(sequence)
    around = None if spatial is None else Foreseen(sequence, noise, spatial.start(sequence), Knobs({"foresee": BOTH}))
    carried: list[Proposal] = []
    guesses = like = torch.empty(0, sequence.vocabulary, device=sequence.device, dtype=noise.dtype)
    early: list[list[Proposal]] = []  # what was offered for a slot when it was new
    iteration = 0
    with closing(Initializer(sequence, noise)) as initializer:
        while not sequence.done:
            n, seeded = sequence.length, matches_seed(knobs, True)
            size = min(int(knobs.window) - 1, sequence.limit - n - 1)
            fresh = draws(initializer, around, carried[:size], size, knobs, iteration, seeded, like)
            kept = [[each] for each in carried[:size]]
            if around is not None and FORESEEN in knobs.neighbours:
                foresee(around, kept, carried[:size], noise, seeded, iteration)
            known = vertices.continuation(size) if vertices is not None and knobs.surface == "on" else []
            window, offers = filled(sequence, kept + fresh, len(kept), guesses, known, recall, worth, size, knobs)
            tokens = torch.tensor([each.token for each in window], dtype=torch.int64, device=sequence.device)
            laws = proposals.laws_of(window, sequence.vocabulary, like)
            rows = sequence.forward(Draft(tokens, q=laws))
            initializer.saw(n, rows)
            if around is not None:
                around.heads.saw(n, rows)
            store = knobs.coupled == "on" or knobs.neighbours != "off"
            judged = judge(rows, tokens, laws, noise, n, iteration, seeded, store=store)
            a = judged.a
            committed = sequence.commit(list(range(a)), judged.token)
            step = describe(n, committed, a, len(tokens), *told(rows, tokens, judged, len(committed)))
            step.draft_forwards = initializer.counted()
            proposals.learn(worth, offers, rows, committed)
            proposals.learn(worth, early[: len(offers)], rows, committed)
            early = [*early, *offers[len(early) :]][a + 1 :]
            recall.add(committed)
            if vertices is not None:
                vertices.add(committed)
            carried = refreshed(rows, judged, noise, n, a + 1, len(tokens)) if knobs.coupled == "on" else []
            if guess is not None and not sequence.done:
                guesses = guess(rows, a, min(heads.depth, sequence.limit - sequence.length)).contiguous()
            positions = list(range(n + a + 1, n + a + 1 + len(carried)))
            step.draft = {"tokens": [each.token for each in carried], "positions": positions, "status": "draft"}
            iteration += 1
            yield step


def draws(
    initializer: Initializer, around: Foreseen | None, carried: list[Proposal], size: int, knobs: Knobs, iteration: int, seeded: bool,
    like: Tensor,
) -> list[list[Proposal]]:  # fmt: skip
    """A draw from each of the chosen neighbours' distributions for each slot behind the carried drafts. around : row and column heads"""
    found: list[list[Proposal]] = [[] for _ in range(size - len(carried))]
    tokens = torch.tensor([each.token for each in carried], dtype=torch.int64, device=like.device)
    for kind in knobs.neighbours.split(" and ") if found and knobs.neighbours != "off" else ():
        filler = around if kind == FORESEEN else initializer
        if filler is None:
            continue
        new, laws = filler.fill(tokens, None, size, KINDS.get(kind, "sample left"), iteration, seeded)
        new = new[len(carried) :]
        chances, tops = laws.gather(1, new[:, None])[:, 0].tolist(), laws.amax(-1).tolist()
        for j, (slot, token) in enumerate(zip(found, new.tolist(), strict=True)):
            slot.append(Proposal(kind, (min(j, 7), grade(tops[j])), token, laws[j], chances[j]))
    return found


def filled(
    sequence: Sequence, drawn: list[list[Proposal]], carried: int, guesses: Tensor, known: list[int], recall: Recall, worth: Worth,
    size: int, knobs: Knobs,
) -> tuple[list[Proposal], list[list[Proposal]]]:  # fmt: skip
    """The window, and all that was offered for its slots. An offer for a slot may look at the drafts before it.

    A drawn token is never left out for what it is. A chosen one is, where the grammar forbids it. carried : how many slots were drafted
    in the last pass; the first that was drawn for such a slot is its draft. known : how the surface goes on
    """
    window: list[Proposal] = []
    offers: list[list[Proposal]] = []
    path: list[int] = []
    reached, certain = 1.0, guesses.logsumexp(-1).tolist()
    for j in range(size):
        slot = list(drawn[j])
        found = recall.find(path) if knobs.lookup == "on" else None
        closes = j < len(known) and path == known[:j]
        allowed = sequence.allowed(path) if found is not None or closes or j < len(certain) else None
        slot += [] if found is None else looked_up(*found, allowed, slot[0] if j < carried else None)
        slot += [guessed(guesses, j, certain[j], allowed)] if j < len(certain) else []
        if closes and (allowed is None or allowed[known[j]]):
            slot.append(Proposal("surface", (min(j, 7),), known[j]))
        if not slot:
            break
        best = proposals.best(slot, worth)
        reached *= worth.expected(best)
        if reached < knobs.least_chance:
            break
        window.append(best)
        offers.append(slot)
        path.append(best.token)
    return window, offers


def foresee(
    around: Foreseen, slots: list[list[Proposal]], carried: list[Proposal], noise: Noise, seeded: bool, iteration: int
) -> None:  # fmt: skip
    """Adds a draw of row and column heads, from the newest committed token, to the offers for slots that were drafted in the last pass."""
    n, sequence = around.sequence.length, around.sequence
    if not slots or not n:
        return
    tokens = torch.tensor([each.token for each in carried], dtype=torch.int64, device=sequence.device)
    laws = foreseen(around.heads, sequence, range(n, n + len(slots)), tokens, BOTH).to(noise.dtype)
    if seeded:
        new = draw_gumbel(laws.log(), noise.gumbel(n, len(slots)))
    else:
        new = draw(laws, noise.uniform(INITIAL, n, len(slots), iteration))
    chances, tops = laws.gather(1, new[:, None])[:, 0].tolist(), laws.amax(-1).tolist()
    for j, (slot, token) in enumerate(zip(slots, new.tolist(), strict=True)):
        slot.append(Proposal(FORESEEN, (min(j, 7), grade(tops[j]), 1), token, laws[j], chances[j]))


def looked_up(token: int, agreed: int, allowed: Tensor | None, carried: Proposal | None) -> list[Proposal]:
    """The token that followed the last time, graded by how much agreed and by its probability in the pass before."""
    if allowed is not None and not allowed[token]:
        return []
    before = -1 if carried is None else grade(carried.law[token].item())
    return [Proposal("lookup", (agreed, before), token)]


def guessed(guesses: Tensor, j: int, total: float, allowed: Tensor | None) -> Proposal:
    """The best allowed token of head j, graded by its probability under the head. total : the logarithm of the head's sum"""
    library = native() if guesses.device.type == "cpu" and guesses.dtype == torch.float32 else None
    if library is None:
        token = best_guess(guesses[j], allowed).item()
    else:
        token = best_allowed(library, guesses, j, 0 if allowed is None else allowed.data_ptr())
    return Proposal("heads", (j, grade(exp(guesses[j, token].item() - total))), token)


def refreshed(rows: Rows, judged: Judged, noise: Noise, n: int, first: int, size: int) -> list[Proposal]:
    """Drafts for slots first..size, redrawn from the newest distributions with the positions' own noise."""
    if first > size:
        return []
    if judged.fused is not None:
        tokens = judged.fused.answers[first:]
    else:
        tokens = draw_gumbel(rows.scores[first:], noise.gumbel(n + first, size + 1 - first))
    laws = rows.p[first:]
    chances, tops = laws.gather(1, tokens[:, None])[:, 0].tolist(), laws.amax(-1).tolist()
    return [
        Proposal("coupled", (min(j, 7), grade(top)), token, law, chance)
        for j, (token, law, chance, top) in enumerate(zip(tokens.tolist(), laws, chances, tops, strict=True))
    ]


_SMALL = {"window": 5}
_LINE = {"rows": 1, "columns": 5, "vocabulary": 3}
_SURFACE = _SMALL | {"coupled": "off", "neighbours": "off", "lookup": "off"}  # slots of the surface and of heads
_CHOSEN = _SMALL | {"coupled": "off", "neighbours": "off", "least_chance": 0.2}

METHOD = Method(
    name="blend",
    title="Blend",
    decode=decode,
    knobs=(WINDOW, COUPLED, LOOKUP, NEIGHBOURS, HEADS, SURFACE, LEAST, VERIFY),
    paper="ours",
    exact=lambda knobs: True,
    why=lambda knobs: "Exact: every draft is verified against the distribution of the proposer that drew it.",
    drafters=("mesh_heads", "spatial_heads"),
    common=_SMALL,
    cases=(
        Case("BLEND-EXACT line", "same law", _SMALL, _LINE, ("blend: chooses by the outcome", "residual is p")),
        Case(
            "BLEND-EXACT picture", "same law", {"window": 3, "neighbours": "left and above", "head_drafts": "off"},
            mutants=("blend: law of another proposal",),
        ),
        Case(
            "BLEND-EXACT up-sampled", "same law", {"window": 3, "neighbours": "left and up-sampled"}, {"rows": 3, "columns": 2},
            ("blend: law of another proposal",),
        ),
        Case(
            "BLEND-EXACT foreseen", "same law", {"window": 3, "neighbours": "left and foreseen", "head_drafts": "off"},
            mutants=("blend: law of another proposal",),
        ),
        Case("BLEND-EXACT surface", "same law", _SURFACE, {"rows": 1, "columns": 6}, ("blend: first draft unverified",)),
        Case("BLEND-EXACT chosen", "same law", _CHOSEN, {"grammar": True}, ("residual is p",)),
        Case("SEED-EXACT", "same tokens", _SMALL | {"verify": "match seed"}, mutants=("iteration in the noise",)),
    ),
)  # fmt: skip
