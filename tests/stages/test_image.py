from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageDraw, features

from omni.contract.errors import InvalidMedia, TooLarge
from omni.stages.media.image import FORMATS, decode_image
from omni.stages.media.limits import MediaLimits

pytestmark = pytest.mark.pure

PARAM = "messages.0.content.1.image_url"


def encoded(image: Image.Image, format: str, **save: Any) -> bytes:
    out = io.BytesIO()
    image.save(out, format, **save)
    return out.getvalue()


WRITABLE = [
    "JPEG",
    "PNG",
    "WEBP",
    "GIF",
    "BMP",
    "TIFF",
    "AVIF",
    "JPEG2000",
    "PPM",
    "DDS",
    "PCX",
    "SGI",
    "TGA",
    "QOI",
]
"""Formats that Pillow writes in colour; tests/clients/test_media_files.py has a file of every format."""


@pytest.mark.parametrize("format", WRITABLE)
@pytest.mark.parametrize("size", [(40, 30), (1, 1), (3, 257)])
def test_every_format(picture: Callable[..., bytes], format: str, size: tuple[int, int]) -> None:
    pixels = decode_image(picture(size=size, format=format))
    assert (pixels.shape, pixels.dtype) == ((size[1], size[0], 3), np.uint8)
    assert np.abs(pixels.astype(int) - (255, 128, 64)).max() <= 4


def test_avif_is_known_where_pillow_knows_it() -> None:
    assert ("AVIF" in FORMATS) == features.check("avif")


@pytest.mark.parametrize("format", ["EPS", "PDF", "ICNS", "SPIDER"])
def test_other_formats_are_refused(picture: Callable[..., bytes], format: str) -> None:
    mode = {"mode": "F", "colour": 0.5} if format == "SPIDER" else {}
    with pytest.raises(InvalidMedia):
        decode_image(picture(format=format, **mode), param=PARAM)


def test_every_format_that_is_opened_is_one_that_is_let_in() -> None:
    """The front door knows the format by the first bytes of each of them."""
    assert set(FORMATS) <= set(Image.OPEN)
    assert {"EPS", "WMF", "FPX", "MIC", "ICNS", "IPTC", "FITS", "SPIDER", "MPEG", "IM"}.isdisjoint(FORMATS)


def test_an_icon(picture: Callable[..., bytes]) -> None:
    assert decode_image(picture(size=(48, 48), format="ICO")).shape == (48, 48, 3)


@pytest.mark.parametrize("inner", ["png", "bmp"])
def test_a_picture_inside_an_icon_may_not_be_larger_than_it_says(inner: str) -> None:
    side = 8000
    if inner == "png":
        body = encoded(Image.new("1", (side, side)), "PNG")
    else:
        body = struct.pack("<IiiHHIIiiII", 40, side, 2 * side, 1, 1, 0, 0, 0, 0, 0, 0) + bytes(2000)
    icon = struct.pack("<HHHBBBBHHII", 0, 1, 1, 16, 16, 0, 0, 1, 32, len(body), 22) + body
    with pytest.raises(TooLarge) as caught:
        decode_image(icon, param=PARAM)
    assert caught.value.param == PARAM


@pytest.mark.parametrize(
    "data",
    [
        b"P3 1001 1000 255 " + b"1 " * 100,
        b"P5 1001 1000 1023 " + bytes(100),
        b"qoif" + struct.pack(">II", 1001, 1000) + b"\x03\0" + bytes(100),
        b"BM" + struct.pack("<IHHI", 200, 0, 0, 1078) + struct.pack("<IiiHHIIiiII", 40, 1001, 1000, 1, 8, 1, *(0,) * 5)
        + bytes(1200),
    ],
)  # fmt: skip
def test_what_takes_long_to_decode_may_have_fewer_pixels(data: bytes) -> None:
    with pytest.raises(TooLarge, match="of this format may have 1000000 pixels"):
        decode_image(data, param=PARAM)


@pytest.mark.parametrize(
    ("mode", "colour", "format", "expected"),
    [
        ("L", 100, "PNG", (100, 100, 100)),
        ("1", 1, "PNG", (255, 255, 255)),
        ("LA", (0, 0), "PNG", (255, 255, 255)),
        ("LA", (100, 255), "PNG", (100, 100, 100)),
        ("RGBA", (0, 0, 255, 0), "PNG", (255, 255, 255)),
        ("RGBA", (0, 0, 255, 255), "WEBP", (0, 0, 255)),
        ("RGBA", (0, 0, 0, 128), "PNG", (127, 127, 127)),
        ("CMYK", (0, 255, 255, 0), "JPEG", (254, 0, 0)),
        ("CMYK", (255, 0, 0, 0), "TIFF", (0, 255, 255)),
        ("YCbCr", (128, 128, 128), "JPEG", (128, 128, 128)),
        ("I;16", 0x8080, "PNG", (128, 128, 128)),
        ("I;16", 0xFFFF, "TIFF", (255, 255, 255)),
        ("F", 0.5, "TIFF", (128, 128, 128)),
        ("F", 200.0, "TIFF", (200, 200, 200)),
    ],
)
def test_every_mode(
    picture: Callable[..., bytes], mode: str, colour: Any, format: str, expected: tuple[int, int, int]
) -> None:
    save = {"lossless": True} if format == "WEBP" else {}
    pixels = decode_image(picture(mode=mode, colour=colour, format=format, **save))
    assert pixels.shape == (30, 40, 3)
    assert np.abs(pixels.astype(int) - expected).max() <= 2


