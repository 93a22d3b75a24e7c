"""The choice between kernel and reference, and its reason."""

from __future__ import annotations

import pytest
import torch

from engine.dispatch import choice
from engine.dispatch.choice import REFERENCE, TRITON, VARIABLE, choose
from engine.errors import NotSupported


@pytest.fixture(autouse=True)
def nothing_is_wished(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable is unset, Triton is there, and it compiles."""
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(choice, "version", lambda: "9.9")
    monkeypatch.setattr(choice, "is_interpreted", lambda: False)


def test_a_gpu_gets_the_kernels_and_a_processor_the_references() -> None:
    assert choose("cuda").name == TRITON and "9.9" in choose("cuda").reason
    assert choose("cpu").name == REFERENCE and "'cpu'" in choose("cpu").reason


def test_tensors_without_values_go_the_way_of_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the nodes of a pass can be counted, also where Triton is not installed."""
    monkeypatch.setattr(choice, "version", lambda: None)
    assert choose("meta").name == TRITON and "no values" in choose("meta").reason
    assert choose("meta", torch.float64).name == REFERENCE


def test_exact_toys_get_the_references() -> None:
    assert choose("cuda", torch.float64).name == REFERENCE and "float64" in choose("cuda", torch.float64).reason


def test_without_triton_a_gpu_gets_the_references(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "version", lambda: None)
    assert choose("cuda") == choice.KernelChoice(REFERENCE, "Triton is not installed.")


def test_a_wish_is_followed_or_refused_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, REFERENCE)
    assert choose("cuda").name == REFERENCE
    monkeypatch.setenv(VARIABLE, TRITON)
    assert choose("cuda").name == TRITON
    with pytest.raises(NotSupported, match=r"does not work here\. The tensors are on the device 'cpu'.* Set it to reference"):
        choose("cpu")
    monkeypatch.setattr(choice, "is_interpreted", lambda: True)
    assert choose("cpu").name == TRITON
    monkeypatch.setenv(VARIABLE, "cuda")
    with pytest.raises(NotSupported, match="FORETOKEN_KERNELS=cuda is unknown"):
        choose("cpu")


def test_the_interpreter_is_used_only_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "is_interpreted", lambda: True)
    assert choose("cpu").name == REFERENCE
