"""The parent of Triton and of the front door: starts both, watches both, stops both.

The front door lives through a restart of Triton: it answers 503 until its engine has connected again.
"""

from __future__ import annotations

import contextlib
import http.client
import logging
import os
import signal
import ssl
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from types import FrameType
from typing import NoReturn

from omni.contract.names import OMNI_TEXT
from omni.launch.backoff import Backoff
from omni.launch.child import TICK, Child, describe_exit
from omni.launch.errors import LaunchError
from omni.launch.liveness import Liveness
from omni.launch.options import Options, own_variables
from omni.launch.ports import check_free, free_port
from omni.launch.server import EmbeddedTriton
from omni.profile import ProfileError, load_profile

log = logging.getLogger("omni.launch")
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_HEALTH_INTERVAL = 0.5
"""Seconds between two questions whether the front door is healthy, until it is."""
_DRAIN_MARGIN = 5.0
"""Seconds that the front door gets to close its connections after the time that its generations had."""


class Stopped(Exception):
    """Somebody asked us to stop."""


class Launcher:
    """One run, from start to stop. Everything happens in the main thread, a look around every `TICK`."""

    def __init__(self, options: Options, *, front: bool, front_arguments: Sequence[str] = ()) -> None:
        """Without `front`, Triton runs alone."""
        self._options = options
        self._port = options.port or free_port()
        self._with_front = front
        self._front_arguments = front_arguments
        self._front: Child | None = None
        self._liveness: Liveness | None = None
        self._backoff = Backoff()
        self._asked = 0
        """Signals received."""
        self._triton = EmbeddedTriton(
            profile=options.profile,
            models=options.model_repository,
            host=options.triton_host,
            metrics_host=options.triton_metrics_host,
            grpc_port=options.triton_grpc_port,
            http_port=options.triton_http_port,
            metrics_port=options.triton_metrics_port,
            home=options.home,
            tritonserver=options.tritonserver,
            start_timeout=options.start_timeout,
            exit_timeout=options.exit_timeout,
            log_bytes=options.triton_log_bytes,
        )

    def run(self) -> int:
        """Serve until a signal comes; the exit status."""
        # Also where SIGINT is ignored, as in a script's background job; but nohup means what it says.
        for number in SIGNALS:
            if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._ask)
        try:
            self._start()
            self._watch()
        except Stopped:
            log.info("stopping")
            return 0
        except LaunchError as problem:
            log.error("%s", problem)
            return 1
        finally:
            self._stop()

    def _ask(self, _number: int, _frame: FrameType | None) -> None:
        self._asked += 1

    def _hurry(self) -> bool:
        """A second signal: don't wait for anything."""
        return self._asked > 1

    def _pause(self, seconds: float) -> None:
        """Every wait goes through here. Raises `Stopped`, or `LaunchError` when the front door has ended."""
        until = time.monotonic() + seconds
        while True:
            if self._asked:
                raise Stopped
            if self._front is not None and (status := self._front.poll()) is not None:
                raise LaunchError(f"the front door ended ({describe_exit(status)})")
            if (left := until - time.monotonic()) <= 0:
                return
            time.sleep(min(left, TICK))

    def _start(self) -> None:
        try:
            load_profile(self._options.profile)
        except ProfileError as problem:
            raise LaunchError(str(problem)) from None
        front = [replace(self._options.front_address, port=self._port)] if self._with_front else []
        check_free([*front, *self._options.addresses])
        log.info("Triton starts, its log is %s", self._triton.log)
        self._triton.start()
        if self._with_front:
            self._front = self._start_front()
        self._triton.wait_ready(self._pause)
        self._ask_for_life()
        if not self._with_front:
            self._announce(f"Triton is ready at {self._triton.grpc_url} (gRPC), {self._triton.metrics_url}")

    def _start_front(self) -> Child:
        options = self._options
        command = [
            *(sys.executable, "-m", "frontend"),
            *("--host", options.host, "--port", str(self._port)),
            *("--triton-url", self._triton.grpc_url, "--profile", options.profile),
            *("--shutdown-timeout", str(options.shutdown_timeout)),
            *(() if options.config is None else ("--config", str(options.config))),
            *self._front_arguments,
        ]
        own = own_variables()
        return Child(command, env={name: value for name, value in os.environ.items() if name not in own})

    def _announce(self, line: str) -> None:
        with contextlib.suppress(OSError):  # nobody listens, or the disk is full: neither is a reason to stop
            sys.stdout.write(f"{line} (profile {self._options.profile})\n")
            sys.stdout.flush()

    def _watch(self) -> NoReturn:
        """Look after both until `_pause` says that it is over."""
        asked_at = started_at = time.monotonic()
        announced = not self._with_front
        while True:
            self._pause(TICK)
            self._triton.bound_log()
            if (fault := self._fault()) is not None:
                self._restart(fault)
            now = time.monotonic()
            if announced or now < asked_at + _HEALTH_INTERVAL:
                continue
            asked_at = now
            if (url := self._healthy_front()) is not None:
                self._announce(f"omni is ready at {url}")
                announced = True
            elif now > started_at + self._options.start_timeout:
                raise LaunchError(f"the front door wasn't healthy after {self._options.start_timeout:g} s")

    def _fault(self) -> str | None:
        if (fault := self._triton.fault()) is not None:
            return fault
        if self._liveness is not None and self._liveness.failures >= self._options.liveness_failures:
            return f"{self._liveness.failures} probes in a row failed"
        return None

    def _restart(self, fault: str) -> None:
        """Bring Triton back. Raises `LaunchError` when it has failed too often in a row."""
        while True:
            ran = time.monotonic() - self._triton.ready_at if self._triton.ready_at else 0.0
            self._quit_asking()
            self._triton.kill()
            delay = self._backoff.after(ran)
            if self._backoff.in_a_row > self._options.restart_limit:
                raise LaunchError(f"Triton failed {self._backoff.in_a_row} times in a row, the last time: {fault}")
            log.warning("Triton is broken (%s); restart %d in %g s", fault, self._backoff.total, delay)
            self._pause(delay)
            try:
                self._triton.start()
                self._triton.wait_ready(self._pause)
            except LaunchError as problem:
                if self._front is not None and self._front.poll() is not None:
                    raise
                fault = str(problem)
                continue
            self._ask_for_life()
            log.info("Triton is ready again after restart %d", self._backoff.total)
            return

    def _ask_for_life(self) -> None:
        if self._options.liveness_interval > 0 and (self._options.model_repository / OMNI_TEXT).is_dir():
            self._liveness = Liveness(
                self._triton.grpc_url,
                interval=self._options.liveness_interval,
                deadline=self._options.liveness_deadline,
            )
            self._liveness.start()

    def _quit_asking(self) -> None:
        if self._liveness is not None:
            self._liveness.stop()
            self._liveness = None

    def _healthy_front(self) -> str | None:
        """Where a client on this machine finds the front door, once that is ready to serve."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self._options.host, self._options.host)
        place = f"[{host}]:{self._port}" if ":" in host else f"{host}:{self._port}"
        # Whether it speaks TLS is the front door's own setting; the certificate is for its name, not for this address.
        trusting = ssl._create_unverified_context()
        for scheme, connection in (
            ("http", http.client.HTTPConnection(host, self._port, timeout=2.0)),
            ("https", http.client.HTTPSConnection(host, self._port, timeout=2.0, context=trusting)),
        ):
            with contextlib.closing(connection), contextlib.suppress(OSError, http.client.HTTPException):
                connection.request("GET", "/health")
                return f"{scheme}://{place}" if connection.getresponse().status == 200 else None
        return None

    def _stop(self) -> None:
        """The front door first, so that what runs can end; then Triton."""
        self._quit_asking()
        patience = self._options.shutdown_timeout + _DRAIN_MARGIN
        if self._front is not None and not self._front.stop(patience, self._hurry):
            log.warning("the front door was killed: it hadn't ended in time")
        self._triton.stop(self._hurry)
