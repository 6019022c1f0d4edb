from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from omni.contract.errors import Cancelled, InvalidMedia, TooLarge
from omni.contract.names import LISTEN_RATE
from omni.stages.media import container
from omni.stages.media.audio import decode_audio
from omni.stages.media.limits import MediaLimits

pytestmark = pytest.mark.pure

PARAM = "messages.0.content.0.input_audio"


def pitch(samples: np.ndarray) -> float:
    spectrum = np.abs(np.fft.rfft(samples * np.hanning(len(samples))))
    return float(spectrum.argmax() * LISTEN_RATE / len(samples))


@pytest.mark.parametrize(
    ("container", "codec", "rate", "layout"),
    [
        ("wav", "pcm_s16le", 48_000, "mono"),
        ("wav", "pcm_s16le", 16_000, "mono"),
        ("wav", "pcm_s16le", 44_100, "stereo"),
        ("wav", "pcm_u8", 8_000, "mono"),
        ("wav", "pcm_s24le", 96_000, "5.1"),
        ("wav", "pcm_f32le", 22_050, "stereo"),
        ("wav", "pcm_f64le", 11_025, "mono"),
        ("wav", "pcm_mulaw", 8_000, "mono"),
        ("flac", "flac", 48_000, "stereo"),
        ("mp3", "libmp3lame", 44_100, "stereo"),
        ("adts", "aac", 48_000, "mono"),
        ("mp4", "aac", 44_100, "stereo"),
        ("ogg", "libopus", 48_000, "mono"),
        ("webm", "libopus", 48_000, "stereo"),
        ("aiff", "pcm_s16be", 32_000, "mono"),
    ],
)
def test_every_kind_of_file(tone: Callable[..., bytes], container: str, codec: str, rate: int, layout: str) -> None:
    samples = decode_audio(tone(1.5, rate, layout, container, codec))
    assert samples.dtype == np.float32
    assert abs(len(samples) / LISTEN_RATE - 1.5) < 0.1
    assert abs(pitch(samples) - 440) < 2
    middle = samples[4000:20_000]
    assert np.sqrt(np.mean(middle**2)) == pytest.approx(0.5 / np.sqrt(2), rel=0.1)


@pytest.mark.parametrize("codec", ["aac", "libopus"])
def test_as_many_channels_as_a_cinema_has(tone: Callable[..., bytes], codec: str) -> None:
    """Found by fuzzing: PyAV's own planes of such a frame end the process."""
    samples = decode_audio(tone(1.5, 48_000, "7.1", "matroska", codec))
    assert abs(len(samples) / LISTEN_RATE - 1.5) < 0.1
    assert abs(pitch(samples) - 440) < 2


def test_samples_at_the_right_rate_stay_as_they_are() -> None:
    pcm = np.random.default_rng(0).integers(-32768, 32768, 70_001).astype("<i2")
    data = b"RIFF\xff\xff\xff\xffWAVEfmt " + struct.pack("<IHHIIHH", 16, 1, 1, 16_000, 32_000, 2, 16)
    samples = decode_audio(data + b"data\xff\xff\xff\xff" + pcm.tobytes())
    assert np.array_equal(samples * 32768, pcm)


