from __future__ import annotations

import io
import wave
from collections.abc import Sequence
from itertools import accumulate, pairwise

import av
import numpy as np
import numpy.typing as npt
import pytest
import soxr
from hypothesis import example, given, settings
from hypothesis import strategies as st

from frontend.openai.speech_format import FORMATS, SpeechEncoder, chunk_encoder, file_encoder, wav_header, whole
from omni.contract.names import SAMPLE_RATE

pytestmark = pytest.mark.pure

SECONDS = 3
EXACT = ("wav", "flac", "mp3", "opus")
"""Formats of which a file tells exactly which samples are its sound."""
CHUNKED = (*EXACT, "aac")
LATE = {"mp3": 1105, "opus": 0, "aac": 1024, "flac": 0}
"""By format, the samples of silence before the sound in a file that is written as it comes."""
Sound = npt.NDArray[np.int16]


def speech() -> Sound:
    """A tone that swells and fades, which has no period that a click could hide behind."""
    at = np.arange(SECONDS * SAMPLE_RATE) / SAMPLE_RATE
    swell = 0.5 + 0.5 * np.sin(2 * np.pi * 1.3 * at)
    return (8000 * swell * np.sin(2 * np.pi * 331 * at)).astype("<i2")


ENDS = (0, 1920, 5760, 13440, 28800, 50_001, SECONDS * SAMPLE_RATE)
"""As code2wav sends: short pieces first, then longer ones."""


def pieces(speaking: SpeechEncoder, samples: Sound, ends: Sequence[int] = ENDS) -> list[bytes]:
    made = [*(speaking.encode(samples[a:b].tobytes()) for a, b in pairwise(ends)), speaking.finish()]
    return [piece for piece in made if piece]


def decode(data: bytes, rate: int | None = SAMPLE_RATE) -> npt.NDArray[np.float64]:
    """Full scale is 32768; without a rate at the decoder's own."""
    with av.open(io.BytesIO(data)) as file:
        resampler = av.AudioResampler("s16", "mono", rate)
        frames = [out for frame in file.decode(audio=0) for out in resampler.resample(frame)]
        frames += resampler.resample(None)
    return np.concatenate([frame.to_ndarray()[0] for frame in frames]).astype(float)


def one_by_one(chunks: Sequence[bytes]) -> npt.NDArray[np.float64]:
    """The chunks decoded each alone, as a client that writes files would."""
    return np.concatenate([decode(chunk, None) for chunk in chunks])


def off(heard: npt.NDArray[np.float64], sound: Sound) -> tuple[float, float]:
    """Mean and greatest difference."""
    wanted = sound.astype(float)
    if len(heard) == 2 * len(sound):
        wanted = soxr.resample(wanted, SAMPLE_RATE, 2 * SAMPLE_RATE)
    assert len(heard) == len(wanted)
    error = np.abs(heard - wanted)
    return float(error.mean()), float(error.max())


@given(st.lists(st.binary(min_size=2, max_size=64).filter(lambda pcm: len(pcm) % 2 == 0), max_size=8))
def test_a_wav_per_piece_loses_nothing(sounds: list[bytes]) -> None:
    speaking = chunk_encoder("wav")
    played = b""
    for sound in sounds:
        with wave.open(io.BytesIO(speaking.encode(sound))) as file:
            assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (SAMPLE_RATE, 1, 2)
            played += file.readframes(file.getnframes())
    assert played + speaking.finish() == b"".join(sounds)


def test_an_empty_wav_is_a_header() -> None:
    assert chunk_encoder("wav").encode(b"") == wav_header(0)
    assert len(wav_header(0)) == 44


@pytest.mark.parametrize("format", ["pcm16", "pcm"])
def test_pcm_is_the_samples_alone(format: str) -> None:
    sound = speech()
    assert b"".join(pieces(chunk_encoder(format), sound)) == sound.tobytes()


