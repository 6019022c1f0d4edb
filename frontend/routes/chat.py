"""`POST /v1/chat/completions`."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncGenerator
from contextlib import ExitStack, aclosing
from functools import partial
from typing import Any

import anyio.to_thread
from fastapi import APIRouter, Request
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from frontend.disconnect import while_connected
from frontend.engine.base import Engine
from frontend.errors import INTERNAL, RESPONSES, stream_event
from frontend.media.limits import MediaLimits
from frontend.media.resolve import resolve
from frontend.metrics import VERSION, Turn
from frontend.openai.body import JsonBody
from frontend.openai.from_chunks import DONE, ChatReply, ChatStream, Envelope, event
from frontend.openai.requests import ChatRequest, parse
from frontend.openai.responses import ChatAnswer, inline_schema
from frontend.openai.to_job import Wanted, draft
from frontend.sse import EventStream
from omni.contract.chunk import Chunk
from omni.contract.errors import Cancelled, OmniError
from omni.contract.job import Job

ENDPOINT = "chat"
SMALL_BODY = 64 * 1024
"""Bytes up to which a body doesn't count as media."""

router = APIRouter()

_OPENAPI = {"requestBody": {"required": True, "content": {"application/json": {"schema": inline_schema(ChatRequest)}}}}
_ANSWER: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The answer, or with `stream` its events.",
        "content": {
            "application/json": {"schema": inline_schema(ChatAnswer)},
            "text/event-stream": {"schema": {"type": "string"}},
        },
    }
}


@router.post("/v1/chat/completions", responses={**_ANSWER, **RESPONSES}, openapi_extra=_OPENAPI, tags=["chat"])
async def chat(request: Request) -> Response:
    """Answer a conversation of text, images, sound and video in text, or in text and speech."""
    state = request.app.state
    turn = state.metrics.turn(ENDPOINT)
    with ExitStack() as held:
        held.callback(turn.end, "cancelled")  # an end that was told before counts
        media = held.enter_context(ExitStack())
        try:
            job, wanted = await _job(request, held, media)
        except OmniError as error:
            turn.end("cancelled" if isinstance(error, Cancelled) else "failed", error.code)
            raise
        envelope = Envelope(id=job.id, created=int(time.time()), version=VERSION)
        chunks = _generate(state.engine, turn, job, media)
        if wanted.stream:
            return EventStream(
                _events(chunks, ChatStream(envelope, wanted)),
                partial(_failed, request),
                held=held.pop_all(),
                keep_alive_s=state.settings.sse_keep_alive,
                buffer_bytes=state.settings.sse_buffer_bytes,
            )
        body = await while_connected(request.receive, _whole(chunks, ChatReply(envelope, wanted)))
        return Response(body, media_type="application/json")


async def _job(request: Request, held: ExitStack, media: ExitStack) -> tuple[Job, Wanted]:
    """The job of a request, and a ticket for it on `held`; the tickets for its bytes go on `media`."""
    state = request.app.state
    body = parse(ChatRequest, await _body(request, media))
    plan = draft(body, state.profile, state.models)
    held.enter_context(state.admission.admit("generation"))
    parts = []
    if plan.references:
        parts = await while_connected(request.receive, resolve(plan.references, _limits(state.settings)))
    return plan.job(str(uuid.uuid4()), parts), plan.wanted


async def _body(request: Request, media: ExitStack) -> Any:
    admit = request.app.state.admission.admit_media
    announced = request.headers.get("content-length", "")
    if announced.isdigit() and int(announced) > SMALL_BODY:
        media.enter_context(admit(int(announced)))
    body = JsonBody()
    try:
        async for piece in request.stream():
            if not announced:
                media.enter_context(admit(len(piece)))
            body.feed(piece)
    except ClientDisconnect:
        raise Cancelled("The client left.") from None
    return body.finish()


def _limits(settings: Any) -> MediaLimits:
    return MediaLimits(
        item_bytes=settings.max_media_item_bytes,
        request_bytes=settings.max_body_bytes,
        parts=settings.max_media_parts,
        image_pixels=settings.max_image_pixels,
    )


async def _generate(engine: Engine, turn: Turn, job: Job, media: ExitStack) -> AsyncGenerator[Chunk, None]:
    """The chunks of `job`; `turn` is told of each and of the end. With the first one, the media have been delivered."""
    try:
        async with aclosing(engine.generate(job)) as chunks:
            waiting = True
            async for chunk in chunks:
                if waiting:
                    waiting = False
                    media.close()
                turn.chunk(chunk)
                yield chunk
    except Exception as error:
        code = error.code if isinstance(error, OmniError) else INTERNAL.code
        turn.end("cancelled" if isinstance(error, Cancelled) else "failed", code)
        raise
    turn.end("completed")


async def _events(chunks: AsyncGenerator[Chunk, None], stream: ChatStream) -> AsyncGenerator[bytes, None]:
    heavy = stream.heavy
    async with aclosing(chunks):
        async for chunk in chunks:
            if heavy and chunk.audio:
                yield await anyio.to_thread.run_sync(stream.feed, chunk)
            else:
                yield stream.feed(chunk)
    yield stream.finish()


async def _whole(chunks: AsyncGenerator[Chunk, None], reply: ChatReply) -> bytes:
    async with aclosing(chunks):
        async for chunk in chunks:
            reply.feed(chunk)
    return await anyio.to_thread.run_sync(reply.finish) if reply.heavy else reply.finish()


def _failed(request: Request, error: Exception) -> bytes:
    """The events of a failure after the first event."""
    known = error if isinstance(error, OmniError) else INTERNAL
    request.app.state.health.report(known)
    request.state.error = known.code
    return event(stream_event(known)) + DONE
