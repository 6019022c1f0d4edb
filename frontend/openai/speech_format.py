"""Speech in the formats that a client may ask for: in chunks that are files, as one file in pieces, or all at once.

In chunks, wav and flac lose nothing and are made for each chunk alone; the others are cut out of one encoding, see
`speech_chunks`. There aac comes as M4A, since the bare ADTS of a whole file can't say what a decoder that starts in the
middle has to leave out. pcm16 is the bare samples.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Protocol

import av
import numpy as np

from frontend.openai.speech_chunks import AAC, BIT_RATE, MP3, OPUS, LossyChunks
from omni.contract.names import SAMPLE_RATE


class SpeechEncoder(Protocol):
    """Takes mono signed 16-bit little-endian samples at `SAMPLE_RATE` and gives bytes of its format."""

    heavy: bool
    """Whether a piece takes long enough to be encoded off the event loop."""

    def encode(self, pcm: bytes) -> bytes:
        """The next piece; may be empty while the encoder gathers a frame."""

    def finish(self) -> bytes:
        """What was still held back."""


@lru_cache(maxsize=64)
def wav_header(size: int) -> bytes:
    """The 44 bytes before `size` bytes of samples."""
    return struct.pack(
        "<4sI4s4sIHHIIHH4sI",
        b"RIFF", 36 + size, b"WAVE", b"fmt ", 16, 1, 1, SAMPLE_RATE, 2 * SAMPLE_RATE, 2, 16, b"data", size,
    )  # fmt: skip


class _Pcm:
    heavy = False

    def encode(self, pcm: bytes) -> bytes:
        return pcm

    def finish(self) -> bytes:
        return b""


class _Wav(_Pcm):
    def encode(self, pcm: bytes) -> bytes:
        return wav_header(len(pcm)) + pcm


class _EndlessWav(_Pcm):
    """A header that announces as much as it can, as is the custom where nobody knows the length."""

    def __init__(self) -> None:
        self._head = wav_header(_MOST)

    def encode(self, pcm: bytes) -> bytes:
        head, self._head = self._head, b""
        return head + pcm

    def finish(self) -> bytes:
        return self._head


_MOST = (1 << 32) - 1 - 36
"""Most bytes of samples that the sizes in a header can tell."""


class _Container:
    """One file, written by one encoder of FFmpeg as the samples come.

    `mend` lets it go back to its header in the end, to tell the length; then nothing comes before `finish`.
    """

    heavy = True

    def __init__(self, container: str, codec: str, sample_format: str, *, mend: bool = False, **options: str) -> None:
        self._file = io.BytesIO()
        self._mend = mend
        file: Any = self._file if mend else _NoSeek(self._file)
        self._container: Any = av.open(file, "w", format=container, container_options={"flush_packets": "1", **options})
        stream: Any = self._container.add_stream(codec, rate=SAMPLE_RATE)
        stream.bit_rate = BIT_RATE
        stream.codec_context.layout = "mono"
        stream.codec_context.format = sample_format
        self._stream = stream
        self._to_codec = av.AudioResampler(sample_format, "mono", SAMPLE_RATE)
        self._samples = 0

    def encode(self, pcm: bytes) -> bytes:
        if not pcm:
            return b""
        frame = av.AudioFrame.from_ndarray(np.frombuffer(pcm, "<i2")[None], "s16", "mono")
        frame.sample_rate = SAMPLE_RATE
        frame.pts = self._samples
        self._samples += frame.samples
        for converted in self._to_codec.resample(frame):
            self._container.mux(self._stream.encode(converted))
        return b"" if self._mend else self._take()

    def finish(self) -> bytes:
        if self._samples:
            self._container.mux(self._stream.encode(None))
        self._container.close()
        return self._take() if self._samples else b""

    def _take(self) -> bytes:
        data = self._file.getvalue()
        self._file.seek(0)
        self._file.truncate()
        return data


class _NoSeek:
    """A file that can only be written to the end, so that no format goes back to mend its header."""

    def __init__(self, file: io.BytesIO) -> None:
        self.write = file.write


class _FlacChunks(_Pcm):
    heavy = True

    def encode(self, pcm: bytes) -> bytes:
        return whole("flac", pcm)


_CHUNKS: Mapping[str, Callable[[], SpeechEncoder]] = {
    "wav": _Wav,
    "mp3": lambda: LossyChunks(MP3),
    "flac": _FlacChunks,
    "opus": lambda: LossyChunks(OPUS),
    "aac": lambda: LossyChunks(AAC),
    "pcm16": _Pcm,
    "pcm": _Pcm,
}
FORMATS = tuple(_CHUNKS)
_FILES: Mapping[str, Callable[[], SpeechEncoder]] = {
    "wav": _EndlessWav,
    "mp3": lambda: _Container("mp3", "libmp3lame", "s16p", write_xing="0", id3v2_version="0"),
    "flac": lambda: _Container("flac", "flac", "s16"),
    "opus": lambda: _Container("ogg", "libopus", "s16", page_duration="1"),
    "aac": lambda: _Container("adts", "aac", "fltp"),
}
_WHOLE: Mapping[str, Callable[[], SpeechEncoder]] = {
    "mp3": lambda: _Container("mp3", "libmp3lame", "s16p", mend=True, id3v2_version="0"),
    "flac": lambda: _Container("flac", "flac", "s16", mend=True),
    "opus": lambda: _Container("ogg", "libopus", "s16", mend=True),
    "aac": lambda: _Container("adts", "aac", "fltp"),
}

MEDIA_TYPES: Mapping[str, str] = {
    "wav": "audio/wav",
    "mp3": "audio/mpeg",
    "flac": "audio/flac",
    "opus": "audio/ogg; codecs=opus",
    "aac": "audio/aac",
    "pcm16": f"audio/pcm; rate={SAMPLE_RATE}",
    "pcm": f"audio/pcm; rate={SAMPLE_RATE}",
}
"""Of a whole file of each format."""


def chunk_encoder(format: str) -> SpeechEncoder:
    """A new encoder for one answer, whose pieces are files. Raises KeyError when `format` isn't one of `FORMATS`."""
    return _CHUNKS[format]()


def file_encoder(format: str) -> SpeechEncoder:
    """The same, but all pieces together are one file: for answers that are nothing but sound."""
    return _FILES.get(format, _CHUNKS[format])()


def whole(format: str, pcm: bytes) -> bytes:
    """One file of all samples, that tells its length where the format can."""
    encoder = _WHOLE.get(format, _CHUNKS[format])()
    return encoder.encode(pcm) + encoder.finish()
