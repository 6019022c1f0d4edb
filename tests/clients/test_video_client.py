"""`python -m omni.client video` against a whole front door."""

from __future__ import annotations

import asyncio
import os
import re
import sys
import wave
from pathlib import Path

import av
import numpy as np
import pytest
from support.front import front, serving

from frontend.engine.fake import FakeEngine

pytestmark = [pytest.mark.process, pytest.mark.anyio]


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three seconds: a picture that changes, and a tone."""
    path = tmp_path_factory.mktemp("clip") / "clip.mp4"
    with av.open(str(path), "w") as out:
        video = out.add_stream("mpeg4", rate=10)
        video.width, video.height, video.pix_fmt = 160, 120, "yuv420p"
        audio = out.add_stream("aac", rate=16_000)
        for n in range(30):
            pixels = np.full((120, 160, 3), n * 8, np.uint8)
            out.mux(video.encode(av.VideoFrame.from_ndarray(pixels, "rgb24")))
        tone = (np.sin(np.arange(48_000) * 0.2) * 0.3).astype(np.float32)[None]
        frame = av.AudioFrame.from_ndarray(tone, "fltp", "mono")
        frame.sample_rate = 16_000
        out.mux(audio.encode(frame))
        out.mux(video.encode(None))
        out.mux(audio.encode(None))
    return path


async def ran(*arguments: str) -> tuple[int, str, str]:
    """`(exit status, standard output, standard error)` of the client."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "omni.client", "video", *arguments,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        env={name: value for name, value in os.environ.items() if name != "OPENAI_API_KEY"},
    )  # fmt: skip
    out, err = await asyncio.wait_for(process.communicate(), 60)
    return process.returncode or 0, out.decode(), err.decode()


def socket(url: str) -> str:
    return url.replace("http", "ws", 1) + "/v1/video/chat/stream"


async def test_text(clip: Path) -> None:
    engine = FakeEngine()
    async with serving(front(engine)) as running:
        status, out, err = await ran(
            "--url", socket(running.url), "--video", str(clip), "--query", "one two", "--query", "three",
            "--all-frames", "--num-frames", "4",
        )  # fmt: skip
    assert status == 0, err
    assert out == "> one two\none two\n> three\nthree\n"
    assert "sent 6 frames" in err
    assert re.search(r"3\.\d s of sound", err)
    job = next(run.job for run in engine.runs if not run.job.settings.prefill)
    assert [part.kind for part in job.media][-1] == "audio"


async def test_speech_is_saved(clip: Path, tmp_path: Path) -> None:
    file = tmp_path / "answer.wav"
    async with serving(front()) as running:
        status, out, err = await ran(
            "--url", socket(running.url), "--video", str(clip), "--query", "one two", "--save", str(file),
        )  # fmt: skip
    assert status == 0, err
    assert out == "> one two\none two\n"
    with wave.open(str(file)) as speech:
        assert (speech.getframerate(), speech.getnframes()) == (24_000, 2 * 1920)


async def test_failures_are_told_in_a_line(clip: Path, tmp_path: Path) -> None:
    nothing = tmp_path / "nothing.mp4"
    nothing.write_bytes(b"nothing")
    async with serving(front(api_keys="secret")) as running:
        url = socket(running.url)
        key = ("--api-key", "secret")
        for arguments, words in (
            (("--url", "ws://127.0.0.1:1/", "--video", str(clip)), "can't reach"),
            (("--url", url, "--video", str(clip)), "can't reach"),
            (("--url", url, "--video", str(nothing), *key), "can't be read"),
            (("--url", url, "--video", str(clip), *key, "--num-frames", "0"), "num_frames"),
        ):
            status, _, err = await ran(*arguments, "--query", "x")
            assert (status, words in err, "Traceback" in err) == (1, True, False), err
