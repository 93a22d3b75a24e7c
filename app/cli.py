"""Command line: dispatches to a command and maps errors to exit codes.

A bad value prints one sentence on stderr and exits with 2; Ctrl-C exits with 130; a bug keeps its traceback. With --json the last line of
stdout is one JSON value. Each command is a file in app/commands/ with its own parser. Those in RESEARCH are files in research/commands/,
imported only by name.
"""

from __future__ import annotations

import importlib
import io
import sys
from collections.abc import Sequence

COMMANDS = {
    "studio": "open the studio in the browser (the default)",
    "image": "generate a picture from a prompt",
    "mesh": "generate a mesh from a point cloud or another mesh",
    "batch": "make many pictures or meshes, resumable",
    "verify": "test the claims of exactness on the toy model",
    "bench": "measure the speed of methods",
    "papers": "list the experiments of the five papers, or run one",
    "train": "run a training recipe",
    "models": "list, import and remove models",
    "export": "replay saved runs in one HTML file, a GIF or an MP4",
    "space": "make the folder of a Hugging Face Space",
    "doctor": "check this machine: versions, devices, browser, font",
    "test": "run the test suite (options go to pytest)",
}

RESEARCH = ("verify", "bench", "papers", "train")


def main(argv: Sequence[str]) -> int:
    """Runs one command; returns the exit code."""
    from engine.errors import ForetokenError

    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a file name may hold characters that the terminal cannot show
    try:
        return run(list(argv) or ["studio"])
    except ForetokenError as e:
        print(printable(str(e)), file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def main_from_command_line() -> None:
    """Entry point of the `foretoken` script."""
    sys.exit(main(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Dispatches to the command; options without a command go to the studio. Raises ForetokenError."""
    from engine.errors import ForetokenError

    if arguments[0] in ("-h", "--help"):
        print(overview())
        return 0
    if arguments[0].startswith("-"):
        arguments.insert(0, "studio")
    command, *rest = arguments
    if command not in COMMANDS:
        raise ForetokenError(f"There is no command '{command}'. There are: {', '.join(COMMANDS)}.")
    room = "research" if command in RESEARCH else "app"
    return importlib.import_module(f"{room}.commands.{command}").main(rest)


def overview() -> str:
    """The text of --help: one line per command."""
    lines = [f"  {name:8} {about}" for name, about in COMMANDS.items()]
    return "\n".join(["usage: launch.py COMMAND [OPTION ...]", "", *lines, "", "Each command has its own --help."])


def printable(text: str) -> str:
    """The text with unpaired surrogates escaped, because command lines may contain them and they cannot be printed."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


if __name__ == "__main__":
    main_from_command_line()
