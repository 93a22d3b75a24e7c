"""Text that is read as a number: ASCII decimals, and only whole ones where a knob counts."""

from __future__ import annotations

import numpy as np
import pytest

from engine.core import Knob
from engine.decimals import decimal, whole_number
from engine.errors import BadKnob

WINDOW = Knob("window", "W", 16, 1, 64, 1)


@pytest.mark.parametrize(("value", "number"), [("7", 7), (" 7.50 ", 7.5), ("-.5e1", -5), (3, 3), (np.float32(0.5), 0.5), (np.int64(4), 4)])
def test_decimals_are_numbers(value, number):
    assert decimal(value) == number


@pytest.mark.parametrize("value", ["", "x", "１２", "٣", "1_000", "nan", "inf", "0x10", "1,5", "1e", True, None, [1], {"a": 1}, 1j])
def test_nothing_else_is_a_number(value):
    assert decimal(value) is None and whole_number(value) is None
    with pytest.raises(BadKnob, match="needs a number"):
        WINDOW.to_number(value)


def test_whole_numbers_of_any_length_are_exact():
    assert whole_number("9223372036854775807") == 2**63 - 1
    assert whole_number("12.0") == 12 and whole_number("-3") == -3
    assert whole_number("1.5") is None and whole_number(float("nan")) is None and whole_number("9" * 5000) is None


def test_a_whole_number_knob_refuses_a_fraction():
    with pytest.raises(BadKnob, match=r"^window = 7\.5 is not a whole number\. Choose 1 to 64\.$"):
        WINDOW.to_number("7.5")
    assert WINDOW.to_value(WINDOW.to_number("7.0")) == 7
    assert Knob("ratio", "", 0.5, 0, 1, 0.1).to_number("0.25") == 0.25
