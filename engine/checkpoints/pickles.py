"""A reader of pickles that calls nothing: the part of the pickle language that PyTorch writes for tensors, with every name on a list.

`pickle.load` calls whatever a file names. Here an opcode outside OPCODES, or a name outside TENSORS, STORAGES and INERT, is refused
before anything is made of it, and the names on the lists are never imported: a tensor becomes a `Stored`, which says where its numbers lie.
The memo is a dictionary, and texts are short, so a small file cannot ask for much memory.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch

MOST_STEPS = 20_000_000  # opcodes of one pickle
LONGEST = 2**20  # bytes of one argument
STORAGES = {
    "torch.FloatStorage": torch.float32, "torch.HalfStorage": torch.float16, "torch.BFloat16Storage": torch.bfloat16,
    "torch.DoubleStorage": torch.float64, "torch.LongStorage": torch.int64, "torch.IntStorage": torch.int32,
    "torch.ShortStorage": torch.int16, "torch.CharStorage": torch.int8, "torch.ByteStorage": torch.uint8, "torch.BoolStorage": torch.bool,
}  # fmt: skip
TENSORS = ("torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_tensor", "torch._utils._rebuild_parameter")
CONTAINERS = ("collections.OrderedDict", "torch.Size")
INERT = frozenset({  # what training scripts leave beside their tensors; each is kept as its name
    "argparse.Namespace", "torch.device", "_codecs.encode", "numpy.dtype", "numpy.core.multiarray.scalar",
    "numpy._core.multiarray.scalar", "pytorch_lightning.callbacks.model_checkpoint.ModelCheckpoint",
    "pytorch_lightning.utilities.parsing.AttributeDict", "lightning_fabric.utilities.data.AttributeDict",
    *(str(dtype) for dtype in set(STORAGES.values())),
})  # fmt: skip


class WouldRun(ValueError):
    """The pickle names something that is not a tensor; loading it with pickle would import and call it."""


class Stream(Protocol):
    """A file or bytes, read from the start of a pickle to its end."""

    def read(self, count: int = -1, /) -> bytes: ...
    def readline(self) -> bytes: ...


@dataclass(frozen=True)
class Global:
    """A name that a pickle refers to, as text; nothing is imported."""

    name: str


@dataclass(frozen=True)
class Storage:
    """A run of numbers in the file: its key and how many there are."""

    dtype: torch.dtype
    key: str
    count: int


@dataclass(frozen=True)
class Stored:
    """A tensor that has not been read: a view of a storage. offset and stride are in numbers."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]


class _Short:
    """A stream that refuses arguments longer than any that PyTorch writes, before they are read."""

    def __init__(self, stream: Stream):
        self._stream = stream

    def read(self, count: int) -> bytes:
        if not 0 <= count <= LONGEST:
            raise ValueError(f"an argument of {count:,} bytes")
        return self._stream.read(count)

    def readline(self) -> bytes:
        return self._stream.readline(LONGEST)  # type: ignore[call-arg]


def unpickled(stream: Stream) -> Any:
    """The value of one pickle: numbers, texts, lists, tuples, dicts, `Stored` tensors, and `Global`s for what was left out.

    Raises WouldRun for a name that is on no list, ValueError for a damaged pickle and for opcodes that PyTorch does not write.
    """
    machine = _Machine()
    steps = 0
    try:
        for opcode, argument, _ in pickletools.genops(_Short(stream)):
            steps += 1
            if steps > MOST_STEPS:
                raise ValueError(f"more than {MOST_STEPS:,} steps")
            if opcode.name == "STOP":
                return machine.pop()
            machine.step(opcode.name, argument)
    except (IndexError, TypeError, KeyError, UnicodeDecodeError) as e:
        raise ValueError(f"its pickle is damaged ({type(e).__name__})") from e
    raise ValueError("its pickle has no end")


