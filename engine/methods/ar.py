"""Plain autoregressive decoding.

Paper: none; it is the baseline of every paper.
Idea: one pass, one token. The token is drawn by Gumbel-argmax with noise that depends on (seed, position). This is a draw from the
model's distribution, and every other method can reproduce the same tokens (`verify: match seed`).
Exactness: by definition.
Deviations: none.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from engine.core import NO_DRAFT, PLAIN, Case, Knobs, Method, Sequence, Step
from engine.decoding.verdict import draw_plain
from engine.noise import Noise
from engine.trace import Trace


def decode(sequence: Sequence, knobs: Knobs, noise: Noise, drafter: Any) -> Iterator[Step]:
    """Yields one Step per token."""
    while not sequence.done:
        n = sequence.length
        rows = sequence.forward(NO_DRAFT)
        token, nats, top = draw_plain(rows, noise, n)
        committed = sequence.commit([], token)
        yield Step(committed, [n], trace=Trace(accepted=[False], accept_probability=[0.0], entropy=nats, top=top))


METHOD = Method(
    name=PLAIN,
    title="Plain decoding",
    about="One token at a time: the baseline for every speed-up.",
    decode=decode,
    knobs=(),
    paper="the baseline",
    exact=lambda knobs: True,
    why=lambda knobs: "Exact: plain decoding defines the distribution.",
    baseline=True,
    drafts_past_end=False,  # it drafts nothing
    candidates=lambda backbone: [(PLAIN, {})],
    cases=(Case("AR-CAL", "same distribution", toy={"top_p": 0.8, "temperature": 1.5}, mutants=("temperature after top-p",)),),
)
