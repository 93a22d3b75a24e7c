"""What `bench page` measures: that the numbers are of the page, in order, and complete. How large they are is not tested."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from app.live.stream import Costs
from app.ui.panels.verdict import costs_in_words
from research.bench import page_speed
from research.commands.bench_page import readable, summary


def test_the_page_s_own_words_are_read():
    costs = Costs()
    costs.whole, costs.drawing, costs.sending = 2.0, 0.125, 0.0625
    boards = [SimpleNamespace(run=SimpleNamespace(seconds=0.75)), SimpleNamespace(run=SimpleNamespace(seconds=0.5))]
    found = page_speed.COSTS.search(costs_in_words(boards, costs)).groupdict()
    assert {name: float(value) for name, value in found.items()} == {
        "clocks": 1.25, "drawing": 0.12, "sending": 0.06, "bookkeeping": 0.56
    }  # fmt: skip


def test_a_row_has_medians_and_quartiles():
    row = {"what": "mesh"} | summary([{"kilobytes": n, "wall_seconds": 2.0 * n} for n in (1.0, 2.0, 4.0)])
    assert row == {"what": "mesh", "kilobytes": [2.0, 1.5, 3.0], "wall_seconds": [4.0, 3.0, 6.0]}
    assert readable(row) == "mesh: kilobytes 2 (1.5 to 3), wall_seconds 4 (3 to 6)"


def test_what_comes_is_counted_once_and_not_from_the_cache():
    traffic = page_speed.Traffic()
    for request, size in (("page", 100), ("page", 50), ("script", 70), ("stream", 30)):
        traffic.came(request, size)
    traffic.answers("script", {"fromDiskCache": True})
    traffic.answers("page", {"fromDiskCache": False})
    assert traffic.received == 180
    traffic.finished["page"] = 60  # it came compressed
    assert traffic.received == 90


@pytest.mark.browser
@pytest.mark.panel
def test_a_visit_and_its_races_are_measured(browser, served):
    with page_speed.visit(browser, served.address) as (page, ready, first):
        assert 0 < ready < page_speed.PATIENCE and first > 100_000
        shown = page_speed.picture(page, "64 px")()
        assert 0 < shown.first <= shown.whole and 0 < shown.clocks < shown.whole
        assert shown.drawing + shown.sending + shown.bookkeeping < shown.whole and shown.received > 1000
        assert set(shown.numbers()) >= {"first_pixels_seconds", "wall_over_clocks", "kilobytes"}
    with page_speed.visit(browser, served.address, again=True) as (_, _, later):
        assert later < first  # what is in the browser's cache does not come again
