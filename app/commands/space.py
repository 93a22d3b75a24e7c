"""`launch.py space OUT`: makes the folder of a Hugging Face Space; docs/space.md has the commands to publish it."""

from __future__ import annotations

from collections.abc import Sequence

from app.commands.options import CommandParser, add_json, file_path
from app.commands.report import print_json


def parser() -> CommandParser:
    """The parser of the command's options."""
    p = CommandParser("space", "Makes the folder of a Hugging Face Space: code, shipped models, requirements. It uploads nothing.")
    p.add_argument("out", type=file_path, metavar="OUT", help="the folder to make; it must not exist yet, or be empty")
    p.add_argument("--name", default="", metavar="OWNER/NAME", help="name of the Space, for its thumbnail and its README")
    p.add_argument("--hardware", default="cpu-basic", choices=["cpu-basic", "zero-a10g"], help="hardware of the Space (cpu-basic)")
    add_json(p)
    return p


def main(arguments: Sequence[str]) -> int:
    """Makes the folder and prints the commands to publish it."""
    options = parser().read(arguments)
    from app.server.space_folder import make

    files = make(options.out, options.name, options.hardware)
    size = sum((options.out / path).stat().st_size for path in files)
    if options.json:
        print_json({"folder": str(options.out), "files": len(files), "bytes": size})
        return 0
    name = options.name or "OWNER/NAME"
    print(f"{options.out}: {len(files)} files, {size / 1e6:.1f} MB. Publish it, once 'hf auth login' has been run:")
    print(f"  hf repos create {name} --type space --space-sdk gradio")
    print(f"  hf upload {name} {options.out} . --type space")
    return 0
