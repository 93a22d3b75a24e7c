"""A picture as a file: PNG, JPEG or WebP."""

from __future__ import annotations

import io
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from PIL import Image

from app.runs import history


@dataclass(frozen=True)
class PictureFormat:
    """name : OpenAI's, in lower case; lossless : it has no quality setting; options : for Pillow"""

    name: str
    lossless: bool = False
    options: dict[str, Any] = field(default_factory=dict)

    def with_quality(self, quality: int) -> PictureFormat:
        """The lossy variant with a quality from 0, the smallest file, to 100."""
        return replace(self, options=self.options | {"quality": quality, "lossless": False})

    def write(self, picture: np.ndarray, settings: dict[str, Any] | None = None) -> bytes:
        """The file content of a picture, uint8 [H, W, 3]. settings : stored in a PNG, so that the page can restore them"""
        file = io.BytesIO()
        info = {"pnginfo": history.text_of(settings)} if settings is not None and self.name == "png" else {}
        Image.fromarray(picture).save(file, self.name, **self.options, **info)
        return file.getvalue()


PNG = PictureFormat("png", lossless=True)
JPEG = PictureFormat("jpeg", options={"quality": 100, "subsampling": 0})  # subsampling would blur the colours of small pictures
WEBP = PictureFormat("webp", options={"lossless": True})
FORMATS = {"png": PNG, "jpeg": JPEG, "jpg": JPEG, "webp": WEBP}
