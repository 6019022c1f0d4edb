"""`python -m bench.load --sessions chat=8,video=2,realtime=2 --duration 60 --json run.json --html run.html`."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench import processes
from bench.load import figures, page
from bench.load.run import Plan, Watch, run
from bench.load.turns import PROTOCOLS, Ask, Turn


def mix(text: str) -> dict[str, int]:
    """`chat=8,video=2`; a number alone is chat."""
    out = {}
    for part in text.split(","):
        name, _, count = part.rpartition("=")
        if (name or "chat") not in PROTOCOLS:
            raise argparse.ArgumentTypeError(f"{name} is none of {', '.join(PROTOCOLS)}")
        out[name or "chat"] = int(count)
    return out


def parser() -> argparse.ArgumentParser:
    out = argparse.ArgumentParser(prog="python -m bench.load", description="Load a server over the wire.")
    where = out.add_mutually_exclusive_group(required=True)
    where.add_argument("--url", help="a server that runs, such as http://127.0.0.1:8000")
    where.add_argument("--serve", metavar="PROFILE", help="start one with this profile for the run")
    out.add_argument("--sessions", type=mix, default={"chat": 8}, help="by protocol: chat=8,video=2,realtime=2")
    out.add_argument("--ramp", type=float, default=5.0, help="seconds over which sessions begin")
    out.add_argument("--duration", type=float, default=30.0, help="seconds during which turns begin, after the ramp")
    out.add_argument("--think", type=float, default=1.0, help="mean seconds between answer and next question")
    out.add_argument("--turns", type=int, default=0, help="turns of a session before another takes its place; 0: all")
    out.add_argument("--seed", type=int, default=0, help="the same seed asks the same questions in the same order")
    out.add_argument("--tokens", type=int, default=60, help="words of a question, and most tokens of a chat answer")
    out.add_argument("--interval-ms", type=float, default=20.0, help="pace of the dummy thinker, in chat")
    out.add_argument("--text", action="store_true", help="ask for text alone")
    out.add_argument("--real", action="store_true", help="the server has a real model: send no dummy parameters")
    out.add_argument("--model", default="qwen3-omni", help="name of the model")
    out.add_argument("--voice", default="Ethan", help="voice that speaks")
    out.add_argument("--key", default="", help="API key")
    out.add_argument("--timeout", type=float, default=120.0, help="seconds that a turn may take")
    out.add_argument("--pid", type=int, action="append", default=[], help="process to watch, with its descendants")
    out.add_argument("--json", type=Path, help="write the figures to this file")
    out.add_argument("--html", type=Path, help="write a page with plots to this file")
    return out


@contextlib.contextmanager
def place(options: argparse.Namespace) -> Iterator[tuple[str, list[int]]]:
    """Where the server is, and which processes to watch."""
    if options.url:
        yield options.url.rstrip("/"), options.pid
        return
    with processes.omni(options.serve) as (port, door, triton):
        yield f"http://127.0.0.1:{port}", [door, triton, *options.pid]


async def measure(plan: Plan, ask: Ask, pids: list[int]) -> tuple[dict[str, Any], list[Turn], Watch]:
    """The report of a run, its turns, and the watch over the processes."""
    watch = Watch(pids)
    began = time.perf_counter()
    async with watch:
        turns = await run(plan, ask)
    seconds = time.perf_counter() - began
    total = sum(plan.mix.values())
    report = {
        "title": f"{total} sessions ({', '.join(f'{n} {name}' for name, n in plan.mix.items())}), {seconds:.0f} s",
        "plan": {"mix": dict(plan.mix), "ramp_s": plan.ramp, "duration_s": plan.duration, "think_s": plan.think}
        | {"seed": plan.seed, "tokens": ask.tokens, "speech": ask.speech},
        "seconds": round(seconds, 2),
        "all": figures.of(turns, seconds),
        "protocols": figures.by_protocol(turns, seconds),
        "processes": figures.processes(watch.usage, seconds),
    }
    return report, turns, watch


def main() -> int:
    """The exit status: 0 when every turn completed, 1 when one failed or there was none."""
    options = parser().parse_args()
    ask = Ask(
        tokens=options.tokens, speech=not options.text, interval_ms=options.interval_ms, model=options.model,
        voice=options.voice, key=options.key, timeout=options.timeout, dummy=not options.real,
    )  # fmt: skip
    with place(options) as (url, pids):
        plan = Plan(url, options.sessions, options.ramp, options.duration, options.think, options.seed, options.turns)
        report, turns, watch = asyncio.run(measure(plan, ask, pids))
    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    if options.html:
        options.html.write_text(page.page(report, turns, list(watch.usage.values())))
    print(json.dumps({"title": report["title"], **report["protocols"], "processes": report["processes"]}, indent=1))
    return 0 if turns and not report["all"]["errors"] else 1


if __name__ == "__main__":
    sys.exit(main())
