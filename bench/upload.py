"""Large uploads: `python -m bench.upload`.

For an image of 10 MB and a video of 50 MB as data URLs: the longest single step of the front door's event loop, in CPU
time of its thread so that a busy machine doesn't count, and how much memory the upload took at its peak.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import http.client
import io
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from typing import Any

import psutil
import uvicorn
from PIL import Image

from frontend.app import create_app
from frontend.drain import Server
from frontend.engine.fake import FakeEngine
from frontend.settings import Settings

MB = 1_000_000
ROUNDS = 3


class Steps:
    """Watches an event loop, once a first small request has passed: what loads late has been loaded then."""

    def __init__(self, engine: FakeEngine) -> None:
        self.longest = 0.0
        """CPU seconds of the loop's thread between two of its turns."""
        self.before = 0
        """Bytes of memory in use at the beginning."""
        self._engine = engine
        self._warm = False

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._last = time.thread_time()
        self._tick()

    def _tick(self) -> None:
        now = time.thread_time()
        if self._warm:
            self.longest = max(self.longest, now - self._last)
        elif self._engine.runs and self._engine.runs[0].outcome == "completed":
            self._warm = True
            self.before = psutil.Process().memory_info().rss
        self._last = now
        self._loop.call_later(0.0005, self._tick)


def serve() -> None:
    """The front door on its scripted engine; prints its port, and on SIGTERM what was seen."""
    engine = FakeEngine()
    app = create_app(Settings(engine="fake", warmup=False), engine)
    config = uvicorn.Config(app, host="127.0.0.1", port=0, loop="uvloop", http="httptools", log_level="error")
    steps = Steps(engine)

    def ready() -> None:
        steps.start()
        print(server.servers[0].sockets[0].getsockname()[1], flush=True)

    server = Server(config, app, on_started=ready)
    server.run()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"longest_step_ms": steps.longest * 1e3, "memory_bytes": peak - steps.before}), flush=True)


def image(size: int) -> bytes:
    """A PNG of noise of about `size` bytes."""
    side = int((size / 3) ** 0.5)
    out = io.BytesIO()
    Image.frombytes("RGB", (side, side), os.urandom(3 * side * side)).save(out, "PNG", compress_level=0)
    return out.getvalue()


def video(size: int) -> bytes:
    """What the front door takes for an MP4 of `size` bytes."""
    return b"\0\0\0\x18ftypisom\0\0\0\0isommp42" + os.urandom(size)


def upload(kind: str, small: bytes, data: bytes) -> dict[str, Any]:
    """One upload to a server of its own, after a small one."""
    with subprocess.Popen([sys.executable, "-m", "bench.upload", "--serve"], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        connection = http.client.HTTPConnection("127.0.0.1", int(process.stdout.readline()), timeout=120)
        for one in (small, data):
            url = "data:;base64," + base64.b64encode(one).decode()
            body = {"messages": [{"role": "user", "content": "look"}], kind: [url]}
            connection.request("POST", "/v1/chat/completions", json.dumps(body))
            response = connection.getresponse()
            assert response.status == 200, response.read()
            response.read()
            time.sleep(0.2)
        connection.close()
        process.terminate()
        seen: dict[str, Any] = json.loads(process.stdout.read())
    return seen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    if parser.parse_args().serve:
        serve()
        return
    for kind, made, size in (("images", image, 10 * MB), ("videos", video, 50 * MB)):
        data = made(size)
        rounds = [upload(kind, made(300_000), data) for _ in range(ROUNDS)]
        step = statistics.median(one["longest_step_ms"] for one in rounds)
        memory = statistics.median(one["memory_bytes"] for one in rounds) / len(data)
        print(f"{kind}: {len(data) / MB:.0f} MB  longest step {step:.1f} ms  memory {memory:.2f} times the size")


if __name__ == "__main__":
    main()
