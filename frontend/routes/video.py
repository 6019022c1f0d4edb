"""`WS /v1/video/chat/stream`: live frames and sound in, answers about them out."""

from __future__ import annotations

import asyncio
import logging
import os
import uuid
from collections.abc import AsyncGenerator, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any, Final

import orjson
from fastapi import APIRouter, WebSocket

from frontend.auth import SUBPROTOCOL
from frontend.drive import drive
from frontend.generating import generate
from frontend.media.picture import look
from frontend.protocol.budget import Budget
from frontend.protocol.video import VideoSession
from frontend.protocol.video_deployment import Deployment, Limits
from frontend.protocol.video_sight import error
from omni.contract.chunk import Chunk
from omni.contract.errors import OmniError
from omni.contract.job import Job

log = logging.getLogger(__name__)

ENDPOINT: Final = "video"
OVERLOADED: Final = 1013

STREAMED: Final = "VLLM_VIDEO_ASYNC_CHUNK"
AUDIO_DELTA: Final = "VLLM_VIDEO_AUDIO_DELTA_MODE"
_SWITCHES: Final[Mapping[str, tuple[str, ...]]] = {STREAMED: ("on", "off"), AUDIO_DELTA: ("fast", "slow")}
"""Values of each variable, the default first."""

router = APIRouter()


class Switches:
    """The environment variables of the protocol, read for each turn; a value that there isn't counts as the default."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        self._environment = environment
        self._warned: set[str] = set()

    def read(self, name: str) -> str:
        values = _SWITCHES[name]
        value = self._environment.get(name, "").strip().lower() or values[0]
        if value in values:
            return value
        if name not in self._warned:
            self._warned.add(name)
            log.warning("%s must be %s; it counts as %s", name, " or ".join(values), values[0])
        return values[0]

    def streamed(self) -> bool:
        """Whether answers are sent as they come. Sound is always forwarded whole, so that its switch does nothing."""
        self.read(AUDIO_DELTA)
        return self.read(STREAMED) == "on"


def deployment_of(state: Any) -> Deployment:
    """What the sessions of an application are made from."""
    settings, profile = state.settings, state.profile
    frames = state.metrics.frames
    return Deployment(
        look=partial(look, max_pixels=settings.max_image_pixels),
        budget=Budget(settings.video_total_bytes),
        new_id=lambda: uuid.uuid4().hex,
        limits=Limits(
            config_timeout=settings.video_config_timeout,
            idle_timeout=settings.video_idle_timeout,
            frame_chars=settings.video_frame_chars,
            frames_bytes=settings.video_frames_bytes,
            audio_bytes=settings.video_audio_bytes,
            audio_overflow=settings.video_audio_overflow,
            text_chars=settings.video_text_chars,
            keep_newest=settings.video_keep_newest,
        ),
        voices=profile.voices,
        speech=profile.speech,
        prefill=settings.video_prefill and profile.prefix_reuse,
        streamed=Switches().streamed,
        on_frame=lambda outcome: frames.labels(outcome).inc(),
    )


@router.websocket("/v1/video/chat/stream")
async def video(ws: WebSocket) -> None:
    """A live video session; see docs/video.md for its events."""
    state: Any = ws.app.state
    await ws.accept(_subprotocol(ws.scope["subprotocols"]))
    with ExitStack() as held:
        try:
            held.enter_context(state.admission.admit("session"))
        except OmniError as refused:
            await ws.send_text(orjson.dumps(error(refused.message, refused.code, fatal=True)).decode())
            await ws.close(OVERLOADED, refused.code)
            return
        gauge = state.metrics.sessions_active.labels(ENDPOINT)
        gauge.inc()
        held.callback(gauge.dec)
        session = VideoSession(state.video, asyncio.get_running_loop().time())
        await drive(
            ws,
            session,
            state.engine,
            state.workers,
            send_budget=state.settings.video_send_bytes,
            generate=partial(_generate, state),
        )


def _generate(state: Any, job: Job) -> AsyncGenerator[Chunk, None]:
    """A prefill takes no ticket, since its session has one at most and loses it to every question."""
    chunks: AsyncGenerator[Chunk, None]
    chunks = state.engine.generate(job) if job.settings.prefill else generate(state, ENDPOINT, job)
    return chunks


def _subprotocol(offered: list[str]) -> str | None:
    """A browser that offers subprotocols, its key among them, wants one of them back; the key only if there is no
    other."""
    return min(offered, key=lambda one: one.startswith(SUBPROTOCOL), default=None)
