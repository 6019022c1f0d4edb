"""Shared-memory regions of the Python backend: whose they are, and removing those of a server that is gone.

A killed Triton leaves its regions behind in /dev/shm. Triton lets us choose how their names begin
(`shm-region-prefix-name`), so the name itself says which process started the server, and nothing else is ever touched.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from omni.launch.proc import Process

SHM = Path("/dev/shm")
_PREFIX = "triton_python_backend_shm_region_omni_"
_NAME = re.compile(rf"{_PREFIX}(\d+)_(\d+)_(\d+)_(\d+)_")


def _pid_namespace() -> int:
    """Containers may share /dev/shm while each counts its own process ids; only ids of our namespace mean anything."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0


def region_prefix(owner: Process, serial: int) -> str:
    """How the regions of the `serial`-th server that `owner` started are named."""
    return f"{_PREFIX}{_pid_namespace()}_{owner.pid}_{owner.started}_{serial}_"


def regions(prefix: str, folder: Path = SHM) -> list[Path]:
    """The regions that exist under that prefix."""
    return sorted(folder.glob(f"{prefix}*"))


def sweep(prefix: str, folder: Path = SHM) -> int:
    """Remove the regions of one server; how many there were. Call it when the server is gone."""
    found = regions(prefix, folder)
    for region in found:
        region.unlink(missing_ok=True)
    return len(found)


def sweep_orphans(folder: Path = SHM) -> int:
    """Remove the regions of servers whose owner died without stopping them; how many there were."""
    swept = 0
    for region in regions(_PREFIX, folder):
        if (name := _NAME.match(region.name)) is None:
            continue
        namespace, pid, started, _ = (int(part) for part in name.groups())
        if namespace == _pid_namespace() and not Process(pid, started).alive:
            region.unlink(missing_ok=True)
            swept += 1
    return swept
