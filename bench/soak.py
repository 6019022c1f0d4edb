"""Half an hour of mixed sessions: `python -m bench.soak [--minutes 30] [--sessions 32] [--json FILE] [--html FILE]`.

It fails when memory of a process grows by more than 5 % after the first fifth of the run, when a turn fails, or when
what the dummy stages say isn't, sample for sample, what they wrote. Files, threads and open generations must be back
where they were.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import json
import random
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import yaml

from bench import processes
from bench.load import page
from bench.load.__main__ import measure
from bench.load.run import Plan, Watch
from bench.load.turns import Ask
from omni.profile import PROFILES
from omni.stages.dummy import tones

GROWTH = 0.05
"""Share by which a process may grow."""
GROUND_BYTES = 8 << 20
"""Growth that is never a leak: allocators keep what they had once."""
SETTLED = 0.2
"""Share of the run after which memory should be flat."""
TURNS = 20
"""Turns of a session before another takes its place: what a session holds is bounded, but not by minutes."""
STORE_BYTES = 4 << 20
"""Of each store of media in preprocess, so that they are full, and memory flat, when the run has hardly begun."""
CHECK_S = 2.0
"""Seconds between two answers whose sound is compared with their text."""


def mixture(sessions: int) -> dict[str, int]:
    """Half chat, a quarter each of video and realtime."""
    video = realtime = sessions // 4
    return {"chat": sessions - video - realtime, "video": video, "realtime": realtime}


def profile(folder: Path) -> str:
    """The dummy profile with small stores, as a file in `folder`."""
    data = yaml.safe_load((PROFILES / "dummy.yaml").read_text())
    data["stages"]["preprocess"] |= {"store_bytes": STORE_BYTES, "cache_bytes": STORE_BYTES}
    file = folder / "soak.yaml"
    file.write_text(yaml.safe_dump(data))
    return str(file)


def exact(url: str, chance: random.Random) -> bool:
    """Whether one spoken answer says in tones what it says in words."""
    words = " ".join(str(chance.randrange(1000)) for _ in range(20))
    body = {
        "model": "qwen3-omni",
        "messages": [{"role": "user", "content": words}],
        "modalities": ["text", "audio"],
        "audio": {"voice": "Ethan", "format": "pcm16"},
    }
    request = urllib.request.Request(f"{url}/v1/chat/completions", json.dumps(body).encode())
    request.add_header("content-type", "application/json")
    with urllib.request.urlopen(request, timeout=120) as response:
        audio = json.load(response)["choices"][0]["message"]["audio"]
    return bool(tones.decode(np.frombuffer(base64.b64decode(audio["data"]), np.int16)) == audio["transcript"])


async def check_sound(url: str, seed: int, results: list[bool]) -> None:
    chance = random.Random(seed)
    while True:
        results.append(await asyncio.to_thread(exact, url, chance))
        await asyncio.sleep(CHECK_S)


def growth(watch: Watch) -> dict[str, float]:
    """By process, the share by which its memory grew from the settled state to the end, medians of a tenth of the run
    each; growth within `GROUND_BYTES` is none."""
    out = {}
    for usage in watch.usage.values():
        memory = usage.memory or []
        tenth = max(1, len(memory) // 10)
        start = int(len(memory) * SETTLED)
        first, last = np.median(memory[start : start + tenth]), np.median(memory[-tenth:])
        out[usage.name] = 0.0 if last - first < GROUND_BYTES else round(float(last / first - 1), 4)
    return out


def open_things(pids: list[int]) -> dict[str, tuple[int, int]]:
    """By process, its open files and threads."""
    found = {}
    for pid in pids:
        for process in processes.tree(pid):
            with contextlib.suppress(psutil.NoSuchProcess):
                found[f"{process.name()} {process.pid}"] = (process.num_fds(), process.num_threads())
    return found


async def soak(url: str, pids: list[int], minutes: float, sessions: int, seed: int) -> tuple[dict[str, Any], str]:
    """The report, and its page."""
    exact(url, random.Random(seed))
    before = open_things(pids)
    sounds: list[bool] = []
    checking = asyncio.create_task(check_sound(url, seed, sounds), name="sound check")
    ramp, duration = min(10.0, minutes * 6), minutes * 60
    plan = Plan(url, mixture(sessions), ramp=ramp, duration=duration, think=2.0, seed=seed, turns=TURNS)
    report, turns, watch = await measure(plan, Ask(tokens=40), pids)
    checking.cancel()
    await asyncio.gather(checking, return_exceptions=True)
    await asyncio.sleep(3)
    after = open_things(pids)
    report["soak"] = {
        "minutes": minutes,
        "memory_growth": growth(watch),
        "spoken_exactly": f"{sum(sounds)} of {len(sounds)}",
        "open_before_after": {name: [*before.get(name, (0, 0)), *now] for name, now in after.items()},
    }
    problems = [f"{name} grew by {share:.1%}" for name, share in growth(watch).items() if share > GROWTH]
    problems += [f"{count} turns: {kind}" for kind, count in report["all"]["errors"].items()]
    if not sounds or not all(sounds):
        problems.append("speech isn't exact")
    problems += [f"{name} has ended" for name in before if name not in after]
    for name, (files, threads) in after.items():
        was_files, was_threads = before.get(name, (0, 0))
        if files > was_files + sessions // 2 or threads > was_threads + 8:
            problems.append(f"{name} holds {files} files and {threads} threads, before {was_files} and {was_threads}")
    report["soak"]["problems"] = problems
    return report, page.page(report, turns, list(watch.usage.values()))


def main() -> int:
    """The exit status: 0 when nothing went wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--sessions", type=int, default=32)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--html", type=Path, help="write a page with plots to this file")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, processes.omni(profile(Path(folder))) as (port, door, triton):
        began = time.monotonic()
        url, pids = f"http://127.0.0.1:{port}", [door, triton]
        report, text = asyncio.run(soak(url, pids, options.minutes, options.sessions, options.seed))
        report["soak"]["seconds"] = round(time.monotonic() - began, 1)
    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    if options.html:
        options.html.write_text(text)
    print(json.dumps({"all": report["all"], "processes": report["processes"], "soak": report["soak"]}, indent=1))
    return 1 if report["soak"]["problems"] else 0


if __name__ == "__main__":
    sys.exit(main())
