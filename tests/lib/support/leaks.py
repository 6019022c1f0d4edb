"""What processes hold: memory, files, threads, shared memory, generations. Before and after a fault."""

from __future__ import annotations

import contextlib
import re
import time
import urllib.request
from dataclasses import dataclass, field
from typing import Any

import psutil
from support.launched import Launched
from support.stages import held

MEMORY_BYTES = 96 << 20
"""Growth of a process that allocators and pools may keep: more than that is held by somebody."""
SLACK = 8
"""Files or threads that a pool may keep open for the next time."""


def metric(url: str, name: str) -> float:
    """The sum of a metric of the front door over its labels."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=30) as response:
        text = response.read().decode()
    return sum(float(value) for value in re.findall(rf"^{name}(?:\{{.*\}})? (\S+)$", text, re.MULTILINE))


@dataclass
class Holdings:
    files: dict[str, int] = field(default_factory=dict)
    threads: dict[str, int] = field(default_factory=dict)
    memory: dict[str, int] = field(default_factory=dict)
    """Resident bytes, shared ones left out."""
    regions: int = 0
    turns: float = 0
    sessions: float = 0
    media_bytes: float = 0
    held: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, server: Launched) -> Holdings:
        out = cls(regions=len(server.regions()), held=held(server.metrics_url))
        for process in server.descendants():
            with contextlib.suppress(psutil.NoSuchProcess):
                name = _name(process)
                out.files[name] = process.num_fds()
                out.threads[name] = process.num_threads()
                memory = process.memory_info()
                out.memory[name] = memory.rss - memory.shared
        out.turns = metric(server.url, "omni_turns_in_progress")
        out.sessions = metric(server.url, "omni_sessions_active")
        out.media_bytes = metric(server.url, "omni_media_bytes")
        return out

    def leaks(self, before: Holdings) -> dict[str, Any]:
        """What is more than it was; empty when nothing leaked."""
        out: dict[str, Any] = {}
        for kind, slack in {"files": SLACK, "threads": SLACK, "memory": MEMORY_BYTES}.items():
            now, then = getattr(self, kind), getattr(before, kind)
            more = {
                name: (then.get(name, 0), count) for name, count in now.items() if count > then.get(name, 0) + slack
            }
            out |= {kind: more} if more else {}
        if self.regions > before.regions:
            out["shared memory"] = (before.regions, self.regions)
        out |= {name: value for name in ("turns", "sessions", "media_bytes", "held") if (value := getattr(self, name))}
        return out


def _name(process: psutil.Process) -> str:
    words = process.cmdline()
    model = next((word.split("/")[-3] for word in words if word.endswith("model.py")), "")
    return model or ("front door" if "frontend" in words else process.name())


def wait_for_no_leaks(server: Launched, before: Holdings, seconds: float = 30.0) -> None:
    """Raises AssertionError with what is still held after `seconds`."""
    deadline = time.monotonic() + seconds
    while leaks := Holdings.of(server).leaks(before):
        assert time.monotonic() < deadline, leaks
        time.sleep(0.2)
