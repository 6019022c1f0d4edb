from __future__ import annotations

import io
from typing import Any

import av
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from frontend.media.sniff import HEAD_BYTES, KINDS, sniff

pytestmark = pytest.mark.pure


def picture(format: str) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (32, 32), (200, 30, 60)).save(file, format)
    return file.getvalue()


def sound(container: str, codec: str, layout: str = "mono") -> bytes:
    file = io.BytesIO()
    with av.open(file, "w", format=container) as out:
        stream: Any = out.add_stream(codec, rate=48_000, layout=layout)
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 4800), "<i2"), "s16", layout)
        frame.sample_rate = 48_000
        for converted in av.AudioResampler(stream.format, layout, 48_000, 960 if codec == "libopus" else None).resample(
            frame
        ):
            out.mux(stream.encode(converted))
        out.mux(stream.encode(None))
    return file.getvalue()


def clip(container: str, codec: str) -> bytes:
    file = io.BytesIO()
    with av.open(file, "w", format=container) as out:
        stream: Any = out.add_stream(codec, rate=5, width=64, height=64, pix_fmt="yuv420p")
        for _ in range(3):
            out.mux(stream.encode(av.VideoFrame.from_ndarray(np.zeros((64, 64, 3), np.uint8), "rgb24")))
        out.mux(stream.encode(None))
    return file.getvalue()


@pytest.mark.parametrize(
    ("format", "name"),
    [
        ("PNG", "png"), ("JPEG", "jpeg"), ("WEBP", "webp"), ("GIF", "gif"), ("BMP", "bmp"), ("TIFF", "tiff"),
        ("AVIF", "avif"), ("JPEG2000", "jpeg2000"), ("ICO", "ico"), ("PPM", "ppm"), ("QOI", "qoi"), ("DDS", "dds"),
        ("PCX", "pcx"), ("SGI", "sgi"), ("TGA", "tga"),
    ],
)  # fmt: skip
def test_pictures(format: str, name: str) -> None:
    assert sniff(picture(format)[:HEAD_BYTES]) == name
    assert KINDS[name] == {"image"}


@pytest.mark.parametrize(
    ("container", "codec", "name"),
    [
        ("wav", "pcm_s16le", "wav"), ("mp3", "libmp3lame", "mp3"), ("flac", "flac", "flac"), ("ogg", "libopus", "ogg"),
        ("adts", "aac", "aac"), ("ipod", "aac", "mp4"), ("webm", "libopus", "matroska"), ("aiff", "pcm_s16be", "aiff"),
    ],
)  # fmt: skip
def test_sounds(container: str, codec: str, name: str) -> None:
    assert sniff(sound(container, codec)[:HEAD_BYTES]) == name
    assert "audio" in KINDS[name]


@pytest.mark.parametrize(
    ("container", "codec", "name"),
    [("mp4", "mpeg4", "mp4"), ("mov", "mpeg4", "mp4"), ("matroska", "mpeg4", "matroska"), ("avi", "mpeg4", "avi")],
)
def test_clips(container: str, codec: str, name: str) -> None:
    assert sniff(clip(container, codec)[:HEAD_BYTES]) == name
    assert "video" in KINDS[name]


def test_bare_frames_of_mp3_and_aac_are_told_apart() -> None:
    assert sniff(bytes.fromhex("fffb9064")) == "mp3"
    assert sniff(bytes.fromhex("fff15080")) == "aac"
    assert sniff(bytes.fromhex("fffbf064")) is None  # a bit rate that doesn't exist


def test_heic_is_known_by_any_of_its_brands() -> None:
    assert sniff(b"\0\0\0\x18ftypmif1\0\0\0\0heicmif1") == "heic"
    assert sniff(b"\0\0\0\x1cftypmp42\0\0\0\0mp42isom") == "mp4"


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"P5",
        b"P7 332\n",
        b"\0\0\2\0\0\0",
        b"\n\5\2",
        b"\0\0\1\xba" + bytes(60),
        bytes(64),
        b"<svg xmlns=",
        b"%PDF-1.7",
        b"PK\3\4",
        b"\xff",
        b"\x7fELF",
        b"#!/bin/sh",
        b"RIFF\0\0\0\0CDDA",
    ],
)
def test_other_things_are_nothing(head: bytes) -> None:
    assert sniff(head) is None


@given(st.binary(max_size=HEAD_BYTES))
def test_anything_gives_a_known_format_or_nothing(head: bytes) -> None:
    assert sniff(head) in {None, *KINDS}
