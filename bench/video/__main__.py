"""What a frame costs: `python -m bench.video [--quick] [--json FILE]`.

The front door on its scripted engine against the floor server, in alternate rounds; the ratio is that of the medians.
Then sessions at a camera's pace, with how late the server's event loop was, as seen by a probe of /live.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import os
import statistics
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psutil
import websockets

from bench import processes
from bench.video.pictures import Content, jpegs
from omni.launch.ports import free_port

PATH = "/v1/video/chat/stream"
ROUNDS = 5
WINDOW = 16
"""Frames of a session that may wait for their acknowledgement."""
SIZES = ((640, 360), (1280, 720))
WORKLOADS: tuple[tuple[Content, bool], ...] = (("distinct", True), ("static", True), ("distinct", False))
"""Content, and whether the filter is on: accepted, dropped, and not looked at."""


async def session(port: int, messages: Sequence[str], frames: int, evs: bool, fps: float, deflate: bool) -> list[float]:
    """Send frames as fast as they are acknowledged, or at a pace; the seconds that each acknowledgement took, at a pace
    from when its frame was due."""
    compression = "deflate" if deflate else None
    late: list[float] = []
    sent: list[float] = []
    room = asyncio.Semaphore(WINDOW)
    async with websockets.connect(f"ws://127.0.0.1:{port}{PATH}", max_size=None, compression=compression) as ws:

        async def listen() -> None:
            for number in range(frames):
                await ws.recv()
                late.append(time.perf_counter() - sent[number])
                room.release()

        await ws.send(json.dumps({"type": "session.config", "modalities": ["text"], "enable_frame_filter": evs}))
        listening = asyncio.create_task(listen(), name="acknowledgements")
        began = time.perf_counter()
        for number in range(frames):
            await room.acquire()
            due = began + number / fps if fps else time.perf_counter()
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            sent.append(due)
            await ws.send(messages[number % len(messages)])
        await listening
    return late


async def probe(port: int, stop: asyncio.Event) -> list[float]:
    """Seconds that /live took, again and again: how late the event loop is."""

    def ask() -> float:
        began = time.perf_counter()
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/live", timeout=30) as response:
            response.read()
        return time.perf_counter() - began

    took: list[float] = []
    while not stop.is_set():
        took.append(await asyncio.to_thread(ask))
        await asyncio.sleep(0.02)
    return took


async def load(port: int, sessions: int, **options: Any) -> tuple[list[float], list[float]]:
    """`(seconds of acknowledgements, seconds of probes)` of sessions side by side."""
    stop = asyncio.Event()
    watching = asyncio.create_task(probe(port, stop), name="probe")
    took = await asyncio.gather(*(session(port, **options) for _ in range(sessions)))
    stop.set()
    return [one for each in took for one in each], await watching


def messages(size: tuple[int, int], content: Content) -> list[str]:
    return [
        json.dumps(
            {"type": "video.frame", "frame_id": f"f{n}", "pts_ms": n * 100, "data": base64.b64encode(data).decode()}
        )
        for n, data in enumerate(jpegs(*size, 48, content))
    ]


@contextmanager
def server(module: str, deflate: bool, *options: str) -> Iterator[tuple[int, int]]:
    """`(port, process id)` of the front door or the floor."""
    port = free_port()
    if module == "frontend":
        command = [
            sys.executable,
            "-m",
            module,
            "--engine",
            "fake",
            "--port",
            str(port),
            "--log-level",
            "error",
            *options,
        ]
        command += ["--ws-per-message-deflate"] if deflate else []
    else:
        command = [sys.executable, "-m", module, str(port), *(["--deflate"] if deflate else [])]
    with processes.server(command, port) as pid:
        yield port, pid


def pin(pid: int) -> None:
    """Leaves a server the first core, and this process the others, so that neither slows the other down."""
    first, *others = range(os.cpu_count() or 1)
    for thread in psutil.Process(pid).threads():
        os.sched_setaffinity(thread.id, {first})
    os.sched_setaffinity(0, others or {first})


def compare(quick: bool, deflate: bool) -> list[dict[str, Any]]:
    """CPU milliseconds per frame of both, for every size and workload."""
    rows = []
    frames = 60 if quick else 150
    with ExitStack() as running:
        servers = {
            "front_door": running.enter_context(server("frontend", deflate, "--no-video-prefill")),
            "floor": running.enter_context(server("bench.video.floor", deflate)),
        }
        for _, pid in servers.values():
            pin(pid)
        for size in SIZES:
            for content, evs in WORKLOADS:
                cost: dict[str, list[float]] = {name: [] for name in servers}
                texts = messages(size, content)
                for _ in range(2 if quick else ROUNDS):
                    for name, (port, pid) in servers.items():
                        before = processes.cpu_seconds(pid)
                        options = {"messages": texts, "frames": frames, "evs": evs, "fps": 0.0, "deflate": deflate}
                        asyncio.run(load(port, 4, **options))
                        cost[name].append((processes.cpu_seconds(pid) - before) / (4 * frames) * 1e3)
                medians = {name: statistics.median(values) for name, values in cost.items()}
                row = {"size": "{}x{}".format(*size), "content": content, "evs": evs, "deflate": deflate}
                row |= {f"{name}_ms": round(value, 3) for name, value in medians.items()}
                rows.append({**row, "ratio": round(medians["front_door"] / medians["floor"], 2)})
                print(json.dumps(rows[-1]), flush=True)
    return rows


def paced(quick: bool) -> dict[str, Any]:
    """Eight cameras of 720p at ten frames a second, for a server that has one core."""
    sessions, fps, seconds = 8, 10.0, 5 if quick else 20
    with server("frontend", False, "--no-video-prefill") as (port, pid):
        pin(pid)
        before = processes.cpu_seconds(pid)
        options = {"messages": messages((1280, 720), "distinct"), "frames": int(fps * seconds), "evs": True, "fps": fps}
        acks, lags = asyncio.run(load(port, sessions, deflate=False, **options))
        cores = (processes.cpu_seconds(pid) - before) / seconds
    row = {
        "sessions": sessions,
        "fps": fps,
        "cores": round(cores, 2),
        "ack_p50_ms": round(statistics.median(acks) * 1e3, 1),
        "ack_p99_ms": round(statistics.quantiles(acks, n=100)[98] * 1e3, 1),
        "loop_p50_ms": round(statistics.median(lags) * 1e3, 1),
        "loop_p99_ms": round(statistics.quantiles(lags, n=100)[98] * 1e3, 1),
    }
    print(json.dumps(row), flush=True)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.video", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer frames and rounds")
    parser.add_argument("--deflate", action="store_true", help="with permessage-deflate")
    parser.add_argument("--only", choices=("compare", "paced"), help="one half")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    out: dict[str, Any] = {}
    if options.only != "paced":
        out["compare"] = compare(options.quick, options.deflate)
    if options.only != "compare":
        out["paced"] = paced(options.quick)
    if options.json:
        options.json.write_text(json.dumps(out, indent=1) + "\n")


if __name__ == "__main__":
    main()
