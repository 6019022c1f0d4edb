"""`POST /v1/chat/completions`."""

from __future__ import annotations

import uuid
from typing import Any

from fastapi import APIRouter, Request
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response

from frontend.disconnect import while_connected
from frontend.errors import RESPONSES
from frontend.exchange import Exchange
from frontend.media.resolve import resolve
from frontend.openai.body import JsonBody
from frontend.openai.from_chunks import ChatReply, ChatStream
from frontend.openai.requests import ChatRequest, bounded, parse
from frontend.openai.responses import ChatAnswer, inline_schema
from frontend.openai.to_job import Wanted, draft
from omni.contract.errors import Cancelled
from omni.contract.job import Job

ENDPOINT = "chat"

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
    with Exchange(request, ENDPOINT) as exchange:
        job, wanted = await _job(request, exchange)
        envelope = exchange.envelope(job)
        if wanted.stream:
            return exchange.events(job, ChatStream(envelope, wanted))
        return await exchange.whole(job, ChatReply(envelope, wanted))


_STORED: dict[str, Any] = {"object": "list", "data": [], "first_id": None, "last_id": None, "has_more": False}


@router.get("/v1/chat/completions", summary="Stored answers", responses={401: RESPONSES[401]}, tags=["chat"])
async def stored() -> JSONResponse:
    """Always none: answers aren't stored."""
    return JSONResponse(_STORED)


async def _job(request: Request, exchange: Exchange) -> tuple[Job, Wanted]:
    state = request.app.state
    body = await json_body(request, exchange)
    bounded(body, state.settings.max_message_parts)
    plan = draft(parse(ChatRequest, body), state.profile, state.models)
    exchange.admit()
    parts = []
    if plan.references:
        work = resolve(plan.references, exchange.limits, state.sources, exchange.claim)
        parts = await while_connected(request.receive, work)
    return plan.job(str(uuid.uuid4()), parts), plan.wanted


async def json_body(request: Request, exchange: Exchange) -> Any:
    """The body of a request, parsed. Raises `InvalidRequest`, `TooLarge`, `Overloaded` or `Cancelled`."""
    exchange.claim_body()
    body = JsonBody(request.app.state.settings.max_json_bytes)
    try:
        async for piece in request.stream():
            exchange.claim_piece(len(piece))
            body.feed(piece)
    except ClientDisconnect:
        raise Cancelled("The client left.") from None
    return body.finish()
