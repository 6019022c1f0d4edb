from __future__ import annotations

import contextlib
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omni.contract.errors import Cancelled, InvalidMedia, TooLarge
from omni.contract.job import VideoOptions
from omni.contract.names import LISTEN_RATE
from omni.stages.media.limits import MediaLimits
from omni.stages.media.video import Sampling, decode_video

pytestmark = pytest.mark.pure

PARAM = "messages.0.content.0.video_url"
ALL = Sampling(fps=120)
IDENTITY = bytes.fromhex("00010000" + "00" * 12 + "00010000" + "00" * 12 + "40000000")
CLOCKWISE = bytes.fromhex("00000000" + "00010000" + "00" * 4 + "ffff0000" + "00" * 16 + "40000000")


def numbers(frames: np.ndarray) -> list[int]:
    """The numbers of frames, from their right half."""
    return np.rint(frames[:, 10:-10, -20:-5].mean(axis=(1, 2, 3)) / 10).astype(int).tolist()


@pytest.mark.parametrize(
    ("container", "codec"), [("mp4", "libx264"), ("matroska", "libx264"), ("webm", "libvpx"), ("avi", "mpeg4")]
)
def test_frames_are_sampled_by_time(clip: Callable[..., bytes], container: str, codec: str) -> None:
    video = decode_video(clip(container=container, codec=codec))
    assert (video.frames.shape, video.frames.dtype) == ((4, 48, 64, 3), np.uint8)
    assert numbers(video.frames) == [0, 5, 10, 15]
    assert video.times.tolist() == pytest.approx([0.0, 0.5, 1.0, 1.5], abs=2e-3)
    assert video.seconds == pytest.approx(2.0, abs=0.05)
    assert video.sound is None
    assert np.abs(video.frames[:, 24, 10].astype(int) - (255, 0, 0)).max() < 12


def test_every_frame_is_given_once(clip: Callable[..., bytes]) -> None:
    video = decode_video(clip(), ALL)
    assert numbers(video.frames) == list(range(20))
    assert video.times.tolist() == pytest.approx([i / 10 for i in range(20)])


def test_a_variable_frame_rate_keeps_its_times(clip: Callable[..., bytes]) -> None:
    times = (0.0, 0.04, 0.08, 0.9, 1.7, 1.74, 3.0)
    data = clip(times)
    assert decode_video(data, ALL).times.tolist() == pytest.approx(times)
    video = decode_video(data, Sampling(fps=1))
    assert numbers(video.frames) == [0, 3, 5, 6][: len(video.frames)]
    assert video.times.tolist() == pytest.approx([0.0, 0.9, 1.74, 3.0][: len(video.frames)])
    assert len(video.frames) >= 3


def test_a_clip_that_begins_late_has_its_own_clock(clip: Callable[..., bytes]) -> None:
    video = decode_video(clip([5 + i / 10 for i in range(10)], container="matroska"), Sampling(fps=5))
    assert video.times.tolist() == pytest.approx([0.0, 0.2, 0.4, 0.6, 0.8])
    assert video.seconds == pytest.approx(1.0, abs=0.05)


def test_one_frame_is_a_clip(clip: Callable[..., bytes]) -> None:
    video = decode_video(clip([0.0]))
    assert (len(video.frames), video.times.tolist()) == (1, [0.0])


def test_few_frames_are_spread_over_the_clip(clip: Callable[..., bytes]) -> None:
    video = decode_video(clip(), Sampling(fps=10, max_frames=4))
    assert numbers(video.frames) == [0, 5, 10, 15]


def test_a_phone_held_upright(clip: Callable[..., bytes]) -> None:
    data = clip()
    assert data.count(IDENTITY) == 2
    film = data.rindex(IDENTITY)
    video = decode_video(data[:film] + CLOCKWISE + data[film + len(IDENTITY) :])
    assert video.frames.shape == (4, 64, 48, 3)
    assert np.abs(video.frames[0, 10, 24].astype(int) - (255, 0, 0)).max() < 12
    assert video.frames[0, 54, 24].max() < 12


def test_the_sound_of_a_clip(clip: Callable[..., bytes]) -> None:
    data = clip(sound=2.0)
    sound = decode_video(data, sound=True).sound
    assert sound is not None
    assert sound.dtype == np.float32
    assert abs(len(sound) / LISTEN_RATE - 2.0) < 0.1
    assert decode_video(data).sound is None
    assert decode_video(clip(), sound=True).sound is None
    assert numbers(decode_video(data).frames) == [0, 5, 10, 15]


