"""`/v1/realtime`: the WebSocket, the short-lived keys for browsers, and what the SGLang session profile can do."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from functools import partial
from time import time
from typing import Any, Final

from fastapi import APIRouter, Request, WebSocket
from starlette.responses import JSONResponse

from frontend.auth import offered
from frontend.client_secrets import DEFAULT_S, LEAST_S, MOST_S, ClientSecret
from frontend.drive import drive
from frontend.errors import RESPONSES, refuse
from frontend.generating import generate
from frontend.media.limits import MediaLimits
from frontend.protocol.fields import BadEvent, Fields
from frontend.protocol.realtime import Realtime
from frontend.protocol.realtime_config import Config, Offer, updated
from frontend.protocol.realtime_dialects import BETA, DIALECTS, OPENAI
from frontend.protocol.realtime_events import read
from frontend.protocol.realtime_limits import Limits
from frontend.protocol.realtime_profile import POLICY, SessionProfile
from frontend.protocol.realtime_profile_offer import DEFAULTS as PRESET
from frontend.protocol.realtime_profile_offer import NAME as PROFILE
from frontend.protocol.realtime_profile_offer import capabilities
from frontend.senses import FrontSenses, speaks_tones
from omni.contract.errors import InvalidRequest, OmniError, TooLarge, UnknownModel

ENDPOINT: Final = "realtime"
SUBPROTOCOL: Final = "realtime"
MAX_SECRET_BODY: Final = 64 * 1024
"""Bytes of a request for a client secret: the configuration of a session is kept with it."""

router = APIRouter()


@router.websocket("/v1/realtime")
async def realtime(ws: WebSocket) -> None:
    """A live conversation. `model`, `dialect` and `intent` may stand in the query."""
    state: Any = ws.app.state
    dialect = OPENAI.name
    with ExitStack() as held:
        try:
            dialect = _dialect(ws)
            model = _model(ws, state.models)
            held.enter_context(state.admission.admit("session"))
        except OmniError as error:
            if dialect == PROFILE and isinstance(error, InvalidRequest):
                return await _turn_away(ws, error)
            return await refuse(error, ws.scope, ws.receive, ws.send, state.settings.retry_after_s)
        secret: ClientSecret | None = state.client_secrets.find(offered(ws.scope))
        senses = FrontSenses(_images(state.settings), exact_alignment=speaks_tones(state.profile))
        limits, now = limits_of(state.settings), asyncio.get_running_loop().time()
        profiled, prefill = dialect == PROFILE, state.settings.realtime_prefill
        inner = Realtime(
            offer_of(state),
            limits,
            senses,
            now=now,
            created=time(),
            dialect=DIALECTS.get(dialect, OPENAI),
            prefill=prefill,
            ahead_s=state.profile.sound_block_s if prefill and state.profile.prefix_reuse else None,
            on_speech=lambda kind: state.metrics.vad_events.labels(kind).inc(),
            session={"model": model, **(PRESET if profiled else {}), **(secret.session if secret is not None else {})},
        )
        session = SessionProfile(inner, limits, now=now, engaged=profiled)
        gauge = state.metrics.sessions_active.labels(ENDPOINT)
        gauge.inc()
        held.callback(gauge.dec)
        await ws.accept(SUBPROTOCOL if SUBPROTOCOL in ws.scope["subprotocols"] else None)
        budget = state.settings.realtime_send_bytes
        answers = partial(generate, state, ENDPOINT)
        await drive(
            ws, session, state.engine, state.workers, send_budget=budget, generate=answers, hearing=state.hearing
        )
    return None


@router.post("/v1/realtime/client_secrets", responses=RESPONSES, tags=["realtime"])
async def client_secrets(request: Request) -> JSONResponse:
    """A short-lived key with which a browser may open a session, and that session's configuration."""
    state: Any = request.app.state
    body = await request.body()
    if len(body) > MAX_SECRET_BODY:
        raise TooLarge(f"The body may have {MAX_SECRET_BODY} bytes.")
    try:
        seconds, session = _wanted(Fields(read(body.decode("utf-8", "replace") or "{}")))
        config = updated(Config.default(offer_of(state)), Fields(session, "session"), offer_of(state))
    except BadEvent as problem:
        raise InvalidRequest(problem.message, param=problem.param) from None
    value, secret = state.client_secrets.make(seconds, session)
    shown = {"id": f"sess_{value[-12:]}", "object": "realtime.session", "expires_at": 0, **config.to_json()}
    return JSONResponse({"value": value, "expires_at": secret.expires_at, "session": shown})


@router.get("/v1/realtime/capabilities", responses=RESPONSES, tags=["realtime"])
async def session_profile(request: Request) -> JSONResponse:
    """What a session in the SGLang session profile can do."""
    state: Any = request.app.state
    profile = state.profile
    limits = limits_of(state.settings)
    return JSONResponse(capabilities(state.models[0], limits, speech=profile.speech, voices=profile.voices))


async def _turn_away(ws: WebSocket, error: OmniError) -> None:
    """What the session profile does for a session that can't be: it is opened, told why, and closed."""
    await ws.accept()
    words = {"type": "invalid_request_error", "code": error.code, "message": error.message, "param": error.param}
    event = {"type": "error", "sglang": {"fatal": True}, "error": {**words, "event_id": None}}
    await ws.send_json({**event, "event_id": "sglang_1"})
    await ws.close(POLICY, error.code)


def _wanted(fields: Fields) -> tuple[int, dict[str, Any]]:
    seconds = DEFAULT_S
    if (after := fields.object("expires_after")) is not None:
        after.choice("anchor", ("created_at",))
        seconds = after.whole("seconds", LEAST_S, MOST_S) or DEFAULT_S
        after.end()
    session = fields.raw("session")
    fields.end()
    Fields({} if session is None else session, "session")
    return seconds, dict(session or {})


def _dialect(ws: WebSocket) -> str:
    asked = ws.query_params.get("dialect")
    if asked is None:
        if "realtime=v1" in ws.headers.get("openai-beta", ""):
            return BETA.name
        asked = ws.app.state.settings.realtime_dialect
    names = (*DIALECTS, PROFILE)
    if asked not in names:
        raise InvalidRequest(f"dialect must be one of {', '.join(names)}.", param="dialect")
    return str(asked)


def _model(ws: WebSocket, models: tuple[str, ...]) -> str:
    if "session_id" in ws.query_params:
        raise InvalidRequest("Sessions can't be resumed.", param="session_id")
    if ws.query_params.get("intent", "conversation") != "conversation":
        raise InvalidRequest("intent must be conversation.", param="intent")
    model = ws.query_params.get("model") or models[0]
    if model not in models:
        raise UnknownModel("This server has no such model; GET /v1/models lists what it has.", param="model")
    return model


def offer_of(state: Any) -> Offer:
    profile = state.profile
    return Offer(
        models=state.models,
        voices=profile.voices,
        speech=profile.speech,
        instructions_chars=state.settings.realtime_instructions_chars,
    )


def limits_of(settings: Any) -> Limits:
    return Limits(
        buffer_s=settings.realtime_buffer_s,
        turn_s=settings.realtime_turn_s,
        items=settings.realtime_items,
        chars=settings.realtime_chars,
        media_bytes=settings.realtime_media_bytes,
        image_bytes=settings.realtime_image_bytes,
        frames=settings.realtime_frames,
        responses=settings.realtime_responses,
        idle_s=settings.realtime_idle_s,
        age_s=settings.realtime_age_s,
    )


def _images(settings: Any) -> MediaLimits:
    return MediaLimits(item_bytes=settings.realtime_image_bytes, image_pixels=settings.max_image_pixels)
