"""`python -m omni.client video` against a whole front door."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import wave
from pathlib import Path

import pytest
from support.clips import write_clip
from support.front import front, serving

from frontend.engine.fake import FakeEngine
from omni.client.common import BAR, bar
from omni.client.socket import address
from omni.client.video import PATH

pytestmark = [pytest.mark.process, pytest.mark.anyio]


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_clip(tmp_path_factory.mktemp("clip") / "clip.mp4")


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
            "--url", running.url, "--video", str(clip), "--query", "one two", "--save", str(file), "--json",
        )  # fmt: skip
    assert (status, err) == (0, "")
    told = json.loads(out)
    assert (told["frames_sent"], told["sound_s"] > 2.9, told["speech_s"]) == (6, True, 0.16)
    (answer,) = told["answers"]
    assert (answer["query"], answer["text"], answer["status"]) == ("one two", "one two", "completed")
    assert 0 < answer["frames"] <= told["frames_kept"] + 1
    assert answer["first_token_s"] > 0
    assert answer["first_sound_s"] > 0
    with wave.open(str(file)) as speech:
        assert (speech.getframerate(), speech.getnframes()) == (24_000, 2 * 1920)


def test_how_far_the_upload_is() -> None:
    assert bar(0.0, 3.0) == f"[{'.' * BAR}]   0%"
    assert bar(1.5, 3.0) == f"[{'#' * (BAR // 2)}{'.' * (BAR // 2)}]  50%"
    assert bar(4.0, 3.0).endswith("100%")
    assert bar(4.0, 0.0).endswith("  0%")


@pytest.mark.parametrize(
    ("url", "socket"),
    [
        ("http://localhost:8000", "ws://localhost:8000/v1/video/chat/stream"),
        ("https://host/omni/", "wss://host/omni/v1/video/chat/stream"),
        ("ws://host/v1/video/chat/stream?model=x", "ws://host/v1/video/chat/stream?model=x"),
    ],
)
def test_the_server_or_the_socket_is_named(url: str, socket: str) -> None:
    assert address(url, PATH) == socket


async def test_failures_are_told_in_a_line(clip: Path, tmp_path: Path) -> None:
    nothing = tmp_path / "nothing.mp4"
    nothing.write_bytes(b"nothing")
    async with serving(front(api_keys="secret")) as running:
        url = socket(running.url)
        key = ("--key", "secret")
        for arguments, words in (
            (("--url", "ws://127.0.0.1:1/", "--video", str(clip)), "can't reach"),
            (("--url", url, "--video", str(clip)), "can't reach"),
            (("--url", url, "--video", str(nothing), *key), "can't be read"),
            (("--url", url, "--video", str(clip), *key, "--num-frames", "0"), "num_frames"),
        ):
            status, _, err = await ran(*arguments, "--query", "x")
            assert (status, words in err, "Traceback" in err) == (1, True, False), err
