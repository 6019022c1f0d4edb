from __future__ import annotations

import hashlib
import io

import numpy as np
import pytest
from PIL import Image

from frontend.media.picture import SIDE, look
from frontend.protocol import evs
from omni.contract.errors import InvalidMedia, TooLarge

pytestmark = pytest.mark.pure

PIXELS = 64_000_000
FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF")


def file(image: Image.Image, format: str = "JPEG", **options: object) -> bytes:
    out = io.BytesIO()
    image.save(out, format, **options)
    return out.getvalue()


def photo(width: int = 320, height: int = 200) -> Image.Image:
    y, x = np.mgrid[0:height, 0:width]
    return Image.fromarray(np.stack([x % 256, y % 256, (x + y) % 256], -1).astype(np.uint8))


def published(data: bytes) -> np.ndarray:
    """The thumbnail as the filter's first server makes it, from a full decode."""
    with Image.open(io.BytesIO(data)) as image:
        return np.asarray(image.resize((SIDE, SIDE), Image.Resampling.BILINEAR).convert("RGB"))


def test_both_sides_mean_the_same_thumbnail() -> None:
    assert evs.SIDE == SIDE


@pytest.mark.parametrize("format", FORMATS)
def test_any_known_format(format: str) -> None:
    data = file(photo(), format)
    digest, thumbnail = look(data, True, PIXELS)
    assert digest == hashlib.sha256(data).hexdigest()
    assert thumbnail is not None
    assert (thumbnail.shape, thumbnail.dtype) == ((SIDE, SIDE, 3), np.uint8)
    assert look(data, False, PIXELS) == (digest, None)


@pytest.mark.parametrize("mode", ["L", "RGB"])
@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"subsampling": 0}, {"subsampling": 2}], ids=str)
def test_any_ordinary_jpeg_is_like_its_full_decode(mode: str, options: dict[str, object]) -> None:
    data = file(photo(640, 360).convert(mode), **options)
    _, thumbnail = look(data, True, PIXELS)
    assert thumbnail is not None
    assert evs.similarity(thumbnail, published(data)) > 0.999


@pytest.mark.parametrize("mode", ["L", "P", "RGBA", "LA", "1", "I;16", "CMYK"])
def test_any_mode(mode: str) -> None:
    data = file(photo().convert("L" if mode == "I;16" else mode), "JPEG" if mode == "CMYK" else "PNG")
    _, thumbnail = look(data, True, PIXELS)
    assert thumbnail is not None
    if mode != "CMYK":
        assert np.array_equal(thumbnail, published(data))


@pytest.mark.parametrize("size", [(1, 1), (63, 63), (64, 64), (65, 200), (4000, 8)])
def test_any_size(size: tuple[int, int]) -> None:
    for format in ("JPEG", "PNG"):
        _, thumbnail = look(file(photo(*size), format), True, PIXELS)
        assert thumbnail is not None
        assert thumbnail.shape == (SIDE, SIDE, 3)


@pytest.mark.parametrize("thumbnail", [True, False])
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"no picture",
        file(photo())[:2000],
        file(photo(), "PNG")[:200],
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n",
        b"<svg></svg>",
    ],
)
def test_what_isnt_a_picture(data: bytes, thumbnail: bool) -> None:
    with pytest.raises(InvalidMedia):
        look(data, thumbnail, PIXELS)


@pytest.mark.parametrize("data", [b"\xff\xd8\xff\xd9", b"\x89PNG\r\n\x1a\nIEND"])
def test_what_only_looks_like_a_picture(data: bytes) -> None:
    look(data, False, PIXELS)
    with pytest.raises(InvalidMedia):
        look(data, True, PIXELS)


def test_damage_is_found_by_decoding() -> None:
    whole = file(photo(), "PNG")
    data = whole[:300] + whole[-12:]
    look(data, False, PIXELS)
    with pytest.raises(InvalidMedia):
        look(data, True, PIXELS)


def test_the_number_of_pixels_is_bounded() -> None:
    with pytest.raises(TooLarge):
        look(file(photo()), True, 320 * 200 - 1)
    look(file(photo()), True, 320 * 200)


def test_a_bomb_is_no_picture() -> None:
    png = bytearray(file(photo(2, 2), "PNG"))
    png[16:24] = (50_000).to_bytes(4, "big") * 2
    with pytest.raises((InvalidMedia, TooLarge)):
        look(bytes(png), True, PIXELS)
