"""Writes MP4 files with the encoder of the optional package imageio-ffmpeg."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec
from itertools import chain, repeat
from pathlib import Path

import numpy as np
from PIL import Image

from engine.errors import BadOutput, NotSupported

MISSING = "MP4 needs the package imageio-ffmpeg. Install it: python -m pip install imageio-ffmpeg"
EVEN = 2  # sides must be multiples of this: colours are stored per block


def is_there() -> bool:
    """True if the encoder is installed."""
    return find_spec("imageio_ffmpeg") is not None


def write_mp4(frames: Iterable[Image.Image], path: Path, rate: float, hold: float) -> Path:
    """Writes frames of one size as an MP4 (H.264), which every browser plays.

    rate : frames per second; hold : seconds of the last frame. Raises NotSupported without the encoder, BadOutput if it fails.
    """
    if not is_there():
        raise NotSupported(f"{MISSING}.")
    from imageio_ffmpeg import write_frames  # slow: looks for the encoder

    pictures = iter(frames)
    first = last = next(pictures)
    size = tuple(side + side % EVEN for side in first.size)
    path.unlink(missing_ok=True)
    options = ["-threads", "1", "-movflags", "+faststart", "-preset", "veryfast", "-crf", "20"]
    encoder = write_frames(str(path), size, fps=rate, quality=None, macro_block_size=EVEN, output_params=options)
    try:
        encoder.send(None)
        for picture in chain([first], pictures):
            last = picture
            encoder.send(pixels(picture, size))
        for picture in repeat(last, round(rate * hold)):
            encoder.send(pixels(picture, size))
        encoder.close()
    except OSError as e:
        raise BadOutput(f"The encoder could not write {path.name}. Free some space, or choose another folder.") from e
    if not path.is_file() or not path.stat().st_size:
        raise BadOutput(f"The encoder wrote nothing into {path.name}. Free some space, or choose another folder.")
    return path


def pixels(picture: Image.Image, size: tuple[int, int]) -> np.ndarray:
    """The pixels of a picture, padded at the right and bottom to a size: uint8 [H, W, 3], contiguous."""
    return np.ascontiguousarray(picture.crop((0, 0, *size)).convert("RGB"))
