"""The estimate of which words were heard, against a synthesiser that says when it spoke each of them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from bench.voice import Spoken, silence, speak
from frontend.protocol.alignment import EstimatedAlignment, Pace
from omni.contract.names import SAMPLE_RATE

pytestmark = pytest.mark.pure

TEXTS = (
    "Hello there, how many cars are in the picture? I can see three of them, and one is red.",
    "The weather today is mostly sunny, with a gentle breeze from the west. Tomorrow it will rain.",
    "Sure! First, open the settings. Then, choose the second option, and wait until the light turns green.",
    "Photosynthesis converts light energy into chemical energy, which is stored in carbohydrates.",
)


def cuts(spoken: Spoken) -> Iterator[tuple[int, int]]:
    """Places to cut, in samples, and how many words have been spoken there."""
    samples = len(spoken.pcm) // 2
    ends = [at for _, at in spoken.words[1:]] + [samples / 24]
    for ms in range(200, samples // 24, 250):
        yield ms * 24, sum(end <= ms for end in ends)


def off_by(estimates: list[tuple[str, int]]) -> np.ndarray:
    return np.abs([len(kept.split()) - true for kept, true in estimates])


def test_complete_speech() -> None:
    found = []
    for text in TEXTS:
        spoken = speak(text)
        alignment = EstimatedAlignment()
        for at in range(0, len(spoken.pcm), 3_840):
            alignment.hear(spoken.pcm[at : at + 3_840])
        found += [(alignment.kept(text, at, complete=True), true) for at, true in cuts(spoken)]
        assert alignment.kept(text, len(spoken.pcm) // 2, complete=True) == text
    assert (off_by(found) <= 1).mean() >= 0.95
    assert off_by(found).max() <= 2


def test_speech_that_was_cut_off() -> None:
    pace = Pace()
    first = EstimatedAlignment(pace)
    first.hear(speak("This answer was spoken to its end, so that the pace of the voice is known.").pcm)
    first.finished("This answer was spoken to its end, so that the pace of the voice is known.")
    found = []
    for text in TEXTS:
        spoken = speak(text)
        for at, true in cuts(spoken):
            alignment = EstimatedAlignment(pace)
            alignment.hear(spoken.pcm[: at * 2 + SAMPLE_RATE])
            found.append((alignment.kept(text, at, complete=False), true))
    assert (off_by(found) <= 1).mean() >= 0.9
    assert off_by(found).max() <= 3


def test_pauses_say_nothing() -> None:
    text = "one two three four"
    pcm = speak(text).pcm
    alignment = EstimatedAlignment()
    alignment.hear(silence(2.0) + pcm + silence(2.0))
    assert alignment.kept(text, 2 * SAMPLE_RATE, complete=True) == ""
    assert alignment.kept(text, 2 * SAMPLE_RATE + len(pcm) // 2, complete=True) == text


def test_what_is_kept_is_a_beginning_that_ends_with_a_word() -> None:
    text = "  Der 1. Zug\nf\u00e4hrt um 12:30 ab \u2014 \u4f60\u597d\u3002\u4e16\u754c "
    alignment = EstimatedAlignment()
    alignment.hear((np.sin(np.arange(96_000) / 10) * 8_000).astype("<i2").tobytes())
    ends = {len(alignment.kept(text, at, complete=True)) for at in range(0, 96_001, 500)}
    for end in ends:
        assert text[:end] == text[:end].rstrip()
        assert end == len(text.rstrip()) or not text[end].isalnum() or ord(text[end]) > 0x3000
    assert len(ends) > 8
    assert alignment.kept(text, 96_000, complete=True) == text.rstrip()


def test_no_sound_and_no_text() -> None:
    assert EstimatedAlignment().kept("one two", 0, complete=True) == ""
    assert EstimatedAlignment().kept("", 100, complete=True) == ""
