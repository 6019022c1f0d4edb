"""The demo profile as its user feels it: `python -m bench.demo [--json FILE]`.

Starts the server, asks it in text, in speech and about a photograph, and reports when the first token and the first
sound came, how long the answer's speech took for its length, and what the processes hold.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import io
import json
import statistics
import time
import wave
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from bench import processes, sse
from omni.stages.demo.code2wav import Head
from omni.stages.demo.frames import unpack
from omni.stages.demo.models import ModelsMissing, packaged
from omni.stages.demo.talker import Voice
from omni.stages.demo.vocoder import Vocoder

TYPED = (
    "What is the capital of France?",
    "Why is the sky blue?",
    "Who wrote Hamlet?",
    "How many days are in a week?",
    "What is the opposite of hot?",
)
SPOKEN = (
    "What is the capital of Germany?",
    "Why is the grass green?",
    "Who wrote Macbeth?",
    "How many months are in a year?",
    "What is the opposite of cold?",
)
PHOTOGRAPHS = ("chelsea.png", "coffee.png", "camera.png", "motorcycle_left.png", "rocket.jpg")
"""Always different ones, so that the thinker knows nothing of a prompt but its examples."""


def spoken(text: str) -> bytes:
    """A WAV file of `text` in the demo's own voice."""
    codes = Voice().speak(text)
    assert codes is not None
    samples = Vocoder(Head()).feed(unpack(codes), last=True)
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(24_000)
        file.writeframes((samples * 32767).astype("<i2").tobytes())
    return out.getvalue()


def sound(text: str) -> dict[str, Any]:
    return {"type": "input_audio", "input_audio": {"data": base64.b64encode(spoken(text)).decode(), "format": "wav"}}


def photograph(name: str) -> dict[str, Any]:
    data = base64.b64encode(packaged("skimage", f"data/{name}").read_bytes()).decode()
    kind = "jpeg" if name.endswith("jpg") else "png"
    return {"type": "image_url", "image_url": {"url": f"data:image/{kind};base64,{data}"}}


def requests() -> Mapping[str, list[list[dict[str, Any]]]]:
    """By kind, the contents of the user's messages."""
    kinds = {
        "typed": [[{"type": "text", "text": question}] for question in TYPED],
        "spoken": [[sound(question)] for question in SPOKEN],
    }
    try:
        shown = [photograph(name) for name in PHOTOGRAPHS]
    except ModelsMissing:
        return kinds
    asked = sound("What do you see in this picture?")
    return {**kinds, "spoken about a photograph": [[picture, asked] for picture in shown]}


def body(content: list[dict[str, Any]]) -> bytes:
    request = {
        "model": "omni-demo",
        "messages": [{"role": "user", "content": content}],
        "stream": True,
        "modalities": ["text", "audio"],
        "audio": {"voice": "heart", "format": "wav"},
    }
    return json.dumps(request).encode()


def figures(streams: list[sse.Stream], seconds: list[float], cpu: float) -> dict[str, float]:
    """Medians and worst of one kind. RTF is the time for all of the answer by the length of its speech; `cpu_rtf` is
    the same in processor time, which other work on the machine hardly changes."""
    first_token = [s.texts[0] - s.asked for s in streams]
    first_audio = [s.audios[0] - s.asked for s in streams]
    rtf = [took / s.audio_seconds for s, took in zip(streams, seconds, strict=True)]
    return {
        "answers": len(streams),
        "first_token_p50_s": statistics.median(first_token),
        "first_token_max_s": max(first_token),
        "first_audio_p50_s": statistics.median(first_audio),
        "first_audio_max_s": max(first_audio),
        "rtf_p50": statistics.median(rtf),
        "rtf_max": max(rtf),
        "cpu_rtf": cpu / sum(s.audio_seconds for s in streams),
    }


def ask(port: int, pids: Sequence[int], contents: list[list[dict[str, Any]]]) -> dict[str, float]:
    streams, seconds = [], []
    before = sum(map(processes.cpu_seconds, pids))
    for content in contents:
        began = time.perf_counter()
        streams.append(asyncio.run(sse.ask("127.0.0.1", port, body(content))))
        seconds.append(time.perf_counter() - began)
    return figures(streams, seconds, sum(map(processes.cpu_seconds, pids)) - before)


def memory(pid: int) -> float:
    """Megabytes of a process and all under it; shared pages are divided among those that share them."""
    return sum(process.memory_full_info().pss for process in processes.tree(pid)) / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    kinds = requests()
    began = time.perf_counter()
    out: dict[str, Any] = {"load_before": psutil.getloadavg()[0]}
    with processes.omni("demo") as (port, door, triton):
        out["ready_s"] = time.perf_counter() - began
        out["ready_cpu_s"] = processes.cpu_seconds(door) + processes.cpu_seconds(triton)
        for kind, contents in kinds.items():
            out[kind] = ask(port, (door, triton), contents)
            print(f"{kind}: " + "  ".join(f"{name}={value:.3g}" for name, value in out[kind].items()), flush=True)
        out["memory_mb"] = memory(psutil.Process(door).ppid())
    out["load_after"] = psutil.getloadavg()[0]
    print(
        "  ".join(
            f"{name}={out[name]:.3g}" for name in ("ready_s", "ready_cpu_s", "memory_mb", "load_before", "load_after")
        )
    )
    if options.json:
        options.json.write_text(json.dumps(out, indent=1))


if __name__ == "__main__":
    main()
