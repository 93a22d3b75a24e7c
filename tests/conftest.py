"""Fixtures for every test: no network, no files in the user's own folders, and no silent skip of the page tests in CI."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile

import pytest

# Set before anything imports gradio or huggingface_hub, which read them once.
os.environ.update(GRADIO_ANALYTICS_ENABLED="False", HF_HUB_OFFLINE="1", HF_HUB_DISABLE_TELEMETRY="1")
# Nothing is measured of the machine except where that is what is tested: a test must not depend on how fast it is.
os.environ.update(OMP_NUM_THREADS="1")
if shutil.which("nvidia-smi") is None:  # Triton reads it when a kernel is defined: without a GPU, the tests interpret them
    os.environ.setdefault("TRITON_INTERPRET", "1")


def pytest_addoption(parser: pytest.Parser) -> None:
    """--moments: when tests/app/batch/test_killed.py kills a batch."""
    parser.addoption("--moments", type=int, help="the moments of a run of test_killed.py that failed")


@pytest.fixture(autouse=True)
def own_dtype(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model has its own dtype, as if that had been measured to be the fastest: a test must not depend on the machine."""
    from engine.tuning import prepare

    monkeypatch.setattr(prepare, "choose_dtype", lambda backbone, *arguments: backbone.dtype)


def pytest_configure(config: pytest.Config) -> None:
    """Finished runs of the tests go to a folder that is thrown away, and Ctrl-C reaches those that are tested for it."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # as in the background of a script; the tests of Ctrl-C need it
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.foretoken_home = os.environ["FORETOKEN_HOME"] = tempfile.mkdtemp(prefix="foretoken-tests-")


def pytest_unconfigure(config: pytest.Config) -> None:
    """Throws it away."""
    shutil.rmtree(config.foretoken_home, ignore_errors=True)


# What only `launch.py test --all` runs. The short suite has, of each, the nearest claims that take less.
SLOW = (
    "tests/app/batch/test_killed.py",
    "tests/app/batch/test_with_ray.py",
    "tests/app/live/test_interrupt.py",
    "tests/app/live/test_uploads.py::test_others_go_on_while_a_large_file_is_read",
    "tests/app/server/test_spaces.py::test_the_folder_serves",
    "tests/app/server/test_spaces.py::test_the_page_says",
    "tests/app/test_axe.py",
    "tests/app/test_memory.py",
    "tests/app/test_speed.py",
    "tests/app/test_wrong_values.py::test_junk_to_any_handler",
    "tests/engine/backbones/test_glm_image.py::test_guesses",
    "tests/engine/device/test_apple.py::test_a_run_needs",
    "tests/engine/device/test_far_runs.py",
    "tests/engine/kernels/test_compiled.py",
    "tests/engine/kernels/test_whole_runs.py",
    "tests/engine/transformers/test_trained_text.py",
    "tests/engine/networks/test_hosted_layers.py::test_a_run_has",
    "tests/engine/networks/test_hosted_layers.py::test_a_wrong_layer",
    "tests/engine/networks/test_replay.py::test_every_method",
    "tests/engine/networks/test_replay.py::test_what_a_capture_freezes",
    "tests/engine/networks/test_static_verdict.py::test_it_is_one_graph",
    "tests/engine/networks/test_static_verdict.py::test_nothing_is_left_behind",
    "tests/engine/transformers/test_hub.py::test_transformers_loads_it_from_a_folder_without_our_package",
    "tests/faults/test_cards.py::test_mutants_of_model_folders",
    "tests/faults/test_disk.py",
    "tests/faults/test_threads.py",
    "tests/research/bench/",
    "tests/research/exactness/test_exactness.py::test_every_mutant_is_found",
    "tests/research/exactness/test_mutation_score.py::test_a_mutant_is_detected",
    "tests/research/exactness/test_others.py::test_paths_of_generate_have_the_verdict_of_the_document",
    "tests/research/papers/",
    "tests/research/train/",
    "tests/test_cli_commands.py::test_ctrl_c_in_a_running_benchmark",
    "tests/test_cli_mesh.py::test_bench_prints_the_rows_that_the_weights_allow",
    "tests/test_readme_block.py",
    "tests/test_wheel.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the slow tests. Tests marked gpu are skipped, with the reason, where PyTorch sees none."""
    for item in items:
        if item.nodeid.startswith(SLOW):
            item.add_marker(pytest.mark.slow)
    needy = [item for item in items if item.get_closest_marker("gpu")]
    if not needy:
        return
    import torch

    if not torch.cuda.is_available():
        for item in needy:
            item.add_marker(pytest.mark.skip(reason="PyTorch sees no NVIDIA GPU here"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo):
    """A page test that is skipped in CI is a failure: there a Chromium has been installed, so something is wrong with it."""
    report = yield
    if report.skipped and not hasattr(report, "wasxfail") and os.environ.get("CI") and item.get_closest_marker("browser"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        report.outcome, report.longrepr = "failed", f"In CI the page tests must run, but: {reason}"
    return report


@pytest.fixture
def registered_toy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The toy under its name: one line in the table of backbones."""
    from engine.backbones import BACKBONES

    monkeypatch.setitem(BACKBONES, "toy", "research.exactness.toy")