def test_pixels_are_bounded(clip: Callable[..., bytes]) -> None:
    data = clip(size=(128, 96))
    assert decode_video(data, Sampling(max_pixels=32 * 24)).frames.shape == (4, 24, 32, 3)
    assert decode_video(data, Sampling(total_pixels=4 * 32 * 24)).frames.shape == (4, 24, 32, 3)
    assert decode_video(data, Sampling(min_pixels=256 * 192)).frames.shape == (4, 192, 256, 3)
    assert decode_video(data, fit=lambda height, width, frames: (height // 2, width // 4)).frames.shape == (
        4,
        48,
        32,
        3,
    )


sides = st.integers(1, 5000)
bounds = st.integers(1, 10**7)


@given(sides, sides, st.integers(1, 768), bounds, bounds, st.integers(1, 10**8))
def test_no_size_is_over_its_bounds(height: int, width: int, frames: int, low: int, high: int, total: int) -> None:
    tall, wide = Sampling(min_pixels=low, max_pixels=high, total_pixels=total).fit(height, width, frames)
    assert tall >= 1
    assert wide >= 1
    assert tall * wide <= max(1, min(high, total // frames))


def test_a_request_has_its_way_within_the_limits() -> None:
    limits = MediaLimits(video_frames=100, video_pixels=1000)
    own = Sampling(fps=3.0, max_frames=50)
    assert own.asked(VideoOptions(), limits) == Sampling(fps=3.0, max_frames=50, total_pixels=1000)
    asked = own.asked(VideoOptions(fps=1.0, max_frames=500, max_pixels=7, min_pixels=5, total_pixels=900), limits)
    assert asked == Sampling(fps=1.0, max_frames=100, min_pixels=5, max_pixels=7, total_pixels=900)
    assert Sampling.of({"video": {"fps": 1}}).fps == 1
    with pytest.raises(ValueError, match="unknown video options: frames"):
        Sampling.of({"video": {"frames": 1}})


def test_too_long_or_too_large_is_refused_before_decoding(clip: Callable[..., bytes]) -> None:
    data = clip()
    with pytest.raises(TooLarge, match=r"longer than 1\.5 seconds") as caught:
        decode_video(data, limits=MediaLimits(video_seconds=1.5), param=PARAM)
    assert caught.value.param == PARAM
    with pytest.raises(TooLarge, match="64x48 pixels; at most 3000") as caught:
        decode_video(data, limits=MediaLimits(image_pixels=3000), param=PARAM)
    assert caught.value.param == PARAM
    late = clip([0.0, 0.1, 7200.0])
    with pytest.raises(TooLarge, match="longer than 3600 seconds"):
        decode_video(late)


def test_a_check_stops_the_decoder(clip: Callable[..., bytes]) -> None:
    left = 25

    def stop() -> None:
        nonlocal left
        left -= 1
        if not left:
            raise Cancelled("no longer wanted")

    with pytest.raises(Cancelled):
        decode_video(clip(), check=stop)


def test_other_media_are_invalid(tone: Callable[..., bytes], picture: Callable[..., bytes]) -> None:
    for data in (
        tone(),
        tone(1.0, 44_100, "mono", "mp3", "libmp3lame"),
        picture(),
        picture(format="JPEG"),
        b"",
        bytes(9999),
    ):
        with pytest.raises(InvalidMedia) as caught:
            decode_video(data, param=PARAM)
        assert caught.value.param == PARAM
        assert caught.value.__cause__ is None


def test_the_cover_of_a_song_is_no_film(tone: Callable[..., bytes], picture: Callable[..., bytes]) -> None:
    song = tone(0.5, 44_100, "mono", "mp3", "libmp3lame")
    cover = b"\0image/png\0\x03\0" + picture()
    frame = b"APIC" + len(cover).to_bytes(4, "big") + b"\0\0" + cover
    size = len(frame)
    head = b"ID3\x03\0\0" + bytes([size >> 21 & 127, size >> 14 & 127, size >> 7 & 127, size & 127])
    with pytest.raises(InvalidMedia, match="no moving pictures"):
        decode_video(head + frame + song[song.index(b"\xff\xfb") :])


def test_damage_never_leaks(clip: Callable[..., bytes], capfd: pytest.CaptureFixture[str]) -> None:
    random = np.random.default_rng(0)
    for data in (clip(), clip(container="matroska"), clip(container="avi", codec="mpeg4")):
        with pytest.raises(InvalidMedia):
            decode_video(data[: len(data) // 20], param=PARAM)
        for _ in range(15):
            damaged = np.frombuffer(data, np.uint8).copy()
            damaged[random.integers(0, len(damaged), len(damaged) // 50)] = random.integers(0, 256)
            with contextlib.suppress(InvalidMedia, TooLarge):
                assert len(decode_video(damaged[: random.integers(1, len(damaged))].tobytes(), param=PARAM).frames)
    assert capfd.readouterr() == ("", "")
