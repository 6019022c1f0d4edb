"""pipecat's and LiveKit's realtime services, each in an environment of its own (docs/realtime.md says how)."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from support.launched import Launched

from bench.voice import silence, speak
from frontend.protocol.pcm import wav
from omni.contract.names import SAMPLE_RATE

pytestmark = pytest.mark.client
SCRIPTS = Path(__file__).parent / "frameworks"


@pytest.fixture
def question(tmp_path: Path) -> Path:
    file = tmp_path / "question.wav"
    file.write_bytes(wav(silence(0.6) + speak("How many cars are in the picture?").pcm + silence(1.5), SAMPLE_RATE))
    return file


def ran(variable: str, script: str, url: str, question: Path) -> Any:
    """The last line of what the script says, run by the Python that `variable` names."""
    if (python := os.environ.get(variable)) is None:
        pytest.skip(
            f"{variable} doesn't name a Python with the package: it takes minutes and hundreds of MB to install"
        )
    line = [python, str(SCRIPTS / script), url, str(question)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_pipecat(server: Launched, question: Path) -> None:
    said = ran("PIPECAT_PYTHON", "with_pipecat.py", server.url.replace("http", "ws"), question)
    assert said["text"].startswith("Received system: Be brief.\ntext: Say hello!")
    assert "audio " in said["text"]
    assert said["context"] == ["user", "assistant", "user", "assistant"]
    assert said["frames"]["UserStartedSpeakingFrame"] == said["frames"]["UserStoppedSpeakingFrame"] == 1
    assert said["speech_s"] > 0


def test_livekit(server: Launched, question: Path) -> None:
    said = ran("LIVEKIT_PYTHON", "with_livekit.py", server.url, question)
    assert said["asked"]["text"].endswith("text: Hello!")
    assert "audio " in said["spoken"]["text"]
    assert min(said["asked"]["speech_s"], said["spoken"]["speech_s"]) > 0
    assert (said["heard"], said["errors"]) == (["started", "stopped"], [])
    assert said["roles"] == ["user", "assistant", "user", "assistant"]
