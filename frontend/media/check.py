"""Whether some bytes may pass as an image, a sound or a clip. Looks at headers only."""

from __future__ import annotations

import io
import warnings
from collections.abc import Mapping

from PIL import Image

from frontend.media.limits import MediaLimits
from frontend.media.sniff import HEAD_BYTES, KINDS, sniff
from omni.contract.errors import InvalidMedia, TooLarge
from omni.contract.job import MediaKind
from omni.contract.pictures import PICTURES, icon_pixels

_A: Mapping[str, str] = {"image": "an image", "audio": "a sound", "video": "a video"}


def check(kind: MediaKind, data: bytes, param: str, limits: MediaLimits) -> None:
    """Raises `InvalidMedia` when `data` isn't a known format of `kind`, `TooLarge` when it is over a limit."""
    if len(data) > limits.item_bytes:
        raise too_large(param, limits)
    if not data:
        raise InvalidMedia(f"{param} is empty.", param=param)
    format = sniff(data[:HEAD_BYTES])
    if format is None:
        raise InvalidMedia(f"{param} is not {_A[kind]} of a known format.", param=param)
    if kind not in KINDS[format]:
        raise InvalidMedia(f"{param} must be {_A[kind]}, but holds {_A[max(KINDS[format])]}.", param=param)
    if kind == "image":
        _check_image(format, data, param, limits)


def too_large(param: str, limits: MediaLimits) -> TooLarge:
    return TooLarge(f"{param} is larger than the {limits.item_bytes} bytes that an item may have.", param=param)


def _check_image(format: str, data: bytes, param: str, limits: MediaLimits) -> None:
    if format not in PICTURES:
        raise InvalidMedia(f"{param}: {format} images can't be read; send PNG, JPEG or WebP.", param=param)
    if icon_pixels(data) > limits.image_pixels:
        raise _too_many_pixels(param, limits)
    try:
        with Image.open(io.BytesIO(data), formats=(PICTURES[format],)) as image:
            width, height = image.size
    except (Image.DecompressionBombWarning, Image.DecompressionBombError):
        raise _too_many_pixels(param, limits) from None
    except Exception:  # a parser at work on bytes that a stranger made may raise anything
        raise InvalidMedia(f"{param}: the header of the image is broken.", param=param) from None
    if width * height > limits.image_pixels:
        raise _too_many_pixels(param, limits)


def _too_many_pixels(param: str, limits: MediaLimits) -> TooLarge:
    return TooLarge(f"{param} has more than the {limits.image_pixels} pixels that an image may have.", param=param)


# Pillow only warns of an image between once and twice its own limit; ours is lower, so to us it is an error.
warnings.simplefilter("error", Image.DecompressionBombWarning)
