from __future__ import annotations

import io

import av
import numpy as np
import pytest

from omni.stages.dummy.decode import text_of
from omni.stages.dummy.frames import Unreadable, spell
from omni.stages.dummy.lossy import recover
from omni.stages.dummy.tones import sing

pytestmark = pytest.mark.pure

TEXT = "The quick brown fox jumps over the lazy dog, 12345 times 😀. " * 3


def compressed(text: str, container: str, codec: str, rate: int, bits: int) -> bytes:
    out = io.BytesIO()
    with av.open(out, "w", format=container) as file:
        stream = file.add_stream(codec, rate=rate, layout="mono")
        stream.bit_rate = bits
        frame = av.AudioFrame.from_ndarray(sing(spell(text))[None], format="s16", layout="mono")
        frame.sample_rate = 24_000
        for piece in av.AudioResampler(stream.format.name, "mono", rate, stream.frame_size or None).resample(frame):
            file.mux(stream.encode(piece))
        file.mux(stream.encode())
    return out.getvalue()


@pytest.mark.parametrize("text", ["a", "eleven byte", TEXT])
@pytest.mark.parametrize(
    ("container", "codec", "rate", "bits"),
    [("mp3", "libmp3lame", 24_000, 64_000), ("adts", "aac", 24_000, 128_000), ("ogg", "libopus", 48_000, 64_000)],
)
def test_the_text_survives_a_lossy_codec(text: str, container: str, codec: str, rate: int, bits: int) -> None:
    file = compressed(text, container, codec, rate, bits)
    assert text_of(file, lossy=True) == text
    with pytest.raises(Unreadable):
        text_of(file)


@pytest.mark.parametrize("moved", [0, 1, 57, 119, 120, 5000, 47_000])
def test_the_beginning_is_found(moved: int) -> None:
    pcm = np.concatenate((np.zeros(moved, np.int16), sing(spell(TEXT)), np.zeros(777, np.int16)))
    assert recover(pcm) == TEXT


def test_a_missing_frame_shows() -> None:
    codes = spell(TEXT)
    for frames in (np.delete(codes, 3, axis=0), codes[1:], codes[:-1], codes[:0], codes[[0, 0, *range(1, len(codes))]]):
        with pytest.raises(Unreadable):
            recover(sing(frames))
