"""Forks on the page: a finished run goes on from one of its tokens in another way, beside its old future."""

from __future__ import annotations

import json

import pytest

from app.live.session import Sessions
from app.live.worker import LocalRunner
from app.requests import meshes, pictures
from app.runs import history
from app.ui.tabs.decoder import TabRuns
from app.ui.tabs.forking import read_fork
from engine.cache import KVCache
from engine.core import PLAIN, Prompt
from engine.errors import ForetokenError
from engine.mesh.read import read
from engine.methods import METHODS
from engine.run import generate
from tests.app.boards import CHAIR
from tests.app.race_page import ROWS, RacePage, drag, finish, small
from tests.app.visitor import JUNK

AT = 9  # tokens


@pytest.fixture(scope="module")
def made(picto):
    """A finished run of 64 tokens."""
    return generate(picto, METHODS["sjdpp"], Prompt("a dog", seed=5, size=64), {"verify": "match seed"}).finish()


def request(run, **changes):
    own = {"settings": json.loads(json.dumps(history.describe(run))), "tokens": run.in_order, "at": AT, "token": None}
    return {"fork": {**own, "prompt": run.prompt.text, "seed": 5, "temperature": 1.0, "method": "sjdpp", **changes}}


def fork_of(value, backbone):
    """What the Image tab reads."""

    def read(form, origin):
        return pictures.read_prompt(form.get("prompt"), form.get("seed"), form["settings"], backbone), None

    return read_fork(value, backbone, pictures.settings(backbone), read)


@pytest.mark.parametrize(
    ("changes", "equal"),
    [({}, True), ({"token": 3}, False), ({"seed": 6}, False), ({"prompt": "two cats"}, False), ({"method": PLAIN, "seed": 8}, False)],
    ids=["nothing", "token", "seed", "prompt", "method"],
)
def test_both_futures_share_the_first_tokens_and_the_old_one_is_as_it_was(picto, made, changes, equal):
    value = request(made, temperature=made.backbone.sampling.temperature, **changes)
    fork, prompt, sides = fork_of(value, picto)
    new, old = (run.finish() for run in LocalRunner().start(picto, prompt, sides, fork.before))
    assert old.in_order == made.in_order and old.steps[0].forwards == new.steps[0].forwards == 0
    assert new.in_order[:AT] == made.in_order[:AT] and (new.in_order == made.in_order) is equal
    settings = history.describe(new)
    assert (settings["parent"], settings["at"]) == (history.describe(made)["id"], AT)
    again, *_ = fork_of(request(new) | {"fork": request(new)["fork"] | {"at": 4}}, picto)  # before the changed token
    (repeated,) = LocalRunner().start(picto, again.before, sides[:1])
    assert repeated.finish().in_order == new.in_order or "seed" not in changes


def copied(kv_cache, other, rows):
    """The mutant: the first row in place of each."""
    kv_cache.block[..., : len(rows), :] = other.block[..., :1, :]
    kv_cache.kept = len(rows)


def passes_of(*runs):
    """Passes of each run up to the end of its first step, with which it has read its prefix."""
    counts = [0] * len(runs)

    def count(which):
        def began(sequence):
            forward = sequence.forward

            def counted(draft):
                counts[which] += 1
                return forward(draft)

            sequence.forward = counted

        return began

    for which, run in enumerate(runs):
        run.began = count(which)
        next(run)
    return counts


@pytest.mark.parametrize(
    ("changes", "mutant", "passes", "equal"),
    [({"seed": 6, "token": 3}, None, [1, 0], True), ({"prompt": "two cats"}, None, [1, 1], True), ({"seed": 6}, copied, [1, 0], False)],
    ids=["alike", "another prompt", "mutant"],
)
def test_both_futures_of_one_prompt_read_the_shared_tokens_once(picto, made, monkeypatch, changes, mutant, passes, equal):
    if mutant:
        monkeypatch.setattr(KVCache, "copy", mutant)
    value = request(made, **{"temperature": made.backbone.sampling.temperature, "at": 40, **changes})
    fork, prompt, sides = fork_of(value, picto)
    new, old = LocalRunner().start(picto, prompt, sides, fork.before)
    assert passes_of(new, old) == passes and old.tokens == made.in_order[:40]
    assert (old.finish().in_order == made.in_order) is equal


@pytest.mark.parametrize(
    ("method", "knobs"), [("sjdpp", {}), ("zipar", {"mode": "verified"})]
)  # of the picture: its cache is in the order of positions, or of a wavefront
def test_a_fork_of_the_newest_run_reads_none_of_its_tokens(picto, method, knobs):
    runner, sessions = LocalRunner(), Sessions()
    tab, number = TabRuns(sessions, runner), sessions.enter("visitor")
    assert sessions.begin("visitor", number)
    side = method, {**knobs, "verify": "match seed"}
    (made,) = tab.start("visitor", number, picto, Prompt("dogs", seed=5, size=64), [side])
    for _ in runner.race([made]):
        pass
    sessions.end("visitor", number)
    value, before, tokens = request(made, temperature=picto.sampling.temperature, at=40, seed=6), made.prompt, made.in_order
    del made  # only the visit holds it
    fork, prompt, sides = fork_of(value, picto)
    new, old = runner.start(picto, prompt, [sides[0], (PLAIN, {})], fork.before)
    (again,) = runner.start(picto, before, [sides[0]])
    assert passes_of(new, old) == [0, 0] and again.shares is None  # else each run of a prompt would hold the one before
    assert old.finish().in_order == tokens != new.finish().in_order


