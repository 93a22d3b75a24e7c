"""Knobs: the settings of a method, their live values, and the snapshot that a method reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.decimals import decimal
from engine.errors import BadKnob


@dataclass(frozen=True)
class Knob:
    """One setting of a method. Sliders, drop-downs, checks, documentation and tests are made from it."""

    name: str
    symbol: str  # the paper's letter, for the slider's label; "" if it has none
    default: float | str
    low: float = 0.0
    high: float = 1.0
    step: float = 0.01
    scale: str = "linear"  # or "log"
    help: str = ""
    choices: tuple[str, ...] = ()  # names; stored as their index
    live: bool = True  # False: read only when the run starts
    when: tuple[str, ...] = ()  # another knob, then the choices of it that enable this one; () = always enabled
    label: str = ""  # its name on the page; "" = the name in words
    words: Mapping[str, str] = field(default_factory=dict, hash=False)  # by choice: its label on the page, if not its name

    def to_number(self, value: float | str) -> float:
        """Converts a value to the number that stores it; raises BadKnob with the range or the choices."""
        if self.choices:
            names = {c.replace("-", " ").replace("_", " "): i for i, c in enumerate(self.choices)}
            key = str(value).strip().lower().replace("-", " ").replace("_", " ")
            if key not in names:
                raise BadKnob(f"{self.name} cannot be '{value}'. Choose one of: {', '.join(self.choices)}.")
            return float(names[key])
        number = decimal(value)
        if number is None:
            raise BadKnob(f"{self.name} needs a number, not '{value}'.")
        if not self.low <= number <= self.high:  # also refuses nan
            raise BadKnob(f"{self.name} = {value} is out of range. Choose {self.low:g} to {self.high:g}.")
        if self.is_whole and number != int(number):
            raise BadKnob(f"{self.name} = {value} is not a whole number. Choose {self.low:g} to {self.high:g}.")
        return float(number)

    @property
    def is_whole(self) -> bool:
        """True if its values are whole numbers."""
        return not self.choices and float(self.step).is_integer() and float(self.low).is_integer()

    def to_value(self, number: float) -> float | str:
        """Converts a stored number to its value: the name of a choice, an int if the step is whole, else a float."""
        if self.choices:
            return self.choices[int(number)]
        return int(number) if self.is_whole else float(number)


class KnobArray:
    """The live values of a run: float64, one slot per knob, one writer, one reader, in any buffer (including shared memory)."""

    def __init__(self, knobs: tuple[Knob, ...], values: Mapping[str, float | str], buffer: np.ndarray | None = None):
        self.knobs = {k.name: (i, k) for i, k in enumerate(knobs)}
        self.check(values)
        self.numbers = np.zeros(max(1, len(knobs))) if buffer is None else buffer
        for i, k in self.knobs.values():
            self.numbers[i] = k.to_number(values.get(k.name, k.default))
        self._read: tuple[bytes, dict[str, float | str]] = b"", {}  # the numbers that were read last, and their values

    def check(self, values: Mapping[str, float | str]) -> None:
        """Raises BadKnob for an unknown name or a value out of range; changes nothing."""
        for name, value in values.items():
            if name not in self.knobs:
                raise BadKnob(f"There is no knob '{name}' here. There are: {', '.join(self.knobs) or 'none'}.")
            self.knobs[name][1].to_number(value)

    def write(self, name: str, value: float | str) -> None:
        """Sets a knob; raises BadKnob for an unknown name or a value out of range."""
        self.check({name: value})
        i, knob = self.knobs[name]
        self.numbers[i] = knob.to_number(value)

    def read(self) -> dict[str, float | str]:
        """The current values by name."""
        return dict(self.snapshot())

    def snapshot(self) -> Mapping[str, float | str]:
        """The current values by name, in the same mapping until one of them changes. Read-only."""
        numbers = self.numbers.tobytes()
        if numbers != self._read[0]:
            values = np.frombuffer(numbers)  # another process may write meanwhile
            self._read = numbers, {name: k.to_value(values[i]) for name, (i, k) in self.knobs.items()}
        return self._read[1]


class Knobs:
    """The values that a method reads, as attributes: one snapshot per step, taken by Run before it advances the method."""

    def __init__(self, values: Mapping[str, float | str]):
        self.take(values)

    def take(self, values: Mapping[str, float | str]) -> None:
        """Replaces all values."""
        self.values = dict(values)
        self.__dict__ = {"values": self.values} | self.values  # plain attributes are faster than __getattr__

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """A value by its name."""
            ...
