"""How much media one request may carry."""

from __future__ import annotations

from dataclasses import dataclass

from PIL import Image

MIB = 1 << 20

PIXELS_LIMIT = Image.MAX_IMAGE_PIXELS or 0
"""Pixels beyond which Pillow calls an image a bomb; no `MediaLimits` may allow more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaLimits:
    item_bytes: int = 64 * MIB
    """Largest image, sound or clip, bytes, encoded as it is but out of its base64."""
    request_bytes: int = 256 * MIB
    """Most bytes of all of them together."""
    parts: int = 64
    """Most images, sounds and clips."""
    image_pixels: int = 64_000_000
    """Width times height that the header of an image may announce."""
