"""One Triton server as a child of this process."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Self

from omni.launch import shm
from omni.launch.child import TICK, Child, describe_exit
from omni.launch.errors import LaunchError
from omni.launch.install import Installation, embedded, installed
from omni.launch.ports import free_port
from omni.launch.proc import Process, children

CHECKOUT = Path(__file__).resolve().parents[2]
MODELS = CHECKOUT / "model_repository"
HOME = CHECKOUT / ".omni"
HOST = "127.0.0.1"
"""Triton is for the front door beside it, which is where access is decided."""

SHM_BYTES = 1 << 20
"""First size and growth step of a stage's shared memory: stages that need more grow, small ones stay small."""
MIN_PING_INTERVAL_MS = 10_000
"""The front door pings an idle connection; Triton's default of five minutes would close it for that."""
LOG_BYTES = 64 << 20
"""Bytes of Triton's log before it is put aside."""
STUB = "triton_python_backend_stub"
_TAIL_LINES = 15
_TAIL_BYTES = 64 << 10
"""Of a log, which may be long, or a device that never ends."""
_serial = itertools.count()


class EmbeddedTriton:
    """Starts Triton on this machine; a context manager that waits until it is ready and leaves nothing behind.

    One object can be started again and again, on the same ports. Start it from the main thread (see `Child`).
    """

    def __init__(
        self,
        *,
        profile: str = "dummy",
        models: Path = MODELS,
        host: str = HOST,
        metrics_host: str = HOST,
        grpc_port: int = 0,
        http_port: int = 0,
        metrics_port: int = 0,
        home: Path = HOME,
        tritonserver: Path | None = None,
        start_timeout: float = 120.0,
        exit_timeout: int = 5,
        log_bytes: int = LOG_BYTES,
        env: Mapping[str, str] | None = None,
    ) -> None:
        """`profile` is a name or the path of a file; port 0 is any free one; `home` holds the layout and the logs.

        `host` is the address of gRPC and health, `metrics_host` that of the metrics; 0.0.0.0 is every interface.

        `tritonserver` is the program of an existing installation, None the one of the wheel. `start_timeout` and
        `exit_timeout` (what running requests get when the server is stopped) are seconds. `log_bytes` is for
        `bound_log`. `env` is added to ours.
        """
        self._host = host
        self._metrics_host = metrics_host
        self.grpc_port = grpc_port or free_port()
        self.http_port = http_port or free_port()
        self.metrics_port = metrics_port or free_port()
        self.log = home / "logs" / f"triton-{self.grpc_port}.log"
        self.ready_at = 0.0
        """Monotonic seconds of the last time that it became ready; 0 when it isn't."""
        self._profile = str(Path(profile).resolve()) if profile.endswith((".yaml", ".yml")) else profile
        self._models = models
        self._home = home
        self._tritonserver = tritonserver
        self._start_timeout = start_timeout
        self._exit_timeout = exit_timeout
        self._log_bytes = log_bytes
        self._env = dict(env or {})
        self._child: Child | None = None
        self._stubs: dict[str, Process] = {}
        self._log_start: int | None = None
        """Byte of the log at which this start began; None before the first."""
        self._shm_prefix = shm.region_prefix(Process.of(os.getpid()), next(_serial))

    @property
    def grpc_url(self) -> str:
        """host:port, for a client on this machine."""
        return f"{_reachable(self._host)}:{self.grpc_port}"

    @property
    def metrics_url(self) -> str:
        return f"http://{_reachable(self._metrics_host)}:{self.metrics_port}/metrics"

    @property
    def pid(self) -> int:
        """Raises LaunchError when it isn't running."""
        if self._child is None:
            raise LaunchError("Triton isn't running")
        return self._child.pid

    def stubs(self) -> dict[str, int]:
        """Model name to the process that runs it, as found when the server became ready."""
        return {model: stub.pid for model, stub in self._stubs.items()}

    def kill_stub(self, model: str) -> None:
        """Break the server on purpose. Raises KeyError when there is no such model."""
        self._stubs[model].send(signal.SIGKILL)

    def start(self) -> None:
        """Start without waiting. Raises `LaunchError` when the files, the wheel or the machine aren't right."""
        if not self._models.is_dir():
            raise LaunchError(f"there is no model repository at {self._models}")
        shm.sweep_orphans()
        try:
            where = embedded(self._home / "triton") if self._tritonserver is None else installed(self._tritonserver)
            log = self._open_log()
        except OSError:
            raise LaunchError(f"{self._home} can't be written; choose another with --home or OMNI_HOME") from None
        self._child = Child(self._command(where), env=self._environment(where), log=log)

    def _open_log(self) -> Path:
        """The log, with what former servers on this port wrote put aside."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        if self._log_start is None and self.log.is_file():  # one that is a link to a device stays
            self.log.replace(self._log_aside)
        self.log.touch()
        self._log_start = self.log.stat().st_size
        return self.log

    @property
    def _log_aside(self) -> Path:
        return self.log.with_suffix(".log.1")

    def bound_log(self) -> None:
        """Put the log aside, in place of what was put aside before, once it is over `log_bytes`.

        Triton has it open and goes on at its new beginning; what it writes during the copy may be lost. On a full disk
        it is lost as a whole, which makes room.
        """
        with contextlib.suppress(OSError):
            if self.log.stat().st_size <= self._log_bytes:
                return
            try:
                shutil.copyfile(self.log, self._log_aside)
            finally:
                os.truncate(self.log, 0)
                self._log_start = 0

    def _command(self, where: Installation) -> list[str]:
        flags: dict[str, object] = {
            "model-repository": self._models.resolve(),
            # The configurations are complete; completing them would start every stage twice.
            "disable-auto-complete-config": None,
            "http-address": self._host,
            "http-port": self.http_port,
            "grpc-address": self._host,
            "grpc-port": self.grpc_port,
            "metrics-address": self._metrics_host,
            "metrics-port": self.metrics_port,
            # Not grpc-infer-allocation-pool-size: a pooled request keeps the memory of the largest that it ever held,
            # so that with 256 of them uploads of 6 MiB cost 270 MiB and more, and saved no time that could be measured.
            "grpc-http2-min-recv-ping-interval-without-data": MIN_PING_INTERVAL_MS,
            "grpc-http2-max-ping-strikes": 0,
            "exit-timeout-secs": self._exit_timeout,
            "log-verbose": 0,
        }
        if where.backends is not None:
            flags["backend-directory"] = where.backends
        python = {
            "shm-default-byte-size": SHM_BYTES,
            "shm-growth-byte-size": SHM_BYTES,
            "shm-region-prefix-name": self._shm_prefix,
        }
        return [
            str(where.server),
            *(f"--{name}" if value is None else f"--{name}={value}" for name, value in flags.items()),
            *(f"--backend-config=python,{name}={value}" for name, value in python.items()),
        ]

    def _environment(self, where: Installation) -> dict[str, str]:
        env = os.environ | self._env
        # The stub runs the Python that comes first in PATH, with its packages: ours.
        env["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), env.get("PATH", os.defpath)])
        if libraries := [*map(str, where.libraries), *filter(None, [env.get("LD_LIBRARY_PATH")])]:
            env["LD_LIBRARY_PATH"] = os.pathsep.join(libraries)
        env["OMNI_PROFILE"] = self._profile
        env["PYTHONUNBUFFERED"] = "1"
        env["PYTHONUTF8"] = "1"  # a stub starts in the C locale, where Python would read files as ASCII
        return env

    def wait_ready(self, pause: Callable[[float], None] = time.sleep) -> None:
        """Wait until every model is loaded. Raises `LaunchError` when Triton ends first, or after `start_timeout`."""
        until = time.monotonic() + self._start_timeout
        while not self._is_ready():
            if (fault := self.fault()) is not None:
                raise LaunchError(f"Triton didn't start ({fault})\n{self.log_tail()}")
            if time.monotonic() > until:
                raise LaunchError(f"Triton wasn't ready after {self._start_timeout:g} s\n{self.log_tail()}")
            pause(TICK)
        self._stubs = {_model_of(stub): stub for stub in children(self.pid) if _is_stub(stub)}
        self.ready_at = time.monotonic()

    def _is_ready(self) -> bool:
        connection = http.client.HTTPConnection(_reachable(self._host), self.http_port, timeout=2.0)
        try:
            connection.request("GET", "/v2/health/ready")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def fault(self) -> str | None:
        """Why the server can't serve any more, or None: it ended, or the process of a stage did.

        Triton never starts such a process again, and goes on to call itself healthy.
        """
        if self._child is None:
            return "not started"
        if (status := self._child.poll()) is not None:
            return describe_exit(status)
        for model, stub in self._stubs.items():
            if not stub.alive:
                return f"the process of {model} died"
        return None

    def log_tail(self) -> str:
        """The last lines that this start wrote, without Triton's tables, and where the rest is."""
        with contextlib.suppress(OSError), self.log.open("rb") as log:
            end = log.seek(0, os.SEEK_END)
            log.seek(max(self._log_start or 0, end - _TAIL_BYTES))
            lines = log.read(_TAIL_BYTES).decode(errors="replace").splitlines()
            tail = [f"  {line[:400]}" for line in lines if line.strip() and line[0] not in "+|"][-_TAIL_LINES:]
            return "\n".join([*tail, f"  (the whole log: {self.log})"])
        return f"  (no log at {self.log})"

    def stop(self, hurry: Callable[[], bool] = lambda: False) -> None:
        """Let running requests end, for `exit_timeout` at most, then end the server. `hurry` says not to wait."""
        if self._child is not None:
            # Triton looks once a second; give it time to see that its own timeout is over.
            self._child.stop(self._exit_timeout + 2.0, hurry)
        self.kill()

    def kill(self) -> None:
        """End the server and its stages at once, and remove their shared memory."""
        if self._child is None:
            return
        stubs = [*self._stubs.values(), *(child for child in children(self._child.pid) if _is_stub(child))]
        self._child.kill()
        for stub in stubs:
            stub.send(signal.SIGKILL)
        until = time.monotonic() + 5.0
        while any(stub.alive for stub in stubs) and time.monotonic() < until:
            time.sleep(TICK / 10)
        for stub in stubs:
            stub.collect()
        shm.sweep(self._shm_prefix)
        self._child, self._stubs, self.ready_at = None, {}, 0.0

    def __enter__(self) -> Self:
        try:
            self.start()
            self.wait_ready()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _reachable(host: str) -> str:
    """Where a client on this machine finds a server that listens on `host`."""
    return HOST if host == "0.0.0.0" else host


def _is_stub(process: Process) -> bool:
    return Path(next(iter(process.command), "")).name == STUB


def _model_of(stub: Process) -> str:
    """The stub's first argument is the model's file: <repository>/<model>/<version>/model.py."""
    return Path(stub.command[1]).parents[1].name
