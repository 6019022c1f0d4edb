"""What counts as a sign of life."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from omni.launch.liveness import Liveness, answers, probe_request
from omni.launch.ports import free_port
from omni.launch.server import EmbeddedTriton

pytestmark = pytest.mark.triton


@pytest.fixture
def server(models, tmp_path: Path) -> Iterator[EmbeddedTriton]:
    with EmbeddedTriton(models=models.folder, home=tmp_path / "home", exit_timeout=1) as server:
        yield server


def test_only_an_answer_in_time_is_a_sign_of_life(models, server: EmbeddedTriton) -> None:
    with grpc.insecure_channel(server.grpc_url) as channel:
        expected = {"answer": True, "overloaded": True, "stage_failed": False, "internal_error": False}
        for behaviour, alive in expected.items():
            models.behave(behaviour)
            assert answers(channel, 30.0) is alive, behaviour
        models.behave("hang")
        started = time.monotonic()
        assert not answers(channel, 0.5)
        assert time.monotonic() - started < 20


def test_failures_in_a_row_are_counted(models, server: EmbeddedTriton) -> None:
    liveness = Liveness(server.grpc_url, interval=0.05, deadline=5.0)
    models.behave("stage_failed")
    liveness.start()
    deadline = time.monotonic() + 30
    while liveness.failures < 3:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    models.behave("answer")
    while liveness.failures:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    liveness.stop()
    assert "liveness" not in [thread.name for thread in threading.enumerate()]


def test_the_question_goes_before_what_clients_wait_for() -> None:
    assert b'"priority":1' in probe_request("id").raw_input_contents[0]


def test_a_server_that_is_not_there_is_not_alive() -> None:
    with grpc.insecure_channel(f"127.0.0.1:{free_port()}") as channel:
        assert not answers(channel, 5.0)
