"""How long a sound is, without decoding it."""

from __future__ import annotations

import io
from collections.abc import Mapping

import av

from frontend.media.sniff import HEAD_BYTES, sniff
from omni.contract.errors import InvalidMedia

_FFMPEG: Mapping[str, str] = {
    "wav": "wav", "mp3": "mp3", "flac": "flac", "aac": "aac", "aiff": "aiff", "ogg": "ogg", "mp4": "mov",
    "matroska": "matroska",
}  # fmt: skip
"""The one format of FFmpeg that each of ours is opened as, so that no other parser sees the bytes."""


def duration(data: bytes, param: str) -> float:
    """Seconds of the first sound track of `data`, counted over its packets.

    Raises `InvalidMedia` when there is none.
    """
    options = {"format_whitelist": _FFMPEG.get(sniff(data[:HEAD_BYTES]) or "", "none"), "protocol_whitelist": ""}
    try:
        with av.open(io.BytesIO(data), "r", container_options=options, metadata_errors="replace") as file:
            stream = file.streams.audio[0]
            base = stream.time_base
            seconds = float(sum(packet.duration or 0 for packet in file.demux(stream)) * base) if base else 0.0
    except Exception:  # a parser at work on bytes that a stranger made may raise anything
        raise InvalidMedia(f"{param} can't be read as a sound.", param=param) from None
    if seconds <= 0:
        raise InvalidMedia(f"{param} holds no sound.", param=param)
    return seconds
