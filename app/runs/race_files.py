"""Downloads of a finished race: the picture enlarged four times, both sides in one picture, the race as GIF and MP4, and the folders of
its runs."""

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
from engine.run import Run, speedup

LARGER = 4
MP4 = ".mp4"
SIDE = 384  # pixels of a picture in a GIF
FRAMES = 36  # of a GIF
SIDES = ("right", "left")
RATE = 24  # frames per second of an MP4
COLOURS, CLEAR = 192, 255  # of a GIF; palette index of unchanged pixels
SECONDS, HOLD = 4.0, 2.0  # duration of a GIF, and of its last frame
BAND, GAP = 46, 16  # pixels below and between pictures SIDE pixels wide
PAGE, COVER, MUTED, CLEAR_TEXT = (12, 16, 22), (28, 36, 48), (148, 161, 181), (230, 236, 244)
PLAIN, FAST = (86, 180, 233), (230, 159, 0)  # colours of the sides, from Okabe and Ito
LANES = (FAST, PLAIN, (0, 158, 115), (240, 228, 66))  # colours of a race of up to four runs
ACROSS = {4: 2}  # pictures per row by number of pictures; default: one row

Colours = Sequence[tuple[int, int, int]]
Heading = tuple[str, str]  # texts above the pictures, on the left and on the right
NO_HEADING = ("", "")


def enlarge(picture: np.ndarray, side: int = 0) -> Image.Image:
    """Resizes a picture to LARGER times its size, or to a square of `side` pixels."""
    whole = Image.fromarray(picture)
    size = (side, side) if side else (whole.width * LARGER, whole.height * LARGER)
    return whole.resize(size, Image.Resampling.LANCZOS)


def write_large(board: Board, settings: dict[str, Any], path: Path) -> Path:
    """Writes the finished picture, enlarged LARGER times, with its settings."""
    enlarge(board.final()).save(path, pnginfo=history.text_of(settings))
    return path


def write_both(boards: Sequence[Board], titles: Sequence[str], settings: dict[str, Any], path: Path) -> Path:
    """Writes both finished pictures side by side, enlarged LARGER times, with titles and times."""
    pictures = [enlarge(board.final()) for board in boards]
    sheet_at(boards, pictures, titles).save(path, pnginfo=history.text_of(settings))
    return path


def write_race(boards: Sequence[Board], titles: Sequence[str], path: Path, colours: Colours = ()) -> Path:
    """Writes the race as a GIF or MP4, by the path's suffix, each side on its own clock; the slowest takes SECONDS. Raises NotSupported
    without an encoder. colours : see `sheet`"""
    count = round(RATE * SECONDS) if path.suffix.lower() == MP4 else FRAMES
    return write_film(frames(boards, titles, count, colours), path, count)


def write_film(frames: Iterator[Image.Image], path: Path, count: int) -> Path:
    """Writes `count` frames as a GIF or MP4 of SECONDS; the last one stays for HOLD seconds."""
    return write_mp4(frames, path, count / SECONDS, HOLD) if path.suffix.lower() == MP4 else write_frames(list(frames), path, HOLD)


def frames(boards: Sequence[Board], titles: Sequence[str], count: int, colours: Colours = ()) -> Iterator[Image.Image]:
    """Yields `count` frames of the race, evenly spaced over the time of the slowest side."""
    whole, heading = [enlarge(board.final(), SIDE) for board in boards], heading_of(boards)
    for now in times(boards, count):
        pictures = [uncover(board, picture, now) for board, picture in zip(boards, whole, strict=True)]
        yield sheet_at(boards, pictures, titles, now, colours, heading)


def times(boards: Sequence[Growth], count: int) -> list[float]:
    """Time in seconds of each of `count` frames of a race; the last is the end of the slowest run."""
    longest = max(board.run.seconds for board in boards)
    return [longest * number / count for number in range(1, count + 1)]


def write_folders(runs: Sequence[Run], path: Path, shape: Input | None = None) -> Path:
    """Writes the folders of all runs, with traces and settings, into one ZIP for `launch.py export`. runs : the right one first; shape :
    cloud or mesh of their prompt"""
    with TemporaryDirectory() as root, ZipFile(path, "w", ZIP_DEFLATED) as file:
        for side, run in zip(SIDES, runs, strict=False):
            folder = Path(root) / f"{side}-{history.file_name(run)}-{run.prompt.seed}"
            folder.mkdir()
            history.write_run(run, folder, shape, ("glb",))
            for each in sorted(folder.iterdir()):
                file.write(each, f"{folder.name}/{each.name}")
    return path


def write_frames(frames: Sequence[Image.Image], path: Path, hold: float = 0.0) -> Path:
    """Writes frames as a repeating GIF of SECONDS. hold : seconds of the last frame, 0 = as long as the others"""
    palette = frames[-1].quantize(COLOURS)
    palette.putpalette([*palette.getpalette()[: 3 * COLOURS], *chain(*LANES, MUTED)])  # titles are small but need exact colours
    quantized = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    each = round(1000 * SECONDS / len(frames))
    lasts = [each] * (len(frames) - 1) + [round(1000 * hold) or each]
    first, *others = frame_changes(quantized)
    first.save(path, save_all=True, append_images=others, duration=lasts, loop=0, transparency=CLEAR, disposal=1, optimize=False)
    return path


