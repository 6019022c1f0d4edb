"""A stage's process dies: what its clients see, and how the server comes back without a hand on the machine."""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from support.launched import Launched
from support.leaks import Holdings, wait_for_no_leaks

from omni.contract.names import STAGES
from omni.launch.server import STUB

pytestmark = pytest.mark.fault

FAILS_WITHIN_S = 2.0
BACK_WITHIN_S = 40.0


def post(url: str, body: dict[str, Any], timeout: float = 60) -> tuple[int, dict[str, Any]]:
    request = urllib.request.Request(
        f"{url}/v1/chat/completions", json.dumps(body).encode(), {"content-type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=timeout) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def health(url: str) -> int:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=5) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        return error.code


def question(words: int = 1, interval_ms: float = 0) -> dict[str, Any]:
    return {
        "model": "qwen3-omni",
        "messages": [{"role": "user", "content": "word " * words}],
        "modalities": ["text", "audio"],
        "audio": {"voice": "Ethan", "format": "wav"},
        "stage_params": {"thinker": {"token_interval_ms": interval_ms}},
    }


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launched]:
    with Launched("serve", tmp_path_factory.mktemp("omni")) as launched:
        yield launched.ready()


@pytest.fixture(scope="module")
def before(server: Launched) -> Holdings:
    post(server.url, question())
    return Holdings.of(server)


@pytest.mark.usefixtures("before")
@pytest.mark.parametrize("stage", STAGES)
def test_a_killed_stage_fails_its_clients_at_once_and_comes_back(server: Launched, stage: str) -> None:
    server.until(lambda: health(server.url) == 200, BACK_WITHIN_S)
    answers: list[tuple[float, int, dict[str, Any]]] = []

    def ask() -> None:
        status, answer = post(server.url, question(2000, 20))
        answers.append((time.monotonic(), status, answer))

    clients = [threading.Thread(target=ask) for _ in range(4)]
    for client in clients:
        client.start()
    server.until(lambda: json.load(urllib.request.urlopen(f"{server.url}/health"))["in_flight"] >= len(clients))
    time.sleep(0.3)

    (stub,) = [p for p in server.descendants(STUB) if any(stage in word for word in p.cmdline()[1:])]
    killed = time.monotonic()
    stub.kill()
    for client in clients:
        client.join(30)
    assert len(answers) == len(clients)
    for at, status, answer in answers:
        assert at - killed < FAILS_WITHIN_S
        assert status in (500, 503)
        assert answer["error"]["code"] in ("unavailable", "stage_failed")
        assert answer["error"]["type"] == "server_error"
    assert health(server.url) == 503

    server.until(lambda: health(server.url) == 200, BACK_WITHIN_S)
    status, answer = post(server.url, question())
    assert status == 200
    assert "word" in answer["choices"][0]["message"]["content"]


def test_nothing_is_left_of_them(server: Launched, before: Holdings) -> None:
    wait_for_no_leaks(server, before)
