"""What a file is, read from its first bytes. What the client called it counts for nothing."""

from __future__ import annotations

import re
from collections.abc import Mapping

from omni.contract.job import MediaKind
from omni.contract.pictures import PICTURES

HEAD_BYTES = 64
"""As much of a file as `sniff` looks at."""

KINDS: Mapping[str, frozenset[MediaKind]] = {
    **dict.fromkeys(PICTURES, frozenset[MediaKind]({"image"})),
    "heic": frozenset({"image"}),
    "wav": frozenset({"audio"}),
    "mp3": frozenset({"audio"}),
    "flac": frozenset({"audio"}),
    "aac": frozenset({"audio"}),
    "aiff": frozenset({"audio"}),
    "ogg": frozenset({"audio", "video"}),
    "mp4": frozenset({"audio", "video"}),
    "matroska": frozenset({"audio", "video"}),
    "avi": frozenset({"video"}),
}
"""By format, what it may hold. m4a and mov count as mp4, webm as matroska."""

_STARTS: tuple[tuple[bytes, str], ...] = (
    (b"\x89PNG\r\n\x1a\n", "png"),
    (b"\xff\xd8\xff", "jpeg"),
    (b"GIF87a", "gif"),
    (b"GIF89a", "gif"),
    (b"BM", "bmp"),
    (b"II*\0", "tiff"),
    (b"MM\0*", "tiff"),
    (b"II+\0", "tiff"),
    (b"MM\0+", "tiff"),
    (b"\xff\x4f\xff\x51", "jpeg2000"),
    (b"\0\0\0\x0cjP  \r\n\x87\n", "jpeg2000"),
    (b"8BPS", "psd"),
    (b"qoif", "qoi"),
    (b"DDS ", "dds"),
    (b"\xb1\x68\xde\x3a", "dcx"),
    (b"\x01\xda", "sgi"),
    (b"\x59\xa6\x6a\x95", "sun"),
    (b"#define", "xbm"),
    (b"/* XPM */", "xpm"),
    (b"DanM", "msp"),
    (b"LinS", "msp"),
    (b"BLP1", "blp"),
    (b"BLP2", "blp"),
    (b"FTEX", "ftex"),
    (b"\x80\xe8\0\0", "pixar"),
    (b"\0\0\0\0\0\0\0\4", "mcidas"),
    (b"ID3", "mp3"),
    (b"fLaC", "flac"),
    (b"OggS", "ogg"),
    (b"\x1aE\xdf\xa3", "matroska"),
)
_RIFF: Mapping[bytes, str] = {b"WAVE": "wav", b"WEBP": "webp", b"AVI ": "avi"}
_BRANDS: Mapping[bytes, str] = {
    b"avif": "avif", b"avis": "avif",
    b"heic": "heic", b"heix": "heic", b"hevc": "heic", b"mif1": "heic", b"msf1": "heic",
}  # fmt: skip
_BOXES = (b"moov", b"mdat", b"wide", b"free", b"skip")
"""First boxes of QuickTime files from before there was `ftyp`."""


def sniff(head: bytes) -> str | None:
    """The format that `head`, the first `HEAD_BYTES` of a file, announces: a key of `KINDS`, or None."""
    for start, format in _STARTS:
        if head.startswith(start):
            return format
    if head[:4] in (b"RIFF", b"RF64"):
        return _RIFF.get(head[8:12])
    if head[:4] == b"FORM" and head[8:12] in (b"AIFF", b"AIFC"):
        return "aiff"
    if head[4:8] == b"ftyp":
        brands = (head[at : at + 4] for at in range(8, min(len(head), int.from_bytes(head[:4], "big")), 4))
        return next((_BRANDS[brand] for brand in brands if brand in _BRANDS), "mp4")
    if head[4:8] in _BOXES:
        return "mp4"
    return _frames(head) or _unmarked(head)


def _frames(head: bytes) -> str | None:
    """Bare MPEG audio: a sync word of 11 bits, then version and layer, where layer 0 is AAC in ADTS."""
    if len(head) < 4 or head[0] != 0xFF or head[1] & 0xE0 != 0xE0:
        return None
    if head[1] & 0x06 == 0:
        return "aac" if head[1] & 0xF0 == 0xF0 and head[2] >> 2 & 0xF < 13 else None
    valid = head[1] & 0x18 != 0x08 and head[2] >> 4 != 0xF and head[2] & 0x0C != 0x0C
    return "mp3" if valid else None


def _unmarked(head: bytes) -> str | None:
    """Pictures that have no name in their first bytes, but fields that can have few values."""
    if _PNM(head):
        return "ppm"
    if len(head) < 18:
        return None
    if head[:4] in (b"\0\0\1\0", b"\0\0\2\0") and head[4]:
        return "ico" if head[2] == 1 else "cur"
    if head[0] == 10 and head[1] in (0, 2, 3, 5) and head[2] == 1 and head[3] in (1, 2, 4, 8):
        return "pcx"
    if head[4:6] in (b"\x11\xaf", b"\x12\xaf") and head[14:16] in (b"\0\0", b"\3\0"):
        return "fli"
    if head[20:24] == b"GIMP":
        return "gbr"
    palette, kind, depth = head[1], head[2] & 0b0111, head[16]
    known = kind in (1, 2, 3) and head[2] in (kind, kind | 8) and palette == (kind == 1)
    return "tga" if known and depth in (1, 8, 15, 16, 24, 32) else None


_PNM = re.compile(rb"P[1-6f]\s").match
