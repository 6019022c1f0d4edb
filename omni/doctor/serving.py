"""What runs: Triton, its models, the front door; and whether their ports are free when nothing does."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from typing import Any

import grpc

from omni.contract.names import ENSEMBLES, OMNI, OMNI_TEXT
from omni.doctor.finding import Finding
from omni.launch.errors import LaunchError
from omni.launch.liveness import answers
from omni.launch.options import Options
from omni.launch.ports import check_free

DEADLINE_S = 10.0
"""What a tiny generation may take before Triton counts as frozen."""
OLDEST = (2, 51)
"""Triton 24.10, the embedded one, on which everything is tested."""


def _get(host: str, port: int, path: str) -> tuple[int, Any] | None:
    """Status and JSON of an answer; None when nobody answers in HTTP."""
    connection = http.client.HTTPConnection(host, port, timeout=5.0)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        text = response.read()
        try:
            return response.status, json.loads(text)
        except ValueError:
            return response.status, None
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def _local(host: str) -> str:
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)


def look_at_what_runs(options: Options, *, speech: bool) -> Iterator[Finding]:
    triton = _get(_local(options.triton_host), options.triton_http_port, "/v2")
    front = _get(_local(options.host), options.port, "/health")
    if triton is None and front is None:
        yield from _look_at_ports(options)
        return
    yield from _look_at_running_triton(options, triton, speech)
    if front is None:
        yield Finding("front door", "warn", f"nothing answers on port {options.port}", "start it: python -m frontend")
    else:
        yield _front(front)


def _look_at_ports(options: Options) -> Iterator[Finding]:
    try:
        check_free([options.front_address, *options.addresses])
    except LaunchError as problem:
        said, _, todo = str(problem).partition("; ")
        yield Finding("ports", "fail", said, todo)
    else:
        ports = [options.front_address, *options.addresses]
        yield Finding("ports", "ok", f"{', '.join(str(one.port) for one in ports)} are free; nothing runs yet")


def _look_at_running_triton(options: Options, server: tuple[int, Any] | None, speech: bool) -> Iterator[Finding]:
    where = f"port {options.triton_http_port}"
    if server is None or not isinstance(server[1], dict):
        todo = "start it: python -m omni.launch triton; or name its ports with --triton-http-port"
        yield Finding("running Triton", "fail", f"nothing answers as Triton on {where}", todo)
        return
    version = str(server[1].get("version", ""))
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())
    if numbers < OLDEST:
        yield Finding("running Triton", "warn", f"version {version} on {where}", "use 24.10 (2.51.0) or later")
    else:
        yield Finding("running Triton", "ok", f"version {version} on {where}")
    host = _local(options.triton_host)
    names = dict.fromkeys([*ENSEMBLES[OMNI if speech else OMNI_TEXT], OMNI_TEXT, *([OMNI] if speech else [])])
    unready = []
    for name in names:
        answer = _get(host, options.triton_http_port, f"/v2/models/{name}/ready")
        if answer is None or answer[0] != 200:
            unready.append(name)
    if unready:
        yield Finding(
            "models", "fail", f"not ready: {', '.join(unready)}", "look at Triton's log for why they didn't load"
        )
        return
    yield Finding("models", "ok", f"ready: {', '.join(names)}")
    with grpc.insecure_channel(f"{host}:{options.triton_grpc_port}") as channel:
        alive = answers(channel, DEADLINE_S)
    if alive:
        yield Finding("generation", "ok", "a tiny one came to its end")
    else:
        said = f"a tiny one didn't come to its end in {DEADLINE_S:g} s, though Triton calls itself ready"
        yield Finding("generation", "fail", said, "restart Triton: a stage is dead or frozen")


def _front(answer: tuple[int, Any]) -> Finding:
    status, body = answer
    body = body if isinstance(body, dict) else {}
    state = body.get("status", f"HTTP {status}")
    if status == 200:
        return Finding(
            "front door", "ok", f"{state}, {body.get('in_flight', 0)} turns, {body.get('sessions', 0)} sessions"
        )
    if state in ("starting", "draining"):
        return Finding("front door", "warn", str(state), "wait")
    said = f"{state}, error {body['error']}" if "error" in body else str(state)
    return Finding("front door", "fail", said, "see its log, and the lines above")
