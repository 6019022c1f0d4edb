"""Large uploads: `python -m bench.upload`.

For an image of 10 MB and a video of 50 MB as data URLs: the longest single step of the front door's event loop, in CPU
time of its thread so that a busy machine doesn't count, and how much memory the upload took at its peak: that of the
front door, and of all processes together. First with the scripted engine, then with Triton behind the front door, which
adds the way over gRPC.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import http.client
import io
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing, nullcontext
from pathlib import Path
from typing import Any, Self

import av
import numpy as np
import uvicorn
from PIL import Image

from bench import processes
from frontend.app import create_app, make_engine
from frontend.drain import Server
from frontend.engine.base import Engine
from frontend.engine.fake import FakeEngine
from frontend.media import vad
from frontend.settings import Settings
from omni.contract.chunk import Chunk
from omni.contract.job import Job
from omni.profile import load_profile

MB = 1_000_000
ROUNDS = 3
SETTLED_S = 0.3
"""After its last chunk a first request still loads what sends it."""


class Steps:
    """Watches an event loop, once a first small request has passed: what loads late has been loaded then."""

    def __init__(self, engine: Engine) -> None:
        self.longest = 0.0
        """CPU seconds of the loop's thread between two of its turns."""
        self.before = 0
        """Bytes of memory in use at the beginning."""
        self._generate, engine.generate = engine.generate, self._watched  # type: ignore[method-assign]
        self._warm = False

    async def _watched(self, job: Job) -> AsyncGenerator[Chunk, None]:
        async with aclosing(self._generate(job)) as chunks:
            async for chunk in chunks:
                yield chunk
        if not self._warm:
            self._loop.call_later(SETTLED_S, self._begin)

    def _begin(self) -> None:
        self._warm, self.before, self._last = True, memory("VmRSS"), time.thread_time()

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._last = time.thread_time()
        self._tick()

    def _tick(self) -> None:
        now = time.thread_time()
        if self._warm:
            self.longest = max(self.longest, now - self._last)
        self._last = now
        self._loop.call_later(0.0005, self._tick)


def memory(name: str, of: str = "self/status") -> int:
    """Bytes: `VmRSS` in use, `VmHWM` at the peak. A process's own, unlike the peak that getrusage inherits by fork."""
    lines = Path("/proc", of).read_text().splitlines()
    return int(next(line for line in lines if line.startswith(name)).split()[1]) * 1024


class Together:
    """Watches what some processes hold at one time, every few milliseconds."""

    def __init__(self, pids: Iterable[int]) -> None:
        self._pids = list(pids)
        self.most = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def now(self) -> int:
        """Bytes of all of them; what they share counts once."""
        return sum(memory("Pss:", f"{pid}/smaps_rollup") for pid in self._pids)

    def __enter__(self) -> Self:
        self._before = self.now()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(0.003):
            self.most = max(self.most, self.now() - self._before)


def serve(triton: str | None) -> None:
    """The front door on the engine at `triton`, or its scripted one; prints its port, and on SIGTERM what was seen."""
    settings = Settings(engine="fake", warmup=False, triton_url=(triton or "localhost:1",))
    engine: Engine = FakeEngine()
    if triton is not None:
        engine = make_engine(settings.model_copy(update={"engine": "triton"}), load_profile("dummy"))
    app = create_app(settings, engine)
    vad.model()  # which the front door loads beside its first requests, and which is no part of theirs
    config = uvicorn.Config(app, host="127.0.0.1", port=0, loop="uvloop", http="httptools", log_level="error")
    steps = Steps(engine)

    def ready() -> None:
        steps.start()
        print(server.servers[0].sockets[0].getsockname()[1], flush=True)

    server = Server(config, app, on_started=ready)
    server.run()
    seen = {"longest_step_ms": steps.longest * 1e3, "memory_bytes": memory("VmHWM") - steps.before}
    print(json.dumps(seen), flush=True)


def image(size: int) -> bytes:
    """A PNG of noise of about `size` bytes."""
    side = int((size / 3) ** 0.5)
    out = io.BytesIO()
    Image.frombytes("RGB", (side, side), os.urandom(3 * side * side)).save(out, "PNG", compress_level=0)
    return out.getvalue()


def video(size: int) -> bytes:
    """An MP4 of one second, with noise of `size` bytes in a box that says nothing."""
    out = io.BytesIO()
    with av.open(out, "w", format="mp4") as file:
        stream: Any = file.add_stream("mpeg4", rate=5, width=64, height=64, pix_fmt="yuv420p")
        for _ in range(5):
            file.mux(stream.encode(av.VideoFrame.from_ndarray(np.zeros((64, 64, 3), np.uint8), "rgb24")))
        file.mux(stream.encode(None))
    return out.getvalue() + (8 + size).to_bytes(4, "big") + b"free" + os.urandom(size)


def upload(kind: str, small: bytes, data: bytes, triton: str | None = None) -> dict[str, Any]:
    """One upload to a front door of its own, after a small one."""
    command = [sys.executable, "-m", "bench.upload", "--serve", *(("--triton", triton) if triton else ())]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        connection = http.client.HTTPConnection("127.0.0.1", int(process.stdout.readline()), timeout=120)
        pids = [process.pid]
        if triton is not None:
            pids += [one.pid for one in processes.tree(processes.descendant(os.getpid(), "tritonserver"))]
        for one in (small, data):
            url = "data:;base64," + base64.b64encode(one).decode()
            body = json.dumps({"messages": [{"role": "user", "content": "look"}], kind: [url]})
            with Together(pids) as together:
                connection.request("POST", "/v1/chat/completions", body)
                response = connection.getresponse()
                assert response.status == 200, response.read()
                response.read()
            time.sleep(2 * SETTLED_S)
        connection.close()
        process.terminate()
        seen: dict[str, Any] = json.loads(process.stdout.read())
    return seen | {"together_bytes": together.most}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--triton", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.triton)
        return
    for engine in ("scripted", "triton"):
        for kind, made, size in (("images", image, 10 * MB), ("videos", video, 50 * MB)):
            data = made(size)
            with processes.triton() if engine == "triton" else nullcontext() as triton:
                rounds = [upload(kind, made(300_000), data, triton) for _ in range(ROUNDS)]
            step = statistics.median(one["longest_step_ms"] for one in rounds)
            front, all = (max(one[part] for one in rounds) / len(data) for part in ("memory_bytes", "together_bytes"))
            print(
                f"{engine}, {kind}: {len(data) / MB:.0f} MB  longest step {step:.1f} ms  "
                f"memory {front:.2f} times the size, {all:.2f} with all processes",
                flush=True,
            )


if __name__ == "__main__":
    main()
