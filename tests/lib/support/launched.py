"""The launcher as an operator runs it: a process that is started, watched and stopped from outside."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Self

import psutil

from omni.launch.ports import free_port


class Launched:
    """`python -m omni.launch COMMAND ...` on free ports. A context manager that leaves nothing behind."""

    def __init__(
        self, command: str, home: Path, *arguments: str, env: Mapping[str, str] | None = None, cwd: Path | None = None
    ) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self.port, self.grpc_port, self.metrics_port = free_port(), free_port(), free_port()
        self._out, self._err = home / "stdout", home / "stderr"
        ports = {"--port": self.port, "--triton-grpc-port": self.grpc_port}
        ports |= {"--triton-http-port": free_port(), "--triton-metrics-port": self.metrics_port}
        settings = [text for name, port in ports.items() for text in (name, str(port))]
        # What is installed doesn't decide what a test runs: the dummy stages, unless it says otherwise.
        chosen = {"OMNI_PROFILE": "dummy", **(env or {})}
        run = [sys.executable, "-m", "omni.launch", command, *settings, "--home", str(home), *arguments]
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(run, stdout=out, stderr=err, env=os.environ | chosen, cwd=cwd)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def metrics_url(self) -> str:
        """Triton's metrics, the stages' own among them."""
        return f"http://127.0.0.1:{self.metrics_port}/metrics"

    @property
    def said(self) -> str:
        return "".join(file.read_text() for file in (self._out, self._err) if file.is_file())

    def until(self, happened: Callable[[], object], seconds: float = 120.0) -> None:
        """Wait; fails when the launcher ends first."""
        deadline = time.monotonic() + seconds
        while not happened():
            assert self.process.poll() is None, f"the launcher ended:\n{self.said}"
            assert time.monotonic() < deadline, f"not after {seconds:g} s:\n{self.said}"
            time.sleep(0.05)

    def says(self, text: str, times: int = 1) -> None:
        self.until(lambda: self.said.count(text) >= times)

    def ready(self) -> Self:
        self.says(" is ready at ")
        return self

    def descendants(self, name: str = "") -> list[psutil.Process]:
        """Living processes below the launcher whose program's name ends so."""
        found = []
        for process in psutil.Process(self.process.pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if process.cmdline() and process.cmdline()[0].endswith(name):
                    found.append(process)
        return found

    def regions(self) -> list[Path]:
        """Shared memory of the Triton that this launcher started."""
        return list(Path("/dev/shm").glob(f"*_omni_*_{self.process.pid}_*"))

    def stop(self, number: int = signal.SIGTERM, seconds: float = 60.0) -> int:
        """Send a signal; the exit status."""
        self.process.send_signal(number)
        return self.process.wait(seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # Two signals: tests look at clean stops where they want one, the rest needn't wait for it.
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.stop(signal.SIGTERM)
            finally:
                self.process.kill()


def alive(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Those that haven't ended; a zombie has."""
    found = []
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found
