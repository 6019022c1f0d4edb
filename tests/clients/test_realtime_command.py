"""`python -m omni.client realtime` against the whole server."""

from __future__ import annotations

import subprocess
import sys
import wave
from pathlib import Path

import numpy as np
import pytest
from support.launched import Launched
from support.speech import silence, speak

from frontend.protocol.pcm import wav
from omni.contract.names import SAMPLE_RATE
from omni.stages.dummy import tones

pytestmark = pytest.mark.client


def command(server: Launched, *arguments: str) -> subprocess.CompletedProcess[str]:
    url = server.url.replace("http", "ws") + "/v1/realtime"
    line = [sys.executable, "-m", "omni.client", "realtime", "--url", url, *arguments]
    return subprocess.run(line, capture_output=True, text=True, timeout=60)


def test_a_text_is_answered_in_speech(server: Launched, tmp_path: Path) -> None:
    done = command(server, "--text", "Hello!", "--save", str(tmp_path / "a.wav"))
    assert done.returncode == 0, done.stderr
    assert done.stdout == "Received text: Hello!\n"
    with wave.open(str(tmp_path / "a.wav")) as file:
        pcm = np.frombuffer(file.readframes(file.getnframes()), np.int16)
    assert tones.decode(pcm) == "Received text: Hello!"


def test_a_sound_file_is_heard(server: Launched, tmp_path: Path) -> None:
    question = tmp_path / "q.wav"
    question.write_bytes(wav(silence(0.5) + speak("How many cars are there?").pcm, SAMPLE_RATE))
    done = command(server, "--audio", str(question), "--silent")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Received audio ")
    assert "a voice from" in done.stderr


def test_what_cannot_be_is_said(server: Launched, tmp_path: Path) -> None:
    assert command(server, "--text", "x", "--voice", "Nobody").returncode == 1
    done = command(server, "--audio", str(tmp_path / "nothing.wav"))
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
