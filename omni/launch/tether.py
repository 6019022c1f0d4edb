"""Run a command that dies with its parent: `python tether.py PARENT_PID COMMAND [ARGUMENT ...]`.

A program of its own, because code between fork and exec is unsafe in a parent that has threads. Standard library
only and started without site-packages, so that it costs a few milliseconds.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
"""From <linux/prctl.h>; survives exec. The signal comes when the *thread* that started us ends."""


def main(parent: int, command: list[str]) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        # The parent died before the kernel was told.
        sys.exit(1)
    try:
        os.execv(command[0], command)
    except OSError as problem:
        sys.stderr.write(f"{command[0]} can't be run: {problem.strerror}\n")
        sys.exit(127)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
