"""Content of each block of a cloud, and how it enters the decoder."""

from __future__ import annotations

import torch

from engine.mesh.bpt_tokens import BPT
from engine.networks.cloud_blocks import BINS, BLOCKS, CELLS, CONTENTS, LINES, MARGIN, USUAL, block_contents
from engine.networks.mesh_decoder import OFFSETS, CloudReading, MeshModel, MeshSettings, blocks_of

CELL = 2 / 128
SIZES = {"layers": 1, "width": 32, "heads": 2, "inner": 48, "length": 64, "encoder_width": 16, "encoder_blocks": 1, "latents": 4}


def point_at(*cells: float, normal: tuple[float, float, float] = (0.0, 0.0, 0.0)) -> list[float]:
    """A point in the middle of a cell of the whole cube."""
    return [(cell + 0.5) * CELL - 1 for cell in cells] + list(normal)


def counts_of(contents: torch.Tensor, axis: int, kind: int, points: int = 4) -> torch.Tensor:
    """The counts along an axis: all points (0), or those whose normal points there (1) or back (2)."""
    return (torch.expm1(contents[:LINES].view(3, 3, BINS)[axis, kind]) / USUAL * points).round(decimals=4)


def test_a_block_tells_the_cells_of_its_points() -> None:
    points = torch.tensor(
        [[point_at(24, 40, 8), point_at(24, 41, 7, normal=(1, 0, 0)), point_at(24, 39, 8, normal=(-0.6, 0, 0.8)), point_at(104, 104, 104)]]
    )
    ids, contents = block_contents(points)
    near, far = (1 * 8 + 2) * 8 + 0, (6 * 8 + 6) * 8 + 6  # places 8, 8 and 8: far from the borders
    assert ids[0, :2].tolist() == [near, far] and (ids[0, 2:] == -1).all()
    one = contents[0, 0]
    assert counts_of(one, 0, 0)[MARGIN + 8].item() == 3 and counts_of(one, 0, 0).count_nonzero() == 1
    assert counts_of(one, 1, 0)[MARGIN + 7 : MARGIN + 10].tolist() == [1, 1, 1]
    torch.testing.assert_close(counts_of(one, 0, 1).sum(), torch.tensor(1.0))
    torch.testing.assert_close(counts_of(one, 0, 2).sum(), torch.tensor(0.36))
    torch.testing.assert_close(counts_of(one, 2, 1).sum(), torch.tensor(0.64))
    assert torch.expm1(contents[0, 1]).sum().item() > 0 and contents[0, 2:].count_nonzero() == 0


def test_a_point_near_a_border_is_told_to_both_sides() -> None:
    inside, beyond = CELLS + MARGIN - 1, CELLS + MARGIN
    for cell, expected in ((inside, [0, 1]), (beyond, [1])):
        ids, contents = block_contents(torch.tensor([[point_at(cell, 8, 8)]]))
        assert (ids[0][ids[0] >= 0] // 64).tolist() == expected
        assert counts_of(contents[0, 0], 0, 0).argmax() == (cell + MARGIN if expected[0] == 0 else cell - CELLS + MARGIN)


def test_contents_are_those_of_any_number_of_points_in_any_order() -> None:
    points = torch.rand(1, 500, 6, generator=torch.Generator().manual_seed(1)) * 2 - 1
    ids, contents = block_contents(points)
    twice = torch.cat([points, points], 1)[:, torch.randperm(1000, generator=torch.Generator().manual_seed(2))]
    again, same = block_contents(twice)
    assert torch.equal(ids, again)
    torch.testing.assert_close(contents, same, atol=1e-4, rtol=1e-4)


def test_clouds_of_a_batch_do_not_mix() -> None:
    points = torch.rand(3, 200, 6, generator=torch.Generator().manual_seed(1)) * 2 - 1
    ids, contents = block_contents(points)
    for i in range(3):
        one, alone = block_contents(points[i : i + 1])
        assert torch.equal(ids[i], one[0])
        torch.testing.assert_close(contents[i], alone[0])


def test_where_surfaces_meet_is_kept_before_what_is_flat() -> None:
    generator = torch.Generator().manual_seed(1)
    flat = torch.cat([torch.rand(900, 2, generator=generator) * 1.8 - 0.9, torch.full((900, 1), -0.56)], 1)
    floor = torch.cat([flat, torch.tensor([0.0, 0.0, 1.0]).expand(900, 3)], 1)
    corner = torch.tensor([point_at(104, 104, 104, normal=n) for n in ((1, 0, 0), (0, 1, 0), (0, 0, 1))] * 6)
    ids, _ = block_contents(torch.cat([floor, corner])[None], slots=4)
    assert (6 * 8 + 6) * 8 + 6 in ids[0].tolist() and (ids >= 0).all()


def test_ids_that_name_a_block() -> None:
    start = BLOCKS + OFFSETS
    ids = torch.tensor([-1, 0, 511, BLOCKS, start - 1, start, start + 511, BPT.eos])
    assert blocks_of(ids).tolist() == [BLOCKS, 0, 511, BLOCKS, BLOCKS, 0, 511, BLOCKS]


def test_a_reader_that_begins_tells_nothing_and_then_only_of_blocks() -> None:
    model = MeshModel(MeshSettings(**SIZES, contents=CONTENTS)).eval()
    points = torch.rand(1, 300, 6, generator=torch.Generator().manual_seed(3)) * 2 - 1
    table = model.decoder.table()
    assert torch.equal(model.read(points).table(table), table)
    torch.nn.init.normal_(model.reader.straight.weight, std=0.1)
    reading = model.read(points)
    assert torch.equal(reading.table(table), reading.embed(table, torch.arange(len(table))[None])[0])
    shift = reading.table(table) - table
    block = block_contents(points)[0][0, 0].item()
    changed = shift.abs().sum(1) > 0
    assert changed[block] and changed[BLOCKS + OFFSETS + block]
    torch.testing.assert_close(shift[block], shift[BLOCKS + OFFSETS + block])
    assert not changed[BLOCKS : BLOCKS + OFFSETS].any() and not changed[BPT.eos]


def test_weights_without_a_reader_read_as_before() -> None:
    model = MeshModel(MeshSettings(**SIZES)).eval()
    points = torch.rand(2, 300, 6, generator=torch.Generator().manual_seed(3)) * 2 - 1
    reading = model.read(points)
    assert torch.equal(reading.condition, model.encoder(points)) and reading.added is None
    table = model.decoder.table()
    assert reading.table(table) is table and torch.equal(reading.embed(table, torch.tensor([[3, 700]]))[0], table[[3, 700]])


def test_the_readings_of_some_clouds_are_theirs() -> None:
    model = MeshModel(MeshSettings(**SIZES, contents=CONTENTS)).eval()
    torch.nn.init.normal_(model.reader.straight.weight, std=0.1)
    points = torch.rand(3, 300, 6, generator=torch.Generator().manual_seed(3)) * 2 - 1
    all_of_them, last = model.read(points), model.read(points[2:])
    some = all_of_them.select([2])
    assert isinstance(some, CloudReading)
    torch.testing.assert_close(some.condition, last.condition)
    torch.testing.assert_close(some.added, last.added)
