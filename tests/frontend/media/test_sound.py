"""Sound formats, rates and voices."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from bench.voice import silence, speak
from frontend import ear as ear_module
from frontend.ear import SileroEar, hear_all, pitches_of
from frontend.media import g711
from frontend.media.resample import Resampler
from frontend.media.vad import VoiceDetector, probabilities
from frontend.protocol.realtime_config import Format
from frontend.protocol.speech import Window
from frontend.senses import Resampled

pytestmark = pytest.mark.process

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import audioop

ALL = np.arange(-32768, 32768).astype(np.int16)
CODES = bytes(range(256))


def test_g711_decodes_as_the_standard_has_it() -> None:
    assert g711.decode_ulaw(CODES) == audioop.ulaw2lin(CODES, 2)
    assert g711.decode_alaw(CODES) == audioop.alaw2lin(CODES, 2)


@pytest.mark.parametrize("law", ["ulaw", "alaw"])
def test_g711_encodes_to_the_nearest_level(law: str) -> None:
    encode, decode = getattr(g711, f"encode_{law}"), getattr(g711, f"decode_{law}")
    levels = np.unique(np.frombuffer(decode(CODES), np.int16)).astype(int)
    heard = np.frombuffer(decode(encode(ALL)), np.int16).astype(int)
    nearest = np.abs(levels[np.searchsorted((levels[1:] + levels[:-1]) / 2, ALL)] - ALL.astype(int))
    assert np.array_equal(np.abs(heard - ALL), nearest)


@pytest.mark.parametrize(("source", "target"), [(24_000, 16_000), (24_000, 8_000), (8_000, 16_000)])
def test_resampling(source: int, target: int) -> None:
    """A tone within the band keeps its level; one above it is gone; pieces make no difference."""
    time = np.arange(source) / source

    def level(hertz: float) -> float:
        out = Resampler(source, target).feed(np.sin(2 * np.pi * hertz * time))
        middle = out[len(out) // 4 : -len(out) // 4]
        return 20 * np.log10(np.sqrt(2 * np.square(middle).mean()) + 1e-9)

    slow = min(source, target)
    assert abs(level(slow * 0.1)) < 0.1
    assert abs(level(slow * 0.4)) < 0.5
    if source > target:
        assert level(target * 0.55) < -60
    noise = np.random.default_rng(1).normal(0, 0.1, source)
    whole = Resampler(source, target)
    pieces = Resampler(source, target)
    together = np.concatenate((whole.feed(noise), whole.finish()))
    apart = np.concatenate([*(pieces.feed(one) for one in np.array_split(noise, 37)), pieces.finish()])
    assert np.allclose(together, apart, atol=1e-6)
    assert abs(len(together) - target) < target * 0.01


def test_resampling_holds_nothing_back() -> None:
    resampler = Resampler(24_000, 16_000)
    given = got = 0
    for _ in range(50):
        got += len(resampler.feed(np.zeros(480)))
        given += 480
        assert given / 24 - got / 16 < 4, "milliseconds"


def test_telephone_speech_keeps_its_length() -> None:
    encoder = Resampled(Format("audio/pcmu", 8_000))
    pcm = speak("Hello there.").pcm
    data = b"".join(encoder.encode(pcm[at : at + 3_840]) for at in range(0, len(pcm), 3_840)) + encoder.finish()
    assert abs(len(data) - len(pcm) / 6) < 40


@pytest.mark.parametrize("rate", [8_000, 16_000, 24_000])
def test_a_voice_is_heard_where_it_is(rate: int) -> None:
    spoken = speak("Hello there, how many cars are in the picture?", rate=rate)
    ear = SileroEar(rate)
    pcm = silence(1, rate) + spoken.pcm + silence(1, rate)
    windows = [one for at in range(0, len(pcm), rate // 10) for one in ear.hear(pcm[at : at + rate // 10])]
    voiced = np.array([one.voice >= 0.5 for one in windows])
    first, last = np.flatnonzero(voiced)[[0, -1]] * 0.032
    assert first == pytest.approx(1.0, abs=0.15)
    assert last == pytest.approx(1.0 + len(spoken.pcm) / 2 / rate, abs=0.2)
    assert not voiced[: int(0.9 / 0.032)].any()
    pitches = [one.pitch for one in windows if one.pitch]
    assert 60 < np.median(pitches) < 250
    quiet = [one.level for one in windows[:25]]
    assert max(quiet) < -60


def test_noise_and_tones_are_no_voices() -> None:
    noise = (np.random.default_rng(0).normal(0, 3_000, 48_000)).astype("<i2").tobytes()
    tone = (np.sin(np.arange(48_000) / 10) * 8_000).astype("<i2").tobytes()
    for pcm in (noise, tone):
        windows = SileroEar(24_000).hear(pcm)
        assert np.mean([one.voice >= 0.5 for one in windows]) < 0.05


def test_streams_are_independent_and_a_reset_starts_afresh() -> None:
    pcm = speak("Hello there.", rate=16_000).pcm
    one, other = SileroEar(16_000), SileroEar(16_000)
    alone = SileroEar(16_000).hear(pcm)
    both = [(one.hear(pcm[at : at + 1_024]), other.hear(bytes(1_024))) for at in range(0, len(pcm), 1_024)]
    assert [window for windows, _ in both for window in windows] == list(alone)
    one.reset(pitch=True)
    assert list(one.hear(pcm)) == list(alone)


def test_many_ears_hear_what_each_would_alone() -> None:
    sounds = {rate: silence(0.2, rate) + speak("Hello there.", rate=rate).pcm for rate in (8_000, 16_000, 24_000)}
    rates = [8_000, 16_000, 24_000] * 7
    ears = [SileroEar(rate) for rate in rates]
    alone = {rate: list(SileroEar(rate).hear(pcm)) for rate, pcm in sounds.items()}
    heard: list[list[Window]] = [[] for _ in ears]
    for step in range(10):
        asked = []
        for n, (ear, rate) in enumerate(zip(ears, rates, strict=True)):
            size = rate // 50 * (1 + n % 4) * 2  # some of them are ahead of others
            pcm = sounds[rate]
            asked.append((ear, pcm[step * size :] if step == 9 else pcm[step * size : (step + 1) * size]))
        for windows, more in zip(heard, hear_all(asked), strict=True):
            windows += more
    for windows, rate in zip(heard, rates, strict=True):
        assert [one.voice for one in windows] == pytest.approx([one.voice for one in alone[rate]], abs=1e-4)
        assert [one.pitch for one in windows] == pytest.approx([one.pitch for one in alone[rate]], abs=1e-2)


def test_a_microphone_that_is_off_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def counted(detectors: Sequence[VoiceDetector], windows: Sequence[Any]) -> list[float]:
        asked.append(len(windows))
        return probabilities(detectors, windows)

    monkeypatch.setattr(ear_module, "probabilities", counted)
    spoken = speak("Hello there.", rate=16_000).pcm
    ear = SileroEar(16_000)
    ear.hear(bytes(16_000 * 2 * 4))
    assert len(asked) == ear_module.MUTE_WINDOWS
    after = [one.voice for one in ear.hear(spoken)]
    fresh = [one.voice for one in SileroEar(16_000).hear(spoken)]
    assert np.flatnonzero(np.array(after) >= 0.5)[0] == np.flatnonzero(np.array(fresh) >= 0.5)[0]


def test_a_detector_wants_whole_windows() -> None:
    with pytest.raises(ValueError, match="window"):
        probabilities([VoiceDetector(16_000)], [np.zeros(100, np.float32)])


def test_pitch() -> None:
    time = np.arange(1_024) / 16_000
    voices = (90.0, 150.0, 300.0)
    sounds = [sum(np.sin(2 * np.pi * hertz * k * time) / k for k in range(1, 6)) for hertz in voices]
    found = pitches_of(np.asarray([*sounds, np.zeros(1_024)], np.float32), 16_000)
    assert found == [*(pytest.approx(hertz, rel=0.03) for hertz in voices), 0.0]
