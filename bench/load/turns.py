"""One turn of each protocol over the wire, with when everything came."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import httptools
import websockets
from PIL import Image

SAMPLE_BYTES_PER_S = 48_000
"""Speech is mono, 16 bits, at 24 kHz."""
WAV_HEADER = 44
WORDS = ("rain", "light", "fox", "story", "lazy", "over", "jumps", "quick", "brown", "while", "we", "tell", "more")


@dataclass(slots=True)
class Turn:
    """One question and its answer. Times are seconds of one steady clock."""

    protocol: str
    asked: float
    texts: list[float] = field(default_factory=list)
    audios: list[tuple[float, float]] = field(default_factory=list)
    """When a piece of speech came, and its seconds."""
    ended: float = 0.0
    error: str | None = None
    """Kind of failure; None when the answer came to its end."""

    def heard(self, encoded: int, now: float, *, wav: bool) -> None:
        """`encoded` characters of base64 speech came."""
        size = encoded * 3 // 4 - (WAV_HEADER if wav else 0)
        self.audios.append((now, max(size, 0) / SAMPLE_BYTES_PER_S))

    def starved(self, tolerance: float = 0.005) -> float:
        """Seconds that a player which starts at the first speech and never waits would have had nothing to play."""
        missing, until = 0.0, 0.0
        for n, (at, seconds) in enumerate(self.audios):
            if n and at > until + tolerance:
                missing += at - until
            until = (at if not n or at > until else until) + seconds
        return missing


@dataclass(frozen=True, slots=True)
class Ask:
    """What every question is like."""

    tokens: int = 60
    speech: bool = True
    interval_ms: float = 20.0
    """Pace of the dummy thinker; ignored by real models."""
    model: str = "qwen3-omni"
    voice: str = "Ethan"
    key: str = ""
    timeout: float = 120.0
    dummy: bool = True
    """Whether the server has the dummy stages, which take pace and length as parameters."""

    def question(self, chance: random.Random) -> str:
        return " ".join(chance.choice(WORDS) for _ in range(self.tokens))


TakeTurn = Callable[[str], Awaitable[Turn]]
"""Asks one question, given as text."""


@asynccontextmanager
async def chat(url: str, ask: Ask, chance: random.Random) -> AsyncIterator[TakeTurn]:
    """Streamed chat completions, a connection per turn."""
    place = urlsplit(url)
    host, port = place.hostname or "127.0.0.1", place.port or 80

    async def take(question: str) -> Turn:
        turn = Turn("chat", time.perf_counter())
        body = json.dumps(_chat_body(ask, question, chance)).encode()
        head = f"POST {place.path}/v1/chat/completions HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
        head += f"Content-Length: {len(body)}\r\nConnection: close\r\n"
        head += f"Authorization: Bearer {ask.key}\r\n\r\n" if ask.key else "\r\n"
        reader, writer = await asyncio.open_connection(host, port, limit=1 << 22)
        try:
            sink = _Sse(turn)
            parser = httptools.HttpResponseParser(sink)
            writer.write(head.encode() + body)
            while data := await reader.read(1 << 18):
                parser.feed_data(data)
            status = parser.get_status_code()
            turn.error = sink.error or (None if sink.done else f"http {status}" if status != 200 else "cut short")
        finally:
            writer.close()
        turn.ended = time.perf_counter()
        return turn

    yield take


def _chat_body(ask: Ask, question: str, chance: random.Random) -> dict[str, Any]:
    body: dict[str, Any] = {
        "model": ask.model,
        "messages": [{"role": "user", "content": question}],
        "stream": True,
        "max_tokens": ask.tokens,
        "seed": chance.getrandbits(31),
        "modalities": ["text", "audio"] if ask.speech else ["text"],
    }
    if ask.speech:
        body["audio"] = {"voice": ask.voice, "format": "wav"}
    if ask.dummy:
        body["ignore_eos"] = True
        body["stage_params"] = {"thinker": {"token_interval_ms": ask.interval_ms}}
    return body


class _Sse:
    """Server-sent events of a chat completion, looked at without being parsed: the client must stay cheap."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._rest = b""
        self.done = False
        self.error: str | None = None

    def on_body(self, data: bytes) -> None:
        now = time.perf_counter()
        *events, self._rest = (self._rest + data).split(b"\n\n")
        for event in events:
            if event == b"data: [DONE]":
                self.done = True
            elif event.startswith(b'data: {"error"'):
                self.error = str(json.loads(event[6:])["error"]["code"])
            elif b'"audio":{' in event and b'"data":"' in event:
                self._turn.heard(len(event.split(b'"data":"', 1)[1].split(b'"', 1)[0]), now, wav=True)
            elif b'"content":"' in event and b'"content":""' not in event:
                self._turn.texts.append(now)


