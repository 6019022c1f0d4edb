from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import httpx2
import pytest

from frontend.__main__ import main

pytestmark = pytest.mark.process


@contextmanager
def front_door(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The process, and the URL that it printed."""
    command = [sys.executable, "-m", "frontend", "--engine", "fake", "--port", "0", *arguments]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONWARNINGS": "error"},
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.fullmatch(r"front door listening on (http://\S+)\n", line)
        assert found, line or (process.stderr and process.stderr.read())
        yield process, found[1]
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_it_says_where_it_listens_and_stops_cleanly(signum: signal.Signals) -> None:
    with front_door() as (process, url):
        assert httpx2.get(f"{url}/live").status_code == 200
        assert httpx2.get(f"{url}/v1/models?key=rosebud", headers={"x-request-id": "r-1"}).status_code == 200
        process.send_signal(signum)
        out, err = process.communicate(timeout=20)
        assert (process.returncode, out) == (0, "")
        records = [json.loads(line) for line in err.splitlines()]
        (request,) = [one for one in records if one["logger"] == "frontend.access"]
        assert (request["path"], request["status"], request["request_id"]) == ("/v1/models", 200, "r-1")
        assert "rosebud" not in err


def test_behind_the_prefix_of_a_proxy() -> None:
    with front_door("--root-path", "/omni") as (_, url):
        assert url.endswith("/omni")
        server = url.removesuffix("/omni")
        assert httpx2.get(f"{server}/v1/models").status_code == 200
        assert httpx2.get(f"{server}/openapi.json").json()["servers"] == [{"url": "/omni"}]


def test_a_taken_port_is_one_clear_line(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["--engine", "fake", "--port", str(port)]) == 2
    expected = f"front door: port: {port} on 127.0.0.1 is already taken; choose another with --port\n"
    assert capsys.readouterr().err == expected


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--port", "70000"], "front door: port: should be less than or equal to 65535"),
        (["--profile", "nope"], "front door: there is no profile 'nope'; there are: "),
        (["--api-key-file", "/nowhere"], "front door: api_key_file: the file /nowhere can't be read"),
        (["--engine", "fake", "--ssl-certfile", "/nowhere", "--ssl-keyfile", "/nowhere"], "front door: ssl_certfile: "),
        (["--engine", "fake", "--host", "no.such.host.invalid"], "front door: host: no.such.host.invalid is not"),
        (["--engine", "fake", "--host", "192.0.2.1"], "front door: host: can't listen on 192.0.2.1, port 8000"),
    ],
)
def test_what_cannot_run_says_why(arguments: list[str], line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    err = capsys.readouterr().err
    assert err.startswith(line)
    assert err.count("\n") == 1
