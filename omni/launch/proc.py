"""Processes as `/proc` tells of them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")


def _stat(pid: int) -> tuple[str, int, int] | None:
    """`(state letter, parent's id, start in clock ticks since boot)`, fields 3, 4 and 22 of proc_pid_stat(5)."""
    try:
        fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except (OSError, UnicodeDecodeError):
        return None
    return fields[0], int(fields[1]), int(fields[19])


@dataclass(frozen=True, slots=True)
class Process:
    """A process by id and start, so that a later process with the same id isn't taken for it."""

    pid: int
    started: int
    """Clock ticks since boot."""

    @classmethod
    def of(cls, pid: int) -> Process:
        """Raises ProcessLookupError when there is none."""
        if (stat := _stat(pid)) is None:
            raise ProcessLookupError(pid)
        return cls(pid, stat[2])

    @property
    def alive(self) -> bool:
        """False also for a zombie: it ended, only nobody has collected it yet."""
        stat = _stat(self.pid)
        return stat is not None and stat[2] == self.started and stat[0] not in "ZX"

    @property
    def command(self) -> list[str]:
        """Program and arguments; empty when the process is gone."""
        try:
            return (_PROC / str(self.pid) / "cmdline").read_text(errors="replace").split("\0")[:-1]
        except OSError:
            return []

    def send(self, signal: int) -> None:
        """Does nothing when the process is gone."""
        if self.alive:
            os.kill(self.pid, signal)

    def collect(self) -> None:
        """Let go of the zombie when it is ours; `child.adopt_orphans` makes orphans of our children ours."""
        try:
            os.waitpid(self.pid, os.WNOHANG)
        except ChildProcessError:
            return


def children(pid: int) -> list[Process]:
    """The processes whose parent is `pid`, zombies included."""
    found = []
    for entry in _PROC.iterdir():
        if entry.name.isdecimal() and (stat := _stat(int(entry.name))) is not None and stat[1] == pid:
            found.append(Process(int(entry.name), stat[2]))
    return found
