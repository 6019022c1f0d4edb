"""The doctor at a server that runs."""

from __future__ import annotations

import signal
from pathlib import Path

import psutil
import pytest

from omni.doctor.serving import look_at_what_runs
from omni.launch.options import read
from omni.launch.server import STUB, EmbeddedTriton

pytestmark = pytest.mark.triton


def test_a_triton_that_answers_and_one_that_is_frozen(
    triton: EmbeddedTriton, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ports = {"grpc": triton.grpc_port, "http": triton.http_port, "metrics": triton.metrics_port}
    arguments = [f"--triton-{name}-port={port}" for name, port in ports.items()]
    _, options, _ = read(["serve", "--port=1", *arguments], {})
    said = {finding.about: finding for finding in look_at_what_runs(options, speech=True)}
    assert {about: finding.level for about, finding in said.items()} == {
        "running Triton": "ok", "models": "ok", "generation": "ok", "front door": "warn"
    }  # fmt: skip

    monkeypatch.setattr("omni.doctor.serving.DEADLINE_S", 0.5)
    thinker = psutil.Process(triton.stubs()["thinker"])
    assert STUB in thinker.cmdline()[0]
    thinker.send_signal(signal.SIGSTOP)
    try:
        said = {finding.about: finding for finding in look_at_what_runs(options, speech=True)}
    finally:
        thinker.send_signal(signal.SIGCONT)
    assert said["models"].level == "ok"
    assert said["generation"].level == "fail"
    assert "restart" in said["generation"].todo
