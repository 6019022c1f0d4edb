"""The soak, shortened."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.fault
ROOT = Path(__file__).parents[2]


def test_three_minutes_of_everything(tmp_path: Path) -> None:
    report = tmp_path / "soak.json"
    command = [sys.executable, "-m", "bench.soak", "--minutes", "3", "--json", str(report)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert report.exists(), done.stderr[-2000:]
    out = json.loads(report.read_text())
    assert out["soak"]["problems"] == []
    assert out["protocols"].keys() == {"chat", "video", "realtime"}
    assert done.returncode == 0
