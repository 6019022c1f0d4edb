"""Lossy speech in chunks, of which each is a file of its own, and that still sound as one.

One encoder runs through the whole answer, so nothing is faded out and in again where one chunk ends. A decoder that
starts in the middle first has to find its state, so a chunk begins with packets that the one before it had too, and
tells in its header how many samples of sound to leave out for that; and how many there are, since a packet seldom ends
with the chunk. Chunks that are decoded one by one give the samples of the answer, none missing and none twice.
"""

from __future__ import annotations

import io
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Final, cast

import av
import numpy as np

from omni.contract.names import SAMPLE_RATE

BIT_RATE: Final = 64_000
"""Bits per second of the lossy formats: speech is transparent there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Codec:
    """A codec whose packets have all the same length of sound. Lengths are samples of its decoder."""

    name: str
    """As FFmpeg has it."""
    sample_format: str
    rate: int
    """Samples per second of the decoder."""
    frame: int
    """Length of a packet."""
    delay: int
    """Samples that a decoder gives before the first one of the sound."""
    roll: int
    """Packets after which a decoder that starts anywhere gives what one does that has run from the beginning."""
    write: Callable[[list[bytes], int, int], bytes]
    """A file of packets, of whose samples so many are to be left out, and so many then heard."""
    options: Mapping[str, str] = field(default_factory=dict)


class LossyChunks:
    """A `SpeechEncoder` whose pieces are files."""

    heavy = True

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._encoder = cast(Any, av.CodecContext.create(codec.name, "w"))
        self._encoder.sample_rate = SAMPLE_RATE
        self._encoder.layout = "mono"
        self._encoder.format = codec.sample_format
        self._encoder.bit_rate = BIT_RATE
        self._encoder.options = dict(codec.options)
        self._to_codec = av.AudioResampler(codec.sample_format, "mono", SAMPLE_RATE)
        self._fed = 0
        """Samples at `SAMPLE_RATE` that were taken."""
        self._given = 0
        """Samples of the decoder that earlier chunks hold."""
        self._packets: list[bytes] = []
        self._first = 0
        """The number of the first of them in the whole answer."""

    def encode(self, pcm: bytes) -> bytes:
        if not pcm:
            return b""
        frame = av.AudioFrame.from_ndarray(np.frombuffer(pcm, "<i2")[None], "s16", "mono")
        frame.sample_rate, frame.pts = SAMPLE_RATE, self._fed
        self._fed += frame.samples
        for converted in self._to_codec.resample(frame):
            self._packets += map(bytes, self._encoder.encode(converted))
        return self._chunk(self._known)

    def finish(self) -> bytes:
        if self._fed:
            self._packets += map(bytes, self._encoder.encode(None))
        return self._chunk(self._known)

    @property
    def _known(self) -> int:
        """Samples of the decoder that the packets give."""
        codec = self._codec
        made = (self._first + len(self._packets)) * codec.frame - codec.delay
        return min(made, self._fed * codec.rate // SAMPLE_RATE)

    def _chunk(self, end: int) -> bytes:
        start, codec = self._given, self._codec
        if end <= start:
            return b""
        first = max(self._first, (start + codec.delay) // codec.frame - codec.roll)
        until = -(-(end + codec.delay) // codec.frame)
        packets = self._packets[first - self._first : until - self._first]
        self._given = end
        keep = max(self._first, (end + codec.delay) // codec.frame - codec.roll)
        del self._packets[: keep - self._first]
        self._first = keep
        return codec.write(packets, start + codec.delay - first * codec.frame, end - start)


# -- MP3: an Info frame first, whose LAME tag tells what to leave out at both ends.

_MP3_DECODER: Final = 529
"""Samples that every MP3 decoder is late by; a LAME tag doesn't count them (LAME's documentation of the tag)."""
_MP3_FRAMES: Final = 6
"""Least frames behind the Info frame. Of fewer FFmpeg is as little sure that it is MP3 as that it is another format."""


def mp3_file(frames: list[bytes], skip: int, length: int) -> bytes:
    """`skip` is at least 529, the lateness of every decoder."""
    header, size = frames[0][:4], len(frames[0])
    frames = frames + [header.ljust(size, b"\0")] * (_MP3_FRAMES - len(frames))  # silence, which is left out
    total = len(frames) * 576
    delay = skip - _MP3_DECODER
    padding = total - skip - length + _MP3_DECODER
    side_info = bytes(9)  # of a mono frame of MPEG-2, all zero: silence
    counts = b"Info" + (0b0011).to_bytes(4, "big") + len(frames).to_bytes(4, "big")
    counts += (size + sum(map(len, frames))).to_bytes(4, "big")
    tag = b"LAME3.100" + bytes(12) + (delay << 12 | padding).to_bytes(3, "big")
    return (header + side_info + counts + tag).ljust(size, b"\0") + b"".join(frames)


# -- Ogg Opus (RFC 3533 and RFC 7845): pre-skip tells what to leave out at the beginning, the last position the end.

_PACKETS_PER_PAGE: Final = 50
_OPUS_FRAME: Final = 960
_CONTINUES, _BEGINS, _ENDS = 1, 2, 4


def opus_file(packets: list[bytes], skip: int, length: int) -> bytes:
    serial = secrets.randbits(32)
    head = b"OpusHead" + bytes([1, 1]) + skip.to_bytes(2, "little") + SAMPLE_RATE.to_bytes(4, "little") + bytes(3)
    maker = b"omni"
    tags = b"OpusTags" + len(maker).to_bytes(4, "little") + maker + bytes(4)
    pages = [ogg_page([head], serial, 0, 0, _BEGINS), ogg_page([tags], serial, 1, 0, 0)]
    for at in range(0, len(packets), _PACKETS_PER_PAGE):
        some = packets[at : at + _PACKETS_PER_PAGE]
        last = at + len(some) == len(packets)
        position = skip + length if last else (at + len(some)) * _OPUS_FRAME
        pages.append(ogg_page(some, serial, len(pages), position, _ENDS if last else 0))
    return b"".join(pages)


def ogg_page(packets: list[bytes], serial: int, number: int, position: int, flags: int) -> bytes:
    """A page that holds `packets` whole; they may have 255 lacing values together."""
    lacing = b"".join(b"\xff" * (len(one) // 255) + bytes([len(one) % 255]) for one in packets)
    head = b"OggS\0" + bytes([flags]) + position.to_bytes(8, "little") + serial.to_bytes(4, "little")
    head += number.to_bytes(4, "little")
    rest = bytes([len(lacing)]) + lacing + b"".join(packets)
    return head + _crc(head + bytes(4) + rest).to_bytes(4, "little") + rest


def _crc_of(byte: int) -> int:
    value = byte << 24
    for _ in range(8):
        value = value << 1 ^ (0x04C11DB7 if value & 0x80000000 else 0)
    return value & 0xFFFFFFFF


_CRC: Final = tuple(map(_crc_of, range(256)))


def _crc(data: bytes) -> int:
    """The checksum of Ogg: CRC-32 of polynomial 0x04c11db7, neither reflected nor inverted."""
    value = 0
    for byte in data:
        value = (value << 8 & 0xFFFFFFFF) ^ _CRC[value >> 24 ^ byte]
    return value


# -- M4A: an edit list tells what to leave out at the beginning. ADTS, the bare form of AAC, has no place for that.

_AAC_FRAME: Final = 1024


def m4a_file(packets: list[bytes], skip: int, length: int) -> bytes:
    """Decoders of FFmpeg give the last packet whole, so the end of a sound may have up to 1023 samples of silence."""
    file = io.BytesIO()
    with av.open(file, "w", format="mp4") as container:
        stream: Any = container.add_stream("aac", rate=SAMPLE_RATE)  # for its header; nothing is encoded with it
        stream.codec_context.layout = "mono"
        stream.codec_context.format = "fltp"
        container.start_encoding()
        for number, data in enumerate(packets):
            packet = av.Packet(data)
            packet.stream = stream
            packet.time_base = Fraction(1, SAMPLE_RATE)
            packet.pts = packet.dts = number * _AAC_FRAME - skip
            packet.duration = min(_AAC_FRAME, length - packet.pts)
            container.mux(packet)
    return file.getvalue()


MP3: Final = Codec(
    name="libmp3lame",
    sample_format="s16p",
    rate=SAMPLE_RATE,
    frame=576,
    delay=1105,  # 576 of LAME's and 529 of every decoder's
    roll=2,  # one for the overlap of the transform, one for the filter bank behind it
    write=mp3_file,
    options={"reservoir": "0"},  # each frame holds its own bits
)
OPUS: Final = Codec(
    name="libopus",
    sample_format="s16",
    rate=48_000,
    frame=_OPUS_FRAME,
    delay=312,  # libopus looks 6.5 ms ahead
    roll=8,  # twice the 80 ms of RFC 7845, section 4.2, after which a pure tone is still off by a sixth
    write=opus_file,
)
AAC: Final = Codec(
    name="aac",
    sample_format="fltp",
    rate=SAMPLE_RATE,
    frame=_AAC_FRAME,
    delay=1024,  # one packet: a decoder needs two for the overlap of the transform
    roll=1,
    write=m4a_file,
)