@pytest.mark.parametrize("name", ["settings", "tokens", "at", "token", "prompt", "seed", "temperature", "method"])
def test_a_wrong_value_is_refused_with_a_sentence(picto, made, name):
    refused = 0
    for value in JUNK:
        try:
            fork_of(request(made, **{name: value}), picto)
        except ForetokenError as e:
            refused += bool(str(e))
    assert refused >= len(JUNK) // 2
    with pytest.raises(ForetokenError):
        fork_of(None, picto)


@pytest.mark.parametrize(
    ("changes", "equal"), [({}, True), ({"seed": 8, "temperature": 1.5}, False), ({"method": PLAIN, "seed": 8}, False)]
)
def test_both_futures_of_a_mesh_share_its_first_tokens(low, changes, equal):
    shape = read(CHAIR)
    prompt = meshes.read_prompt(shape, 5, {"values": {"face_budget": 24}}, low.sampling)
    made = generate(low, METHODS["sjdpp"], prompt, {"verify": "match seed"}).finish()
    value = request(made, **{"temperature": low.sampling.temperature, **changes})
    value["fork"]["settings"] = json.loads(json.dumps(history.describe(made, shape)))

    def read_own(form, origin):
        assert origin.name == "chair.ply" and origin.up == shape.frame.up
        return meshes.read_prompt(shape, form.get("seed"), form["settings"], low.sampling), shape

    fork, prompt, sides = read_fork(value, low, meshes.settings(low.sampling), read_own)
    new, old = (run.finish() for run in LocalRunner().start(low, prompt, sides, fork.before))
    assert fork.shape is shape and old.tokens == made.tokens and old.steps[0].forwards == new.steps[0].forwards == 0
    assert new.tokens[:AT] == made.tokens[:AT] and (new.tokens == made.tokens) is equal


@pytest.mark.browser
def test_a_mesh_forks_from_a_face_and_both_futures_grow_from_the_shared_ones(open_page):
    tab = RacePage(open_page(), "mesh").open()
    page = tab.page
    tab.small()
    page.wait_for_selector("#mesh-forks .ft-forks:not([hidden])")
    whole = tab.count()
    page.click("#mesh-forks [data-do=fork]")
    assert page.is_hidden("#mesh-forks [name=prompt]") and page.is_disabled("#mesh-forks .ft-fork-go")
    drag(page.locator("#mesh-forks [name=at]"), 12)
    kept = tab.count()  # the view shows the part that is kept
    assert 0 < kept < whole and page.inner_text("#mesh-forks output").endswith(f"up to face {kept + 1}")
    page.click("#mesh-forks [data-do=fork]")
    assert tab.count() == whole
    page.click("#mesh-forks [data-do=fork]")
    page.fill("#mesh-forks [name=seed]", "77")
    page.fill("#mesh-forks [name=temperature]", "1.5")
    page.wait_for_selector("#mesh-download-folders:not([disabled])")  # files and thumbnails that come late close no form
    page.click("#mesh-forks .ft-fork-go")
    page.wait_for_function("document.querySelectorAll('#mesh-forks .ft-fork-tree li').length === 2")
    finish(page, "mesh-")
    assert f"after {kept} shared ones" in page.inner_text("#mesh-verdict .ft-headline")
    assert "as it was" in page.inner_text("#mesh-verdict .ft-detail") and page.inner_text("#mesh [data-side=plain] h3") == "The old future"
    assert page.inner_text("#mesh-forks [aria-current]") == f"face {kept + 1}: seed 77, temperature 1.5"
    assert tab.rows.count() == 3  # two of the race, and the fork's


@pytest.mark.browser
def test_a_fork_and_a_variation_grow_from_a_run_and_a_tree_shows_them(open_page):
    page = open_page()
    small(page)
    page.wait_for_selector("#forks .ft-forks:not([hidden])")
    assert page.is_hidden("#forks .ft-fork-tree")
    page.click("#forks [data-do=fork]")
    drag(page.locator("#forks [name=at]"), 20)
    first = page.locator("#canvas-fast .ft-card").get_attribute("data-pictures")
    page.click("#forks .ft-fork-go")
    page.wait_for_function("document.querySelectorAll('#forks .ft-fork-tree li').length === 2")
    finish(page)
    assert "became others" in page.inner_text("#verdict .ft-headline") and "as it was" in page.inner_text("#verdict .ft-detail")
    assert page.locator("#forks [aria-current]").inner_text() == "row 3, column 5: another token" and first
    page.click("#forks [data-do=vary]")
    assert page.is_hidden("#forks [name=prompt]") and page.locator("#forks [name=at]").input_value() == "16"
    page.click("#forks .ft-fork-go")
    page.wait_for_function("document.querySelectorAll('#forks .ft-fork-tree li li li').length === 1")
    finish(page)
    assert page.locator(ROWS).count() == 4  # two of the race, and one of each fork
    page.locator("#forks .ft-fork-tree button").first.click()
    assert page.inner_text("#canvas-plain h3") == "Plain decoding"
    page.wait_for_function("document.querySelector('#forks [aria-current]').textContent.startsWith('Original')")
    page.locator(ROWS).nth(1).get_by_role("button", name="Restore").click()  # the first fork
    page.wait_for_selector("#forks form:not([hidden]) [data-token][aria-pressed=true]:not(:has-text('as drawn'))")
    assert page.locator("#forks [name=at]").input_value() == "20" and page.is_enabled("#forks .ft-fork-go")
