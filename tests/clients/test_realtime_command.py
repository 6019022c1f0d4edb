"""`python -m omni.client realtime` against the whole server."""

from __future__ import annotations

import json
import subprocess
import sys
import wave
from pathlib import Path

import numpy as np
import pytest
from support.launched import Launched

from bench.voice import silence, speak
from frontend.protocol.pcm import wav
from omni.contract.names import SAMPLE_RATE
from omni.stages.dummy import tones

pytestmark = pytest.mark.client


def command(server: Launched, *arguments: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "omni.client", "realtime", "--url", server.url, *arguments]
    return subprocess.run(line, capture_output=True, text=True, timeout=60)


def test_a_text_is_answered_in_speech(server: Launched, tmp_path: Path) -> None:
    done = command(server, "Hello!", "--save", str(tmp_path / "a.wav"))
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


def test_an_answer_as_an_object(server: Launched, tmp_path: Path) -> None:
    """Sent at the pace of speech, the turn is found where it is."""
    question, spoken = tmp_path / "q.wav", speak("How many cars are there?").pcm
    question.write_bytes(wav(silence(0.5) + spoken, SAMPLE_RATE))
    done = command(server, "--audio", str(question), "--system", "Be brief.", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    told = json.loads(done.stdout)
    (answer,) = told["answers"]
    assert answer["text"].startswith("Received system: Be brief.\naudio ")
    assert answer["status"] == "completed"
    assert answer["usage"]["output_tokens"] > 0
    assert min(answer["first_token_s"], answer["first_sound_s"]) >= 0
    assert told["speech_s"] > 0
    ((began, ended),) = told["heard"]
    assert began == pytest.approx(500 - 300, abs=150)
    assert ended == pytest.approx(500 + len(spoken) / 48 + 1_000, abs=150)


def test_what_cannot_be_is_said(server: Launched, tmp_path: Path) -> None:
    assert command(server, "x", "--voice", "Nobody").returncode == 1
    done = command(server, "--seconds", "1")  # there is no microphone here
    assert (done.returncode, "microphone" in done.stderr, "Traceback" in done.stderr) == (1, True, False)
    quiet = tmp_path / "quiet.wav"
    quiet.write_bytes(wav(silence(0.2), SAMPLE_RATE))
    for audio, words in ((tmp_path / "nothing.wav", "nothing.wav"), (quiet, "no voice was heard")):
        done = command(server, "--audio", str(audio))
        assert (done.returncode, words in done.stderr, "Traceback" in done.stderr) == (1, True, False)
