"""Files of sound and film, opened and read with FFmpeg through PyAV."""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from typing import Final, TypeVar

import av
from av.audio.frame import AudioFrame
from av.audio.stream import AudioStream
from av.container import InputContainer
from av.stream import Disposition
from av.video.frame import VideoFrame
from av.video.stream import VideoStream

from omni.contract.errors import InvalidMedia
from omni.stages.media.limits import Check

FORMATS: Final = (
    "aac", "ac3", "aiff", "amr", "asf", "au", "avi", "caf", "eac3", "flac", "flv", "gif", "matroska", "mov", "mp3",
    "mpeg", "mpegts", "mpegvideo", "ogg", "w64", "wav",
)  # fmt: skip
"""What is opened at all, as FFmpeg names it. Playlists (HLS, DASH, concat) aren't here: they name other files."""

MOST_DAMAGE: Final = 0.1
"""Packets that don't decode are skipped, as players do; over this part of all packets the file counts as broken."""

FrameType = TypeVar("FrameType", AudioFrame, VideoFrame)


def open_container(data: bytes) -> InputContainer:
    """The file in `data`, to be closed by the caller. Raises what PyAV raises."""
    options = {"format_whitelist": ",".join(FORMATS), "protocol_whitelist": ""}
    return av.open(BytesIO(data), "r", container_options=options, metadata_errors="replace")


def sound_of(container: InputContainer) -> AudioStream | None:
    """The first sound track that can be decoded."""
    return next((s for s in container.streams.audio if s.codec_context is not None), None)


def film_of(container: InputContainer) -> VideoStream | None:
    """The first track of moving pictures that can be decoded; the cover of a song isn't one."""
    films = (s for s in container.streams.video if s.codec_context is not None)
    return next((s for s in films if not s.disposition & Disposition.attached_pic), None)


def frames_of(
    container: InputContainer,
    stream: AudioStream | VideoStream,
    kind: type[FrameType],
    what: str,
    param: str,
    check: Check,
) -> Iterator[FrameType]:
    """All frames of one track in the order in which they are shown. Raises `InvalidMedia` for a broken file."""
    packets = damaged = 0
    for packet in container.demux(stream):
        check()
        packets += 1
        try:
            decoded = packet.decode()
        except av.FFmpegError:
            damaged += 1
            continue
        for frame in decoded:
            if isinstance(frame, kind):
                yield frame
    if damaged > MOST_DAMAGE * packets:
        raise InvalidMedia(f"The {what} is broken: too much of it can't be decoded.", param=param)