@pytest.mark.parametrize("format", CHUNKED)
def test_each_chunk_is_a_file_and_together_they_are_the_sound(format: str) -> None:
    sound = speech()
    chunks = pieces(chunk_encoder(format), sound)
    assert len(chunks) >= 6
    heard = one_by_one(chunks)
    if format in ("wav", "flac"):
        assert np.array_equal(heard, sound)
        return
    if format == "aac":  # FFmpeg's encoder is off at the very beginning, also of a whole file
        heard, sound = heard[1000 : len(sound)], sound[1000:]
    mean, worst = off(heard, sound)
    assert mean < 200
    # A gap, a jump of phase or a fade where one chunk ends would be as loud as the sound.
    assert worst < 800


@pytest.mark.parametrize("format", CHUNKED)
def test_a_chunk_of_one_frame_of_the_codec_can_be_decoded(format: str) -> None:
    """As the smallest that code2wav sends; some parsers want to see several frames before they know a bare format."""
    sound = speech()
    chunks = pieces(chunk_encoder(format), sound, [*range(0, len(sound), 1920), len(sound)])
    assert len(chunks) > 30
    assert len(sound) <= len(one_by_one(chunks)) / (2 if format == "opus" else 1) < len(sound) + 1024


@pytest.mark.parametrize(("format", "most"), [("mp3", 0.0), ("opus", 250.0), ("aac", 1.0)])
def test_a_decoder_that_starts_with_a_chunk_hears_what_one_from_the_beginning_does(format: str, most: float) -> None:
    sound = speech()
    at_once = one_by_one(pieces(chunk_encoder(format), sound, (0, len(sound))))
    assert np.abs(one_by_one(pieces(chunk_encoder(format), sound)) - at_once).max() <= most


@settings(max_examples=15)
@example([90, 100, 1475, 576, 1476, 806, 1852, 49, 806, 1852, 806, 9000], "mp3")  # has what begins a file of H.263
@given(st.lists(st.integers(1, 9000), min_size=1, max_size=12), st.sampled_from(["mp3", "opus"]))
def test_no_sample_is_missing_or_twice_wherever_chunks_end(lengths: list[int], format: str) -> None:
    # A decoder can't cut both ends of one packet, so less than 30 ms of speech in all may come out longer.
    ends = [0, *accumulate([720, *lengths])]
    sound = np.resize(speech(), ends[-1])
    heard = one_by_one(pieces(chunk_encoder(format), sound, ends))
    assert len(heard) == len(sound) * (2 if format == "opus" else 1)


def test_a_long_chunk_of_opus_has_several_pages() -> None:
    sound = np.tile(speech(), 3)
    [first, *_] = pieces(chunk_encoder("opus"), sound, (0, len(sound)))
    assert first.count(b"OggS") == 2 + 9
    assert off(one_by_one(pieces(chunk_encoder("opus"), sound, (0, len(sound)))), sound)[1] < 800


@pytest.mark.parametrize("format", LATE)
def test_the_pieces_of_a_file_are_one_file_without_clicks(format: str) -> None:
    sound = speech()
    heard = decode(b"".join(pieces(file_encoder(format), sound)))[LATE[format] :][: len(sound)]
    assert len(heard) == len(sound)
    inner = slice(2000, -2000)
    error = np.abs(heard[inner] - sound[inner])
    assert error.mean() < 200
    assert error.max() < 800


@pytest.mark.parametrize("format", EXACT)
def test_a_whole_file_tells_its_length(format: str) -> None:
    sound = speech()
    data = whole(format, sound.tobytes())
    assert off(decode(data, None), sound)[1] < 800
    with av.open(io.BytesIO(data)) as file:
        stream = file.streams.audio[0]
        assert stream.duration is not None
        assert float(stream.duration * stream.time_base) == pytest.approx(SECONDS, abs=0.05)


@pytest.mark.parametrize("format", FORMATS)
def test_an_answer_without_sound_has_no_data(format: str) -> None:
    assert chunk_encoder(format).finish() == b""
    assert whole(format, b"") == (wav_header(0) if format == "wav" else b"")
