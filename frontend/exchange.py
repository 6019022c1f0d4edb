"""One HTTP request for a generation: what it holds from its first byte to the last one of its answer."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import ExitStack, aclosing
from types import TracebackType
from typing import Any, Self

import anyio.to_thread
from fastapi import Request
from starlette.responses import Response

from frontend.disconnect import while_connected
from frontend.errors import INTERNAL, stream_event
from frontend.media.limits import MediaLimits
from frontend.metrics import VERSION
from frontend.openai.from_chunks import DONE, Answer, Envelope, event
from frontend.sse import EventStream
from frontend.stream import ByteStream
from omni.contract.errors import OmniError
from omni.contract.job import Job

SMALL_BODY = 64 * 1024
"""Bytes up to which a body doesn't count as media."""


class Exchange:
    """A context manager: it counts a turn, and gives back all tickets in the end. A stream takes them along."""

    def __init__(self, request: Request, endpoint: str) -> None:
        """`endpoint` is the label of its metrics."""
        self.request = request
        self._state: Any = request.app.state
        self._turn = self._state.metrics.turn(endpoint)
        self._held = ExitStack()
        self._held.callback(self._turn.end, "cancelled")  # an end that was told before counts
        self._media = self._held.enter_context(ExitStack())
        announced = request.headers.get("content-length", "")
        self._announced = int(announced) if announced.isdigit() else None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, OmniError):
            self._turn.fail(error)
        self._held.close()

    @property
    def limits(self) -> MediaLimits:
        settings = self._state.settings
        return MediaLimits(
            item_bytes=settings.max_media_item_bytes,
            request_bytes=settings.max_body_bytes,
            parts=settings.max_media_parts,
            image_pixels=settings.max_image_pixels,
        )

    def claim(self, size: int) -> None:
        """Media of `size` bytes are about to be held, until Triton has them. Raises `Overloaded` or `TooLarge`."""
        self._media.enter_context(self._state.admission.admit_media(size))

    def claim_body(self) -> None:
        """The same for the whole body, when its length is announced and more than a little."""
        if self._announced is not None and self._announced > SMALL_BODY:
            self.claim(self._announced)

    def claim_piece(self, size: int) -> None:
        """The same for a piece of a body whose length isn't announced."""
        if self._announced is None:
            self.claim(size)

    def admit(self) -> None:
        """A generation is about to be made. Raises `Overloaded` or `Unavailable`."""
        self._held.enter_context(self._state.admission.admit("generation"))

    def envelope(self, job: Job) -> Envelope:
        return Envelope(id=job.id, created=int(time.time()), version=VERSION)

    def events(self, job: Job, answer: Answer) -> Response:
        """The answer as server-sent events."""
        settings = self._state.settings
        return EventStream(
            self._pieces(job, answer),
            self._last_event,
            held=self._held.pop_all(),
            keep_alive_s=settings.sse_keep_alive,
            buffer_bytes=settings.sse_buffer_bytes,
        )

    def stream(self, job: Job, answer: Answer, media_type: str) -> Response:
        """The answer as bytes, as they are made. A failure after the first of them breaks the connection."""
        return ByteStream(
            self._pieces(job, answer),
            self._no_last_piece,
            media_type=media_type,
            held=self._held.pop_all(),
            buffer_bytes=self._state.settings.sse_buffer_bytes,
        )

    async def whole(self, job: Job, answer: Answer, media_type: str = "application/json") -> Response:
        """The answer in one piece."""
        body = await while_connected(self.request.receive, _joined(self._pieces(job, answer)))
        return Response(body, media_type=media_type)

    async def _pieces(self, job: Job, answer: Answer) -> AsyncGenerator[bytes, None]:
        """What `answer` makes of the chunks of `job` and of their end. With the first, the media are delivered."""
        waiting, slow_sound, turn = True, answer.slow_sound, self._turn
        self.request.state.generation = job.id
        try:
            async with aclosing(self._state.engine.generate(job)) as chunks:
                async for chunk in chunks:
                    if waiting:
                        waiting = False
                        self._media.close()
                    turn.chunk(chunk)
                    if slow_sound and chunk.audio:
                        yield await anyio.to_thread.run_sync(answer.feed, chunk)
                    else:
                        yield answer.feed(chunk)
        except Exception as error:
            turn.fail(error)
            raise
        turn.end("completed")
        yield await anyio.to_thread.run_sync(answer.finish) if answer.slow_end else answer.finish()

    def _broken(self, error: Exception) -> OmniError:
        """Tells everybody but the client of a failure after the first byte."""
        known = error if isinstance(error, OmniError) else INTERNAL
        self._state.health.report(known)
        self.request.state.error = known.code
        return known

    def _last_event(self, error: Exception) -> bytes:
        return event(stream_event(self._broken(error))) + DONE

    def _no_last_piece(self, error: Exception) -> None:
        self._broken(error)


async def _joined(pieces: AsyncGenerator[bytes, None]) -> bytes:
    async with aclosing(pieces):
        return b"".join([piece async for piece in pieces])
