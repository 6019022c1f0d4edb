"""Streamed chat completions over the wire: `python -m bench.chat [--quick] [--json FILE]`.

First the whole server with the dummy stages, then the front door on its scripted engine against the floor server, in
alternate rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from bench import processes, sse
from bench.sse import Stream

CONCURRENCIES = (1, 8, 64)
ROUNDS = 5


def percentile(values: Sequence[float], share: float) -> float:
    """The value under which `share` of `values` lies; NaN when there is none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")


def figures(streams: Sequence[Stream], seconds: float) -> dict[str, Any]:
    """What a load run showed; times in milliseconds."""
    gaps = [(b - a) * 1e3 for s in streams for a, b in zip(s.texts, s.texts[1:], strict=False)]
    first_text = [(s.texts[0] - s.asked) * 1e3 for s in streams if s.texts]
    first_audio = [(s.audios[0] - s.asked) * 1e3 for s in streams if s.audios]
    return {
        "requests": len(streams),
        "broken": sum(not s.complete or s.status != 200 for s in streams),
        "deltas": sum(len(s.texts) for s in streams),
        "audio_chunks": sum(len(s.audios) for s in streams),
        "first_token_p50_ms": percentile(first_text, 0.5),
        "first_token_p99_ms": percentile(first_text, 0.99),
        "first_audio_p50_ms": percentile(first_audio, 0.5),
        "first_audio_p99_ms": percentile(first_audio, 0.99),
        "gap_p50_ms": percentile(gaps, 0.5),
        "gap_p99_ms": percentile(gaps, 0.99),
        "deltas_per_s": sum(len(s.texts) for s in streams) / seconds,
        "audio_s_per_s": sum(s.audio_seconds for s in streams) / seconds,
    }


def measure(port: int, request: bytes, concurrency: int, requests: int, pids: dict[str, int]) -> dict[str, Any]:
    """One load run, with the CPU microseconds per event of each process tree."""
    before = {name: processes.cpu_seconds(pid) for name, pid in pids.items()}
    began = time.perf_counter()
    streams = asyncio.run(sse.load(port, request, concurrency=concurrency, requests=requests))
    seconds = time.perf_counter() - began
    out = figures(streams, seconds)
    events = out["deltas"] + out["audio_chunks"]
    for name, pid in pids.items():
        spent = processes.cpu_seconds(pid) - before[name]
        out[f"{name}_us_per_event"] = spent / max(events, 1) * 1e6
    return out


def whole_server(quick: bool) -> list[dict[str, Any]]:
    """The front door over the real ensembles with the dummy stages, at a pace of 20 ms per token."""
    rows = []
    with processes.omni() as (port, door, triton):
        for speech in (False, True):
            for concurrency in CONCURRENCIES:
                request = sse.body(50 if quick else 100, speech=speech, interval_ms=20)
                count = concurrency * (1 if quick else 3)
                row = measure(port, request, concurrency, count, {"front_door": door, "triton": triton})
                rows.append({"speech": speech, "concurrency": concurrency, **row})
                show("whole", rows[-1])
        rows.append(text_beside_slow_speech(port))
        show("text beside slow speech", rows[-1])
    return rows


def text_beside_slow_speech(port: int) -> dict[str, Any]:
    """How late text comes while each chunk of speech takes 300 ms, against one token per 50 ms; milliseconds."""
    interval = 50.0
    stage = {"code2wav": {"chunk_delay_ms": 300.0}}
    late: list[float] = []
    for _ in range(3):
        (stream,) = asyncio.run(sse.load(port, sse.body(60, speech=True, interval_ms=interval, stage=stage),
                                         concurrency=1, requests=1))  # fmt: skip
        late += [(at - stream.texts[0]) * 1e3 - n * interval for n, at in enumerate(stream.texts)]
    return {"late_p50_ms": percentile(late, 0.5), "late_p99_ms": percentile(late, 0.99), "deltas": len(late)}


def cost_per_event(port: int, pid: int, *, request: bytes, concurrency: int) -> float:
    """CPU microseconds per text delta or audio chunk of one load run."""
    return float(measure(port, request, concurrency, max(concurrency, 8), {"it": pid})["it_us_per_event"])


def against_the_floor(quick: bool) -> list[dict[str, Any]]:
    """CPU per event of the front door and of the floor, alternately; the ratio is that of the medians."""
    rows = []
    rounds = 3 if quick else ROUNDS
    with processes.front_door() as (door_port, door), processes.floor() as (floor_port, floor):
        for events, request in (
            ("text", sse.body(1500, speech=False, interval_ms=0)),
            ("sound", sse.body(1, speech=True, interval_ms=0, frames=800)),
            ("text and sound", sse.body(400, speech=True, interval_ms=0)),
        ):
            for concurrency in CONCURRENCIES:
                cost = partial(cost_per_event, request=request, concurrency=concurrency)
                cost(door_port, door), cost(floor_port, floor)
                ours, theirs = [], []
                for _ in range(rounds):
                    ours.append(cost(door_port, door))
                    theirs.append(cost(floor_port, floor))
                row = {
                    "events": events,
                    "concurrency": concurrency,
                    "front_door_us_per_event": statistics.median(ours),
                    "floor_us_per_event": statistics.median(theirs),
                    "ratio": statistics.median(ours) / statistics.median(theirs),
                }
                rows.append(row)
                show("floor", row)
    return rows


def show(title: str, row: dict[str, Any]) -> None:
    cells = (f"{name}={value:.4g}" if isinstance(value, float) else f"{name}={value}" for name, value in row.items())
    print(f"{title}: {'  '.join(cells)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer rounds and requests")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--only", choices=("whole", "floor"), help="one half alone")
    options = parser.parse_args()
    out: dict[str, Any] = {}
    if options.only != "floor":
        out["whole"] = whole_server(options.quick)
    if options.only != "whole":
        out["floor"] = against_the_floor(options.quick)
    if options.json:
        options.json.write_text(json.dumps(out, indent=1))


if __name__ == "__main__":
    main()
