"""The launcher from outside: what breaks comes back, and what stops leaves nothing."""

from __future__ import annotations

import itertools
import os
import signal
import socket
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest
from support.launched import Launched, alive

from omni.launch import shm
from omni.launch.errors import LaunchError
from omni.launch.proc import Process
from omni.launch.server import STUB, EmbeddedTriton

pytestmark = pytest.mark.triton

FRONT = """
import http.server, os, signal, sys, time

options = dict(zip(sys.argv[1::2], sys.argv[2::2]))
print("front", options, sorted(n for n in os.environ if n.startswith("OMNI_")), flush=True)
if options.get("--mood") == "refuse":
    sys.exit("omni: no such thing")

class Health(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        pass

def end(*_):
    print("front drains", flush=True)
    if options.get("--mood") != "stubborn":
        sys.exit(0)

signal.signal(signal.SIGTERM, end)
http.server.HTTPServer((options["--host"], int(options["--port"])), Health).serve_forever()
"""
"""In the place of the front door: answers /health, says what it was told."""

Launch = Callable[..., Launched]


@pytest.mark.parametrize("log", ["long", "endless"])
def test_of_a_long_log_only_the_end_is_read(tmp_path: Path, log: str) -> None:
    triton = EmbeddedTriton(profile="dummy", home=tmp_path)
    triton.log.parent.mkdir()
    if log == "long":
        triton.log.write_text("".join(f"line {n}\n" for n in range(100_000)))
        assert triton.log_tail().splitlines()[0] == "  line 99985"
        assert triton.log_tail().splitlines()[14] == "  line 99999"
    else:
        triton.log.symlink_to("/dev/zero")
        assert len(triton.log_tail()) < 1_000


@pytest.fixture
def launch(models, tmp_path: Path) -> Iterator[Launch]:
    (tmp_path / "front" / "frontend").mkdir(parents=True)
    (tmp_path / "front" / "frontend" / "__main__.py").write_text(FRONT)
    count = itertools.count()
    with ExitStack() as started:

        def launch(command: str, *arguments: str, env: dict[str, str] | None = None) -> Launched:
            quick = ("--model-repository", str(models.folder), "--exit-timeout", "1")
            home = tmp_path / f"home{next(count)}"
            return started.enter_context(Launched(command, home, *quick, *arguments, env=env, cwd=tmp_path / "front"))

        yield launch


def stub_of(launched: Launched) -> psutil.Process:
    (stub,) = launched.descendants(STUB)
    return stub


def test_a_dead_stage_is_replaced_and_a_clean_stop_leaves_nothing(launch: Launch) -> None:
    launched = launch("triton").ready()
    first = launched.descendants()
    old = set(launched.regions())
    assert old
    stub_of(launched).kill()
    launched.says("Triton is broken (the process of omni_text died); restart 1 in 0 s")
    launched.says("Triton is ready again after restart 1")
    assert not alive(first)
    assert not old & set(launched.regions())
    second = launched.descendants()
    assert len(second) == 2
    assert launched.stop(signal.SIGTERM) == 0
    assert not alive(second)
    assert not launched.regions()


def test_a_dead_server_is_replaced_and_its_log_stays_small(launch: Launch, tmp_path: Path) -> None:
    launched = launch("triton", "--triton-log-bytes", "4096").ready()
    logs = tmp_path / "home0" / "logs"
    launched.until(lambda: list(logs.glob("*.log.1")))
    launched.descendants("tritonserver")[0].kill()
    launched.says("Triton is broken (signal SIGKILL); restart 1")
    launched.says("Triton is ready again after restart 1")
    assert launched.stop(signal.SIGINT) == 0
    assert not launched.regions()
    (log,), (aside,) = logs.glob("*.log"), logs.glob("*.log.1")
    assert log.stat().st_size < aside.stat().st_size + 4096


def test_a_server_that_does_not_answer_is_replaced(launch: Launch, models) -> None:
    launched = launch(
        *("triton", "--liveness-interval", "0.2", "--liveness-deadline", "0.5", "--liveness-failures", "2")
    ).ready()
    models.behave("hang")
    launched.says("Triton is broken (2 probes in a row failed); restart 1")
    models.behave("answer")
    launched.says("Triton is ready again after restart 1")


def test_no_probes_when_they_are_off(launch: Launch, models) -> None:
    models.behave("hang")
    launched = launch("triton", "--liveness-interval", "0", "--liveness-deadline", "0.1").ready()
    time.sleep(1.0)
    assert "broken" not in launched.said


def test_a_server_that_keeps_failing_is_given_up(launch: Launch, models) -> None:
    launched = launch("triton", "--restart-limit", "1").ready()
    models.behave("broken")
    stub_of(launched).kill()
    assert launched.process.wait(60) == 1
    assert "Triton failed 2 times in a row" in launched.said
    assert "no weights here" in launched.said


def test_a_model_that_does_not_load_says_why(launch: Launch, models) -> None:
    models.behave("broken")
    launched = launch("triton")
    assert launched.process.wait(60) == 1
    assert "Triton didn't start" in launched.said
    assert "no weights here" in launched.said
    assert not launched.regions()


def test_a_killed_launcher_takes_all_with_it_and_the_next_one_sweeps_up(launch: Launch) -> None:
    launched = launch("serve").ready()
    processes = launched.descendants()
    assert len(processes) == 3
    prefix = shm.region_prefix(Process.of(launched.process.pid), 0)
    launched.stop(signal.SIGKILL)
    deadline = time.monotonic() + 30
    while alive(processes):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    # Another server that starts on this machine may have swept up already.
    (shm.SHM / f"{prefix}left").touch()
    launch("triton").ready()
    assert not launched.regions()


