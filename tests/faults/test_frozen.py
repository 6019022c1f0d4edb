"""Triton frozen, overfed, or stopped under load."""

from __future__ import annotations

import json
import signal
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from support.http import status_of
from support.launched import Launched, alive
from support.leaks import Holdings, wait_for_no_leaks
from tritonclient.grpc import service_pb2, service_pb2_grpc

pytestmark = pytest.mark.fault
QUICK = ("--liveness-interval", "1", "--liveness-deadline", "2", "--liveness-failures", "2")
BACK_WITHIN_S = 60.0


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launched]:
    with Launched("serve", tmp_path_factory.mktemp("omni"), *QUICK, "--shutdown-timeout", "20") as launched:
        yield launched.ready()


class Clients:
    """Clients that ask once, at the same time."""

    def __init__(self, server: Launched, count: int, words: int) -> None:
        self._url = f"{server.url}/v1/chat/completions"
        self._words = words
        self.answers: list[tuple[float, int, dict[str, Any]]] = []
        self._threads = [threading.Thread(target=self._ask) for _ in range(count)]
        for thread in self._threads:
            thread.start()

    def _ask(self) -> None:
        body = {
            "model": "qwen3-omni",
            "messages": [{"role": "user", "content": "word " * self._words}],
            "stage_params": {"thinker": {"token_interval_ms": 20.0}},
        }
        request = urllib.request.Request(self._url, json.dumps(body).encode(), {"content-type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=120) as response:
                status, answer = response.status, json.load(response)
        except urllib.error.HTTPError as error:
            status, answer = error.code, json.load(error)
        self.answers.append((time.monotonic(), status, answer))

    def wait(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        assert not any(thread.is_alive() for thread in self._threads)


def in_flight(server: Launched) -> int:
    try:
        with urllib.request.urlopen(f"{server.url}/health", timeout=10) as response:
            return int(json.load(response)["in_flight"])
    except urllib.error.HTTPError as error:
        return int(json.load(error)["in_flight"])


def test_a_frozen_triton_is_replaced(server: Launched) -> None:
    before = Holdings.of(server)
    clients = Clients(server, 4, 2000)
    server.until(lambda: in_flight(server) == 4)
    time.sleep(0.5)
    (triton,) = server.descendants("tritonserver")
    frozen = time.monotonic()
    triton.send_signal(signal.SIGSTOP)
    server.says("Triton is broken (2 probes in a row failed); restart 1")
    clients.wait(40)
    for at, status, answer in clients.answers:
        assert at - frozen < 30
        assert status in (500, 503, 504)
        assert answer["error"]["code"] in ("unavailable", "stage_failed", "timeout")
    server.until(lambda: status_of(f"{server.url}/health") == 200, BACK_WITHIN_S)
    Clients(server, 1, 2).wait(30)
    before.files = {name: count for name, count in Holdings.of(server).files.items() if name != "front door"} | {
        "front door": before.files["front door"]
    }
    wait_for_no_leaks(server, before)


def test_a_stop_under_load_lets_running_answers_end(server: Launched) -> None:
    clients = Clients(server, 6, 150)
    server.until(lambda: in_flight(server) == 6)
    processes, regions = server.descendants(), server.regions()
    server.process.send_signal(signal.SIGTERM)
    time.sleep(0.5)
    assert status_of(f"{server.url}/health") == 503
    late = Clients(server, 1, 2)
    late.wait(10)
    (_, status, answer) = late.answers[0]
    assert (status, answer["error"]["code"]) == (503, "unavailable")
    clients.wait(30)
    assert [status for _, status, _ in clients.answers] == [200] * 6
    assert server.process.wait(40) == 0
    assert not alive(processes)
    assert not [region for region in regions if region.exists()]


def test_a_message_that_is_too_large_for_grpc(server: Launched) -> None:
    """Triton takes up to 2 GiB; a client that limits itself meets the limit, and the server goes on."""
    before = Holdings.of(server)
    options = [("grpc.max_send_message_length", 1 << 20)]
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}", options) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        request = service_pb2.ModelInferRequest(model_name="omni_text", id="large")
        request.inputs.add(name="JOB", datatype="BYTES", shape=[1])
        request.raw_input_contents.append(b"\0" * (2 << 20))
        with pytest.raises(grpc.RpcError) as refused:
            list(stub.ModelStreamInfer(iter([request]), timeout=20))
        assert refused.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}", [("grpc.max_send_message_length", -1)]) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        # 64 MiB of something that isn't a job: refused in words, and not kept.
        request.raw_input_contents[0] = (64 << 20).to_bytes(4, "little") + bytes(64 << 20)
        request.parameters["triton_enable_empty_final_response"].bool_param = True
        replies = list(stub.ModelStreamInfer(iter([request]), timeout=60))
        tensors = [
            dict(zip((o.name for o in r.infer_response.outputs), r.infer_response.raw_output_contents, strict=False))
            for r in replies
        ]
        (failure,) = [json.loads(one["ERR"][4:]) for one in tensors if "ERR" in one]
        assert failure["code"] == "invalid_request"
    answered = Clients(server, 1, 2)
    answered.wait(30)
    assert answered.answers[0][1] == 200
    wait_for_no_leaks(server, before)
