from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from omni.launch import shm
from omni.launch.proc import Process

pytestmark = pytest.mark.process


def region(folder: Path, prefix: str) -> Path:
    path = folder / f"{prefix}8bb3c27e-8de3-418c-9ccb-fd60196c0f3a"
    path.write_text("")
    return path


@pytest.fixture
def me() -> Process:
    return Process.of(os.getpid())


@pytest.fixture
def dead() -> Process:
    """A process that has ended."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    process = Process.of(child.pid)
    child.communicate(b"\n")
    return process


def test_a_server_loses_its_own_regions_only(tmp_path: Path, me: Process) -> None:
    mine = region(tmp_path, shm.region_prefix(me, 1))
    others = [
        region(tmp_path, shm.region_prefix(me, 11)),
        region(tmp_path, shm.region_prefix(me, 2)),
        region(tmp_path, "triton_python_backend_shm_region_"),
    ]
    assert shm.sweep(shm.region_prefix(me, 1), tmp_path) == 1
    assert not mine.exists()
    assert all(other.exists() for other in others)


def test_orphans_are_the_regions_of_owners_that_are_gone(tmp_path: Path, me: Process, dead: Process) -> None:
    orphan = region(tmp_path, shm.region_prefix(dead, 0))
    recycled = region(tmp_path, shm.region_prefix(Process(me.pid, me.started - 1), 0))
    kept = [
        region(tmp_path, shm.region_prefix(me, 0)),
        # The same numbers in another container mean another process.
        region(tmp_path, f"triton_python_backend_shm_region_omni_1_{dead.pid}_{dead.started}_0_"),
        region(tmp_path, "triton_python_backend_shm_region_"),
        region(tmp_path, "triton_python_backend_shm_region_omni_mine_"),
    ]
    assert shm.sweep_orphans(tmp_path) == 2
    assert not orphan.exists()
    assert not recycled.exists()
    assert all(one.exists() for one in kept)
