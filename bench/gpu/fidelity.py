"""The fidelity tests on a device, in float32 and without TF32."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any, Final

ROOT = Path(__file__).resolve().parents[2]
TESTS: Final = ("code_predictor", "code2wav", "thinker", "thinker_batching", "talker", "speech")
"""By what they are about, in the order in which they matter when time is short."""


def fidelity(device: str, only: str | None, limit_s: float) -> dict[str, Any]:
    """How the tests went; `only` is an expression of pytest that picks some. They are ended after `limit_s` seconds."""
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}"]
        command += [f"tests/fidelity/test_{name}.py" for name in TESTS]
        command += ["-k", only] if only else []
        environment = {**os.environ, "FIDELITY_DEVICE": device, "NVIDIA_TF32_OVERRIDE": "0"}
        try:
            done = subprocess.run(
                command, cwd=ROOT, env=environment, timeout=limit_s, capture_output=True, text=True, check=False
            )
        except subprocess.TimeoutExpired:
            return {"ended": f"not within {limit_s:.0f} s"}
        if not report.is_file():
            return {"ended": done.stderr[-2000:] or done.stdout[-2000:]}
        cases = list(ET.parse(report).getroot().iter("testcase"))
    wrong = [case.get("name") for case in cases if case.find("failure") is not None or case.find("error") is not None]
    skipped = sum(case.find("skipped") is not None for case in cases)
    return {
        "device": device,
        "passed": len(cases) - len(wrong) - skipped,
        "failed": wrong,
        "skipped": skipped,
        "seconds": round(time.perf_counter() - began, 1),
    }
