"""Files of a finished race for people: the picture four times as large, both sides in one picture, the race as a GIF and as an MP4, and
the folders of its runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from app.live.boards.picture import Board
from app.live.stream import Growth
from app.runs import history
from app.runs.video import write_mp4
from engine.mesh.read import Input
from engine.run import Run

LARGER = 4
MP4 = ".mp4"
SIDE = 384  # pixels of a picture in a GIF
FRAMES = 36  # of a GIF
SIDES = ("right", "left")
RATE = 24  # frames a second of an MP4
COLOURS, CLEAR = 192, 255  # of a GIF; the number of what stays as it was
SECONDS, HOLD = 4.0, 2.0  # that a GIF plays, and that its last frame stays
BAND, GAP = 46, 16  # pixels under and between pictures that are SIDE wide
PAGE, COVER, MUTED = (12, 16, 22), (28, 36, 48), (148, 161, 181)
PLAIN, FAST = (86, 180, 233), (230, 159, 0)  # the sides' colours, Okabe and Ito's
LANES = (FAST, PLAIN, (0, 158, 115), (240, 228, 66))  # those of a race of several
ACROSS = {4: 2}  # pictures per row, by their number; else all

Colours = Sequence[tuple[int, int, int]]


def enlarge(picture: np.ndarray, side: int = 0) -> Image.Image:
    """A picture LARGER times as large, or with this side."""
    whole = Image.fromarray(picture)
    size = (side, side) if side else (whole.width * LARGER, whole.height * LARGER)
    return whole.resize(size, Image.Resampling.LANCZOS)


def write_large(board: Board, settings: dict[str, Any], path: Path) -> Path:
    """Writes the finished picture LARGER times as large, with its settings."""
    enlarge(board.final()).save(path, pnginfo=history.text_of(settings))
    return path


def write_both(boards: Sequence[Board], titles: Sequence[str], settings: dict[str, Any], path: Path) -> Path:
    """Writes both finished pictures side by side, LARGER times as large, with their names and times."""
    pictures = [enlarge(board.final()) for board in boards]
    sheet_at(boards, pictures, titles).save(path, pnginfo=history.text_of(settings))
    return path


def write_race(boards: Sequence[Board], titles: Sequence[str], path: Path, colours: Colours = ()) -> Path:
    """Writes the race as a GIF or, with more frames, as an MP4, by the path's ending: every side on its own clock, in SECONDS for the
    slowest. Raises NotSupported without an encoder. colours: see `sheet`"""
    count = round(RATE * SECONDS) if path.suffix.lower() == MP4 else FRAMES
    return write_film(frames(boards, titles, count, colours), path, count)


def write_film(frames: Iterator[Image.Image], path: Path, count: int) -> Path:
    """Writes `count` frames that play in SECONDS, as a GIF or an MP4; the last one stays for HOLD."""
    return write_mp4(frames, path, count / SECONDS, HOLD) if path.suffix.lower() == MP4 else write_frames(list(frames), path, HOLD)


def frames(boards: Sequence[Board], titles: Sequence[str], count: int, colours: Colours = ()) -> Iterator[Image.Image]:
    """Yield `count` frames of the race, evenly over the clock of the slowest side; the last one is its end."""
    whole = [enlarge(board.final(), SIDE) for board in boards]
    for now in times(boards, count):
        pictures = [uncover(board, picture, now) for board, picture in zip(boards, whole, strict=True)]
        yield sheet_at(boards, pictures, titles, now, colours)


def times(boards: Sequence[Growth], count: int) -> list[float]:
    """Clock in seconds at each of `count` frames of a race; the last one is the end of the slowest run."""
    longest = max(board.run.seconds for board in boards)
    return [longest * number / count for number in range(1, count + 1)]


def write_folders(runs: Sequence[Run], path: Path, shape: Input | None = None) -> Path:
    """Writes the folder of every run, with its trace and its settings, into one ZIP: `launch.py export` reads them. runs: the right one
    first; shape: the cloud or mesh of their prompt"""
    with TemporaryDirectory() as root, ZipFile(path, "w", ZIP_DEFLATED) as file:
        for side, run in zip(SIDES, runs, strict=False):
            folder = Path(root) / f"{side}-{history.file_name(run)}-{run.prompt.seed}"
            folder.mkdir()
            history.write_run(run, folder, shape, ("glb",))
            for each in sorted(folder.iterdir()):
                file.write(each, f"{folder.name}/{each.name}")
    return path


def write_frames(frames: Sequence[Image.Image], path: Path, hold: float = 0.0) -> Path:
    """Writes frames as a GIF of SECONDS that repeats. hold: seconds that the last one stays, 0 = as long as the others"""
    palette = frames[-1].quantize(COLOURS)
    palette.putpalette([*palette.getpalette()[: 3 * COLOURS], *chain(*LANES, MUTED)])  # a title is small, but it has its side's colour
    quantized = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    each = round(1000 * SECONDS / len(frames))
    lasts = [each] * (len(frames) - 1) + [round(1000 * hold) or each]
    first, *others = frame_changes(quantized)
    first.save(path, save_all=True, append_images=others, duration=lasts, loop=0, transparency=CLEAR, disposal=1, optimize=False)
    return path


def frame_changes(images: Sequence[Image.Image]) -> Iterator[Image.Image]:
    """The frames of a GIF, CLEAR where one is as the frame before. Pillow does the same with `optimize`, more slowly."""
    before = None
    for frame in images:
        now = np.asarray(frame)
        changed = Image.fromarray(now if before is None else np.where(now == before, np.uint8(CLEAR), now), "P")
        changed.putpalette(frame.getpalette())
        yield changed
        before = now


def uncover(board: Board, picture: Image.Image, seconds: float) -> Image.Image:
    """The finished picture as far as its tokens were committed after some seconds of its run's clock."""
    known = np.zeros(board.rows * board.columns, np.uint8)
    known[board.run.positions[: token_count_at(board, seconds)]] = 255
    mask = Image.fromarray(known.reshape(board.rows, board.columns)).resize(picture.size, Image.Resampling.NEAREST)
    return Image.composite(picture, Image.new("RGB", picture.size, COVER), mask)


