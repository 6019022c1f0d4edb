"""A process that we start, and that never outlives us."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

_TETHER = Path(__file__).with_name("tether.py")
_PR_SET_CHILD_SUBREAPER = 36
"""From <linux/prctl.h>."""
TICK = 0.2
"""Seconds between two looks at a process."""


def adopt_orphans() -> None:
    """Become the parent of our children's orphans, so that a killed Triton's stubs don't stay as zombies."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)


class Child:
    """`command` in a session of its own: Ctrl-C reaches us alone, and its process group can be killed as a whole.

    Start it from the main thread: the kernel kills it when the thread that started it ends.
    """

    def __init__(
        self, command: Sequence[str], *, env: Mapping[str, str] | None = None, log: Path | None = None
    ) -> None:
        """Both outputs go to the end of `log`, or where ours go. `command[0]` is a path."""
        tethered = [sys.executable, "-I", "-S", str(_TETHER), str(os.getpid()), *command]
        with contextlib.ExitStack() as stack:
            out = None if log is None else stack.enter_context(log.open("ab"))
            self._process = subprocess.Popen(
                tethered,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=None if out is None else subprocess.STDOUT,
                env=None if env is None else dict(env),
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def poll(self) -> int | None:
        """Exit status, negative for a signal; None while it runs."""
        return self._process.poll()

    def stop(self, patience: float, hurry: Callable[[], bool] = lambda: False) -> bool:
        """Ask it to end, and kill it after `patience` seconds or once `hurry` says so. Whether it ended by itself."""
        if self.poll() is None:
            self._process.terminate()
        until = time.monotonic() + patience
        while self.poll() is None and time.monotonic() < until and not hurry():
            time.sleep(TICK / 4)
        by_itself = self.poll() is not None
        self.kill()
        return by_itself

    def kill(self) -> None:
        """Kill the whole process group at once."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()


def describe_exit(status: int) -> str:
    """An exit status in words."""
    if status >= 0:
        return f"exit status {status}"
    try:
        return f"signal {signal.Signals(-status).name}"
    except ValueError:
        return f"signal {-status}"
