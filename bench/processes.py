"""Servers as processes: starting them, and what they cost."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence

import psutil

from omni.launch.ports import free_port


def tree(pid: int) -> list[psutil.Process]:
    """A process and all that descend from it; any of them may end meanwhile. Empty when it has ended itself."""
    try:
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def cpu_seconds(pid: int) -> float:
    """User and system time of a process and all that descend from it and still live."""
    total = 0.0
    for process in tree(pid):
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system
    return total


def descendant(pid: int, part: str) -> int:
    """The process under `pid` whose command line has `part` in it. Raises LookupError."""
    for process in psutil.Process(pid).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if any(part in word for word in process.cmdline()):
                return process.pid
    raise LookupError(part)


@contextlib.contextmanager
def server(command: Sequence[str], port: int, path: str = "/health", limit: float = 90.0) -> Iterator[int]:
    """Run a server until the block ends; the block begins when `path` answers 200. Yields its process id."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + limit
        while not _answers(f"http://127.0.0.1:{port}{path}"):
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"{' '.join(command)} did not become ready")
            time.sleep(0.1)
        yield process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(40)
        except subprocess.TimeoutExpired:
            process.kill()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as response:
            return bool(response.status == 200)
    except (OSError, urllib.error.URLError):
        return False


@contextlib.contextmanager
def omni(profile: str = "dummy", *options: str) -> Iterator[tuple[int, int, int]]:
    """The whole server, as `make serve` runs it: `(port, process id of the front door, process id of Triton)`.

    `options` go to the front door.
    """
    port = free_port()
    command = [sys.executable, "-m", "omni.launch", "serve", "--profile", profile, "--port", str(port)]
    command += ["--triton-grpc-port", str(free_port()), "--triton-http-port", str(free_port())]
    command += ["--triton-metrics-port", str(free_port()), *(("--", *options) if options else ())]
    with server(command, port, limit=300.0) as pid:
        yield port, descendant(pid, "frontend"), descendant(pid, "tritonserver")


@contextlib.contextmanager
def triton(profile: str = "dummy") -> Iterator[str]:
    """Triton with its stages, without a front door: the address of its gRPC service."""
    grpc_port, http_port = free_port(), free_port()
    command = [
        sys.executable,
        "-m",
        "omni.launch",
        "triton",
        "--profile",
        profile,
        "--triton-grpc-port",
        str(grpc_port),
    ]
    command += ["--triton-http-port", str(http_port), "--triton-metrics-port", str(free_port())]
    with server(command, http_port, "/v2/health/ready", limit=300.0):
        yield f"127.0.0.1:{grpc_port}"


@contextlib.contextmanager
def front_door() -> Iterator[tuple[int, int]]:
    """The front door alone, on its scripted engine: `(port, process id)`."""
    port = free_port()
    command = [sys.executable, "-m", "frontend", "--engine", "fake", "--port", str(port), "--log-level", "warning"]
    with server(command, port) as pid:
        yield port, pid


@contextlib.contextmanager
def floor() -> Iterator[tuple[int, int]]:
    """The floor server: `(port, process id)`."""
    port = free_port()
    with server([sys.executable, "-m", "bench.floor", str(port)], port) as pid:
        yield port, pid
