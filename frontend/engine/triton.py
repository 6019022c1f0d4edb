"""The engine over gRPC: one stream per generation, and one control stream for the lease, aborts and pings.

It uses gRPC itself, since tritonclient's own wrapper can't ask for the empty final response and hides errors of its
request iterator.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from collections.abc import AsyncGenerator, AsyncIterator
from itertools import chain
from typing import Any

import grpc

from frontend.engine import messages
from frontend.engine.call import Call
from omni.contract.chunk import Chunk
from omni.contract.errors import OmniError, StageFailed, TimedOut, Unavailable
from omni.contract.job import Job
from omni.contract.names import ENSEMBLES, OMNI, OMNI_TEXT
from omni.contract.order import InOrder
from omni.contract.tensors import Control

log = logging.getLogger(__name__)

PING_S = 0.5
"""How often each stage is asked for a sign of life."""
LAST_ABORTS_S = 1.0
"""How long closing waits for the aborts to be written, and for what they ended to close."""
CONNECT_BACKOFF_S = (0.1, 0.2, 0.5, 1.0)
MAX_CONTROLS = 4096
"""Control requests that may wait to be written."""

_GONE = "The model server went away while it answered."

_CHANNEL = [
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.use_local_subchannel_pool", 1),
]


class TritonEngine:
    """Generations on one Triton server, as `frontend.engine.base.Engine`."""

    def __init__(
        self,
        url: str,
        *,
        speech: bool = True,
        silence_timeout_s: float = 60.0,
        frozen_timeout_s: float = 15.0,
        connect_timeout_s: float = 2.0,
    ) -> None:
        """`url` is host:port of Triton's gRPC service; `speech` says whether the talker and code2wav are served."""
        self._url = url
        self._stages = ENSEMBLES[OMNI if speech else OMNI_TEXT]
        self._silence = silence_timeout_s
        self._frozen = frozen_timeout_s
        self._connect = connect_timeout_s
        self._channel: Any = None
        self._infer: Any = None
        self._lease: str | None = None
        self._leased = asyncio.Event()
        self._controls: asyncio.Queue[bytes] = asyncio.Queue(MAX_CONTROLS)
        self._running: dict[str, Call] = {}
        self._control: asyncio.Task[None] | None = None
        self._streams: set[asyncio.Task[None]] = set()
        """Those of all generations that Triton hasn't ended."""

    @property
    def alive(self) -> bool:
        """Whether every stage holds this front door's lease and answers its pings."""
        return self._lease is not None

    @property
    def running(self) -> int:
        """Generations under way."""
        return len(self._running)

    async def start(self) -> None:
        self._channel = grpc.aio.insecure_channel(self._url, options=_CHANNEL)
        self._infer = self._channel.stream_stream(
            "/inference.GRPCInferenceService/ModelStreamInfer", response_deserializer=messages.read_stream
        )
        self._control = asyncio.create_task(self._keep_lease(), name="triton control")

    async def close(self) -> None:
        for id in list(self._running):
            self._abort(id)
        self._fail_running(Unavailable("The server is stopping."))
        if self.alive:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LAST_ABORTS_S):
                    await self._controls.join()
                    while self._streams:
                        await asyncio.wait(self._streams)
        tasks = [*self._streams, *(() if self._control is None else (self._control,))]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()

    async def generate(self, job: Job) -> AsyncGenerator[Chunk, None]:
        trace = job.settings.trace
        metadata = None if trace is None else (("traceparent", trace),)  # for Triton's own spans
        requests = messages.requests(job, await self._wait_for_lease())
        if job.id in self._running:
            raise OmniError("A generation of this id is already running.")
        # gRPC asks for the next request when it has sent the one before, and lets the event loop run meanwhile.
        call = Call(self._infer(chain((next(requests),), requests), metadata=metadata), f"stream {job.id}")
        self._running[job.id] = call
        self._streams.add(call.stream)
        call.stream.add_done_callback(self._streams.discard)
        ended = False
        order: InOrder[messages.Answer] = InOrder()
        try:
            while not ended:
                read = messages.read(await self._next(job, call))
                if read is None:
                    continue
                for answer in order.push(*read):
                    if answer.error is not None:
                        ended = True
                        raise answer.error
                    ended = answer.eos
                    yield answer.chunk
        finally:
            del self._running[job.id]
            requests.close()
            if not ended:
                self._abort(job.id)
            call.leave()

    async def _next(self, job: Job, call: Call) -> Any:
        """The next response of a stream. Raises an `OmniError` instead of anything of gRPC's."""
        try:
            message = await call.read()
        except grpc.aio.AioRpcError as problem:
            log.warning("the stream of a generation failed: %s", problem.code().name, extra={"generation": job.id})
            raise Unavailable(_GONE) from None
        if message is grpc.aio.EOF:
            raise StageFailed("The answer ended before it was complete.")
        if message.error_message:
            told = {"generation": job.id, "said": message.error_message}
            log.warning("the model server refused or broke a generation", extra=told)
            raise StageFailed("The model server could not answer the request.")
        return message.infer_response

    async def _wait_for_lease(self) -> str:
        if self._lease is None:
            # Not wait_for: in Python 3.11 it can lose a cancellation that comes together with the event.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._connect):
                    await self._leased.wait()
        if self._lease is None:
            raise Unavailable("The model server is not available.")
        return self._lease

    def _abort(self, id: str) -> None:
        for stage in self._stages:
            self._tell(stage, Control("abort", id))

    def _tell(self, stage: str, control: Control) -> None:
        # A full queue means that the control stream is dead: the lost lease will end everything by itself.
        with contextlib.suppress(asyncio.QueueFull):
            self._controls.put_nowait(messages.control(stage, control))

    def _fail_running(self, error: OmniError) -> None:
        for call in self._running.values():
            call.fail(error)

    # -- the control stream

    async def _keep_lease(self) -> None:
        """Hold a lease in every stage for as long as the front door lives; make a new one when it is lost."""
        tries = 0
        while True:
            try:
                await self._hold_lease()
                problem: str = "ended"
            except grpc.aio.AioRpcError as failure:
                problem = failure.code().name
            except OmniError as failure:
                problem = failure.message
            if self._lease is not None:
                log.warning("the model server was lost: %s", problem)
                tries = 0
            self._lease = None
            self._leased.clear()
            while not self._controls.empty():
                self._controls.get_nowait()
                self._controls.task_done()
            self._fail_running(Unavailable(_GONE))
            await asyncio.sleep(CONNECT_BACKOFF_S[min(tries, len(CONNECT_BACKOFF_S) - 1)])
            tries += 1

    async def _hold_lease(self) -> None:
        lease = uuid.uuid4().hex
        call = self._infer(self._control_requests(lease))
        missing = set(self._stages)
        heard = dict.fromkeys(self._stages, asyncio.get_running_loop().time())
        pings = asyncio.create_task(self._ping(heard, call), name="triton pings")
        try:
            async for message in call:
                if message.error_message:
                    raise StageFailed(message.error_message)
                stage = message.infer_response.model_name
                heard[stage] = asyncio.get_running_loop().time()
                if message.infer_response.id == lease and stage in missing:
                    answer = messages.read(message.infer_response)
                    if answer is not None and answer[1].error is not None:
                        raise answer[1].error
                    missing.discard(stage)
                    if not missing:
                        self._lease = lease
                        self._leased.set()
        except asyncio.CancelledError:
            # A call that `_ping` cancelled looks like a task that somebody cancelled.
            task = asyncio.current_task()
            if pings.done() and task is not None and not task.cancelling():
                raise TimedOut("A stage doesn't answer.") from None
            raise
        finally:
            pings.cancel()
            call.cancel()

    async def _control_requests(self, lease: str) -> AsyncIterator[bytes]:
        for stage in self._stages:
            yield messages.control(stage, Control("lease", lease))
        while True:
            request = await self._controls.get()
            yield request
            self._controls.task_done()

    async def _ping(self, heard: dict[str, float], control: Any) -> None:
        """Ask every stage for a sign of life; a stage that is silent for too long is frozen, and ends the lease.

        A generation of which nothing is heard for too long is given up, though its stages live.
        """
        while True:
            await asyncio.sleep(PING_S)
            now = asyncio.get_running_loop().time()
            for call in self._running.values():
                if call.waited() > self._silence:
                    call.fail(TimedOut("Nothing was heard from the model in time."))
            for stage in self._stages:
                self._tell(stage, Control("ping"))
            if now - min(heard.values()) > self._frozen:
                log.warning("the stage %s doesn't answer", min(heard, key=lambda stage: heard[stage]))
                control.cancel()
                return
