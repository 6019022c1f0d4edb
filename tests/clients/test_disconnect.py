"""A client that closes its connection frees every stage, whatever it had asked for and however far it was."""

from __future__ import annotations

import json
import os
import signal
import socket
from typing import Any

import pytest
from support.launched import Launched
from support.stages import seconds_until, until_held

pytestmark = pytest.mark.client
LIMIT_S = 0.25


def request(*, stream: bool, speech: bool, stage: dict[str, Any]) -> bytes:
    body = json.dumps(
        {
            "model": "qwen3-omni",
            "messages": [{"role": "user", "content": "word " * 3000}],
            "stream": stream,
            "modalities": ["text", "audio"] if speech else ["text"],
            "audio": {"voice": "Ethan", "format": "wav"},
            "stage_params": stage,
        }
    ).encode()
    head = "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def left(server: Launched, sent: bytes, until: bytes) -> float:
    """Seconds from the closing of the connection until no stage holds anything."""
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        client.sendall(sent)
        got = b""
        while until not in got:
            got += client.recv(1 << 16)
        until_held(server.metrics_url)
    return seconds_until(server.metrics_url)


SLOW_TEXT = {"thinker": {"token_interval_ms": 20}}
SLOW_SPEECH = {"code2wav": {"chunk_delay_ms": 200}}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("speech", "stage", "phase"),
    [(False, SLOW_TEXT, b'"content":'), (True, SLOW_TEXT, b'"content":'), (True, SLOW_SPEECH, b'"data":"')],
)
def test_a_client_that_leaves_stops_every_stage(
    server: Launched, stream: bool, speech: bool, stage: dict[str, Any], phase: bytes
) -> None:
    sent = request(stream=stream, speech=speech, stage=stage)
    assert min(left(server, sent, phase if stream else b"") for _ in range(3)) < LIMIT_S


def test_a_killed_front_door_stops_every_stage(server: Launched, tmp_path: Any) -> None:
    with Launched("serve", tmp_path / "omni") as mine:
        mine.ready()
        with socket.create_connection(("127.0.0.1", mine.port)) as client:
            client.sendall(request(stream=True, speech=True, stage=SLOW_TEXT))
            client.recv(1 << 16)
            until_held(mine.metrics_url)
            (door,) = [p for p in mine.descendants() if "frontend" in p.cmdline()]
            # The launcher stops everything when its front door dies; hold it still to see what the stages do alone.
            os.kill(mine.process.pid, signal.SIGSTOP)
            try:
                door.kill()
                assert seconds_until(mine.metrics_url) < 2 * LIMIT_S
            finally:
                os.kill(mine.process.pid, signal.SIGCONT)
        assert mine.process.wait(60) != 0