def test_palettes() -> None:
    plain = Image.new("RGB", (8, 8), (10, 200, 30)).convert("P", palette=Image.Palette.ADAPTIVE)
    assert decode_image(encoded(plain, "PNG"))[0, 0].tolist() == [10, 200, 30]
    seen_through = Image.new("P", (8, 8), 0)
    seen_through.putpalette([1, 2, 3, 9, 8, 7])
    seen_through.putpixel((0, 0), 1)
    for format in ("PNG", "GIF"):
        pixels = decode_image(encoded(seen_through, format, transparency=0))
        assert pixels[0, 0].tolist() == [9, 8, 7]
        assert pixels[5, 5].tolist() == [255, 255, 255]


def test_16_bits_of_colour_become_8() -> None:
    raw = b"\0" + struct.pack(">3H", 0xFFFF, 0x8080, 0x0000) * 2

    def chunk(name: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 2, 1, 16, 2, 0, 0, 0))
    png = b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(raw)) + chunk(b"IEND", b"")
    assert decode_image(png).tolist() == [[[255, 128, 0]] * 2]


@pytest.mark.parametrize("format", ["JPEG", "PNG", "WEBP", "TIFF"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_turns_the_picture_upright(format: str, orientation: int) -> None:
    upright = Image.new("RGB", (60, 40), "black")
    ImageDraw.Draw(upright).rectangle((0, 0, 29, 19), fill="red")
    ImageDraw.Draw(upright).rectangle((30, 0, 59, 19), fill="lime")
    stored = {
        1: None,
        2: Image.Transpose.FLIP_LEFT_RIGHT,
        3: Image.Transpose.ROTATE_180,
        4: Image.Transpose.FLIP_TOP_BOTTOM,
        5: Image.Transpose.TRANSPOSE,
        6: Image.Transpose.ROTATE_90,
        7: Image.Transpose.TRANSVERSE,
        8: Image.Transpose.ROTATE_270,
    }[orientation]
    exif = Image.Exif()
    exif[274] = orientation
    data = encoded(upright if stored is None else upright.transpose(stored), format, exif=exif, quality=95)
    pixels = decode_image(data).astype(int)
    assert pixels.shape == (40, 60, 3)
    assert np.abs(pixels[10, 15] - (255, 0, 0)).max() < 12
    assert np.abs(pixels[10, 45] - (0, 255, 0)).max() < 12
    assert pixels[30, 30].max() < 12


@pytest.mark.filterwarnings("ignore:Corrupt EXIF")
def test_broken_metadata_does_not_break_the_picture(picture: Callable[..., bytes]) -> None:
    data = picture(format="JPEG", exif=b"Exif\0\0MM\0*\0\0\0\x08\xff\xff\x01\x12garbage")
    assert decode_image(data).shape == (30, 40, 3)


@pytest.mark.parametrize("format", ["GIF", "WEBP", "PNG", "TIFF"])
def test_an_animation_is_its_first_frame(format: str) -> None:
    frames = [Image.new("RGB", (16, 16), colour) for colour in ("red", "lime", "blue")]
    save = {"lossless": True} if format == "WEBP" else {}
    pixels = decode_image(encoded(frames[0], format, save_all=True, append_images=frames[1:], **save))
    assert pixels[8, 8].tolist() == [255, 0, 0]


@pytest.mark.parametrize("format", WRITABLE)
def test_truncated_pictures_are_invalid(format: str) -> None:
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64, 3)).astype(np.uint8))
    data = encoded(noise, format)
    for part in (0.02, 0.3, 0.8):
        with pytest.raises(InvalidMedia) as caught:
            decode_image(data[: int(len(data) * part)], param=PARAM)
        assert caught.value.param == PARAM


@pytest.mark.parametrize(
    "data", [b"", b"\0", b"GIF89a", b"\xff\xd8\xff", b"not an image at all" * 100, b"%!PS-Adobe-3.0"]
)
def test_other_bytes_are_invalid(data: bytes) -> None:
    with pytest.raises(InvalidMedia) as caught:
        decode_image(data, param=PARAM)
    assert caught.value.param == PARAM
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


@pytest.mark.parametrize("size", [(30_000, 30_000), (10_000, 9_000), (65_535, 1_000)])
def test_a_bomb_is_refused_by_its_header(size: tuple[int, int]) -> None:
    body = struct.pack(">IIBBBBB", *size, 8, 2, 0, 0, 0)
    header = struct.pack(">I", 13) + b"IHDR" + body + struct.pack(">I", zlib.crc32(b"IHDR" + body))
    idat = struct.pack(">I", 4) + b"IDATxxxx" + struct.pack(">I", zlib.crc32(b"IDATxxxx"))
    with pytest.raises(TooLarge) as caught:
        decode_image(b"\x89PNG\r\n\x1a\n" + header + idat, param=PARAM)
    assert caught.value.param == PARAM
    assert "50000000" in caught.value.message


def test_the_limit_on_pixels_is_a_setting(picture: Callable[..., bytes]) -> None:
    limits = MediaLimits(image_pixels=1200)
    assert decode_image(picture(size=(40, 30)), limits).shape == (30, 40, 3)
    with pytest.raises(TooLarge, match="41x30 pixels; at most 1200"):
        decode_image(picture(size=(41, 30)), limits)


def test_limits_come_from_the_profile() -> None:
    assert MediaLimits.of({}) == MediaLimits()
    assert MediaLimits.of({"limits": {"audio_seconds": 5}}).audio_seconds == 5
    with pytest.raises(ValueError, match="unknown limits: image_pixel"):
        MediaLimits.of({"limits": {"image_pixel": 5}})
    with pytest.raises(ValueError, match="video_frames must be over 0"):
        MediaLimits(video_frames=0)
