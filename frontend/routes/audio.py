"""`POST /v1/audio/transcriptions` and `POST /v1/audio/speech`: jobs like any other, behind OpenAI's shapes."""

from __future__ import annotations

import uuid
from typing import Any

import anyio.to_thread
from fastapi import APIRouter, Request
from starlette.datastructures import FormData, UploadFile
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Message

from frontend.errors import RESPONSES
from frontend.exchange import Exchange
from frontend.media.check import check, too_large
from frontend.media.duration import duration
from frontend.media.limits import MediaLimits
from frontend.openai.requests import parse
from frontend.openai.responses import inline_schema
from frontend.openai.speech import SpeechRequest, SpokenEvents, SpokenFile, reading
from frontend.openai.speech_format import MEDIA_TYPES
from frontend.openai.transcription import FORMATS, Transcript, asked
from frontend.routes.chat import json_body
from omni.contract.errors import Cancelled, InvalidRequest
from omni.contract.job import MediaPart

MAX_FIELDS = 64
"""Most fields of a form beside its file."""
MAX_FIELD_BYTES = 64 * 1024
"""Longest of them."""

router = APIRouter(prefix="/v1/audio", tags=["audio"])

_EVENTS = {"text/event-stream": {"schema": {"type": "string"}}}
_FORM = {
    "type": "object",
    "required": ["file"],
    "properties": {
        "file": {"type": "string", "format": "binary", "description": "The sound, in any format that chat takes."},
        "model": {"type": "string"},
        "language": {"type": "string", "description": "ISO 639 code."},
        "prompt": {"type": "string", "description": "A text that the transcript follows in style."},
        "response_format": {"type": "string", "enum": list(FORMATS)},
        "temperature": {"type": "number"},
        "stream": {"type": "boolean"},
        "include[]": {"type": "array", "items": {"type": "string"}, "description": "logprobs"},
        "timestamp_granularities[]": {"type": "array", "items": {"type": "string"}, "description": "segment"},
    },
}
_TRANSCRIPT: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The transcript, or with `stream` its events.",
        "content": {
            "application/json": {"schema": {"type": "object", "required": ["text"]}},
            "text/plain": {"schema": {"type": "string"}},
            **_EVENTS,
        },
    }
}
_SOUND: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The sound file as it is made, or with `stream_format` sse its events.",
        "content": {
            **{name.split(";")[0]: {"schema": {"type": "string", "format": "binary"}} for name in MEDIA_TYPES.values()},
            **_EVENTS,
        },
    }
}


@router.post(
    "/transcriptions",
    summary="Write down what is said",
    responses={**_TRANSCRIPT, **RESPONSES},
    openapi_extra={"requestBody": {"required": True, "content": {"multipart/form-data": {"schema": _FORM}}}},
)
async def transcriptions(request: Request) -> Response:
    state = request.app.state
    with Exchange(request, "transcription") as exchange:
        async with _Form(request, exchange) as form:
            wanted = asked(form.texts, state.models)
            exchange.admit()
            data = await form.file(exchange.limits)
        sound, seconds = await anyio.to_thread.run_sync(_sound, data, exchange.limits)
        job = wanted.job(str(uuid.uuid4()), sound, seconds)
        answer = Transcript(wanted, seconds)
        if wanted.stream:
            return exchange.events(job, answer)
        plain = wanted.format == "text"
        return await exchange.whole(job, answer, "text/plain; charset=utf-8" if plain else "application/json")


def _sound(data: bytes, limits: MediaLimits) -> tuple[MediaPart, float]:
    check("audio", data, "file", limits)
    return MediaPart.of("audio", data, "file"), duration(data, "file")


class _Form:
    """The form of a request, while it is open."""

    def __init__(self, request: Request, exchange: Exchange) -> None:
        async def receive() -> Message:
            message = await request.receive()
            exchange.claim_piece(len(message.get("body", b"")))
            return message

        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "multipart/form-data":
            raise InvalidRequest("The body must be multipart/form-data.")
        exchange.claim_body()
        self._request = Request(request.scope, receive)
        self._form = FormData()

    async def __aenter__(self) -> _Form:
        try:
            self._form = await self._request.form(max_files=1, max_fields=MAX_FIELDS, max_part_size=MAX_FIELD_BYTES)
        except ClientDisconnect:
            raise Cancelled("The client left.") from None
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._form.close()

    @property
    def texts(self) -> dict[str, list[str]]:
        out: dict[str, list[str]] = {}
        for name, value in self._form.multi_items():
            if isinstance(value, str):
                out.setdefault(name, []).append(value)
        return out

    async def file(self, limits: MediaLimits) -> bytes:
        file = self._form.get("file")
        if not isinstance(file, UploadFile):
            raise InvalidRequest("file is required.", param="file")
        if (file.size or 0) > limits.item_bytes:
            raise too_large("file", limits)
        return await file.read()


@router.post(
    "/speech",
    summary="Read a text aloud",
    responses={**_SOUND, **RESPONSES},
    openapi_extra={
        "requestBody": {"required": True, "content": {"application/json": {"schema": inline_schema(SpeechRequest)}}}
    },
)
async def speech(request: Request) -> Response:
    state = request.app.state
    with Exchange(request, "speech") as exchange:
        body = parse(SpeechRequest, await json_body(request, exchange))
        wanted = reading(body, state.profile, state.models, state.settings.max_speech_chars)
        exchange.admit()
        job = wanted.job(str(uuid.uuid4()))
        if wanted.events:
            return exchange.events(job, SpokenEvents(wanted.format))
        return exchange.stream(job, SpokenFile(wanted.format), MEDIA_TYPES[wanted.format])
