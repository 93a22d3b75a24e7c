"""The page builds for every tab, asks nobody outside, and finds a port."""

from __future__ import annotations

import socket

import pytest

from app import studio
from app.ui import TABS, theme
from engine.errors import NotSupported


def test_every_tab_is_on_the_page(picto):
    config = studio.build(picto).get_config_file()
    labels = {c["props"].get("label") for c in config["components"] if c["type"] == "tabitem"}
    assert labels == set(TABS)


def test_generate_shares_one_slot_and_knobs_do_not_wait_for_it(picto):
    page = studio.build(picto)
    queued = [f for f in page.fns.values() if f.queue and f.name != "leave"]  # a closing page waits for nothing
    assert {(f.concurrency_id, f.concurrency_limit) for f in queued} == {("engine", 1), ("reading", 1)}
    assert len([f for f in page.fns.values() if not f.queue]) > 5
    assert {f.api_visibility for f in page.fns.values()} == {"private"}


def test_a_port_in_use_is_passed_over():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert port < studio.free_port("127.0.0.1", port) <= port + 20


def test_no_free_port_is_a_sentence():
    with pytest.raises(NotSupported, match="--port"):
        studio.free_port("203.0.113.1", 7860)  # not an address of this machine


def test_fonts_and_styles_come_from_this_machine():
    look = theme.theme()
    assert look._stylesheets == []
    assert "//" not in theme.css().replace("http://www.w3.org/2000/svg", "")
