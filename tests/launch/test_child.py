from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from support.launched import alive

from omni.launch.child import Child, describe_exit
from omni.launch.proc import Process, children

pytestmark = pytest.mark.process

STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
)
PARENT = f"""
from omni.launch.child import Child
import sys, time
child = Child([sys.executable, "-c", {STUBBORN!r}])
print(child.pid, flush=True)
time.sleep(600)
"""
FAMILY = f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {STUBBORN!r}]); time.sleep(600)"


def python(code: str, log: Path) -> Child:
    return Child([sys.executable, "-c", code], log=log)


def until(happened: object) -> None:
    assert callable(happened)
    deadline = time.monotonic() + 30
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_child_ends_when_asked(tmp_path: Path) -> None:
    child = python("import time; print('up', flush=True); time.sleep(600)", tmp_path / "log")
    until(lambda: "up" in (tmp_path / "log").read_text())
    assert child.stop(patience=30.0)
    assert child.poll() == -signal.SIGTERM


@pytest.mark.parametrize(("patience", "hurry"), [(0.3, False), (600.0, True)])
def test_a_child_that_will_not_end_is_killed(tmp_path: Path, patience: float, hurry: bool) -> None:
    child = python(STUBBORN, tmp_path / "log")
    until(lambda: "up" in (tmp_path / "log").read_text())
    assert not child.stop(patience, lambda: hurry)
    assert child.poll() == -signal.SIGKILL


def test_its_own_children_go_with_it(tmp_path: Path) -> None:
    child = python(FAMILY, tmp_path / "log")
    until(lambda: "up" in (tmp_path / "log").read_text())
    (grandchild,) = children(child.pid)
    child.kill()
    until(lambda: not grandchild.alive)


def test_it_does_not_outlive_a_parent_that_was_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert parent.stdout.readline() == "up\n"
        child = psutil.Process(pid)
        parent.kill()
    until(lambda: not alive([child]))


def test_ctrl_c_does_not_reach_it(tmp_path: Path) -> None:
    child = python(STUBBORN, tmp_path / "log")
    assert os.getpgid(child.pid) != os.getpgid(0)
    child.kill()


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    child = Child([str(tmp_path / "nothing")], log=tmp_path / "log")
    until(lambda: child.poll() is not None)
    assert child.poll() == 127
    assert "nothing can't be run: No such file or directory" in (tmp_path / "log").read_text()


def test_exit_statuses_in_words() -> None:
    assert describe_exit(3) == "exit status 3"
    assert describe_exit(-9) == "signal SIGKILL"
    assert describe_exit(-250) == "signal 250"


def test_a_zombie_is_not_alive() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    process = Process.of(child.pid)
    until(lambda: not process.alive)
    assert child.wait() == 0
    process.send(signal.SIGKILL)
    assert process.command == []
    with pytest.raises(ProcessLookupError):
        Process.of(child.pid)
