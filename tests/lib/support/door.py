"""The front door as a process of its own, on its scripted engine."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

SAYS = "front door listening on "


@contextmanager
def front_door(*options: str) -> Iterator[str]:
    """`python -m frontend OPTIONS` on a free port until the block ends; yields its URL."""
    run = [sys.executable, "-m", "frontend", "--engine", "fake", "--port", "0", "--no-warmup", "--log-level", "error"]
    with subprocess.Popen([*run, *options], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith(SAYS), line
            yield line.removeprefix(SAYS).strip()
        finally:
            process.terminate()
