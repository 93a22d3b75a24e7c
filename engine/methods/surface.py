"""Surface drafts: the vertices that close the surface of a mesh, repeat an earlier part of it, or complete its symmetry.

Paper: none, ours. The heads are those of XSpecMesh, arXiv 2507.23777.
Idea: on a closed surface every edge has two faces, and many parts of a mesh are moved copies of others. So committed tokens often
determine the next vertices; engine/mesh/next_vertices.py has the rules. Where a guide pulls the tokens (engine/mesh/guide.py), what it
expects comes first. Elsewhere heads guess, if the model has them; they guess better than the rule of symmetry, which is then not used.
Exactness: always. A draft is a function of the committed tokens and of hidden states, so its distribution is one-hot: it is accepted with
probability p(x), and after a rejection the residual is p without x. A mesh with an open edge only has fewer drafts accepted.
Deviations: none.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from engine.core import NO_DRAFT, VERIFY, Backbone, Candidate, Case, ChosenTokens, Draft, Knob, Knobs, Method, Sequence, Step
from engine.decoding.head_drafts import HEADS, propose
from engine.decoding.policy import matches_seed
from engine.decoding.verdict import shown_draft, step_over
from engine.drafters.mesh_heads import HeadsByKind
from engine.mesh.next_vertices import NextVertices
from engine.noise import Noise

DRAFTED = Knob("drafted", "m", 6, 0, 16, 1, help="Most tokens drafted from the surface in a pass.", label="Copied tokens")
GUESSED = Knob(
    "guessed", "D", 3, 0, 6, 1, live=False, help="Tokens that heads guess where the surface says nothing, if the model has heads."
)
BEST = Knobs({"drafts": "most probable"})


def decode(sequence: Sequence, knobs: Knobs, noise: Noise, drafter: HeadsByKind | None) -> Iterator[Step]:
    """Yields one Step per pass."""
    heads = None if drafter is None or not knobs.guessed else drafter.of(knobs.heads)
    guess = None if heads is None else heads.start(sequence)
    vertices, draft, iteration = NextVertices(sequence.levels, symmetric=guess is None), NO_DRAFT, 0
    while not sequence.done:
        seeded = matches_seed(knobs, exact=True)
        window, step = step_over(sequence, draft, noise, iteration, seeded)
        vertices.add(step.tokens)
        iteration += 1
        room = sequence.limit - sequence.length - 1
        draft = NO_DRAFT
        most = min(int(knobs.drafted), room)
        if not sequence.done and (known := sequence.favourites(most) or vertices.continuation(most)):
            tokens = torch.tensor(known, dtype=torch.int64, device=sequence.device)
            draft = Draft(tokens, q=ChosenTokens(tokens, sequence.vocabulary, noise.dtype))
        elif guess is not None and (count := min(heads.depth, int(knobs.guessed), room)) > 0 and not sequence.done:
            draft = propose(guess(window.rows, window.a, count), sequence, BEST, noise, iteration, seeded, window.rows.host is not None)
        step.draft = shown_draft(sequence, draft.tokens)
        yield step


_TOY = {"rows": 1, "columns": 6}  # long enough for repeated steps
_ALONE = {"guessed": 0}


def candidates(backbone: Backbone) -> list[Candidate]:
    """The method without heads, and with each kind of heads that the model has."""
    kinds = backbone.drafter("mesh_heads").kinds if "mesh_heads" in backbone.capabilities else ()
    alone: list[Candidate] = [("surface", {"drafted": drafted, "guessed": 0}) for drafted in (4, 6, 9, 12)]
    return alone + [("surface", {"heads": kind, "drafted": 2 * depth, "guessed": depth}) for kind in kinds for depth in (2, 3, 4)]


METHOD = Method(
    name="surface",
    title="Surface drafts",
    about="Predicts the vertices that close the surface, and repeated parts; the model checks them.",
    decode=decode,
    knobs=(DRAFTED, GUESSED, HEADS, VERIFY),
    paper="ours",
    exact=lambda knobs: True,
    why=lambda knobs: "Exact: a draft is fixed before its token is drawn, and accepted with its probability under the model.",
    needs=frozenset({"vertices"}),
    drafters=("mesh_heads",),
    candidates=candidates,
    cases=(
        Case("SURFACE-EXACT", "same distribution", _ALONE, _TOY, ("surface: first draft unverified",)),
        Case("SURFACE-EXACT heads", "same distribution", {}, _TOY, ("surface: first draft unverified",)),
        Case("SEED-EXACT", "same tokens", {"verify": "match seed"}, _TOY, ("iteration in the noise",)),
    ),
)
