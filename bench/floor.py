"""The floor: what an asyncio server costs that does nothing but the wire.

Raw ASGI on the same uvicorn, preformatted events, no validation, no session, no limits. It isn't a product; it shows
how much of the front door's cost is Python's and the socket's. Run it as `python -m bench.floor PORT`.
"""

from __future__ import annotations

import asyncio
import struct
import sys
import time
from typing import Any

import orjson
import pybase64
import uvicorn

from frontend.engine.fake import frame

PCM = frame()
WAV = struct.pack("<4sI4s4sIHHIIHH4sI", b"RIFF", 36 + len(PCM), b"WAVE", b"fmt ", 16, 1, 1, 24000, 48000, 2, 16,
                  b"data", len(PCM)) + PCM  # fmt: skip


async def _body(receive: Any) -> bytes:
    out = bytearray()
    while True:
        message = await receive()
        out += message.get("body", b"")
        if not message.get("more_body"):
            return bytes(out)


async def chat(receive: Any, send: Any) -> None:
    """A streamed chat completion of `max_tokens` words, each with 80 ms of sound when speech is asked, and then so many
    more that the talker's `max_tokens` are said."""
    request = orjson.loads(await _body(receive))
    words = request["messages"][-1]["content"].split()
    pause = request.get("stage_params", {}).get("thinker", {}).get("token_interval_ms", 0) / 1000
    speech = "audio" in request.get("modalities", ())
    sounds = request.get("stage_sampling", {}).get("talker", {}).get("max_tokens", 0) if speech else 0
    head = (
        f'data: {{"id":"chatcmpl-1","object":"chat.completion.chunk","created":{int(time.time())},'
        f'"model":"{request["model"]}","choices":[{{"index":0,"delta":'
    ).encode()
    tail = b',"finish_reason":null}]}\n\n'

    async def say(delta: bytes) -> None:
        await send({"type": "http.response.body", "body": head + delta + tail, "more_body": True})

    headers = [(b"content-type", b"text/event-stream; charset=utf-8")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await say(b'{"role":"assistant","content":""}')
    for n in range(request["max_tokens"]):
        await asyncio.sleep(pause)
        await say(b'{"content":' + orjson.dumps(words[n % len(words)] + " ") + b"}")
        if speech:
            await asyncio.sleep(0)
            await say(b'{"audio":{"id":"a","data":"' + pybase64.b64encode(WAV) + b'"}}')
    for _ in range(sounds - request["max_tokens"]):
        await asyncio.sleep(0)
        await say(b'{"audio":{"id":"a","data":"' + pybase64.b64encode(WAV) + b'"}}')
    last = head + b'{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
    await send({"type": "http.response.body", "body": last, "more_body": False})


async def app(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "lifespan":
        while True:
            message = await receive()
            await send({"type": message["type"] + ".complete"})
            if message["type"] == "lifespan.shutdown":
                return
    elif scope["type"] == "http" and scope["path"] == "/v1/chat/completions":
        await chat(receive, send)
    elif scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})


if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning", loop="uvloop", http="httptools")