@asynccontextmanager
async def _socket(url: str, path: str, ask: Ask) -> AsyncIterator[Any]:
    headers = {"authorization": f"Bearer {ask.key}"} if ask.key else {}
    address = url.replace("http", "ws", 1) + path
    async with websockets.connect(address, additional_headers=headers, max_size=None, ping_interval=None) as ws:
        yield ws


async def _listen(ws: Any, turn: Turn, text: str, audio: str, field: str, last: str, *, wav: bool) -> None:
    """Read a turn's events: `text` and `audio` are types of deltas, `field` holds the sound, `last` ends the turn."""
    while True:
        event = json.loads(await ws.recv())
        now, kind = time.perf_counter(), event["type"]
        if kind == text:
            turn.texts.append(now)
        elif kind == audio:
            turn.heard(len(event[field]), now, wav=wav)
        elif kind == "error":
            turn.error = str(event.get("code") or (event.get("error") or {}).get("code") or "error")
        elif kind == last:
            turn.ended = now
            status = (event.get("response") or {}).get("status", "completed")
            turn.error = turn.error or (None if status == "completed" else status)
            return


def _frame(chance: random.Random) -> str:
    file = io.BytesIO()
    colour = (chance.randrange(256), chance.randrange(256), chance.randrange(256))
    Image.new("RGB", (320, 240), colour).save(file, "JPEG")
    return base64.b64encode(file.getvalue()).decode()


@asynccontextmanager
async def video(url: str, ask: Ask, chance: random.Random) -> AsyncIterator[TakeTurn]:
    """A live video session: some new frames and half a second of sound before each question."""
    async with _socket(url, "/v1/video/chat/stream", ask) as ws:
        config: dict[str, Any] = {"type": "session.config", "modalities": ["text"] + ["audio"] * ask.speech}
        await ws.send(json.dumps(config))

        async def take(question: str) -> Turn:
            for _ in range(3):
                await ws.send(json.dumps({"type": "video.frame", "data": _frame(chance)}))
            sound = base64.b64encode(chance.randbytes(16_000)).decode()
            await ws.send(json.dumps({"type": "audio.chunk", "data": sound}))
            turn = Turn("video", time.perf_counter())
            await ws.send(json.dumps({"type": "video.query", "text": question}))
            last = "response.done"
            await _listen(ws, turn, "response.text.delta", "response.output_audio.delta", "data", last, wav=True)
            return turn

        yield take


@asynccontextmanager
async def realtime(url: str, ask: Ask, chance: random.Random) -> AsyncIterator[TakeTurn]:
    """A realtime session that asks in text."""
    async with _socket(url, "/v1/realtime", ask) as ws:
        modalities = ["audio"] if ask.speech else ["text"]
        session = {"type": "realtime", "output_modalities": modalities}
        await ws.send(json.dumps({"type": "session.update", "session": session}))

        async def take(question: str) -> Turn:
            content = [{"type": "input_text", "text": question}]
            item = {"type": "message", "role": "user", "content": content}
            await ws.send(json.dumps({"type": "conversation.item.create", "item": item}))
            turn = Turn("realtime", time.perf_counter())
            await ws.send(json.dumps({"type": "response.create"}))
            text = "response.output_audio_transcript.delta" if ask.speech else "response.output_text.delta"
            await _listen(ws, turn, text, "response.output_audio.delta", "delta", "response.done", wav=False)
            return turn

        yield take


PROTOCOLS = {"chat": chat, "video": video, "realtime": realtime}