def test_channels_are_averaged() -> None:
    left = np.full(1600, 8000, "<i2")
    both = np.stack([left, -left // 2], axis=1).tobytes()
    form = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 2, 16_000, 64_000, 4, 16)
    head = struct.pack("<4sI4s", b"RIFF", 36 + len(both), b"WAVE") + form + struct.pack("<4sI", b"data", len(both))
    assert np.array_equal(decode_audio(head + both), np.full(1600, 2000 / 32768, np.float32))


def test_what_is_above_the_new_rate_is_removed(tone: Callable[..., bytes]) -> None:
    loud, gone = decode_audio(tone(hertz=7_000)), decode_audio(tone(hertz=9_000))
    assert 20 * np.log10(np.abs(gone[2000:-2000]).max() / np.abs(loud[2000:-2000]).max()) < -80


def test_a_rate_that_no_sound_has_is_invalid(tone: Callable[..., bytes]) -> None:
    data = bytearray(tone(0.5, 8_000, "mono", "wav", "pcm_s16le"))
    at = data.index(b"fmt ") + 12
    data[at : at + 8] = struct.pack("<II", 1, 2)
    with pytest.raises(InvalidMedia, match="fewer than 1000 samples") as caught:
        decode_audio(bytes(data), param="audios.0")
    assert caught.value.param == "audios.0"


def test_too_long_shows_while_decoding(tone: Callable[..., bytes]) -> None:
    limits = MediaLimits(audio_seconds=1.0)
    assert len(decode_audio(tone(1.0), limits)) == LISTEN_RATE
    with pytest.raises(TooLarge, match="longer than 1 seconds") as caught:
        decode_audio(tone(1.05), limits, PARAM)
    assert caught.value.param == PARAM

    packets = 0

    def count() -> None:
        nonlocal packets
        packets += 1

    data = tone(60.0, 16_000)
    decode_audio(data, check=count)
    whole, packets = packets, 0
    with pytest.raises(TooLarge):
        decode_audio(data, limits, check=count)
    assert 0 < packets < whole / 20


def test_a_check_stops_the_decoder(tone: Callable[..., bytes]) -> None:
    def stop() -> None:
        raise Cancelled("no longer wanted")

    with pytest.raises(Cancelled):
        decode_audio(tone(), check=stop)


def test_a_file_without_sound_is_invalid(clip: Callable[..., bytes], picture: Callable[..., bytes]) -> None:
    with pytest.raises(InvalidMedia, match="holds no sound") as caught:
        decode_audio(clip(), param=PARAM)
    assert caught.value.param == PARAM
    with pytest.raises(InvalidMedia):
        decode_audio(picture(), param=PARAM)


def test_the_sound_of_a_clip_is_sound(clip: Callable[..., bytes]) -> None:
    assert abs(pitch(decode_audio(clip(sound=2.0))) - 440) < 2


@pytest.mark.parametrize("data", [b"", b"RIFF", b"ID3", b"OggS" * 9, b"nothing of the kind " * 200, bytes(5000)])
def test_other_bytes_are_invalid(data: bytes, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InvalidMedia) as caught:
        decode_audio(data, param=PARAM)
    assert caught.value.param == PARAM
    assert caught.value.__cause__ is None
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("container", "codec"), [("mp4", "aac"), ("flac", "flac"), ("ogg", "libopus"), ("wav", "pcm_s16le")]
)
def test_damage_never_leaks(
    tone: Callable[..., bytes], container: str, codec: str, capfd: pytest.CaptureFixture[str]
) -> None:
    data = tone(1.0, 48_000, "mono", container, codec)
    random = np.random.default_rng(0)
    for _ in range(40):
        damaged = np.frombuffer(data, np.uint8).copy()
        damaged[random.integers(0, len(damaged), len(damaged) // 50)] = random.integers(0, 256)
        with contextlib.suppress(InvalidMedia, TooLarge):
            assert len(decode_audio(damaged[: random.integers(1, len(damaged))].tobytes(), param=PARAM))
    assert capfd.readouterr() == ("", "")


def test_mostly_damaged_sound_is_invalid(tone: Callable[..., bytes]) -> None:
    data = bytearray(tone(3.0, 48_000, "mono", "mp4", "aac"))
    first, last = data.index(b"mdat") + 1000, data.index(b"moov") - 4
    data[first:last] = np.random.default_rng(0).bytes(last - first)
    with pytest.raises(InvalidMedia):
        decode_audio(bytes(data), param=PARAM)


def test_only_files_that_hold_their_own_data_are_opened() -> None:
    assert not {"hls", "concat", "dash", "sdp", "image2", "rtsp", "lavfi", "s337m"} & set(container.FORMATS)


def test_a_list_of_other_files_is_not_followed(tone: Callable[..., bytes], tmp_path: Path) -> None:
    (tmp_path / "other.wav").write_bytes(tone())
    path = tmp_path / "other.wav"
    hls = f"#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\nfile://{path}\n#EXT-X-ENDLIST\n"
    for playlist in (hls, f"ffconcat version 1.0\nfile '{path}'\n", f"v=0\r\nm=audio 0 file://{path}\r\n"):
        with pytest.raises(InvalidMedia):
            decode_audio(playlist.encode(), param=PARAM)