def test_a_home_that_cannot_be_written(launch: Launch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    launched = launch("triton", "--home", str(tmp_path / "file"))
    assert launched.process.wait(60) == 1
    assert "can't be written; choose another with --home or OMNI_HOME" in launched.said
    assert "Traceback" not in launched.said


@pytest.mark.parametrize("setting", ["port", "triton-grpc-port"])
def test_a_taken_port_is_one_clear_line(launch: Launch, setting: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port = sock.getsockname()[1]
        launched = launch("serve", f"--{setting}", str(port))
        assert launched.process.wait(60) == 1
    (line,) = launched.said.splitlines()
    assert line.startswith(f"omni: port {port} on 127.0.0.1 is taken; choose another with --{setting} or OMNI_")


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        (["--exit-timeout", "soon"], 2, "omni: --exit-timeout or OMNI_EXIT_TIMEOUT must be a number, not 'soon'"),
        (["--profile", "nope"], 1, "omni: there is no profile 'nope'"),
        (["--model-repository", "/nowhere/models"], 1, "omni: there is no model repository at /nowhere/models"),
        (["--tritonserver", "/nowhere/tritonserver"], 1, "omni: there is no tritonserver program at /nowhere"),
    ],
)
def test_a_wrong_setting_is_one_clear_line(launch: Launch, arguments: list[str], status: int, says: str) -> None:
    launched = launch("triton", *arguments)
    assert launched.process.wait(60) == status
    assert launched.said.splitlines()[-1].startswith(says)
    assert "Traceback" not in launched.said


def test_the_front_door_is_announced_once_it_is_healthy_and_drains_first(launch: Launch) -> None:
    launched = launch("serve", "--", "--mood", "fine", env={"OMNI_API_KEYS": "k", "OMNI_START_TIMEOUT": "60"}).ready()
    assert f"omni is ready at {launched.url} (profile dummy)\n" in launched.said
    assert urllib.request.urlopen(f"{launched.url}/health").status == 200
    told = launched.said.split("front ", 1)[1]
    for name, value in {
        "--port": launched.port,
        "--triton-url": f"127.0.0.1:{launched.grpc_port}",
        "--profile": "dummy",
        "--shutdown-timeout": 30.0,
        "--mood": "fine",
    }.items():
        assert f"'{name}': '{value}'" in told
    # Its own settings reach it, ours would only be unknown to it.
    assert "['OMNI_API_KEYS']" in told
    processes = launched.descendants()
    assert launched.stop() == 0
    assert "front drains" in launched.said
    assert not alive(processes)
    assert not launched.regions()


def test_the_front_door_lives_through_a_restart(launch: Launch) -> None:
    launched = launch("serve").ready()
    (front,) = [one for one in launched.descendants() if "frontend" in one.cmdline()]
    stub_of(launched).kill()
    launched.says("Triton is ready again after restart 1")
    assert alive([front])
    assert launched.said.count("omni is ready at") == 1


@pytest.mark.parametrize("mood", ["refuse", "fine"])
def test_all_ends_when_the_front_door_does(launch: Launch, mood: str) -> None:
    launched = launch("serve", "--", "--mood", mood)
    if mood == "fine":
        launched.ready()
        for one in launched.descendants():
            if "frontend" in one.cmdline():
                one.kill()
    assert launched.process.wait(60) == 1
    assert f"the front door ended ({'exit status 1' if mood == 'refuse' else 'signal SIGKILL'})" in launched.said
    assert not launched.regions()


def test_a_second_ctrl_c_waits_for_nothing(launch: Launch) -> None:
    launched = launch("serve", "--shutdown-timeout", "600", "--", "--mood", "stubborn").ready()
    processes = launched.descendants()
    launched.process.send_signal(signal.SIGINT)
    launched.says("front drains")
    assert alive(processes)
    assert launched.stop(signal.SIGINT) == 0
    assert not alive(processes)
    assert not launched.regions()


def test_a_front_door_that_does_not_end_is_killed(launch: Launch) -> None:
    launched = launch("serve", "--shutdown-timeout", "0", "--", "--mood", "stubborn").ready()
    assert launched.stop() == 0
    assert "the front door was killed" in launched.said


def test_a_stop_before_it_is_ready(launch: Launch) -> None:
    launched = launch("triton")
    launched.says("Triton starts")
    launched.until(lambda: launched.descendants("tritonserver"))
    processes = launched.descendants()
    assert launched.stop() == 0
    assert not alive(processes)
    assert not launched.regions()


def test_the_same_server_in_a_test(models, tmp_path: Path) -> None:
    def regions() -> set[Path]:
        return set(Path("/dev/shm").glob(f"*_omni_*_{os.getpid()}_*"))

    others = regions()
    server = EmbeddedTriton(models=models.folder, home=tmp_path / "home", exit_timeout=1)
    with pytest.raises(LaunchError):
        _ = server.pid
    with server:
        assert server.fault() is None
        assert server.stubs().keys() == {"omni_text"}
        assert "nv_" in urllib.request.urlopen(server.metrics_url).read().decode()
        pid, stubs = server.pid, server.stubs()
        server.kill_stub("omni_text")
        deadline = time.monotonic() + 30
        while server.fault() is None:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert server.fault() == "the process of omni_text died"
        server.kill()
        server.start()
        server.wait_ready()
        assert server.pid != pid
        assert server.stubs() != stubs
        assert regions() > others
    assert regions() == others


def test_a_server_that_is_not_ready_in_time(models, tmp_path: Path) -> None:
    with (
        pytest.raises(LaunchError, match=r"wasn't ready after 0\.01 s"),
        EmbeddedTriton(models=models.folder, home=tmp_path / "home", start_timeout=0.01),
    ):
        pass
