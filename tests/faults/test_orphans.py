"""Triton alone is killed, with nobody left to clean up after it."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil
import pytest

from omni.launch.server import EmbeddedTriton

pytestmark = pytest.mark.fault


def test_no_stage_outlives_triton(tmp_path: Path) -> None:
    with EmbeddedTriton(profile="dummy", home=tmp_path) as server:
        stubs = [psutil.Process(pid) for pid in server.stubs().values()]
        assert len(stubs) == 4
        os.kill(server.pid, signal.SIGKILL)
        _, left = psutil.wait_procs(stubs, timeout=5)
        assert not left
