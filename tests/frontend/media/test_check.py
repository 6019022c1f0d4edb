from __future__ import annotations

import io
import struct
import zlib

import pytest
from PIL import Image

from frontend.media.check import check
from frontend.media.limits import MediaLimits
from omni.contract.errors import InvalidMedia, TooLarge
from omni.contract.job import MediaKind

pytestmark = pytest.mark.pure

LIMITS = MediaLimits(item_bytes=1000, image_pixels=10_000)
WAV = b"RIFF\x24\0\0\0WAVEfmt "
MP4 = b"\0\0\0\x18ftypmp42\0\0\0\0mp42"


def png(width: int, height: int) -> bytes:
    """A file whose header announces a size, and that holds nothing of it."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
        + chunk(b"IEND", b"")
    )


def picture(format: str) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (32, 32)).save(file, format)
    return file.getvalue()


FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "AVIF", "JPEG2000", "PPM", "ICO", "TGA", "QOI")


@pytest.mark.parametrize("format", FORMATS)
def test_images_pass(format: str) -> None:
    check("image", picture(format), "images.0", MediaLimits())


@pytest.mark.parametrize(("kind", "data"), [("audio", WAV), ("audio", MP4), ("video", MP4)])
def test_sounds_and_clips_pass(kind: MediaKind, data: bytes) -> None:
    check(kind, data, "x", LIMITS)


@pytest.mark.parametrize(
    ("kind", "data", "says"),
    [
        ("image", b"", "images.0 is empty."),
        ("image", b"hello there", "images.0 is not an image of a known format."),
        ("image", WAV, "images.0 must be an image, but holds a sound."),
        ("image", MP4, "images.0 must be an image, but holds a video."),
        ("audio", png(2, 2), "images.0 must be a sound, but holds an image."),
        ("video", WAV, "images.0 must be a video, but holds a sound."),
        ("image", b"\x89PNG\r\n\x1a\n", "images.0: the header of the image is broken."),
        ("image", b"\xff\xd8\xff\xe0", "images.0: the header of the image is broken."),
        ("image", b"GIF89a", "images.0: the header of the image is broken."),
        ("image", b"RIFF\x10\0\0\0WEBPVP8 ", "images.0: the header of the image is broken."),
        ("image", b"\0\0\0\x18ftypavif\0\0\0\0avifmif1", "images.0: the header of the image is broken."),
        ("image", b"\0\0\0\x18ftypheic\0\0\0\0heic", "images.0: heic images can't be read; send PNG, JPEG or WebP."),
    ],
)
def test_what_is_not_what_it_should_be_is_refused(kind: MediaKind, data: bytes, says: str) -> None:
    with pytest.raises(InvalidMedia) as refusal:
        check(kind, data, "images.0", LIMITS)
    assert refusal.value.message == says
    assert refusal.value.param == "images.0"


def test_too_many_bytes() -> None:
    check("audio", WAV + bytes(1000 - len(WAV)), "x", LIMITS)
    with pytest.raises(TooLarge, match="1000 bytes"):
        check("audio", WAV + bytes(1001 - len(WAV)), "x", LIMITS)


@pytest.mark.parametrize(("width", "height"), [(101, 100), (10_000, 10_000), (20_000, 20_000), (2**31 - 1, 2**31 - 1)])
def test_too_many_pixels_also_of_bombs(width: int, height: int) -> None:
    with pytest.raises(TooLarge, match="10000 pixels") as refusal:
        check("image", png(width, height), "x", LIMITS)
    assert refusal.value.param == "x"


def test_an_icon_with_a_bomb_inside_is_not_opened() -> None:
    bomb = png(101, 100)
    icon = struct.pack("<HHHBBBBHHII", 0, 1, 1, 16, 16, 0, 0, 1, 32, len(bomb), 22) + bomb
    with pytest.raises(TooLarge, match="10000 pixels"):
        check("image", icon, "x", LIMITS)


def test_as_many_pixels_as_may_be_pass() -> None:
    check("image", png(100, 100), "x", LIMITS)