def token_count_at(board: Growth, seconds: float) -> int:
    """Number of tokens that a run had committed after some seconds of its clock."""
    return sum(len(step.tokens) for step in board.run.steps[: step_count_at(board, seconds)])


def step_count_at(board: Growth, seconds: float) -> int:
    """Number of steps that a run had made after some seconds of its clock."""
    if seconds >= board.run.seconds:
        return len(board.run.steps)
    return int(np.searchsorted(np.cumsum([step.seconds for step in board.run.steps]), seconds, side="right"))


def sheet(pictures: Sequence[Image.Image], titles: Sequence[str], captions: Sequence[str], colours: Colours = ()) -> Image.Image:
    """Pictures of one size side by side, four in two rows, each over a line with its title and its caption.

    colours : of the titles; without them the last picture is the accelerated one
    """
    wide, high = pictures[0].size
    unit = wide / SIDE
    band, gap = round(BAND * unit), round(GAP * unit)
    across = ACROSS.get(len(pictures), len(pictures))
    page = Image.new("RGB", (across * (wide + gap) + gap, -(-len(pictures) // across) * (high + gap + band)), PAGE)
    pen, font = ImageDraw.Draw(page), ImageFont.load_default(round(15 * unit))
    shades = colours or [PLAIN] * (len(pictures) - 1) + [FAST]
    for number, (picture, title, words, colour) in enumerate(zip(pictures, titles, captions, shades, strict=True)):
        left, top = gap + number % across * (wide + gap), gap + number // across * (high + gap + band)
        page.paste(picture, (left, top))
        line = top + high + band // 2
        room = wide - pen.textlength(words, font) - gap
        pen.text((left, line), shorten(title, lambda text: pen.textlength(text, font), room), fill=colour, font=font, anchor="lm")
        pen.text((left + wide, line), words, fill=MUTED, font=font, anchor="rm")
    return page


def shorten(text: str, length: Callable[[str], float], room: float) -> str:
    """A text, cut until it has room. length: of a text, in the same unit"""
    cut = len(text)
    while cut and length(text if cut == len(text) else f"{text[:cut].rstrip()}…") > room:
        cut -= 1
    return text if cut == len(text) else f"{text[:cut].rstrip()}…"


def sheet_at(
    boards: Sequence[Growth], pictures: Sequence[Image.Image], titles: Sequence[str], now: float = math.inf, colours: Colours = ()
) -> Image.Image:
    """A sheet of the runs after some seconds of the race, each with its own time and tokens."""
    captions = [f"{min(now, board.run.seconds):.2f} s · {token_count_at(board, now):,} tokens" for board in boards]
    return sheet(pictures, titles, captions, colours)
