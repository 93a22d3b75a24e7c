"""/metrics: numbers of the runs, under vLLM's names, in Prometheus's format."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import httpx
import numpy as np
import pytest

from app.live.session import Sessions
from app.requests import pictures
from app.requests.sides import start_values
from app.server.metrics import POSITIONS, Metrics
from engine.diagnostics import per_token
from engine.methods import find
from engine.run import Run, generate
from tests.app.boards import picture_run
from tests.app.server.scraped import idle, numbers, samples, total, until

DECODING = {  # field of a Step: name of its counter
    "drafts": "vllm:spec_decode_num_drafts_total",
    "drafted": "vllm:spec_decode_num_draft_tokens_total",
    "accepted": "vllm:spec_decode_num_accepted_tokens_total",
    "tokens": "vllm:generation_tokens_total",
    "passes": "foretoken:forward_passes_total",
}
BY_PLACE = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
TIMES = ("vllm:time_to_first_token_seconds", "vllm:request_queue_time_seconds", "vllm:e2e_request_latency_seconds")


@pytest.fixture(scope="module")
def studio(open_studio) -> Iterator[str]:
    """A studio without runs."""
    with open_studio() as address:
        yield address


def counts_of(run: Run) -> dict[str, float]:
    """Expected counts of a run, from its steps."""
    accepted = [int((per_token(step, "accepted") == 1).sum()) for step in run.steps]
    return {
        "drafts": sum(step.drafted > 0 for step in run.steps),
        "drafted": sum(step.drafted for step in run.steps),
        "accepted": sum(accepted),
        "tokens": len(run.tokens),
        "passes": run.totals["forwards"],
    }


def test_a_new_studio_has_all_names_and_no_numbers(studio):
    text = httpx.get(f"{studio}/metrics").text
    for name in (*DECODING.values(), BY_PLACE, *TIMES, "vllm:num_requests_running", "vllm:num_requests_waiting"):
        assert f"# TYPE {name} " in text, name
    assert set(numbers(studio).values()) == {0.0}


@pytest.mark.parametrize("method", ["ar", "sjdpp", "adt_tree", "lookup"])
def test_the_counters_are_those_of_the_runs(studio, picto, method):
    before, labels = numbers(studio), {"model_name": "pictogram", "method": method}
    ask = {"prompt": "a red apple", "size": "64x64", "seed": 5, "method": method}
    assert httpx.post(f"{studio}/v1/images/generations", json=ask, timeout=120).status_code == 200
    after = until(studio, idle)
    knobs = start_values(method, picto.suits)[1]
    prompt = pictures.read_prompt("a red apple", 5, {"values": {"size": "64 px"}}, picto)
    expected = counts_of(run := generate(picto, find(method)[0], prompt, knobs).finish())
    grown = {key: total(after, name, **labels) - total(before, name, **labels) for key, name in DECODING.items()}
    assert grown == expected and grown["tokens"] == 64
    places = [total(after, BY_PLACE, **labels, position=str(i)) - total(before, BY_PLACE, **labels, position=str(i)) for i in range(64)]
    assert sum(places) == expected["accepted"] and (method != "sjdpp" or expected["accepted"] > 0)
    first = sum(per_token(step, "accepted")[0] == 1 for step in run.steps if step.drafted)
    assert places[0] == first and total(after, "vllm:request_success_total", finished_reason="stop") >= 1


def test_the_pages_runs_and_both_sides_of_a_comparison_count(studio):
    before = numbers(studio)
    ask = {"prompt": "a red apple", "size": "64x64", "compare": True}
    about = httpx.post(f"{studio}/v1/images/generations", json=ask, timeout=120).json()["data"][0]["foretoken"]
    after = until(studio, idle)
    grown = {m: total(after, DECODING["passes"], method=m) - total(before, DECODING["passes"], method=m) for m in ("ar", "sjdpp")}
    assert grown == {"ar": 64, "sjdpp": about["passes"]}
    for name in TIMES:
        assert total(after, f"{name}_count") - total(before, f"{name}_count") == 1


class Clock:
    """Seconds that pass when they are told to."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_times_are_counted_from_the_request(picto):
    clock = Clock()
    sessions = Sessions(clock)
    metrics = Metrics(sessions.running, sessions.waiting)
    sessions.watch(metrics)
    number = sessions.enter("a")
    clock.now += 3  # it waits
    assert samples(metrics.text())["vllm:num_requests_waiting", frozenset()] == 1
    assert sessions.begin("a", number)
    clock.now += 2  # it warms up
    run = picture_run(picto, "sjdpp")
    sessions.hold("a", number, [run])
    assert samples(metrics.text())["vllm:num_requests_running", frozenset()] == 1
    run.finish()
    clock.now += 10
    sessions.end("a", number)
    numbers = samples(metrics.text())
    assert total(numbers, "vllm:request_queue_time_seconds_sum") == 3
    assert total(numbers, "vllm:e2e_request_latency_seconds_sum") == 15
    assert total(numbers, "vllm:time_to_first_token_seconds_sum") == pytest.approx(5 + run.steps[0].seconds)


