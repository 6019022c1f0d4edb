"""Clients that flood, dawdle, vanish or talk nonsense: what others see of it, and that nothing stays behind."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from support.launched import Launched
from support.leaks import Holdings, metric, wait_for_no_leaks
from support.video_client import picture
from websockets.sync.client import connect

pytestmark = pytest.mark.fault
LINGER_AT_ONCE = struct.pack("ii", 1, 0)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launched]:
    settings = {"OMNI_SSE_BUFFER_BYTES": "200000", "OMNI_VIDEO_SEND_BYTES": "200000"}
    with Launched("serve", tmp_path_factory.mktemp("omni"), env=settings) as launched:
        yield launched.ready()


@pytest.fixture(autouse=True)
def nothing_leaks(server: Launched) -> Iterator[None]:
    ask(server)
    before = Holdings.of(server)
    yield
    ask(server)
    wait_for_no_leaks(server, before)


def body(words: int = 3, interval_ms: float = 0, **fields: Any) -> bytes:
    question = {
        "model": "qwen3-omni",
        "messages": [{"role": "user", "content": "word " * words}],
        "stage_params": {"thinker": {"token_interval_ms": interval_ms}},
        **fields,
    }
    return json.dumps(question).encode()


def ask(server: Launched, data: bytes | None = None) -> float:
    """Seconds that a good answer takes. Fails when it isn't one."""
    began = time.monotonic()
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(f"{server.url}/v1/chat/completions", data or body(), headers)
    with urllib.request.urlopen(request, timeout=60) as response:
        assert "word" in json.load(response)["choices"][0]["message"]["content"]
    return time.monotonic() - began


def opened(server: Launched, receive_buffer: int | None = None) -> socket.socket:
    sock = socket.socket()
    if receive_buffer is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    sock.settimeout(30)
    sock.connect(("127.0.0.1", server.port))
    return sock


def post(data: bytes, extra: str = "") -> bytes:
    head = "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(data)}\r\n{extra}\r\n".encode() + data


def rest(sock: socket.socket) -> bytes:
    out = b""
    with contextlib.suppress(OSError):
        while data := sock.recv(1 << 16):
            out += data
    return out


def test_a_thousand_connections_without_a_request(server: Launched) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(1000):
            stack.enter_context(opened(server))
        assert ask(server) < 10


def test_a_slow_reader_of_a_stream_is_dropped_and_others_are_not(server: Launched) -> None:
    failures = metric(server.url, "omni_turns_total")
    speech = {"modalities": ["text", "audio"], "audio": {"voice": "Ethan", "format": "wav"}, "stream": True}
    with opened(server, receive_buffer=4096) as slow:
        slow.sendall(post(body(3000, **speech)))
        assert slow.recv(12) == b"HTTP/1.1 200"
        deadline = time.monotonic() + 60
        while metric(server.url, "omni_turns_in_progress"):
            assert time.monotonic() < deadline
            assert ask(server) < 10
            time.sleep(0.1)
        assert b"[DONE]" not in rest(slow)
    assert metric(server.url, "omni_turns_total") > failures


def test_a_slow_reader_of_a_session_is_dropped(server: Launched) -> None:
    address = server.url.replace("http", "ws") + "/v1/video/chat/stream"
    with contextlib.ExitStack() as held:
        sock = held.enter_context(socket.socket())
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.connect(("127.0.0.1", server.port))
        options = {"max_size": None, "max_queue": 1, "close_timeout": 1, "ping_interval": None}
        ws = held.enter_context(connect(address, sock=sock, **options))
        ws.send(json.dumps({"type": "session.config", "modalities": ["text", "audio"]}))
        ws.send(json.dumps({"type": "video.frame", "data": picture(80)}))
        ws.send(json.dumps({"type": "video.query", "text": "word " * 2000}))
        # Sooner than its idle timeout would have it.
        deadline = time.monotonic() + 45
        while metric(server.url, "omni_sessions_active"):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert ask(server) < 10


def test_a_client_that_vanishes_in_the_middle_of_its_request(server: Launched) -> None:
    for size in (10, 100, 5_000):
        sock = opened(server)
        sock.sendall(post(b"x" * 100_000)[:size])
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_AT_ONCE)
        sock.close()
    assert ask(server) < 10


def test_a_client_that_resets_in_the_middle_of_an_answer(server: Launched) -> None:
    for _ in range(8):
        sock = opened(server)
        sock.sendall(post(body(2000, 20, stream=True)))
        assert sock.recv(12) == b"HTTP/1.1 200"
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_AT_ONCE)
        sock.close()


def test_a_half_open_connection(server: Launched) -> None:
    """A client that shuts its sending side down is a client that waits for its answer, or one that left: either way its
    connection ends, and nothing of it runs on."""
    with opened(server) as sock:
        sock.sendall(post(body(2000, 20, stream=True)))
        assert sock.recv(12) == b"HTTP/1.1 200"
        sock.shutdown(socket.SHUT_WR)
        rest(sock)


@pytest.mark.parametrize("size", [100_000, 5_000_000])
def test_huge_headers_are_refused(server: Launched, size: int) -> None:
    with opened(server) as sock:
        # The server may hang up before all of it was sent, which is an answer, too.
        with contextlib.suppress(ConnectionError):
            sock.sendall(b"GET /live HTTP/1.1\r\nHost: x\r\nX-Big: " + b"a" * size + b"\r\n\r\n")
        answer = rest(sock)
    assert answer[9:12] in (b"", b"400", b"431")
    assert ask(server) < 10


def test_many_headers(server: Launched) -> None:
    with opened(server) as sock:
        lines = "".join(f"X-{n}: {n}\r\n" for n in range(20_000))
        with contextlib.suppress(ConnectionError):
            sock.sendall(f"GET /live HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{lines}\r\n".encode())
        assert rest(sock)[9:12] in (b"", b"200", b"400", b"431")


def test_noise(server: Launched) -> None:
    for noise in (b"\0" * 1000, b"\x16\x03\x01\x02\x00\x01" * 100, b"GET\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"):
        with opened(server) as sock:
            sock.sendall(noise)
            assert b"Traceback" not in rest(sock)
    assert ask(server) < 10


def test_a_flood_is_refused_at_once(server: Launched) -> None:
    """More clients than there is room for: each gets an answer or a refusal, none waits."""

    def one(_: int) -> tuple[int, str | None]:
        headers = {"content-type": "application/json"}
        request = urllib.request.Request(f"{server.url}/v1/chat/completions", body(100, 20), headers)
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                return int(response.status), None
        except urllib.error.HTTPError as refused:
            return refused.code, refused.headers["retry-after"]

    with ThreadPoolExecutor(200) as pool:
        answers = list(pool.map(one, range(200)))
    assert {status for status, _ in answers} == {200, 503}
    assert all(retry for status, retry in answers if status == 503)
    assert sum(status == 200 for status, _ in answers) >= 128
