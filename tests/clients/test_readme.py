"""Every command of the README, as written but for the port."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import wave
from pathlib import Path

import pytest
from support.clips import write_clip
from support.launched import Launched

from omni.launch.ports import free_port
from omni.stages.dummy import decode

pytestmark = pytest.mark.client

ROOT = Path(__file__).parents[2]
BLOCKS = re.findall(r"^```(bash|python)\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
MAKE = [code for kind, code in BLOCKS if code.startswith("make ")]
COMMANDS = [(kind, code) for kind, code in BLOCKS if not code.startswith("make ")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all commands, since a later one uses what an earlier one wrote; with a clip, which users have."""
    place = tmp_path_factory.mktemp("readme")
    (place / ".venv").symlink_to(sys.prefix)
    write_clip(place / "clip.mp4")
    return place


@pytest.mark.parametrize("block", range(len(COMMANDS)), ids=lambda n: COMMANDS[n][1].split("\n")[0][:40])
def test_a_command_of_the_readme(server: Launched, folder: Path, block: int) -> None:
    kind, code = COMMANDS[block]
    code = code.replace("localhost:8000", f"127.0.0.1:{server.port}")
    run = ["bash", "-euo", "pipefail", "-c", code] if kind == "bash" else [sys.executable, "-c", code]
    done = subprocess.run(run, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    assert '"error"' not in done.stdout


def test_the_speech_of_the_readme_plays_and_says_the_answer(folder: Path) -> None:
    with wave.open(str(folder / "answer.wav")) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (24_000, 1, 2)
        assert file.getnframes() > 0
    said = subprocess.run(
        [sys.executable, "-m", decode.__name__, str(folder / "answer.wav")], capture_output=True, text=True, check=True
    )
    assert "Good morning!" in said.stdout


def test_make_serve_serves_and_stops_on_ctrl_c() -> None:
    assert [code.strip() for code in MAKE] == ["make serve", "make test"]
    if Path(sys.prefix) != ROOT / ".venv":
        pytest.skip("make has its own environment in .venv, and this isn't it")
    port = free_port()
    ports = {f"OMNI_TRITON_{name}_PORT": str(free_port()) for name in ("GRPC", "HTTP", "METRICS")}
    with subprocess.Popen(
        ["make", "-s", "serve", f"PORT={port}", "PROFILE=dummy"],
        cwd=ROOT,
        env={**os.environ, **ports},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as make:
        assert make.stdout is not None
        for line in make.stdout:
            if f"omni is ready at http://127.0.0.1:{port}" in line:
                break
        os.killpg(make.pid, signal.SIGINT)
        make.stdout.read()
        make.wait(60)
        assert make.returncode in (0, 2, 130, -signal.SIGINT)
