"""The contract of wavefronts: only larger positions see committed tokens, as if each token had been fed in its own pass.

A pass after such commits is compared with one pass with an explicit visibility mask.
"""

from __future__ import annotations

import pytest
import torch

from engine.core import NO_DRAFT, Draft, Sequence
from engine.networks.hosted import HostedTrunk, RowEndCache
from engine.networks.sequence import TransformerSequence
from tests.engine.backbones.test_contract import MAKERS, Case, feed, same_row, tokens_of

WIDE = [
    "pictogram", "janus", "emu3", "emu35", "llamagen of classes", "llamagen of texts", "chameleon (Anole)",
    "chameleon (Lumina-mGPT)", "glm_image", "toy",
]  # fmt: skip


@pytest.fixture(params=WIDE)
def case(request: pytest.FixtureRequest):
    """Each backbone with the capability in turn."""
    with torch.inference_mode():
        case = MAKERS[request.param]()
        assert "wavefront" in case.backbone.capabilities
        yield case


def placeholder(token: int, position: int) -> Draft:
    """A node alone."""
    return Draft(torch.tensor([token]), parents=torch.tensor([-1]), positions=torch.tensor([position]))


def two_rows(case: Case) -> tuple[Sequence, int]:
    """Two tokens of the first row and two of the second, the second row begun behind a placeholder. Also the width of a row."""
    sequence = case.start()
    columns = sequence.layout.columns
    feed(sequence, [1, 2])
    sequence.forward(placeholder(0, columns - 1))
    sequence.commit_at([columns], [0])  # 1 was pending and is cached now
    sequence.forward(NO_DRAFT)
    sequence.commit_at([columns + 1], [2])
    return sequence, columns


def test_commits_in_raster_order_are_plain_commits(case: Case) -> None:
    wide, usual = case.start(), case.start()
    for position, token in enumerate(tokens_of(wide, wide.layout.columns + 2)):
        same_row(case, wide.forward(NO_DRAFT), 0, usual.forward(NO_DRAFT), 0)
        assert wide.pending == usual.pending == [position - 1]
        wide.commit_at([position], [token])
        usual.commit([], token)
    assert wide.tokens == usual.tokens
    same_row(case, wide.forward(NO_DRAFT), 0, usual.forward(NO_DRAFT), 0)


def test_scattered_tokens_are_what_a_spelled_out_pass_sees(case: Case) -> None:
    """Positions 0, 1 | W | W+1 and 2 | : the row of each pass equals that of one pass over the same tokens from the start."""
    sequence, columns = two_rows(case)
    assert sequence.pending == [columns + 1]
    rows = sequence.forward(Draft(torch.tensor([1]), parents=torch.tensor([-1]), positions=torch.tensor([2])))
    spelled = case.start()
    nodes = [1, 2, 0, 2, 1]  # at 0, 1, W, W+1, 2
    visible = torch.ones(6, 6, dtype=torch.bool).tril()
    visible[5, 3:5] = False  # the token at 2 does not see the second row
    positions = torch.tensor([0, 1, columns, columns + 1, 2])
    other = spelled.forward(Draft(torch.tensor(nodes), positions=positions, visible=visible))
    same_row(case, rows, 0, other, 4)
    same_row(case, rows, 1, other, 5)


def test_several_pending_tokens_are_fed_together(case: Case) -> None:
    """Rows of a pass: the pending tokens in order of position, then the nodes; a pending token sees the earlier ones."""
    sequence = case.start()
    columns = sequence.layout.columns
    feed(sequence, [1])
    sequence.forward(placeholder(0, columns - 1))
    sequence.commit_at([1, columns], [2, 0])
    assert sequence.pending == [1, columns] and sequence.length == 3
    rows = sequence.forward(placeholder(1, 2 * columns - 1))
    assert rows.p.shape == (3, sequence.vocabulary)
    other = case.start().forward(
        Draft(torch.tensor([1, 2, 0, 1]), positions=torch.tensor([0, 1, columns, 2 * columns - 1]), visible=torch.ones(5, 5).tril().bool())
    )
    for i in range(3):
        same_row(case, rows, i, other, i + 2)


def test_a_filled_gap_is_seen_by_later_rows_and_not_by_earlier_ones(case: Case) -> None:
    """A token committed in a gap changes the rows after it; a token after it changes no earlier row."""
    logits = []
    for token, behind in ((0, 0), (1, 0), (0, 1)):
        sequence = case.start()
        columns = sequence.layout.columns
        feed(sequence, [1])
        sequence.forward(placeholder(0, columns - 1))
        sequence.commit_at([1, columns], [token, behind])
        rows = sequence.forward(NO_DRAFT)
        sequence.commit_at([2, columns + 1], [1, 1])
        logits.append(torch.cat([rows.logits, sequence.forward(NO_DRAFT).logits], 1))
    first, other, moved = logits
    assert ((first - other)[:, [0, 1, 2, 3]].abs().amax((0, 2)) > 1e3 * case.tolerance).all()
    case.close(first[:, [0, 2]], moved[:, [0, 2]])
    assert ((first - moved)[:, [1, 3]].abs().amax((0, 2)) > 1e3 * case.tolerance).all()


def test_placeholders_leave_no_trace(case: Case) -> None:
    """Another placeholder, or one more pass with one, changes nothing later."""
    logits = []
    for held in (0, 1):
        sequence = case.start()
        columns = sequence.layout.columns
        feed(sequence, [1])
        for _ in range(held + 1):
            sequence.forward(placeholder(held, columns - 1))
        sequence.commit_at([1, columns], [2, 0])
        logits.append(sequence.forward(NO_DRAFT).logits)
    case.close(*logits)


def test_unfilled_slots_never_leak(case: Case) -> None:
    """Garbage in every cache row without a committed token changes no pass. It is NaN if nothing reads these rows; hosted decoders read
    whole blocks of keys and mask what is not kept, so they get large numbers."""
    sequence, columns = two_rows(case)
    if not isinstance(sequence, TransformerSequence):
        pytest.skip(f"{case.backbone.name} keeps no cache")
    garbage = 1e4 if isinstance(sequence.trunk, HostedTrunk) else torch.nan
    for position in (2, columns + 2):
        clean = sequence.forward(placeholder(0, 2 * columns - 1)).logits
        kv_cache = sequence.kv_cache.below if isinstance(sequence.kv_cache, RowEndCache) else sequence.kv_cache
        kv_cache.block[:, :, :, :, kv_cache.kept :] = garbage
        rows = sequence.forward(placeholder(0, 2 * columns - 1))
        assert torch.isfinite(rows.logits).all()
        assert torch.equal(rows.logits, clean)
        sequence.commit_at([position], [1])


def test_the_last_token_of_a_scattered_picture_ends_it(case: Case) -> None:
    sequence, columns = two_rows(case)
    rest = [p for p in range(sequence.limit) if p not in (0, 1, columns, columns + 1)]
    for position in rest:
        assert not sequence.done
        sequence.forward(NO_DRAFT)
        sequence.commit_at([position], [0])
    assert sequence.done and sequence.length == sequence.limit
