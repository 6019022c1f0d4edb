"""What prefill saves: `python -m bench.video.prefill [--profile tiny] [--json FILE]`.

Seconds from `video.query` to the first token with 4, 16 and 64 buffered frames, with and without incremental prefill,
for text and for speech. Answers have to be the same both ways.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import websockets

from bench import processes
from bench.video.__main__ import PATH
from bench.video.pictures import jpegs

COUNTS = (4, 16, 64)


class Session:
    def __init__(self, ws: Any) -> None:
        self._ws = ws

    async def send(self, **event: Any) -> None:
        await self._ws.send(json.dumps(event))

    async def until(self, *types: str) -> dict[str, Any]:
        while True:
            event: dict[str, Any] = json.loads(await asyncio.wait_for(self._ws.recv(), 300))
            if event["type"] == "error":
                raise SystemExit(event["message"])
            if event["type"] in types:
                return event


async def ask(session: Session) -> dict[str, Any]:
    """A question; when its first token came, and the whole answer.

    What tells of the first token is `video.frames.consumed`: of random weights, its text is often half a character.
    """
    began = time.perf_counter()
    await session.send(type="video.query", text="What happens?")
    await session.until("video.frames.consumed")
    first = time.perf_counter() - began
    text = (await session.until("response.text.done"))["text"]
    usage = (await session.until("response.done"))["usage"]
    return {
        "first_token_ms": first * 1e3,
        "text": text,
        "cached": usage["cached_tokens"],
        "prompt": usage["prompt_tokens"],
    }


async def measure(port: int, frames: Sequence[bytes], speech: bool, settle: float) -> dict[str, Any]:
    """`settle` seconds after the frames, a question about all of them."""
    sampling: list[dict[str, Any]] = [{"temperature": 0.0, "max_tokens": 16}]
    config = {
        "modalities": ["text", "audio"] if speech else ["text"],
        "enable_frame_filter": False,
        "num_frames": len(frames),
        "max_frames": 128,
        "sampling_params_list": [*sampling, {"temperature": 0.0, "max_tokens": 16}],
    }
    async with websockets.connect(f"ws://127.0.0.1:{port}{PATH}", max_size=None, compression=None) as ws:
        session = Session(ws)
        await session.send(type="session.config", **config)
        for data in frames:
            await session.send(type="video.frame", frame_id="x", data=base64.b64encode(data).decode())
        await session.send(type="ping")
        await session.until("pong")
        await asyncio.sleep(settle)
        return await ask(session)


def run(profile: str, repeat: int, size: tuple[int, int], settle: float) -> list[dict[str, Any]]:
    """Both ways see the same frames, and each question its own, so that nothing is known but what was prefilled."""
    rows = []
    answers: dict[tuple[bool, int], set[tuple[str, ...]]] = {}
    cases = [(speech, count) for speech in (False, True) for count in COUNTS]
    pictures = jpegs(*size, repeat * sum(count for _, count in cases), "distinct")
    for prefill in (False, True):
        with processes.omni(profile, *(() if prefill else ("--no-video-prefill",))) as (port, _, _):
            at = 0
            for speech, count in cases:
                wait = settle * count / max(COUNTS) + 1 if prefill else 0.0
                got = []
                for _ in range(repeat):
                    got.append(asyncio.run(measure(port, pictures[at : at + count], speech, wait)))
                    at += count
                answers.setdefault((speech, count), set()).add(tuple(one["text"] for one in got))
                first = statistics.median(one["first_token_ms"] for one in got)
                row = {"prefill": prefill, "speech": speech, "frames": count, "first_token_ms": round(first, 1)}
                rows.append({**row, "cached": got[-1]["cached"], "prompt": got[-1]["prompt"]})
                print(json.dumps(rows[-1]), flush=True)
    print(json.dumps({"equal_answers": all(len(texts) == 1 for texts in answers.values())}), flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.video.prefill", description=__doc__)
    parser.add_argument("--profile", default="tiny")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--size", default="128x128", help="of the frames")
    parser.add_argument("--settle", type=float, default=20.0, help="seconds that 64 frames are given to be read ahead")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    width, height = map(int, options.size.split("x"))
    rows = run(options.profile, options.repeat, (width, height), options.settle)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
