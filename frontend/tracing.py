"""Traces: a span per request or session, one per turn under it, and the W3C context handed on to the stages.

Off unless `trace_sample` is set. Spans go where the OTEL_EXPORTER_OTLP_* variables say, and hold no user content.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Final

from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, set_span_in_context, use_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from frontend import request_id
from frontend.access import QUIET_PATHS
from frontend.engine.base import Engine
from frontend.settings import Settings, SettingsError
from omni.contract.chunk import Chunk
from omni.contract.errors import OmniError
from omni.contract.job import Job

_W3C: Final = TraceContextTextMapPropagator()
_HEADERS: Final = ("traceparent", "tracestate")


class Tracing:
    """Makes spans and sends them, on a thread of its own."""

    def __init__(self, sample: float, exporter: Any = None) -> None:
        """`sample` is the share of requests that is traced when the client's own context doesn't say; `exporter` is a
        span exporter of OpenTelemetry, None the one over HTTP. Raises `SettingsError` without the extra `tracing`."""
        try:
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
            from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

            if exporter is None:
                from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

                exporter = OTLPSpanExporter()
        except ImportError:
            raise SettingsError("trace_sample: tracing needs pip install 'omni-server[tracing]'") from None
        resource = Resource.create({"service.name": os.environ.get("OTEL_SERVICE_NAME", "omni")})
        sampler = ParentBased(TraceIdRatioBased(sample))
        self._provider = TracerProvider(sampler=sampler, resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self.tracer: Tracer = self._provider.get_tracer("omni")

    async def close(self) -> None:
        """Send what waits."""
        await asyncio.to_thread(self._provider.shutdown)


def make_tracing(settings: Settings) -> Tracing | None:
    """None when tracing is off. Raises `SettingsError`."""
    return Tracing(settings.trace_sample) if settings.trace_sample else None


class Traced:
    """ASGI middleware: a span around each request and each WebSocket, below the client's own if it sent a context."""

    def __init__(self, app: ASGIApp, tracer: Tracer) -> None:
        self.app = app
        self._tracer = tracer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "").removeprefix(scope.get("root_path", ""))
        if scope["type"] not in ("http", "websocket") or path in QUIET_PATHS:
            return await self.app(scope, receive, send)
        method = scope.get("method", "WEBSOCKET")
        span = self._tracer.start_span(method, _W3C.extract(_carrier(scope)), SpanKind.SERVER)

        async def watched(message: Message) -> None:
            if message["type"] in ("http.response.start", "websocket.http.response.start"):
                span.set_attribute("http.response.status_code", message["status"])
                if message["status"] >= 500:
                    span.set_status(Status(StatusCode.ERROR))
            await send(message)

        with use_span(span, end_on_exit=True, record_exception=False):
            try:
                await self.app(scope, receive, watched)
            finally:
                # Only now the router has told the route; the path itself may hold what a client made up.
                route = getattr(scope.get("route"), "path", "other")
                span.update_name(f"{method} {route}")
                span.set_attributes({"http.request.method": method, "http.route": route})
                span.set_attribute("omni.request_id", request_id.current())
        return None


def _carrier(scope: Scope) -> Mapping[str, str]:
    headers = ((name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"])
    return {name: value for name, value in headers if name in _HEADERS}


class TracedEngine:
    """An `Engine` that puts a span around each generation and hands its context to the stages."""

    def __init__(self, engine: Engine, tracer: Tracer) -> None:
        self._engine = engine
        self._tracer = tracer

    @property
    def alive(self) -> bool:
        return self._engine.alive

    async def start(self) -> None:
        await self._engine.start()

    async def close(self) -> None:
        await self._engine.close()

    async def generate(self, job: Job) -> AsyncGenerator[Chunk, None]:
        kind = "prefill" if job.settings.prefill else "turn"
        span = self._tracer.start_span(kind, kind=SpanKind.CLIENT)
        if not span.is_recording():
            chunks = self._engine.generate(job)
        else:
            span.set_attributes({"omni.generation": job.id, "omni.model": job.model})
            settings = replace(job.settings, trace=_traceparent(set_span_in_context(span)))
            chunks = self._engine.generate(replace(job, settings=settings))
        notes, outcome = _Notes(span), "cancelled"
        try:
            async with aclosing(chunks):
                async for chunk in chunks:
                    notes.see(chunk)
                    yield chunk
            outcome = "completed"
        except OmniError as error:
            outcome = error.code
            span.set_status(Status(StatusCode.ERROR, error.code))
            raise
        finally:
            notes.end(outcome)


def _traceparent(context: Context) -> str:
    carrier: dict[str, str] = {}
    _W3C.inject(carrier, context)
    return carrier["traceparent"]


class _Notes:
    """The first text, the first sound and the usage of a turn, noted on its span."""

    def __init__(self, span: Span) -> None:
        self._span = span
        self._wrote = False
        self._seconds = 0.0

    def see(self, chunk: Chunk) -> None:
        if chunk.text and not self._wrote:
            self._wrote = True
            self._span.add_event("first text")
        if chunk.audio:
            if not self._seconds:
                self._span.add_event("first audio")
            self._seconds += chunk.audio_seconds
        if chunk.usage is not None:
            self._span.set_attribute("gen_ai.usage.input_tokens", chunk.usage.prompt_tokens)
            self._span.set_attribute("gen_ai.usage.output_tokens", chunk.usage.completion_tokens)

    def end(self, outcome: str) -> None:
        self._span.set_attributes({"omni.outcome": outcome, "omni.audio_seconds": self._seconds})
        self._span.end()
