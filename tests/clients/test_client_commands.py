"""`python -m omni.client chat|speak|listen` against the whole server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import wave
from pathlib import Path

import pytest
from PIL import Image
from support.launched import Launched

from bench.voice import speak
from omni.contract.names import SAMPLE_RATE
from omni.stages.dummy.decode import text_of

pytestmark = pytest.mark.client


def ran(*arguments: str | Path, given: str = "") -> tuple[int, str, str]:
    """`(exit status, standard output, standard error)` of the client."""
    env = {name: value for name, value in os.environ.items() if name != "OPENAI_API_KEY"}
    line = [sys.executable, "-m", "omni.client", *map(str, arguments)]
    done = subprocess.run(line, input=given, env=env, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stdout, done.stderr


def test_chat_with_a_file_and_speech(server: Launched, tmp_path: Path) -> None:
    photo, speech = tmp_path / "photo.png", tmp_path / "answer.wav"
    Image.new("RGB", (64, 48), (200, 40, 40)).save(photo)
    status, out, err = ran("chat", "What is it?", "--file", photo, "--save", speech, "--url", server.url)
    assert status == 0, err
    assert "image 64x48" in out
    assert "What is it?" in out
    assert "s of speech" in err
    assert text_of(speech.read_bytes()) == out.removesuffix("\n")


def test_chat_in_json_from_the_input(server: Launched) -> None:
    status, out, err = ran("chat", "-", "--json", "--url", server.url, given="one two")
    assert status == 0, err
    answer = json.loads(out)
    assert answer["text"].endswith("one two")
    assert answer["finish"] == "stop"
    assert answer["usage"]["completion_tokens"] > 0


def test_speak(server: Launched, tmp_path: Path) -> None:
    file = tmp_path / "said.wav"
    status, out, err = ran("speak", "Good morning!", "--save", file, "--json", "--url", server.url)
    assert status == 0, err
    assert "Good morning!" in text_of(file.read_bytes())
    with wave.open(str(file)) as said:
        assert json.loads(out)["speech_s"] == round(said.getnframes() / SAMPLE_RATE, 3)


def test_listen(server: Launched, tmp_path: Path) -> None:
    file = tmp_path / "question.wav"
    with wave.open(str(file), "wb") as wav:
        wav.setparams((1, 2, SAMPLE_RATE, 0, "NONE", ""))
        wav.writeframes(speak("What is the capital of France?").pcm)
    status, out, err = ran("listen", file, "--language", "en", "--url", server.url)
    assert status == 0, err
    assert "audio" in out
    status, whole, err = ran("listen", file, "--language", "en", "--json", "--url", server.url)
    assert status == 0, err
    assert json.loads(whole)["text"] == out.removesuffix("\n")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("chat",), "nothing to ask"),
        (("chat", "x", "--file", "nothing.txt"), "only images"),
        (("chat", "x", "--file", "nothing.png"), "nothing.png"),
        (("chat", "x", "--model", "none"), "no such model"),
        (("speak", ""), "input must hold a text"),
        (("listen", "nothing.wav"), "nothing.wav"),
    ],
)
def test_failures_are_told_in_a_line(server: Launched, arguments: tuple[str, ...], words: str) -> None:
    status, _, err = ran(*arguments, "--url", server.url)
    assert (status, words in err, "Traceback" in err) == (1, True, False), err
