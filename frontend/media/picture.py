"""A first look at a frame of video: is it a picture, which one, and a thumbnail to compare it by.

Nothing is decoded that isn't needed. A JPEG is decoded at a half, a quarter or an eighth of its size, never smaller
than the thumbnail, which costs a fraction of a full decode and gives nearly the same thumbnail.
"""

from __future__ import annotations

import hashlib
import io
import warnings
from typing import Final

import numpy as np
import numpy.typing as npt
import simplejpeg
from PIL import Image

from frontend.media.sniff import HEAD_BYTES, sniff
from omni.contract.errors import InvalidMedia, TooLarge
from omni.contract.pictures import PICTURES, icon_pixels

SIDE: Final = 64
"""Pixels of a thumbnail on each side."""

_ENDS: Final = {"jpeg": b"\xff\xd9", "png": b"IEND"}
"""Bytes without which a file was cut off."""


def look(data: bytes, thumbnail: bool, max_pixels: int) -> tuple[str, npt.NDArray[np.uint8] | None]:
    """`(digest, thumbnail)`: hexadecimal SHA-256 of the file, and RGB uint8 [64, 64, 3] or None when not asked for.

    Raises `InvalidMedia` for what isn't a whole picture and `TooLarge` for one of more than `max_pixels`. Without a
    thumbnail only the first and the last bytes are looked at, and anything in between is left to be found by others.
    """
    format = sniff(data[:HEAD_BYTES])
    if format is None or format not in PICTURES or data.rfind(_ENDS.get(format, b"")) < 0:
        raise InvalidMedia("The frame is not a picture of a known format.")
    small = _decode(data, PICTURES[format], max_pixels) if thumbnail else None
    return hashlib.sha256(data).hexdigest(), small


def _decode(data: bytes, format: str, max_pixels: int) -> npt.NDArray[np.uint8]:
    if icon_pixels(data) > max_pixels:
        raise TooLarge(f"The frame has more than {max_pixels} pixels.")
    if format == "JPEG" and (small := _plain_jpeg(data, max_pixels)) is not None:
        return small
    try:
        with Image.open(io.BytesIO(data), formats=(format,)) as image:
            if image.width * image.height > max_pixels:
                raise TooLarge(f"The frame has more than {max_pixels} pixels.")
            return _thumbnail(image)
    except TooLarge:
        raise
    except Exception:  # a parser at work on bytes that a stranger made may raise anything
        raise InvalidMedia("The frame can't be decoded.") from None


def _plain_jpeg(data: bytes, max_pixels: int) -> npt.NDArray[np.uint8] | None:
    """The thumbnail of an ordinary JPEG, in half the time that Pillow takes; None leaves any other to it."""
    try:
        height, width, colors, _ = simplejpeg.decode_jpeg_header(data)
        if height * width > max_pixels or colors not in ("Gray", "YCbCr", "RGB"):
            return None
        pixels = simplejpeg.decode_jpeg(data, "RGB", fastdct=True, fastupsample=True, min_height=SIDE, min_width=SIDE)
    except ValueError:
        return None
    small: npt.NDArray[np.uint8] = np.asarray(Image.fromarray(pixels).resize((SIDE, SIDE), Image.Resampling.BILINEAR))
    return small


def _thumbnail(image: Image.Image) -> npt.NDArray[np.uint8]:
    """As vLLM-Omni's frame filter makes it: bilinear to 64x64 first, then to RGB."""
    image.draft(None, (SIDE, SIDE))
    return np.asarray(image.resize((SIDE, SIDE), Image.Resampling.BILINEAR).convert("RGB"))


# Pillow only warns of an image between once and twice its own limit; ours is lower, so to us it is an error.
warnings.simplefilter("error", Image.DecompressionBombWarning)
