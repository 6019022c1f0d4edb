"""A machine whose disk is full and whose clock of the day jumps: nobody notices."""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.launched import Launched, alive
from support.leaks import Holdings, metric, wait_for_no_leaks
from support.video_client import picture
from websockets.sync.client import ClientConnection, connect

from omni.launch.ports import free_port
from omni.launch.server import STUB

pytestmark = pytest.mark.fault

CLOCK = """
import time

_real, _began = time.time, time.monotonic()


def jumping():
    return _real() + (0.0, 86_400.0, -86_400.0)[int((time.monotonic() - _began) * 3) % 3]


time.time = jumping
time.time_ns = lambda: int(jumping() * 1e9)
"""
"""The clock of the day in every Python process of the server: three times a second it is set a day ahead or back."""
FAILS_WITHIN_S = 2.0
BACK_WITHIN_S = 40.0
FULL = Path("/dev/full")
"""What is written here fails as on a full disk."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launched]:
    place = tmp_path_factory.mktemp("omni")
    (place / "clock").mkdir()
    (place / "clock" / "sitecustomize.py").write_text(CLOCK)
    home, port = place / "home", free_port()
    (home / "logs").mkdir(parents=True)
    for log in (home / "stderr", home / "logs" / f"triton-{port}.log"):
        log.symlink_to(FULL)
    env = {"PYTHONPATH": str(place / "clock"), "OMNI_LOG_LEVEL": "debug"}
    with Launched("serve", home, "--triton-grpc-port", str(port), env=env) as launched:
        yield launched.ready()


def ask(server: Launched, **fields: Any) -> dict[str, Any]:
    body = {"model": "qwen3-omni", "messages": [{"role": "user", "content": "word " * 60}], **fields}
    request = urllib.request.Request(f"{server.url}/v1/chat/completions", json.dumps(body).encode())
    request.add_header("content-type", "application/json")
    with urllib.request.urlopen(request, timeout=60) as response:
        answer: dict[str, Any] = json.load(response)
    return answer


def heard(ws: ClientConnection, last: str) -> list[str]:
    types: list[str] = []
    while last not in types and "error" not in types:
        types.append(json.loads(ws.recv(timeout=30))["type"])
    return types


def test_sessions_and_answers_go_on(server: Launched) -> None:
    """For longer than the clock needs for all its jumps, and than any timeout is that a jump could end."""
    url = server.url.replace("http", "ws")
    with connect(f"{url}/v1/video/chat/stream") as video, connect(f"{url}/v1/realtime") as talk:
        video.send(json.dumps({"type": "session.config", "modalities": ["text"]}))
        talk.send(
            json.dumps({"type": "session.update", "session": {"type": "realtime", "output_modalities": ["text"]}})
        )
        began = time.monotonic()
        while time.monotonic() < began + 2.0:
            answer = ask(server, stage_params={"thinker": {"token_interval_ms": 10.0}})
            assert answer["choices"][0]["finish_reason"] == "stop"
            video.send(json.dumps({"type": "video.frame", "data": picture(80)}))
            video.send(json.dumps({"type": "video.query", "text": "one two"}))
            assert "error" not in heard(video, "response.done")
            item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "one two"}]}
            talk.send(json.dumps({"type": "conversation.item.create", "item": item}))
            talk.send(json.dumps({"type": "response.create"}))
            assert "error" not in heard(talk, "response.done")


def test_a_triton_that_dies_is_replaced(server: Launched) -> None:
    old = [*server.descendants(STUB), *server.descendants("tritonserver")]
    ended: list[tuple[float, str]] = []

    def ask_for_long() -> None:
        try:
            ask(server, max_tokens=2000, ignore_eos=True, stage_params={"thinker": {"token_interval_ms": 20.0}})
        except urllib.error.HTTPError as error:
            ended.append((time.monotonic(), json.load(error)["error"]["code"]))

    clients = [threading.Thread(target=ask_for_long) for _ in range(4)]
    for client in clients:
        client.start()
    server.until(lambda: metric(server.url, "omni_turns_in_progress") == len(clients))
    killed = time.monotonic()
    old[-1].kill()
    for client in clients:
        client.join(30)
    assert [code for _, code in ended] == ["unavailable"] * len(clients)
    assert all(at < killed + FAILS_WITHIN_S for at, _ in ended)
    server.until(lambda: not alive(old) and len(server.descendants(STUB)) == len(old) - 1, BACK_WITHIN_S)

    def answers() -> bool:
        try:
            return bool(ask(server)["choices"])
        except OSError:
            return False

    server.until(answers, BACK_WITHIN_S)


def test_nothing_is_left_of_it(server: Launched) -> None:
    before = Holdings.of(server)
    ask(server)
    wait_for_no_leaks(server, before)


def test_it_stops_and_leaves_nothing(server: Launched) -> None:
    children, regions = server.descendants(), server.regions()
    assert children
    assert regions
    assert server.stop() == 0
    assert not alive(children)
    assert not [region for region in regions if region.exists()]