def frame_changes(images: Sequence[Image.Image]) -> Iterator[Image.Image]:
    """Yields the frames of a GIF with CLEAR at unchanged pixels. Pillow's `optimize` does the same more slowly."""
    before = None
    for frame in images:
        now = np.asarray(frame)
        changed = Image.fromarray(now if before is None else np.where(now == before, np.uint8(CLEAR), now), "P")
        changed.putpalette(frame.getpalette())
        yield changed
        before = now


def uncover(board: Board, picture: Image.Image, seconds: float) -> Image.Image:
    """The finished picture with only the tokens committed after some seconds of its run's clock."""
    known = np.zeros(board.rows * board.columns, np.uint8)
    known[board.run.positions[: token_count_at(board, seconds)]] = 255
    mask = Image.fromarray(known.reshape(board.rows, board.columns)).resize(picture.size, Image.Resampling.NEAREST)
    return Image.composite(picture, Image.new("RGB", picture.size, COVER), mask)


def token_count_at(board: Growth, seconds: float) -> int:
    """Number of tokens committed after some seconds of a run's clock."""
    return sum(len(step.tokens) for step in board.run.steps[: step_count_at(board, seconds)])


def step_count_at(board: Growth, seconds: float) -> int:
    """Number of steps finished after some seconds of a run's clock."""
    if seconds >= board.run.seconds:
        return len(board.run.steps)
    return int(np.searchsorted(np.cumsum([step.seconds for step in board.run.steps]), seconds, side="right"))


def sheet(
    pictures: Sequence[Image.Image],
    titles: Sequence[str],
    captions: Sequence[str],
    colours: Colours = (),
    heading: tuple[str, str] = ("", ""),
) -> Image.Image:
    """Draws pictures of one size side by side, four in two rows, each above its title and caption.

    colours : of the titles; default: the last picture is the accelerated one
    """
    wide, high = pictures[0].size
    unit = wide / SIDE
    band, gap = round(BAND * unit), round(GAP * unit)
    across = ACROSS.get(len(pictures), len(pictures))
    head = band - gap if any(heading) else 0
    page = Image.new("RGB", (across * (wide + gap) + gap, head + -(-len(pictures) // across) * (high + gap + band)), PAGE)
    pen, font = ImageDraw.Draw(page), ImageFont.load_default(round(15 * unit))
    shades = colours or [PLAIN] * (len(pictures) - 1) + [FAST]
    for number, (picture, title, words, colour) in enumerate(zip(pictures, titles, captions, shades, strict=True)):
        left, top = gap + number % across * (wide + gap), head + gap + number // across * (high + gap + band)
        page.paste(picture, (left, top))
        line = top + high + band // 2
        room = wide - pen.textlength(words, font) - gap
        pen.text((left, line), shorten(title, lambda text: pen.textlength(text, font), room), fill=colour, font=font, anchor="lm")
        pen.text((left + wide, line), words, fill=MUTED, font=font, anchor="rm")
    if head:
        room = page.width - 3 * gap - pen.textlength(heading[1], font)
        text = shorten(heading[0], lambda text: pen.textlength(text, font), room)
        pen.text((gap, (head + gap) // 2), text, fill=CLEAR_TEXT, font=font, anchor="lm")
        pen.text((page.width - gap, (head + gap) // 2), heading[1], fill=FAST, font=font, anchor="rm")
    return page


def shorten(text: str, length: Callable[[str], float], room: float) -> str:
    """Shortens a text until it fits. length : returns the length of a text, in the unit of `room`"""
    cut = len(text)
    while cut and length(text if cut == len(text) else f"{text[:cut].rstrip()}…") > room:
        cut -= 1
    return text if cut == len(text) else f"{text[:cut].rstrip()}…"


def sheet_at(
    boards: Sequence[Growth], pictures: Sequence[Image.Image], titles: Sequence[str], now: float = math.inf, colours: Colours = (),
    heading: Heading = NO_HEADING,
) -> Image.Image:  # fmt: skip
    """Sheet of the runs after some seconds of the race, captioned with times and token counts."""
    captions = [f"{min(now, board.run.seconds):.2f} s · {token_count_at(board, now):,} tokens" for board in boards]
    return sheet(pictures, titles, captions, colours, heading)


def heading_of(boards: Sequence[Growth]) -> Heading:
    """Heading of a film: the prompt, and the speed-up of the last board of two over the first one; a race of uploaded runs has only the
    prompt."""
    runs = [board.run for board in boards]
    if not all(isinstance(run, Run) for run in runs):
        return " ".join(str(runs[-1].settings.get("prompt") or "").split()), ""
    of_two = len(runs) == 2 and all(run.finished for run in runs)
    speed = f"{speedup(runs[:1], runs[1:]):.1f}× as fast" if of_two else ""
    return runs[-1].prompt.text or f"Foretoken, {runs[-1].backbone.name}", speed
