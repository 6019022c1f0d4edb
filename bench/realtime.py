"""How quick a conversation is and what it costs: `python -m bench.realtime [--sessions 1,8,32] [--json FILE]`.

The whole server as `make serve` runs it, with dummy stages, and clients that speak at the pace of a microphone, one
after another. The client is this process; processor time is that of the front door alone.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import math
import statistics
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import psutil
import websockets

from bench import processes
from bench.voice import silence, speak

RATE = 24_000
QUESTION = "Hello there, how many cars are in the picture, and which of them is the red one?"
PAUSE_S = 2.5
"""Silence behind each question: that which ends the turn, and the answer."""
SILENCE_MS = 500
"""Of the turn detection, in its default."""
PADDING_MS = 300
ONSET_MS = 64
"""Two windows of voice are a beginning."""
SLOW = {"thinker": {"token_interval_ms": 40}, "code2wav": {"max_chunk_frames": 1}}
"""So that an answer is under way for long."""


class Microphone:
    """A sound in messages of `piece_ms`, sent at its own pace."""

    def __init__(self, pcm: bytes, piece_ms: int) -> None:
        step = RATE * piece_ms // 1000 * 2
        pieces = [pcm[at : at + step] for at in range(0, len(pcm) - step + 1, step)]
        self._messages = [
            orjson.dumps({"type": "input_audio_buffer.append", "audio": base64.b64encode(one).decode()}).decode()
            for one in pieces
        ]
        self._piece_s = piece_ms / 1000
        self.sent: list[float] = []
        """When each piece left."""

    async def speak(self, ws: Any, until: float | None = None) -> None:
        """Once, or over and over until a time."""
        began = time.perf_counter()
        number = 0
        while number < len(self._messages) if until is None else time.perf_counter() < until:
            await asyncio.sleep(began + (number + 1) * self._piece_s - time.perf_counter())
            await ws.send(self._messages[number % len(self._messages)])
            self.sent.append(time.perf_counter())
            number += 1

    def sent_at(self, ms: float) -> float:
        """When the piece left that completed so much of the sound."""
        return self.sent[math.ceil(ms / 1000 / self._piece_s) - 1]


@dataclass(slots=True)
class Heard:
    """What one session was told, in milliseconds."""

    stopped: list[float] = field(default_factory=list)
    """From the end of a turn to word of it."""
    audio: list[float] = field(default_factory=list)
    """From the end of a turn to the first sound of its answer."""
    errors: list[str] = field(default_factory=list)


@asynccontextmanager
async def opened(port: int, **session: Any) -> AsyncIterator[Any]:
    url = f"ws://127.0.0.1:{port}/v1/realtime"
    async with websockets.connect(url, max_size=None, compression=None, ping_interval=None) as ws:
        await ws.send(json.dumps({"type": "session.update", "session": {"type": "realtime", **session}}))
        yield ws


async def listen(ws: Any, microphone: Microphone, heard: Heard) -> None:
    ended: float | None = None
    async for message in ws:
        now = time.perf_counter()
        event = orjson.loads(message)
        match event["type"]:
            case "input_audio_buffer.speech_stopped":
                ended = microphone.sent_at(event["audio_end_ms"])
                heard.stopped.append((now - ended) * 1e3)
            case "response.output_audio.delta" if ended is not None:
                heard.audio.append((now - ended) * 1e3)
                ended = None
            case "error":
                heard.errors.append(event["error"]["code"])


async def talk(port: int, pcm: bytes, piece_ms: int, starts: float, until: float) -> Heard:
    """One session, which begins to speak at `starts` and goes on `until`."""
    heard, microphone = Heard(), Microphone(pcm, piece_ms)
    async with opened(port) as ws:
        listening = asyncio.create_task(listen(ws, microphone, heard), name="listener")
        await asyncio.sleep(starts - time.perf_counter())
        await microphone.speak(ws, until)
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
    return heard


async def crowd(port: int, door: int, sessions: int, seconds: float, piece_ms: int) -> dict[str, Any]:
    """Many sessions that speak one after another: each is later than the one before by its share of a question."""
    pcm = speak(QUESTION, rate=RATE).pcm + silence(PAUSE_S, RATE)
    cycle = len(pcm) / 2 / RATE
    begins = time.perf_counter() + 1.0 + sessions * 0.02
    until = begins + cycle + seconds
    tasks = [
        asyncio.create_task(talk(port, pcm, piece_ms, begins + n * cycle / sessions, until), name=f"session {n}")
        for n in range(sessions)
    ]
    await asyncio.sleep(begins + cycle - time.perf_counter())
    before, own = processes.cpu_seconds(door), time.process_time()
    await asyncio.sleep(seconds)
    spent, own = processes.cpu_seconds(door) - before, time.process_time() - own
    all_heard = await asyncio.gather(*tasks)
    audio = [ms for one in all_heard for ms in one.audio]
    return {
        "sessions": sessions,
        "turns": len(audio),
        "errors": sorted(error for one in all_heard for error in one.errors),
        "first_audio_p50_ms": round(statistics.median(audio), 1),
        "first_audio_p95_ms": round(sorted(audio)[int(0.95 * len(audio))], 1),
        "first_audio_max_ms": round(max(audio), 1),
        "turn_end_p50_ms": round(statistics.median(ms for one in all_heard for ms in one.stopped), 1),
        "front_door_ms_per_second": round(spent / seconds / sessions * 1e3, 2),
        "client_cores": round(own / seconds, 2),
    }


async def interruption(port: int, metrics: str, piece_ms: int) -> dict[str, float]:
    """Speak over an answer; milliseconds from the onset of the voice, and from word of it, to the end of everything."""
    microphone = Microphone(silence(0.5, RATE) + speak(QUESTION, rate=RATE).pcm[: RATE * 2], piece_ms)
    content = [{"type": "input_text", "text": "one two three four five six seven " * 40}]
    async with opened(port, stage_params=SLOW) as ws:
        item = {"type": "message", "role": "user", "content": content}
        await ws.send(json.dumps({"type": "conversation.item.create", "item": item}))
        await ws.send(json.dumps({"type": "response.create"}))
        deltas, last = 0, 0.0
        speaking: asyncio.Task[None] | None = None
        async for message in ws:
            now = time.perf_counter()
            event = orjson.loads(message)
            match event["type"]:
                case "response.output_audio.delta":
                    deltas, last = deltas + 1, now
                    if deltas == 5:
                        speaking = asyncio.create_task(microphone.speak(ws), name="microphone")
                case "input_audio_buffer.speech_started":
                    told = now
                    onset = microphone.sent_at(event["audio_start_ms"] + PADDING_MS + ONSET_MS)
                case "response.done":
                    status, done = event["response"]["status"], now
                    break
        empty = await asyncio.to_thread(until_empty, metrics)
        assert status == "cancelled", status
        assert speaking is not None
        speaking.cancel()
        await asyncio.gather(speaking, return_exceptions=True)
    return {
        "told_ms": (told - onset) * 1e3,
        "last_audio_ms": (last - onset) * 1e3,
        "done_ms": (done - onset) * 1e3,
        "stages_empty_ms": (empty - onset) * 1e3,
    }


def until_empty(metrics: str, limit: float = 5.0) -> float:
    """When no stage held a generation any more."""
    deadline = time.perf_counter() + limit
    while time.perf_counter() < deadline:
        with urllib.request.urlopen(metrics, timeout=5) as answer:
            lines = answer.read().decode().splitlines()
        if all(float(line.split()[-1]) == 0 for line in lines if line.startswith("omni_stage_generations{")):
            return time.perf_counter()
        time.sleep(0.005)
    raise SystemExit("a stage still holds a generation")


def metrics_url(triton: int) -> str:
    words = psutil.Process(triton).cmdline()
    (port,) = [word.partition("=")[2] for word in words if word.startswith("--metrics-port")]
    return f"http://127.0.0.1:{port}/metrics"


def interruptions(port: int, triton: int, count: int, piece_ms: int) -> dict[str, Any]:
    """Medians and worst of several."""
    rounds = [asyncio.run(interruption(port, metrics_url(triton), piece_ms)) for _ in range(count)]
    names = rounds[0]
    return {"interruptions": count} | {
        f"{name}_{word}": round(of([one[name] for one in rounds]), 1)
        for name in names
        for word, of in (("p50", statistics.median), ("max", max))
    }


def report(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    with processes.omni("dummy") as (port, door, triton):
        asyncio.run(crowd(port, door, 1, 1.0, options.piece_ms))
        for sessions in options.sessions:
            yield asyncio.run(crowd(port, door, sessions, options.seconds, options.piece_ms))
        if options.interruptions:
            yield interruptions(port, triton, options.interruptions, options.piece_ms)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=lambda text: [int(one) for one in text.split(",")], default=[1, 8, 32])
    parser.add_argument("--seconds", type=float, default=16.0, help="how long each count of sessions is watched")
    parser.add_argument("--piece-ms", type=int, default=20, help="sound in each message")
    parser.add_argument("--interruptions", type=int, default=8)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args(arguments)
    rows = []
    for row in report(options):
        rows.append(row)
        print(json.dumps(row), flush=True)
    if options.json:
        load = {"load_1m": psutil.getloadavg()[0], "piece_ms": options.piece_ms}
        options.json.write_text(json.dumps({**load, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
