"""The stream of one generation, which Triton ends.

gRPC cancels a call when the task that reads it is cancelled, and Triton takes that badly. 24.10 may keep the request
for good, so that its model can't be unloaded, and may crash when responses are being written; its server's pull
requests 7840 and 8078 mend that, the last one in 25.04. So whoever stops listening here leaves the call alone. The
stages are told to stop by other means, and the stream ends by itself soon after.
"""

from __future__ import annotations

import asyncio
from typing import Any

import grpc

from omni.contract.errors import OmniError

DRAIN_S = 10.0
"""How long the stream of a generation that nobody listens to any more may take to close by itself."""


class Call:
    """One reader at a time."""

    def __init__(self, call: Any) -> None:
        """`call` is a stream-stream call of `grpc.aio`."""
        self._call = call
        self._reading: asyncio.Task[Any] | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._error: OmniError | None = None
        self.heard = asyncio.get_running_loop().time()
        """When the last response came, seconds of the event loop's clock."""

    async def read(self) -> Any:
        """The next response, or `grpc.aio.EOF`. Raises the error of `fail`, or `grpc.aio.AioRpcError`."""
        if self._error is not None:
            raise self._error
        loop = asyncio.get_running_loop()
        if self._reading is None:
            self._reading = loop.create_task(self._call.read(), name="triton read")
            self._reading.add_done_callback(self._wake)
        if not self._reading.done():
            self._waiter = loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        reading, self._reading = self._reading, None
        self.heard = loop.time()
        return reading.result()

    def _wake(self, _: asyncio.Task[Any]) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def fail(self, error: OmniError) -> None:
        """Whoever reads gets `error`, the first one that is given."""
        if self._error is None:
            self._error = error
            if self._waiter is not None and not self._waiter.done():
                self._waiter.set_exception(error)

    async def drain(self) -> None:
        """Reads the rest, since a stream that nobody reads holds memory in Triton. Cancels the call when it stays."""
        reading, self._reading = self._reading, None
        try:
            async with asyncio.timeout(DRAIN_S):
                response = None if reading is None else await reading
                while response is not grpc.aio.EOF:
                    response = await self._call.read()
        except (TimeoutError, grpc.aio.AioRpcError, asyncio.CancelledError):
            self._call.cancel()
