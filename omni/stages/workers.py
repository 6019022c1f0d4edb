"""Jobs worked on by a bounded pool of threads: what every preprocess stage is."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from omni.contract.chunk import KEPT
from omni.contract.errors import Cancelled, InvalidRequest, OmniError, Overloaded, StageFailed
from omni.contract.handover import Handover
from omni.contract.job import PROBE_PRIORITY, Job
from omni.contract.names import PREPROCESS
from omni.contract.params import Settings
from omni.contract.stage import Outputs
from omni.contract.tensors import StageMessage
from omni.stages.media.limits import Check
from omni.stages.media.store import MediaStore

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Run:
    job: Job | None = None
    dropped: bool = False

    def check(self) -> None:
        """A `Check`: stops a decoder when nobody wants its result any more."""
        if self.dropped:
            raise Cancelled("The generation was aborted.")


class Workers:
    """A stage that answers each job with what `prepare`, which a subclass has, makes of it.

    `workers` threads take the job of the highest priority that waited longest; up to `max_queue` wait. A job without
    media waits for no worker: it is prepared at once by the engine thread. One thread more is for probes of whether the
    server lives, which would else wait as long as the longest job takes. The encoded media of every job are kept in
    `store` from the moment that it comes; a session, which may name them next time, is told so at once.
    """

    def __init__(self, wake: Callable[[], None], store: MediaStore, *, workers: int, max_queue: int) -> None:
        self.store = store
        self._wake = wake
        self._workers = workers
        self._max_queue = max_queue
        self._pool = ThreadPoolExecutor(workers + 1, thread_name_prefix=PREPROCESS)
        self._waiting: dict[str, _Run] = {}
        self._running: dict[str, _Run] = {}
        self._busy = 0
        """Workers at work, also on what was dropped: their number bounds the pool's own queue."""
        self._news: deque[tuple[str, _Run, StageMessage, bool]] = deque()
        """What `step` has to say: `(generation, run, message, from a worker)`."""

    def prepare(self, job: Job, check: Check) -> Handover:
        """What the thinker is told of a job; called by several threads. Raises an `OmniError` when that can't be."""
        raise NotImplementedError

    def __len__(self) -> int:
        """Generations that are held."""
        return len(self._waiting) + len(self._running)

    def open(self, generation: str, settings: Settings) -> None:
        if len(self._waiting) >= self._max_queue:
            raise Overloaded("Too many requests wait for their media to be decoded; try again later.")
        self._waiting[generation] = _Run()

    def push(self, generation: str, message: StageMessage) -> None:
        run = self._waiting.get(generation)
        if run is None:
            return
        if message.job is None:
            self.abort(generation)
            raise InvalidRequest("The request carries no job.")
        run.job = message.job
        self.store.keep(message.job)
        if message.job.tells_kept:
            self._news.append((generation, run, StageMessage(event=KEPT), False))
        if message.job.media:
            self._start()
        else:
            self._running[generation] = self._waiting.pop(generation)
            self._news.append((generation, run, self._answer(message.job, run.check), False))

    def abort(self, generation: str) -> None:
        run = self._waiting.pop(generation, None) or self._running.pop(generation, None)
        if run is not None:
            run.dropped = True

    def step(self) -> Outputs:
        out: list[tuple[str, StageMessage]] = []
        while self._news:
            generation, run, message, worked = self._news.popleft()
            self._busy -= worked
            if run.dropped:
                continue
            if message.eos:
                del self._running[generation]
            out.append((generation, message))
        self._start()
        return out

    def wait(self) -> float | None:
        return 0.0 if self._news else None

    def close(self) -> None:
        for generation in (*self._waiting, *self._running):
            self.abort(generation)
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _start(self) -> None:
        while True:
            ready = [(run.job.priority, generation) for generation, run in self._waiting.items() if run.job is not None]
            if not ready:
                return
            priority, generation = max(ready, key=lambda one: one[0])
            if self._busy >= self._workers + (priority >= PROBE_PRIORITY):
                return
            run = self._running[generation] = self._waiting.pop(generation)
            self._busy += 1
            self._pool.submit(self._work, generation, run)

    def _work(self, generation: str, run: _Run) -> None:
        assert run.job is not None
        message = self._answer(run.job, run.check)
        self._news.append((generation, run, message, True))
        self._wake()

    def _answer(self, job: Job, check: Check) -> StageMessage:
        try:
            return StageMessage(handover=self.prepare(job, check), eos=True)
        except OmniError as problem:
            return StageMessage(error=problem, eos=True)
        except Exception:
            log.exception("a job could not be preprocessed")
            failed = StageFailed("The media of the request could not be processed.", stage=PREPROCESS)
            return StageMessage(error=failed, eos=True)
