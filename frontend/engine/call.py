"""The stream of one generation, which Triton ends.

gRPC cancels a call when the task that reads it is cancelled, and Triton takes that badly. 24.10 may keep the request
for good, so that its model can't be unloaded, and may mix up the states of streams and crash: pull requests 7840 and
8078 of its server mend that, the last one in 25.04. So whoever stops listening here leaves the call alone. The stages
are told to stop by other means, and the stream ends by itself soon after.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, Final

import grpc

from omni.contract.errors import OmniError

AHEAD: Final = 8
"""Responses that are read before somebody wants them."""
DRAIN_S = 10.0
"""How long a stream that was left may take to end by itself."""


class Call:
    """The responses of a call, which a task of its own reads. For one reader at a time."""

    def __init__(self, call: Any, name: str) -> None:
        """`call` is a stream-stream call of `grpc.aio`."""
        self._call = call
        self._loop = asyncio.get_running_loop()
        self._responses: deque[Any] = deque()
        self._error: OmniError | None = None
        self._left = False
        self._waiter: asyncio.Future[None] | None = None
        self._room: asyncio.Future[None] | None = None
        self._since = 0.0
        self.stream = self._loop.create_task(self._read_on(), name=name)
        """Done when the stream has ended."""

    def waited(self) -> float:
        """Seconds for which the reader has been waiting for the next response."""
        return 0.0 if self._waiter is None else self._loop.time() - self._since

    async def read(self) -> Any:
        """The next response, or `grpc.aio.EOF`. Raises the error of `fail`, or `grpc.aio.AioRpcError`."""
        if self._error is not None:
            raise self._error
        if not self._responses:
            self._since = self._loop.time()
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        response = self._responses.popleft()
        _wake(self._room)
        if isinstance(response, grpc.aio.AioRpcError):
            raise response
        return response

    def fail(self, error: OmniError) -> None:
        """Whoever reads gets `error`, the first one that is given."""
        if self._error is None:
            self._error = error
            if self._waiter is not None and not self._waiter.done():
                self._waiter.set_exception(error)

    def leave(self) -> None:
        """Nobody reads any more. The stream goes on to its end, since Triton keeps what isn't read; if that doesn't
        come in time, the call is cancelled after all."""
        self._left = True
        self._responses.clear()
        _wake(self._room)
        late = self._loop.call_later(DRAIN_S, self._call.cancel)
        self.stream.add_done_callback(lambda _: late.cancel())

    async def _read_on(self) -> None:
        try:
            while (response := await self._call.read()) is not grpc.aio.EOF:
                self._heard(response)
                while len(self._responses) >= AHEAD:
                    self._room = self._loop.create_future()
                    await self._room
        except grpc.aio.AioRpcError as problem:
            self._heard(problem)
        finally:
            self._heard(grpc.aio.EOF)

    def _heard(self, response: Any) -> None:
        if not self._left:
            self._responses.append(response)
            _wake(self._waiter)


def _wake(future: asyncio.Future[None] | None) -> None:
    if future is not None and not future.done():
        future.set_result(None)
