"""The machine: Python, packages, memory, shared memory, files, GPU."""

from __future__ import annotations

import os
import platform
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from omni.doctor.finding import Finding
from omni.launch.errors import LaunchError
from omni.launch.install import WHEEL, check_platform, find_libpython

GIB = 1 << 30
PYTHONS = ((3, 11), (3, 12))
MEMORY_BYTES = 2 * GIB
"""Available memory below which even the dummy stages with some clients may be killed."""
SHM_FAIL_BYTES = 48 << 20
"""Four stages start with about 8 MiB each, and grow."""
SHM_WARN_BYTES = 1 * GIB
DISK_BYTES = 1 * GIB
OPEN_FILES = 4096
"""One per client, plus Triton's own."""


@dataclass(frozen=True, slots=True)
class Gpu:
    name: str
    total: int
    """Bytes of memory."""
    free: int
    driver: str


def look_at_python(version: tuple[int, ...] = sys.version_info[:3]) -> Iterator[Finding]:
    text = ".".join(map(str, version))
    if version[:2] in PYTHONS:
        yield Finding("Python", "ok", f"{text} at {sys.prefix}")
    else:
        yield Finding("Python", "fail", f"{text} isn't supported", "make the environment with Python 3.11 (or 3.12)")


def look_at_packages(needed: Sequence[str], *, embedded: bool) -> Iterator[Finding]:
    """`needed` are distributions that this profile can't do without."""
    missing = [name for name in needed if _version(name) is None]
    if missing:
        yield Finding("packages", "fail", f"missing: {', '.join(missing)}", _install(missing))
    else:
        yield Finding("packages", "ok", ", ".join(f"{name} {_version(name)}" for name in needed))
    numpy = _version("numpy") or ""
    if embedded and numpy.startswith("2"):
        said = f"numpy {numpy}, which the Python backend of Triton 24.10 misreads"
        yield Finding("numpy", "fail", said, "pip install 'omni-server[embedded]', or use an installed Triton")


def _install(missing: Sequence[str]) -> str:
    extras = {"torch": "qwen", "transformers": "qwen", "safetensors": "qwen"}
    names = sorted({extras.get(name, "frontend") for name in missing})
    return f"pip install --editable '.[{','.join(names)}]'"


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def look_at_triton(tritonserver: Path | None) -> Iterator[Finding]:
    """Whether there is a Triton to start: the one at `tritonserver`, or the one of the wheel."""
    if tritonserver is not None:
        if os.access(tritonserver, os.X_OK):
            yield Finding("Triton", "ok", f"{tritonserver}")
        else:
            yield Finding("Triton", "fail", f"no program at {tritonserver}", "correct --tritonserver")
        return
    try:
        check_platform()
    except LaunchError as problem:
        yield Finding("Triton", "fail", str(problem), "run it in a container: see docker/compose.yaml")
        return
    if (version := _version(WHEEL)) is None:
        yield Finding("Triton", "fail", "the embedded one isn't installed", "run `make serve`")
    else:
        yield Finding("Triton", "ok", f"embedded, {WHEEL} {version}, glibc {platform.libc_ver()[1]}")
    try:
        found = find_libpython()
        yield Finding("libpython", "ok", str(found or "found by the system's loader"))
    except LaunchError as problem:
        said, _, todo = str(problem).partition(". ")
        yield Finding("libpython", "fail", said, todo)


def look_at_memory(proc: Path = Path("/proc"), cgroup: Path = Path("/sys/fs/cgroup")) -> Iterator[Finding]:
    have = {name: int(rest.split()[0]) << 10 for name, _, rest in _lines(proc / "meminfo", ":") if rest.split()}
    available = have.get("MemAvailable", 0)
    said = f"{available / GIB:.1f} GiB available of {have.get('MemTotal', 0) / GIB:.1f}"
    limit = _number(cgroup / "memory.max")
    if limit is not None and limit < have.get("MemTotal", 0):
        available = min(available, limit - (_number(cgroup / "memory.current") or 0))
        said += f", limited to {limit / GIB:.1f} by its container"
    if available < MEMORY_BYTES:
        yield Finding("memory", "warn", said, "give it 4 GiB at least, and what the checkpoint needs on top")
    else:
        yield Finding("memory", "ok", said)


def _lines(path: Path, separator: str) -> Iterator[tuple[str, str, str]]:
    try:
        text = path.read_text()
    except OSError:
        return
    for line in text.splitlines():
        yield line.partition(separator)


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def look_at_shm(folder: Path = Path("/dev/shm")) -> Iterator[Finding]:
    try:
        stats = os.statvfs(folder)
    except OSError:
        yield Finding("shared memory", "fail", f"there is no {folder}", "mount a tmpfs there")
        return
    free, total = stats.f_bavail * stats.f_frsize, stats.f_blocks * stats.f_frsize
    said = f"{free / (1 << 20):.0f} MiB free of {total / (1 << 20):.0f}"
    todo = "start the container with --shm-size=8g; on a machine, remount /dev/shm with a larger size"
    if free < SHM_FAIL_BYTES:
        yield Finding("shared memory", "fail", said, todo)
    elif free < SHM_WARN_BYTES:
        yield Finding("shared memory", "warn", f"{said}; enough for text, not for many videos", todo)
    else:
        yield Finding("shared memory", "ok", said)


def look_at_files(home: Path) -> Iterator[Finding]:
    place = next(path for path in (home, *home.absolute().parents) if path.exists())
    if not (place.is_dir() and os.access(place, os.W_OK)):
        yield Finding("home", "fail", f"{home} can't be written", "choose another with --home or OMNI_HOME")
    elif (free := shutil.disk_usage(place).free) < DISK_BYTES:
        yield Finding("home", "warn", f"{home} has {free / GIB:.1f} GiB left; logs grow", "make room, or move --home")
    else:
        yield Finding("home", "ok", f"{home}, {free / GIB:.0f} GiB free")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < OPEN_FILES:
        todo = f"ulimit -n {min(hard, 65_536) if hard > 0 else 65_536}"
        yield Finding("open files", "warn", f"{soft} at most, and every client is one", todo)
    else:
        yield Finding("open files", "ok", f"{soft} at most")


def find_gpus(program: str = "nvidia-smi") -> list[Gpu] | None:
    """None when the driver's own tool isn't there or doesn't work."""
    query = "--query-gpu=name,memory.total,memory.free,driver_version"
    try:
        done = subprocess.run(
            [program, query, "--format=csv,noheader,nounits"], capture_output=True, text=True, timeout=20, check=True
        )
        rows = [line.split(", ") for line in done.stdout.splitlines() if line.strip()]
        return [Gpu(name, int(total) << 20, int(free) << 20, driver) for name, total, free, driver in rows]
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
