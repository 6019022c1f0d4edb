"""The floor: what an asyncio server costs that does nothing but take frames. `python -m bench.video.floor PORT`.

Raw ASGI on the same uvicorn, fast libraries, a decode at reduced scale in grey, no validation, no limits, no threads.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import orjson
import pybase64
import simplejpeg
import uvicorn


def thumbnail(jpeg: bytes) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Grey, 32x32, from the smallest decode of at least 64 pixels on each side."""
    grey = simplejpeg.decode_jpeg(jpeg, colorspace="GRAY", fastdct=True, min_height=64, min_width=64, min_factor=1)
    high, wide = grey.shape[0] // 32, grey.shape[1] // 32
    return grey[: high * 32, : wide * 32, 0].reshape(32, high, 32, wide).mean((1, 3), dtype=np.float32)


async def session(receive: Any, send: Any) -> None:
    await receive()
    await send({"type": "websocket.accept"})
    config: dict[str, Any] = {}
    frames: list[bytes] = []
    last: Any = None
    while (message := await receive())["type"] != "websocket.disconnect":
        event = orjson.loads(message["text"])
        if event["type"] == "session.config":
            config = event
        elif event["type"] == "video.frame":
            data = pybase64.b64decode(event["data"], validate=True)
            kept = True
            if config["enable_frame_filter"]:
                now = thumbnail(data)
                kept = last is None or 1 - float(((now - last) ** 2).mean()) / 65025 < 0.95
                last = now if kept else last
            if kept:
                frames.append(data)
                del frames[:-50]
            ack = {
                "type": "video.frame.ack",
                "frame_id": event["frame_id"],
                "pts_ms": event["pts_ms"],
                "accepted": kept,
            }
            await send({"type": "websocket.send", "text": orjson.dumps(ack).decode()})
        elif event["type"] == "video.done":
            await send({"type": "websocket.send", "text": '{"type":"session.done"}'})
            await send({"type": "websocket.close"})
            return


async def app(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "lifespan":
        while True:
            message = await receive()
            await send({"type": message["type"] + ".complete"})
            if message["type"] == "lifespan.shutdown":
                return
    elif scope["type"] == "websocket":
        await session(receive, send)
    else:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})


if __name__ == "__main__":
    uvicorn.run(
        app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning", loop="uvloop", http="httptools",
        ws="websockets-sansio", ws_per_message_deflate="--deflate" in sys.argv,
    )  # fmt: skip
