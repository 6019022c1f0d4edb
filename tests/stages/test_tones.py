from __future__ import annotations

import wave
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omni.contract.names import CODEC_FRAME_SAMPLES, SAMPLE_RATE
from omni.stages.dummy import decode as cli
from omni.stages.dummy.frames import GROUPS, Speller, Unreadable, read, spell
from omni.stages.dummy.tones import align, decode, hear, sing

pytestmark = pytest.mark.pure

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=80)
LONG = "one two two three 4 4 4 — fünf 😀😀 sechs sieben acht"


@given(texts)
def test_text_survives_speech(text: str) -> None:
    codes = spell(text)
    pcm = sing(codes)
    assert (codes.dtype, pcm.dtype) == (np.int32, np.int16)
    assert len(pcm) == len(codes) * CODEC_FRAME_SAMPLES
    assert decode(pcm) == text


@given(st.lists(texts, max_size=5))
def test_the_pieces_of_a_text_do_not_matter(pieces: list[str]) -> None:
    speller, frames = Speller(), [np.empty((0, GROUPS), np.int32)]
    for piece in pieces:
        speller.feed(piece)
        while speller.due:
            frames.append(speller.next())
    speller.end()
    while speller.due:
        frames.append(speller.next())
    assert speller.done
    assert np.array_equal(np.concatenate(frames), spell("".join(pieces)))


def test_the_counter_goes_on_after_65536_frames() -> None:
    text = "x" * (11 * 65_540)
    assert read(spell(text)).decode() == text


@given(st.data())
def test_any_lost_repeated_moved_or_changed_sample_shows(data: st.DataObject) -> None:
    pcm = sing(spell(LONG))
    at = data.draw(st.integers(0, len(pcm) - 1))
    changed = pcm.copy()
    changed[at] ^= 0x10
    damages = [
        np.delete(pcm, at),
        np.insert(pcm, at, pcm[at]),
        changed,
        np.delete(pcm, np.arange(at // 120 * 120, at // 120 * 120 + 120)),
    ]
    shift = data.draw(st.integers(1, len(pcm) - 1))
    if not np.array_equal(np.roll(pcm, shift), pcm):
        damages.append(np.roll(pcm, shift))
    for damage in damages:
        with pytest.raises(Unreadable):
            decode(damage)


@pytest.mark.parametrize(
    ("frames", "problem"),
    [
        ([1, 2, 3, 4, 5], "frame 1 stands in the place of frame 0"),
        ([0, 2, 3, 4, 5], "frame 2 stands in the place of frame 1"),
        ([0, 1, 1, 2, 3, 4, 5], "frame 1 stands in the place of frame 2"),
        ([0, 2, 1, 3, 4, 5], "frame 2 stands"),
        ([0, 1, 2, 3], "the end is missing after 4 frames"),
        ([0, 1, 2, 3, 4, 5, 5], "frame 6 comes after the end"),
        ([0, 1, 2, 3, 4, 5, 0], "frame 6 comes after the end"),
    ],
)
def test_every_frame_stands_in_its_place(frames: list[int], problem: str) -> None:
    codes = spell(LONG)
    assert len(codes) == 6
    with pytest.raises(Unreadable, match=problem):
        decode(sing(codes[frames]))


def test_other_sounds_say_nothing() -> None:
    noise = np.random.default_rng(0).integers(-9000, 9000, CODEC_FRAME_SAMPLES * 2).astype(np.int16)
    for sound in (noise, np.zeros(CODEC_FRAME_SAMPLES, np.int16), np.zeros(7, np.int16)):
        with pytest.raises(Unreadable):
            decode(sound)
    with pytest.raises(Unreadable, match="not of bytes"):
        read(np.full((1, GROUPS), 2000, np.int32))
    with pytest.raises(Unreadable, match="damaged"):
        read(np.zeros((1, GROUPS), np.int32))


def test_partial_speech_is_read_as_far_as_it_goes() -> None:
    pcm = sing(spell(LONG))
    for frames in range(6):
        said = decode(pcm[: frames * CODEC_FRAME_SAMPLES], partial=True)
        assert LONG.startswith(said)
        assert len(said.encode()) > 11 * frames - 4
    assert decode(pcm, partial=True) == LONG


def test_hearing_is_the_inverse_of_singing() -> None:
    codes = np.random.default_rng(1).integers(0, 256, (50, GROUPS)).astype(np.int32)
    assert np.array_equal(hear(sing(codes)), codes)
    assert np.abs(sing(codes)).max() < 32767 * 0.75


def test_align_gives_whole_words() -> None:
    text = "alpha beta gamma delta epsilon"
    pcm = sing(spell(text))
    heard = [align(pcm, frames * CODEC_FRAME_SAMPLES) for frames in range(len(pcm) // CODEC_FRAME_SAMPLES + 1)]
    assert heard == ["", "alpha beta", "alpha beta gamma delta", text]
    assert align(pcm, CODEC_FRAME_SAMPLES - 1) == ""
    assert align(pcm, -5) == ""
    assert align(pcm[: 2 * CODEC_FRAME_SAMPLES + 100], 10**9) == "alpha beta gamma"


def test_the_program_prints_what_a_file_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, cut = tmp_path / "good.wav", tmp_path / "cut.wav"
    for path, pcm in ((good, sing(spell(LONG))), (cut, sing(spell(LONG)[:2]))):
        with wave.open(str(path), "wb") as file:
            file.setparams((1, 2, SAMPLE_RATE, 0, "NONE", ""))
            file.writeframes(pcm.tobytes())
    assert cli.main([str(good)]) == 0
    assert capsys.readouterr().out == LONG + "\n"
    assert cli.main([str(cut)]) == 1
    assert "the end is missing" in capsys.readouterr().err
    assert cli.main(["--partial", str(cut)]) == 0
    assert LONG.startswith(capsys.readouterr().out[:-1])
    (tmp_path / "no.wav").write_bytes(b"nothing")
    assert cli.main([str(tmp_path / "no.wav")]) == 1
