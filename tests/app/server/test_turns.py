"""API requests share the queue with the page's visitors, and leave nothing behind when they are cancelled."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import httpx
import openai
import pytest

from app.limits import STRANGERS
from app.live.worker import LocalRunner
from app.server.refusals import BUG
from engine import run as engine_run
from tests.app.server.scraped import idle, numbers, total, until, waiting
from tests.app.visitor import Visitor, wait_until

ASK = {"prompt": "a red apple", "size": "64x64", "seed": 1}
ENDED = "vllm:request_success_total"


class Gated(LocalRunner):
    """Decodes while the gate is open; a stopped run ends at once. began: prompts in the order of their runs; most: runs at a time"""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.began, self.most, self.going, self.breaks = threading.Event(), [], 0, 0, 0
        self.gate.set()

    def start(self, backbone, prompt, sides, left=None):
        """Records the prompt."""
        self.began.append(prompt.text)
        return super().start(backbone, prompt, sides, left)

    def race(self, runs):
        """Waits at every step until the gate is open."""
        self.going += 1
        self.most = max(self.most, self.going)
        try:
            for count, step in enumerate(engine_run.race(runs)):
                if self.breaks and count >= self.breaks:
                    raise ZeroDivisionError("a bug")
                yield step
                while not self.gate.wait(0.02) and not runs[0].stopped:
                    pass
        finally:
            self.going -= 1


@pytest.fixture(scope="module")
def runner() -> Gated:
    """The runner of the studio below."""
    return Gated()


@pytest.fixture(scope="module")
def studio(open_studio, runner) -> Iterator[Any]:
    """A public studio with at most three waiting requests."""
    with open_studio(replace(STRANGERS, waiting=3), local=False, runner=runner) as studio:
        yield studio
        assert studio.page.state_holder.session_data == {}
        pending = [name for name in studio.page._queue.pending_messages_per_session if name.startswith("v1-")]
        assert wait_until(lambda: not studio.page._queue.event_ids_to_events) and pending == []  # it forgets an event after its response


@pytest.fixture
def held_run(studio, runner) -> Iterator[Future]:
    """A run that occupies the engine until the gate opens."""
    until(studio, idle)
    runner.began.clear()
    runner.gate.clear()
    with ThreadPoolExecutor(8) as pool:
        first = pool.submit(ask, studio, prompt="a held cat")
        until(studio, lambda numbers: total(numbers, "vllm:num_requests_running") == 1)
        try:
            yield first
        finally:
            runner.gate.set()
    until(studio, idle)


def ask(address: str, **more: Any) -> httpx.Response:
    """Sends one request."""
    return httpx.post(f"{address}/v1/images/generations", json={**ASK, **more}, timeout=120)


def knock(address: str, **more: Any) -> socket.socket:
    """Opens a connection that sends a request and reads nothing."""
    url, body = httpx.URL(address), json.dumps({**ASK, **more}).encode()
    line = socket.create_connection((url.host, url.port), timeout=60)
    head = f"POST /v1/images/generations HTTP/1.1\r\nHost: {url.host}:{url.port}\r\nContent-Length: {len(body)}\r\n\r\n"
    line.sendall(head.encode() + body)
    return line


def close_page(studio: Any, visitor: Visitor) -> None:
    """Ends a visit, and waits until the studio has forgotten it."""
    with visitor.present():
        pass
    assert wait_until(lambda: visitor.session not in studio.page.state_holder.session_data)


def test_requests_and_the_pages_visitors_stand_in_one_line(studio, runner, held_run):
    with ThreadPoolExecutor(3) as pool:
        answers = [pool.submit(ask, studio, prompt="a second cat")]
        until(studio, waiting(1))
        visitor = Visitor(studio)
        call = pool.submit(visitor.ask, visitor.handler("generate_image"), ["a third cat", "sjdpp", 1, 64, {}])
        until(studio, waiting(2))
        answers.append(pool.submit(ask, studio, prompt="a fourth cat"))
        until(studio, waiting(3))
        runner.gate.set()
        assert [each.result().status_code for each in (held_run, *answers)] == [200] * 3 and '"success":true' in call.result()
    assert runner.began == [f"a {which} cat" for which in ("held", "second", "third", "fourth")] and runner.most == 1
    close_page(studio, visitor)


def test_a_full_queue_refuses_with_429(studio, runner, held_run):
    lines = [knock(studio) for _ in range(3)]
    until(studio, waiting(3))
    with openai.OpenAI(base_url=f"{studio}/v1", api_key="any", max_retries=0) as client:
        with pytest.raises(openai.RateLimitError, match="Too many requests are waiting") as e:
            client.images.generate(prompt="a cat")
    assert e.value.code == "queue_full"
    for line in lines:
        line.close()
    until(studio, waiting(0))


def test_a_closed_connection_that_waits_gives_up_its_place(studio, runner, held_run):
    line = knock(studio, prompt="a cat that left")
    until(studio, waiting(1))
    line.close()
    numbers = until(studio, waiting(0))
    assert total(numbers, "vllm:num_requests_running") == 1, "the run before it goes on"
    runner.gate.set()
    assert held_run.result().status_code == 200 and runner.began == ["a held cat"]


@pytest.mark.parametrize("stream", [False, True])
def test_a_closed_connection_stops_its_run(studio, runner, stream):
    until(studio, idle)
    runner.gate.clear()
    before = total(numbers(studio), "vllm:request_success_total", finished_reason="abort")
    line = knock(studio, stream=stream)
    until(studio, lambda scraped: total(scraped, "vllm:num_requests_running") == 1)
    line.close()
    scraped = until(studio, idle)  # although the gate is closed
    assert total(scraped, "vllm:request_success_total", finished_reason="abort") <= before + 1
    runner.gate.set()
    assert ask(studio).status_code == 200


@pytest.mark.parametrize("stream", [False, True])
def test_a_bug_is_said_to_be_one_and_the_next_request_is_answered(studio, runner, stream, capfd):
    runner.breaks = 4
    try:
        with openai.OpenAI(base_url=f"{studio}/v1", api_key="any", max_retries=0) as client, pytest.raises(openai.APIError) as e:
            events = client.images.generate(prompt="a cat", size="64x64", stream=stream, partial_images=16)
            list(events)
    finally:
        runner.breaks = 0
    assert BUG in str(e.value) and "ZeroDivisionError" not in str(e.value)
    until(studio, idle)
    assert ask(studio).status_code == 200
    assert "ZeroDivisionError: a bug" in capfd.readouterr().err


def test_two_pictures_of_a_request_take_a_turn_each(studio, runner, held_run):
    with ThreadPoolExecutor(2) as pool:
        both = pool.submit(ask, studio, prompt="two dogs", n=2)
        until(studio, waiting(1))
        other = pool.submit(ask, studio, prompt="one bird")
        until(studio, waiting(2))
        runner.gate.set()
        assert len(both.result().json()["data"]) == 2 and other.result().status_code == 200
    assert runner.began == ["a held cat", "two dogs", "one bird", "two dogs"]


def test_a_call_of_an_endpoint_waits_from_its_arrival(studio, runner, held_run):
    """It gets a ticket only when its turn comes."""
    before, name, visitor = numbers(studio), "vllm:request_queue_time_seconds", Visitor(studio)
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(visitor.ask, visitor.handler("generate_image"), ["a waiting cat", "sjdpp", 1, 64, {}])
        until(studio, waiting(1))
        threading.Event().wait(0.3)
        runner.gate.set()
        assert held_run.result().status_code == 200 and '"success":true' in call.result()
    after = until(studio, idle)
    waited, first = (total(after, f"{each}_sum") - total(before, f"{each}_sum") for each in (name, "vllm:time_to_first_token_seconds"))
    assert waited >= 0.3 and first >= waited  # the held request did not wait
    close_page(studio, visitor)


def test_a_client_that_leaves_in_the_middle_of_a_stream_ends_its_run(studio, runner):
    until(studio, idle)
    before = numbers(studio)
    with openai.OpenAI(base_url=f"{studio}/v1", api_key="any", max_retries=0) as client:
        with client.images.generate(prompt="a red apple", size="128x128", stream=True, partial_images=16) as stream:
            first = next(iter(stream))
            assert first.type == "image_generation.partial_image" and first.foretoken["tokens"] < 256
            runner.gate.clear()
    after = until(studio, idle)  # although the gate is closed
    runner.gate.set()
    grown = {why: total(after, ENDED, finished_reason=why) - total(before, ENDED, finished_reason=why) for why in ("stop", "abort")}
    assert sum(grown.values()) == 1 and ask(studio).status_code == 200
