"""The threads around a stage: one runs it, one sends, one watches. None of them knows Triton."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from omni.contract.errors import InvalidRequest, OmniError, Overloaded, StageFailed, Unavailable
from omni.contract.stage import Stage
from omni.contract.tensors import Control, StageMessage, pack
from omni.runtime.generations import AT_ONCE, Delivery, Generations, Life, Open, Pace, Push, Responder, Work
from omni.runtime.upload import MAX_MEDIA_BYTES

log = logging.getLogger(__name__)

LEASE_POLL_S = 0.05
"""How often a lease is asked whether its client still lives. There is one lease per front door, not per generation."""
REAP_S = 1.0
MAX_LEASES = 256
"""Front doors, and other clients of Triton, that may hold a lease in a stage at a time."""
AFTER_FAILURE_S = 0.1
"""How long the engine thread rests after something unexpected, so that a stage that always fails doesn't spin."""


@dataclass(slots=True)
class Counters:
    """What the stage did since it started."""

    steps: int = 0
    step_seconds: float = 0.0
    received: int = 0
    sent: int = 0
    send_seconds: float = 0.0
    reaped: int = 0


class StageLoop:
    """Runs one stage: takes requests from any thread, answers on a thread of its own.

    The stage is made and called on the engine thread alone, since a model may be bound to the thread that made it.
    Sending has a thread of its own because a send returns only when Triton has started the next step with it.
    """

    def __init__(
        self,
        name: str,
        create: Callable[[Callable[[], None]], Stage],
        *,
        pace: Pace = AT_ONCE,
        ttl_s: float = 60.0,
        max_leases: int = MAX_LEASES,
        max_media_bytes: int = MAX_MEDIA_BYTES,
        clock: Callable[[], float] = time.monotonic,
        on_life: Callable[[Life], None] = lambda _: None,
    ) -> None:
        """`create(wake)` makes the stage; `on_life` hears of each traced generation that ended, on the sender's thread.

        Raises what `create` raises.
        """
        self.name = name
        self.counters = Counters()
        self._clock = clock
        self._on_life = on_life
        self._generations = Generations(name, pace=pace, ttl_s=ttl_s, max_media_bytes=max_media_bytes)
        self._lock = threading.Lock()
        self._engine_news = threading.Condition(self._lock)
        self._sender_news = threading.Condition(self._lock)
        self._stopping = threading.Event()
        self._awake = False
        self._leases: dict[str, Responder] = {}
        self._max_leases = max_leases
        self._stage: Stage | None = None
        self._failure: BaseException | None = None
        made = threading.Event()
        self._engine = threading.Thread(target=self._run_engine, args=(create, made), name=f"{name} engine")
        self._engine.start()
        made.wait()
        if self._failure is not None:
            self._engine.join()
            raise self._failure
        self._sender = threading.Thread(target=self._run_sender, name=f"{name} sender")
        self._watcher = threading.Thread(target=self._run_watcher, name=f"{name} watcher")
        self._sender.start()
        self._watcher.start()

    @property
    def generations(self) -> int:
        """Generations that the stage holds."""
        with self._lock:
            return len(self._generations)

    @property
    def open_requests(self) -> int:
        """Requests without their end, leases left out."""
        with self._lock:
            return self._generations.open_requests

    @property
    def outcomes(self) -> dict[str, int]:
        """Generations that ended, by outcome."""
        with self._lock:
            return dict(self._generations.outcomes)

    def receive(self, id: str, settings: str, inputs: Mapping[str, npt.NDArray[Any]], responder: Responder) -> None:
        """A request arrived. Returns at once; the arrays must stay valid afterwards."""
        with self._lock:
            self.counters.received += 1
            self._generations.receive(id, settings, inputs, responder, self._clock())
            self._notify()

    def control(self, data: bytes, responder: Responder) -> None:
        """A control request arrived: a lease is held, anything else is done and answered here."""
        try:
            control = Control.loads(data)
            if control.op == "lease":
                self._hold(control.id, responder)
        except OmniError as error:
            responder.send(pack(self.name, StageMessage(error=error, eos=True)), True)
            return
        if control.op == "lease":
            responder.send(pack(self.name, StageMessage(event={"type": "leased"})), False)
            return
        if control.op == "abort":
            with self._lock:
                self._generations.abort(control.id)
                self._notify()
        responder.send(pack(self.name, StageMessage(event={"type": control.op}, eos=True)), True)

    def _hold(self, lease: str, responder: Responder) -> None:
        with self._lock:
            if lease in self._leases:
                raise InvalidRequest("There is a lease of this name.", param="CONTROL")
            if len(self._leases) >= self._max_leases:
                raise Overloaded("The stage holds as many leases as it may.")
            self._leases[lease] = responder

    def close(self) -> None:
        """End every generation as `Unavailable`, let go of the leases, stop the threads and close the stage."""
        with self._lock:
            self._generations.fail_all(Unavailable("The server is stopping."))
            self._notify()
            leases, self._leases = list(self._leases.values()), {}
        for responder in leases:
            responder.send(None, True)
        self._stopping.set()
        with self._lock:
            self._awake = True
            self._notify()
        for thread in (self._watcher, self._engine, self._sender):
            thread.join(timeout=10)

    def _notify(self) -> None:
        self._engine_news.notify()
        self._sender_news.notify()

    def _wake(self) -> None:
        with self._lock:
            self._awake = True
            self._engine_news.notify()

    # -- the engine thread

    def _run_engine(self, create: Callable[[Callable[[], None]], Stage], made: threading.Event) -> None:
        try:
            stage = self._stage = create(self._wake)
        except BaseException as failure:
            self._failure = failure
            return
        finally:
            made.set()
        while not self._stopping.is_set():
            try:
                self._turn(stage)
            except Exception:
                # Whatever it was, no generation may wait for ever, and the next one may fare better.
                log.exception("%s broke while it worked", self.name)
                with self._lock:
                    self._generations.fail_all(StageFailed("The stage broke while it worked on the request."))
                    self._notify()
                self._stopping.wait(AFTER_FAILURE_S)
        stage.close()

    def _turn(self, stage: Stage) -> None:
        for one in self._next_work(stage):
            self._tell(stage, one)
        began = self._clock()
        outputs = stage.step()
        if outputs:
            with self._lock:
                self.counters.steps += 1
                self.counters.step_seconds += self._clock() - began
                self._generations.produced(outputs)
                self._notify()

    def _next_work(self, stage: Stage) -> list[Work]:
        """What to tell the stage; waits until there is something to tell or to do."""
        with self._lock:
            while True:
                work = self._generations.work()
                if work or self._awake:
                    self._awake = False
                    return work
                wait = stage.wait()
                if wait is not None and wait <= 0:
                    return []
                if not self._engine_news.wait(wait):
                    return []

    def _tell(self, stage: Stage, work: Work) -> None:
        try:
            if isinstance(work, Open):
                stage.open(work.id, work.settings)
            elif isinstance(work, Push):
                stage.push(work.id, work.message)
            else:
                stage.abort(work.id)
            return
        except OmniError as failure:
            error = failure
        except Exception:
            log.exception("%s could not take a message of %s", self.name, work.id)
            error = StageFailed("The stage broke while it took the request.")
        with self._lock:
            self._generations.fail(work.id, error)
            self._notify()

    # -- the sender thread

    def _run_sender(self) -> None:
        while True:
            with self._lock:
                now = self._clock()
                deliveries = self._generations.outgoing(now)
                lives = self._generations.lives()
                if not deliveries:
                    due = self._generations.next_due()
                    if due is None and self._stopping.is_set():
                        return
                    self._sender_news.wait(None if due is None else max(0.0, due - now))
                    continue
            began = self._clock()
            for delivery in deliveries:
                self._send(delivery)
            self.counters.sent += len(deliveries)
            self.counters.send_seconds += self._clock() - began
            for life in lives:
                self._on_life(life)

    def _send(self, delivery: Delivery) -> None:
        packed = None
        if delivery.message is not None:
            try:
                packed = pack(self.name, delivery.message)
            except Exception:
                # A message that can't be packed would leave a hole in the numbering: the hole becomes the failure.
                log.exception("%s made a message that can't be sent", self.name)
                error = StageFailed("The stage made an answer that can't be sent.", stage=self.name)
                packed = pack(self.name, StageMessage(seq=delivery.message.seq, error=error, eos=True))
        delivery.responder.send(packed, delivery.final)

    # -- the watcher thread

    def _run_watcher(self) -> None:
        next_reap = self._clock() + REAP_S
        while not self._stopping.wait(LEASE_POLL_S):
            with self._lock:
                leases = list(self._leases.items())
            for name, responder in leases:
                if responder.cancelled():
                    self._lose(name, responder)
            if self._clock() >= next_reap:
                next_reap = self._clock() + REAP_S
                with self._lock:
                    self.counters.reaped += self._generations.reap(self._clock())
                    self._notify()

    def _lose(self, name: str, responder: Responder) -> None:
        with self._lock:
            if self._leases.pop(name, None) is None:
                return
            self._generations.lease_lost(name)
            self._notify()
        responder.send(None, True)
