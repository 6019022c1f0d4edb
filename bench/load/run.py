"""Sessions that come one after another, ask, think, and go on until the time is up."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import psutil
import websockets

from bench.load.turns import PROTOCOLS, Ask, Turn
from bench.processes import tree


@dataclass(frozen=True, slots=True)
class Plan:
    url: str
    mix: Mapping[str, int]
    """Sessions by protocol."""
    ramp: float = 0.0
    """Seconds over which the sessions begin."""
    duration: float = 30.0
    """Seconds during which turns begin; the last ones are waited for."""
    think: float = 1.0
    """Mean seconds between an answer's end and the next question, exponentially distributed."""
    seed: int = 0
    turns: int = 0
    """After so many turns a session ends and another takes its place; 0: never."""


async def _session(plan: Plan, ask: Ask, protocol: str, number: int, until: float, turns: list[Turn]) -> None:
    chance = random.Random(f"{plan.seed} {protocol} {number}")
    while time.perf_counter() < until:
        began = time.perf_counter()
        try:
            async with PROTOCOLS[protocol](plan.url, ask, chance) as take:
                for _ in range(plan.turns) if plan.turns else itertools.count():
                    if time.perf_counter() >= until:
                        break
                    began = time.perf_counter()
                    async with asyncio.timeout(ask.timeout):
                        turn = await take(ask.question(chance))
                    turns.append(turn)
                    if plan.think:
                        await asyncio.sleep(chance.expovariate(1 / plan.think))
        except (OSError, TimeoutError, websockets.WebSocketException) as problem:
            kind = problem.rcvd.code if isinstance(problem, websockets.ConnectionClosed) and problem.rcvd else ""
            error = f"{type(problem).__name__} {kind}".strip()
            turns.append(Turn(protocol, began, ended=time.perf_counter(), error=error))
            await asyncio.sleep(0.2)


async def run(plan: Plan, ask: Ask) -> list[Turn]:
    """All turns, in the order of their ends."""
    sessions = [protocol for protocol, count in plan.mix.items() for _ in range(count)]
    random.Random(plan.seed).shuffle(sessions)
    turns: list[Turn] = []
    until = time.perf_counter() + plan.ramp + plan.duration

    async def one(number: int, protocol: str) -> None:
        await asyncio.sleep(plan.ramp * number / max(len(sessions), 1))
        await _session(plan, ask, protocol, number, until, turns)

    async with asyncio.TaskGroup() as group:
        for number, protocol in enumerate(sessions):
            group.create_task(one(number, protocol), name=f"{protocol} session {number}")
    return turns


@dataclass(slots=True)
class Usage:
    """What one process took."""

    name: str
    cpu_seconds: float = 0.0
    memory: list[int] | None = None
    """Resident bytes, one sample per second."""


class Watch:
    """CPU and memory of processes and their descendants, sampled while it is entered."""

    def __init__(self, roots: Sequence[int], interval: float = 1.0) -> None:
        self._roots = roots
        self._interval = interval
        self._first: dict[int, float] = {}
        self.usage: dict[int, Usage] = {}
        self._task: asyncio.Task[None] | None = None

    def sample(self) -> None:
        for root in self._roots:
            for process in tree(root):
                with contextlib.suppress(psutil.NoSuchProcess):
                    self._note(process)

    def _note(self, process: psutil.Process) -> None:
        times = process.cpu_times()
        spent = times.user + times.system
        first = self._first.setdefault(process.pid, spent)
        usage = self.usage.get(process.pid)
        if usage is None:
            usage = self.usage[process.pid] = Usage(_name(process), memory=[])
        usage.cpu_seconds = spent - first
        assert usage.memory is not None
        usage.memory.append(process.memory_info().rss)

    async def _run(self) -> None:
        while True:
            self.sample()
            await asyncio.sleep(self._interval)

    async def __aenter__(self) -> Watch:
        self._task = asyncio.create_task(self._run(), name="process watch")
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self.sample()


def _name(process: psutil.Process) -> str:
    words = process.cmdline()
    line = " ".join(words)
    for part in words[1:]:
        if part.endswith("model.py"):
            return f"stage {part.split('/')[-3]}"
    for name, mark in {"front door": "-m frontend", "launcher": "omni.launch", "triton": "tritonserver"}.items():
        if mark in line:
            return name
    return process.name()
