"""One thread that listens for all sessions: what came meanwhile is heard in one go, at a fraction of the cost."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

PACE_S: Final = 0.008
"""Least time between two goes, so that with many sessions there is more than one in each; alone, nobody waits."""
TOGETHER: Final = 32
"""Sessions in one go."""

Asked = tuple[Any, bytes]
"""An ear and the sound that it is to hear."""


class Hearing:
    """`hear` is given what is asked, and gives a result for each in the same order. It runs on a thread of its own."""

    def __init__(self, hear: Callable[[Sequence[Asked]], Sequence[Any]]) -> None:
        self._hear = hear
        self._waiting: deque[tuple[Asked, asyncio.Future[Any]]] = deque()
        self._wake = threading.Semaphore(0)
        self._closed = False
        self._thread: threading.Thread | None = None

    def submit(self, ear: Any, pcm: bytes) -> asyncio.Future[Any]:
        """What the ear hears; raises what `hear` raises. An ear is asked one thing at a time."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, args=(loop,), name="hearing", daemon=True)
            self._thread.start()
        self._waiting.append(((ear, pcm), future))
        self._wake.release()
        return future

    def close(self) -> None:
        """Ends the thread; what waits is cancelled."""
        self._closed = True
        self._wake.release()
        if self._thread is not None:
            self._thread.join()
        for _, future in self._waiting:
            future.cancel()
        self._waiting.clear()

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        rested = 0.0
        while True:
            self._wake.acquire()
            time.sleep(max(0.0, rested + PACE_S - time.monotonic()))
            if self._closed:
                return
            rested = time.monotonic()
            taken = [self._waiting.popleft() for _ in range(min(len(self._waiting), TOGETHER))]
            for _ in taken[1:]:
                self._wake.acquire()
            result: Sequence[Any] | Exception
            try:
                result = self._hear([asked for asked, _ in taken])
            except Exception as problem:
                result = problem
            loop.call_soon_threadsafe(_tell, [future for _, future in taken], result)


def _tell(futures: Sequence[asyncio.Future[Any]], result: Sequence[Any] | Exception) -> None:
    for n, future in enumerate(futures):
        if future.cancelled():
            continue
        if isinstance(result, Exception):
            future.set_exception(result)
        else:
            future.set_result(result[n])