def begin() -> tuple[Sessions, Metrics, int]:
    """(sessions, their metrics, ticket of a visitor who has the engine)."""
    sessions = Sessions()
    metrics = Metrics(sessions.running, sessions.waiting)
    sessions.watch(metrics)
    number = sessions.enter("a")
    assert sessions.begin("a", number)
    return sessions, metrics, number


def test_runs_that_follow_each_other_on_a_ticket_count_once_each(picto):
    sessions, metrics, number = begin()
    for seed in range(3):
        sessions.hold("a", number, [picture_run(picto, "sjdpp", seed).finish()])
    sessions.end("a", number)
    numbers = samples(metrics.text())
    assert total(numbers, DECODING["tokens"]) == 3 * 64 and total(numbers, "vllm:request_success_total") == 1


def test_a_stopped_run_is_an_aborted_request(picto):
    sessions, metrics, number = begin()
    run = picture_run(picto, "sjdpp")
    sessions.hold("a", number, [run])
    next(run)
    sessions.stop("a")
    sessions.end("a", number)
    assert total(samples(metrics.text()), "vllm:request_success_total", finished_reason="abort") == 1


def test_places_far_back_have_no_counter_of_their_own(picto):
    metrics = Metrics(lambda: 0, lambda: 0)
    run = generate(picto, find("ar")[0], pictures.read_prompt("a cat", 0, {"values": {"size": "128 px"}}, picto)).finish()
    step = run.steps[0]
    step.tokens, step.positions, step.drafted = run.tokens, run.positions, 255  # as if it had committed everything
    step.trace = type(step.trace)(accepted=np.ones(256))
    run.steps = [step]
    metrics.count([run])
    numbers = samples(metrics.text())
    assert total(numbers, DECODING["accepted"]) == 256 and total(numbers, BY_PLACE) == POSITIONS


def test_a_scrape_never_waits_for_itself(picto):
    """Runs are counted while the sessions' lock is held, and a scrape calls the sessions: there is no deadlock."""
    sessions = Sessions()
    metrics = Metrics(sessions.running, sessions.waiting)
    seen: list[bytes] = []
    scraping = threading.Thread(target=lambda: seen.append(metrics.text()), daemon=True)
    run = picture_run(picto, "sjdpp").finish()
    with sessions._lock:
        scraping.start()
        metrics.count([run])
    scraping.join(30)
    assert b"vllm:num_requests_running 0.0" in seen[0] and b"_created" not in seen[0]


def test_a_label_is_read_as_it_was_written(picto):
    metrics = Metrics(lambda: 0, lambda: 0)
    for odd in ('a "name"', "back\\slash", "two\nlines", "ü"):
        metrics.tokens.labels(odd, "ar").inc()
    numbers = samples(metrics.text())
    names = {dict(labels)["model_name"] for name, labels in numbers if name == DECODING["tokens"]}
    assert names == {'a "name"', "back\\slash", "two\nlines", "ü"}
