"""The application: everything is made here, once, and handed to the routes as `app.state`."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from time import monotonic, time
from typing import Final

import anyio.to_thread
from fastapi import FastAPI
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware

from frontend.access import Access
from frontend.admission import Admission
from frontend.auth import Auth, load_keys
from frontend.body_limit import BodyLimit
from frontend.client_secrets import ClientSecrets
from frontend.drain import Refusal
from frontend.ear import hear_all
from frontend.engine.balanced import BalancedEngine
from frontend.engine.base import Engine
from frontend.engine.fake import FakeEngine
from frontend.errors import install
from frontend.health import Health
from frontend.hearing import Hearing
from frontend.media import vad
from frontend.media.fetch import Fetcher, FetchLimits
from frontend.media.sources import Sources
from frontend.metrics import VERSION, Metrics
from frontend.request_id import RequestId
from frontend.routes import audio, chat, health, models, playground, realtime, video
from frontend.settings import Settings
from frontend.tracing import Traced, TracedEngine, Tracing, make_tracing
from omni.profile import Profile, load_profile

WORKERS: Final = 4
"""Threads for what sessions find too long for the event loop: pictures."""
NICENESS: Final = 10
"""By how much these threads step back when the event loop wants their core."""


def make_engine(settings: Settings, profile: Profile) -> Engine:
    """The engine that the settings name."""
    if settings.engine == "fake":
        return FakeEngine()
    from frontend.engine.triton import TritonEngine

    engines = {
        url: TritonEngine(url, speech=profile.speech, silence_timeout_s=settings.generation_timeout)
        for url in settings.triton_url
    }
    return next(iter(engines.values())) if len(engines) == 1 else BalancedEngine(engines)


def make_sources(settings: Settings) -> Sources:
    """Where media may come from, as the settings have it."""
    limits = FetchLimits(
        seconds=settings.media_url_timeout,
        redirects=settings.media_url_redirects,
        ports=frozenset(settings.media_url_ports),
        private_hosts=frozenset(host.lower() for host in settings.media_url_hosts),
    )
    return Sources(Fetcher(limits) if settings.media_urls else None, settings.media_folder, settings.media_fetches)


def create_app(settings: Settings, engine: Engine | None = None, tracing: Tracing | None = None) -> FastAPI:
    """The front door, for any ASGI server.

    `app.state` has settings, profile, models (the names that clients may use), engine, admission, metrics, health and
    created (Unix time), began (steady clock). Raises `SettingsError` or `ProfileError`.
    """
    profile = load_profile(settings.profile)
    names = settings.model_names(profile.model)
    keys = load_keys(settings)
    secrets = ClientSecrets()
    engine = engine or make_engine(settings, profile)
    metrics = Metrics(model=names[0], profile=profile.name, speech=profile.speech)
    admission = Admission(
        generations=settings.max_in_flight,
        sessions=settings.max_sessions,
        media_bytes=settings.max_media_bytes,
        on_refusal=lambda reason: metrics.admission_rejections.labels(reason).inc(),
    )
    metrics.watch("omni_media_bytes", "Bytes of media that wait for Triton.", lambda: admission.media_bytes)
    if isinstance(engine, BalancedEngine):
        members = engine
        metrics.watch("omni_triton_servers_up", "Triton servers that answer.", lambda: members.members_alive)
    state = Health(engine, settings, metrics, admission)
    if (tracing := tracing or make_tracing(settings)) is not None:
        engine = TracedEngine(engine, tracing.tracer)  # below the health's own, which would be noise
    workers = ThreadPoolExecutor(WORKERS, thread_name_prefix="session", initializer=_step_back)
    hearing = Hearing(hear_all)
    sources = make_sources(settings)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await engine.start()
        workers.submit(vad.model)  # so that the first session needn't wait for it
        await anyio.to_thread.run_sync(time)  # what threads need is imported with the first, for tens of milliseconds
        state.start()
        try:
            yield
        finally:
            await state.stop()
            await engine.close()
            await sources.close()
            workers.shutdown(wait=False, cancel_futures=True)
            hearing.close()
            if tracing is not None:
                await tracing.close()

    middleware = [Middleware(RequestId), Middleware(Access, metrics=metrics)]
    if tracing is not None:
        middleware.insert(1, Middleware(Traced, tracer=tracing.tracer))
    if settings.allowed_origins:
        middleware.append(
            Middleware(
                CORSMiddleware,
                allow_origins=settings.allowed_origins,
                allow_methods=["GET", "POST", "OPTIONS"],
                allow_headers=["*"],
                expose_headers=["x-request-id", "retry-after"],
            )
        )
    middleware.append(Middleware(Refusal, admission=admission, retry_after_s=settings.retry_after_s))
    if keys:
        middleware.append(Middleware(Auth, keys=keys, client_secrets=secrets))
    middleware.append(Middleware(BodyLimit, limit=settings.max_body_bytes))

    docs = not settings.disable_docs
    app = FastAPI(
        title="Omni server",
        version=VERSION,
        summary="Text, images, sound and video in; text and speech out.",
        lifespan=lifespan,
        middleware=middleware,
        docs_url="/docs" if docs else None,
        redoc_url="/redoc" if docs else None,
        openapi_url="/openapi.json" if docs else None,
        swagger_ui_oauth2_redirect_url=None,
    )
    app.state.settings = settings
    app.state.profile = profile
    app.state.models = names
    app.state.engine = engine
    app.state.admission = admission
    app.state.metrics = metrics
    app.state.sources = sources
    app.state.health = state
    app.state.client_secrets = secrets
    app.state.workers = workers
    app.state.hearing = hearing
    app.state.video = video.deployment_of(app.state)
    app.state.created = time()
    app.state.began = monotonic()
    install(app)
    for module in (health, models, chat, audio, realtime, video):
        app.include_router(module.router)
    if not settings.disable_playground:
        app.include_router(playground.router)
    return app


def _step_back() -> None:
    """On Linux each thread has a priority of its own."""
    if sys.platform == "linux":
        thread = threading.get_native_id()
        os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + NICENESS)
