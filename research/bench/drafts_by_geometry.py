"""Tokens that drafts without a network get right on meshes made by artists, per pack: an upper bound for `surface` on such meshes.

A model that wrote the meshes of the packs token for token would take this many passes, if nothing but the rules of
engine/mesh/next_vertices.py drafted.

    python -m research.bench.drafts_by_geometry FILE.npz [MESHES_PER_PACK]
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import numpy as np

from engine.mesh.bpt_tokens import BPT, tokenize
from engine.mesh.next_vertices import NextVertices

DRAFTED, MOST_FACES = 9, 800


def sequences(path: str, most: int) -> Iterator[tuple[str, list[int]]]:
    """The pack and the tokens of up to `most` random meshes of each pack in a file of packs."""
    data = dict(np.load(path))
    vertices, faces = data["vertices"] / 65535 * 2 - 1, data["faces"].astype(np.int64)
    ends_v, ends_f, random = data["vertex_counts"].cumsum(), data["face_counts"].cumsum(), np.random.default_rng(0)
    for pack in np.unique(data["packs"]):
        meshes = np.flatnonzero((data["packs"] == pack) & (data["face_counts"] <= MOST_FACES))
        for i in random.permutation(meshes)[:most]:
            own_v, own_f = (slice(ends[i] - data[name][i], ends[i]) for ends, name in ((ends_v, "vertex_counts"), (ends_f, "face_counts")))
            yield str(pack), tokenize(vertices[own_v], faces[own_f])[0].tolist()


def passes(tokens: list[int], rules: NextVertices) -> int:
    """Passes over a sequence, of which each commits the right drafts and one token more."""
    n = count = 0
    while n < len(tokens):
        right = 0
        for draft, token in zip(rules.continuation(DRAFTED), tokens[n:-1], strict=False):
            if draft != token:
                break
            right += 1
        rules.add(tokens[n : n + right + 1])
        n, count = n + right + 1, count + 1
    return count


def main(path: str, most: str = "10") -> None:
    """Prints the table."""
    table: dict[str, np.ndarray] = {}
    for pack, tokens in sequences(path, int(most)):
        row = np.array([1, len(tokens), *(passes(tokens, NextVertices(BPT, symmetric)) for symmetric in (False, True))])
        table[pack] = table.get(pack, np.zeros(4, np.int64)) + row
    print("| pack | meshes | right without symmetry | with | tokens per pass without | with |\n|---|---|---|---|---|---|")
    for pack, (meshes, tokens, without, with_it) in [*table.items(), ("all", sum(table.values()))]:
        shares = " | ".join(f"{1 - count / tokens:.1%}" for count in (without, with_it))
        print(f"| {pack} | {meshes} | {shares} | {tokens / without:.2f} | {tokens / with_it:.2f} |")


if __name__ == "__main__":
    main(*sys.argv[1:])
