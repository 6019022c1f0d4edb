from __future__ import annotations

import io
import wave
from itertools import pairwise

import av
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frontend.openai.speech_format import FORMATS, encoder, wav_header
from omni.contract.names import SAMPLE_RATE

pytestmark = pytest.mark.pure

SECONDS = 3
LOSSY = {"mp3": 1105, "opus": 0, "aac": 1024}
"""By format, the samples of silence that its encoder puts before the sound."""


def speech() -> npt.NDArray[np.int16]:
    """A tone that swells and fades, which has no period that a click could hide behind."""
    at = np.arange(SECONDS * SAMPLE_RATE) / SAMPLE_RATE
    swell = 0.5 + 0.5 * np.sin(2 * np.pi * 1.3 * at)
    return (8000 * swell * np.sin(2 * np.pi * 331 * at)).astype("<i2")


def pieces(format: str, samples: npt.NDArray[np.int16]) -> list[bytes]:
    """Encoded as code2wav sends: short pieces first, then longer ones."""
    ends = [0, 1920, 5760, 13440, 28800, 50_001, len(samples)]
    speaking = encoder(format)
    return [*(speaking.encode(samples[a:b].tobytes()) for a, b in pairwise(ends)), speaking.finish()]


def decode(data: bytes) -> npt.NDArray[np.int16]:
    with av.open(io.BytesIO(data)) as file:
        resampler = av.AudioResampler("s16", "mono", SAMPLE_RATE)
        frames = [out for frame in file.decode(audio=0) for out in resampler.resample(frame)]
        frames += resampler.resample(None)
    return np.concatenate([frame.to_ndarray()[0] for frame in frames])


@given(st.lists(st.binary(min_size=2, max_size=64).filter(lambda pcm: len(pcm) % 2 == 0), max_size=8))
def test_a_wav_per_piece_loses_nothing(sounds: list[bytes]) -> None:
    speaking = encoder("wav")
    played = b""
    for sound in sounds:
        with wave.open(io.BytesIO(speaking.encode(sound))) as file:
            assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (SAMPLE_RATE, 1, 2)
            played += file.readframes(file.getnframes())
    assert played + speaking.finish() == b"".join(sounds)


def test_an_empty_wav_is_a_header() -> None:
    assert encoder("wav").encode(b"") == wav_header(0)
    assert len(wav_header(0)) == 44


@pytest.mark.parametrize("format", ["pcm16", "pcm"])
def test_pcm_is_the_samples_alone(format: str) -> None:
    sound = speech()
    assert b"".join(pieces(format, sound)) == sound.tobytes()


def test_each_piece_of_flac_is_a_file_and_none_loses_a_sample() -> None:
    sound = speech()
    decoded = [decode(piece) for piece in pieces("flac", sound) if piece]
    assert len(decoded) == 6
    assert np.array_equal(np.concatenate(decoded), sound)


@pytest.mark.parametrize("format", LOSSY)
def test_the_pieces_of_a_lossy_format_are_one_file_without_clicks(format: str) -> None:
    sound = speech()
    heard = decode(b"".join(pieces(format, sound)))[LOSSY[format] :][: len(sound)].astype(float)
    assert len(heard) == len(sound)
    inner = slice(2000, -2000)
    error = np.abs(heard[inner] - sound[inner])
    assert error.mean() < 200
    # A gap or a jump of phase where one piece ends would be as loud as the sound.
    assert error.max() < 800


@pytest.mark.parametrize("format", FORMATS)
def test_an_answer_without_sound_has_no_data(format: str) -> None:
    assert encoder(format).finish() == b""


@pytest.mark.parametrize("format", FORMATS)
def test_whole_and_in_pieces_sound_the_same(format: str) -> None:
    speaking, sound = encoder(format), speech()
    whole = speaking.encode(sound.tobytes()) + speaking.finish()
    if format in LOSSY:
        assert np.array_equal(decode(whole), decode(b"".join(pieces(format, sound))))
    elif format in ("wav", "flac"):
        assert np.array_equal(decode(whole), sound)
    else:
        assert whole == sound.tobytes()