class _Machine:
    """The stack, the marks and the memo of a pickle."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}

    def step(self, name: str, argument: Any) -> None:
        """Does one opcode."""
        if name in CONSTANTS:
            self.stack.append(argument)
        elif name in FRESH:
            self.stack.append(FRESH[name]())
        elif name in KEPT:
            self.memo[len(self.memo) if argument is None else argument] = self.stack[-1]
        elif name in FOUND:
            self.stack.append(self.memo[argument])
        elif name in STEPS:
            STEPS[name](self, argument)
        elif name not in ("PROTO", "FRAME"):
            raise ValueError(f"its pickle uses {name}, which PyTorch does not write for tensors")

    def pop(self) -> Any:
        """The topmost value, which must lie above the last mark."""
        if len(self.stack) <= (self.marks[-1] if self.marks else 0):
            raise IndexError("nothing above the mark")
        return self.stack.pop()

    def to_mark(self) -> list[Any]:
        """All values above the last mark."""
        mark = self.marks.pop()
        found, self.stack[mark:] = self.stack[mark:], []
        return found

    def named(self, text: str) -> None:
        """Puts a name on the stack; raises WouldRun if it is on no list."""
        if text not in STORAGES and text not in TENSORS and text not in CONTAINERS and text not in INERT:
            raise WouldRun(text)
        self.stack.append(Global(text))

    def fill(self, pairs: list[Any]) -> None:
        """SETITEMS: keys and values in turns, into the dict below them."""
        target = self.stack[-1]
        if isinstance(target, dict):
            target.update(zip(pairs[::2], pairs[1::2], strict=True))
        elif not isinstance(target, Global):
            raise TypeError("items of no dict")

    def extend(self, values: list[Any]) -> None:
        """APPENDS."""
        target = self.stack[-1]
        if isinstance(target, list):
            target.extend(values)
        elif not isinstance(target, Global):
            raise TypeError("elements of no list")

    def call(self) -> None:
        """REDUCE and NEWOBJ: makes a description of what the name stands for."""
        arguments, what = self.pop(), self.pop()
        if not isinstance(what, Global) or not isinstance(arguments, tuple):
            raise TypeError("a call of no name")
        self.stack.append(made(what, arguments))

    def build(self) -> None:
        """BUILD: leaves out the state of an object, such as the versions that modules write beside their tensors."""
        self.pop()
        if not isinstance(self.stack[-1], dict | Global):
            raise TypeError("a state of no object")

    def persistent(self) -> None:
        """BINPERSID: ("storage", type, key, device, count[, view])."""
        kind, of, key, _, count, *view = self.pop()
        if kind != "storage" or not isinstance(of, Global) or any(view):
            raise TypeError("a reference to no storage")
        self.stack.append(Storage(STORAGES[of.name], str(key), whole(count)))


def made(what: Global, arguments: tuple[Any, ...]) -> Any:
    """What a call stands for."""
    if what.name == "collections.OrderedDict":
        return dict(*arguments)
    if what.name == "torch.Size":
        return tuple(arguments[0])
    if what.name == "torch._utils._rebuild_parameter":
        if not isinstance(arguments[0], Stored):
            raise TypeError("a parameter of no tensor")
        return arguments[0]
    if what.name in TENSORS:
        storage, offset, shape, stride = arguments[:4]
        if not isinstance(storage, Storage) or len(shape) != len(stride):
            raise TypeError("a tensor of no storage")
        return Stored(storage, whole(offset), tuple(map(whole, shape)), tuple(map(whole, stride)))
    return what


def whole(value: Any) -> int:
    """A count, which is never negative."""
    if type(value) is not int or not 0 <= value < 2**62:
        raise TypeError(f"{str(value)[:20]!r} is no count")
    return value


def _constant(value: Any) -> Callable[[_Machine, Any], None]:
    return lambda machine, _: machine.stack.append(value)


def _together(count: int) -> Callable[[_Machine, Any], None]:
    """The last `count` values as a tuple."""
    return lambda machine, _: machine.stack.append(tuple([machine.pop() for _ in range(count)][::-1]))


CONSTANTS = frozenset({
    "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "BINUNICODE", "SHORT_BINUNICODE", "BINBYTES", "SHORT_BINBYTES", "SHORT_BINSTRING",
})  # fmt: skip
FRESH: dict[str, Callable[[], Any]] = {"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple}
KEPT = frozenset({"BINPUT", "LONG_BINPUT", "MEMOIZE"})
FOUND = frozenset({"BINGET", "LONG_BINGET"})
STEPS: dict[str, Callable[[_Machine, Any], None]] = {
    "NONE": _constant(None),
    "NEWTRUE": _constant(True),
    "NEWFALSE": _constant(False),
    "MARK": lambda machine, _: machine.marks.append(len(machine.stack)),
    "TUPLE": lambda machine, _: machine.stack.append(tuple(machine.to_mark())),
    "TUPLE1": _together(1),
    "TUPLE2": _together(2),
    "TUPLE3": _together(3),
    "SETITEM": lambda machine, _: machine.fill([machine.pop(), machine.pop()][::-1]),
    "SETITEMS": lambda machine, _: machine.fill(machine.to_mark()),
    "APPEND": lambda machine, _: machine.extend([machine.pop()]),
    "APPENDS": lambda machine, _: machine.extend(machine.to_mark()),
    "GLOBAL": lambda machine, argument: machine.named(argument.replace(" ", ".")),
    "STACK_GLOBAL": lambda machine, _: machine.named(".".join(str(part) for part in [machine.pop(), machine.pop()][::-1])),
    "REDUCE": lambda machine, _: machine.call(),
    "NEWOBJ": lambda machine, _: machine.call(),
    "BUILD": lambda machine, _: machine.build(),
    "BINPERSID": lambda machine, _: machine.persistent(),
}
