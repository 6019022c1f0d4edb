"""Images: bytes to RGB."""

from __future__ import annotations

from io import BytesIO
from typing import Final

import numpy as np
import numpy.typing as npt
from PIL import ExifTags, Image, features

from omni.contract.errors import InvalidMedia, TooLarge
from omni.contract.pictures import PICTURES, icon_pixels
from omni.stages.media.clock import timed
from omni.stages.media.limits import MediaLimits, decoding

FORMATS: Final = tuple(name for name in PICTURES.values() if name != "AVIF" or features.check("avif"))
"""What is opened at all."""

SLOW_PIXELS: Final = 1_000_000
"""Most pixels of what Pillow decodes in Python, such as QOI and run-length coded BMP: seconds for a million of them."""

_UPRIGHT: Final = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""What undoes each value of the EXIF tag Orientation (EXIF 2.32, tag 274); 1 is upright."""


@timed("image")
def decode_image(data: bytes, limits: MediaLimits | None = None, param: str = "") -> npt.NDArray[np.uint8]:
    """RGB uint8 [height, width, 3]: upright, the first frame of an animation, what is see-through over white.

    Raises `TooLarge` from the header alone, before any pixel is decoded, and `InvalidMedia` for anything that isn't
    a whole image of a known format. Both name `param`.
    """
    limits = limits or MediaLimits()
    if not data:
        raise InvalidMedia("The image is empty.", param=param)
    with decoding("image", param):
        if icon_pixels(data) > limits.image_pixels:
            raise TooLarge(f"The image has more than {limits.image_pixels} pixels.", param=param)
        try:
            opened = Image.open(BytesIO(data), formats=FORMATS)
        except (Image.DecompressionBombError, Image.DecompressionBombWarning):
            # Pillow's own limit, 179 million pixels, and its warning at half of that where warnings are errors.
            raise TooLarge(f"The image has more than {limits.image_pixels} pixels.", param=param) from None
        with opened as image:
            width, height = image.size
            if width * height > limits.image_pixels:
                raise TooLarge(
                    f"The image has {width}x{height} pixels; at most {limits.image_pixels} are allowed.", param=param
                )
            if width * height > SLOW_PIXELS and any(tile.codec_name in Image.DECODERS for tile in image.tile):
                raise TooLarge(f"Images of this format may have {SLOW_PIXELS} pixels.", param=param)
            image.load()
            return _rgb(_upright(image))


def _upright(image: Image.Image) -> Image.Image:
    try:
        orientation = image.getexif().get(ExifTags.Base.Orientation)
    except Exception:
        # Unreadable metadata doesn't make the picture unreadable.
        return image
    turn = _UPRIGHT.get(orientation) if isinstance(orientation, int) else None
    return image if turn is None else image.transpose(turn)


def _rgb(image: Image.Image) -> npt.NDArray[np.uint8]:
    if image.mode == "F" or image.mode.startswith("I"):
        return np.repeat(_eight_bits(np.asarray(image))[:, :, None], 3, axis=2)
    if image.has_transparency_data:
        layer = image.convert("RGBA")
        white = Image.new("RGBA", layer.size, "white")
        image = Image.alpha_composite(white, layer)
    return np.array(image.convert("RGB"))


def _eight_bits(grey: npt.NDArray[np.generic]) -> npt.NDArray[np.uint8]:
    """Grey of more than 8 bits: integers are taken as 16-bit, floats as 0 to 1, or 0 to 255 when they go beyond 1."""
    values = grey.astype(np.float32)
    if grey.dtype.kind == "f":
        values = np.nan_to_num(values)
        values *= 255.0 if values.max(initial=0.0) <= 1.0 else 1.0
    else:
        values /= 257.0
    return np.clip(np.rint(values), 0, 255).astype(np.uint8)
