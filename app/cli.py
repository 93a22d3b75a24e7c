"""The command line: finds the command, and turns what goes wrong into an exit code.

A bad value is one sentence on stderr and exit code 2; Ctrl-C is 130; a bug keeps its traceback. With --json the last line of stdout is one
JSON value. Each command is a file of app/commands/ with a parser of its own.
"""

from __future__ import annotations

import importlib
import io
import sys
from collections.abc import Sequence

COMMANDS = {  # each is app/commands/NAME.py
    "studio": "open the page (the default)",
    "image": "one picture from a prompt",
    "mesh": "a mesh from a point cloud or from another mesh",
    "verify": "the table of exactness, on the toy",
    "bench": "tables of speed",
    "train": "a training recipe",
    "models": "what can be loaded",
    "doctor": "what this machine offers",
    "test": "the whole test suite (options go to pytest)",
}


def main(argv: Sequence[str]) -> int:
    """Runs one command; returns the exit code."""
    from engine.errors import ForetokenError

    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a file's name may hold what the terminal cannot show
    try:
        return run(list(argv) or ["studio"])
    except ForetokenError as e:
        print(printable(str(e)), file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def main_from_command_line() -> None:
    """The `foretoken` script."""
    sys.exit(main(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Finds the command and runs it; options alone belong to the studio. Raises ForetokenError."""
    from engine.errors import ForetokenError

    if arguments[0] in ("-h", "--help"):
        print(overview())
        return 0
    if arguments[0].startswith("-"):
        arguments.insert(0, "studio")
    command, *rest = arguments
    if command not in COMMANDS:
        raise ForetokenError(f"There is no command '{command}'. There are: {', '.join(COMMANDS)}.")
    return importlib.import_module(f"app.commands.{command}").main(rest)


def overview() -> str:
    """The commands, a line each."""
    lines = [f"  {name:8} {about}" for name, about in COMMANDS.items()]
    return "\n".join(["usage: launch.py COMMAND [OPTION ...]", "", *lines, "", "Each command knows --help."])


def printable(text: str) -> str:
    """The same where every character can be written: halves of characters, which a command line may hold, as escapes."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


if __name__ == "__main__":
    main_from_command_line()
