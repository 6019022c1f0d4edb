"""A client of streamed chat completions that costs little and keeps when each event came."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, field
from typing import Any

import httptools


@dataclass
class Stream:
    """One answer as it came over the wire. Times are seconds of one steady clock."""

    asked: float
    status: int = 0
    texts: list[float] = field(default_factory=list)
    audios: list[float] = field(default_factory=list)
    audio_seconds: float = 0.0
    complete: bool = False
    """Whether `[DONE]` came."""
    _rest: bytes = b""

    def on_body(self, data: bytes) -> None:
        now = time.perf_counter()
        *events, self._rest = (self._rest + data).split(b"\n\n")
        for event in events:
            if event == b"data: [DONE]":
                self.complete = True
            elif b'"audio":{' in event and b'"data":"' in event:
                self.audios.append(now)
                base64 = len(event.split(b'"data":"', 1)[1].split(b'"', 1)[0])
                self.audio_seconds += (base64 * 3 // 4 - 44) / 48_000
            elif b'"content":"' in event and b'"content":""' not in event:
                self.texts.append(now)


async def ask(host: str, port: int, body: bytes) -> Stream:
    """POST `body` to /v1/chat/completions and read to the end."""
    reader, writer = await asyncio.open_connection(host, port, limit=1 << 22)
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
    head += f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    stream = Stream(time.perf_counter())
    parser = httptools.HttpResponseParser(stream)
    writer.write(head.encode() + body)
    while data := await reader.read(1 << 18):
        parser.feed_data(data)
    stream.status = parser.get_status_code()
    writer.close()
    return stream


def body(
    tokens: int,
    *,
    speech: bool,
    interval_ms: float,
    frames: int | None = None,
    stage: dict[str, Any] | None = None,
    model: str = "qwen3-omni",
) -> bytes:
    """A request for exactly `tokens` words, one every `interval_ms`, of the scripted engine also for exactly `frames`
    pieces of sound; `stage` has further stage parameters."""
    request: dict[str, Any] = {
        "model": model,
        "messages": [{"role": "user", "content": "tell me a story of one hundred and twenty words please"}],
        "stream": True,
        "max_tokens": tokens,
        "ignore_eos": True,
        "modalities": ["text", "audio"] if speech else ["text"],
        "stage_params": {"thinker": {"token_interval_ms": interval_ms}, **(stage or {})},
    }
    if speech:
        request["audio"] = {"voice": "Ethan", "format": "wav"}
    if frames is not None:
        request["stage_sampling"] = {"talker": {"max_tokens": frames, "ignore_eos": True}}
    return json.dumps(request).encode()


async def load(port: int, request: bytes, *, concurrency: int, requests: int) -> list[Stream]:
    """`requests` answers, `concurrency` at a time."""
    left = requests
    out: list[Stream] = []

    async def worker() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            out.append(await ask("127.0.0.1", port, request))

    await asyncio.gather(*(worker() for _ in range(concurrency)))
    return out
