"""The stages' spans: one per traced generation and stage, under the span of the front door's turn.

They go where OTEL_EXPORTER_OTLP_ENDPOINT says. Without that variable, or without the extra `tracing`, there are none.
"""

from __future__ import annotations

import importlib.util
import os
import time
from typing import Any

from omni.runtime.generations import Life

ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
SDK = "opentelemetry.sdk"


def wanted() -> bool:
    """Whether this process is to export spans, and can."""
    named = any(os.environ.get(name) for name in ENDPOINTS)
    return named and importlib.util.find_spec("opentelemetry") is not None and importlib.util.find_spec(SDK) is not None


class Spans:
    """Makes a span of each `Life`."""

    def __init__(self, stage: str, exporter: Any = None) -> None:
        """`exporter` is a span exporter of OpenTelemetry; None is the one over HTTP, if that is wanted."""
        self._stage = stage
        self._provider: Any = None
        if exporter is None and not wanted():
            return
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        if exporter is None:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

            exporter = OTLPSpanExporter()
        service = os.environ.get("OTEL_SERVICE_NAME", "omni")
        resource = Resource.create({"service.name": f"{service}-{stage}"})
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("omni")

    def record(self, life: Life) -> None:
        """Times of the steady clock, which is `time.monotonic`, become times of day."""
        if self._provider is None:
            return
        from opentelemetry.trace import Status, StatusCode
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        wall = time.time_ns() - time.monotonic_ns()
        span = self._tracer.start_span(
            self._stage,
            TraceContextTextMapPropagator().extract({"traceparent": life.trace}),
            start_time=wall + int(life.began * 1e9),
            attributes={"omni.generation": life.id, "omni.outcome": life.outcome},
        )
        span.add_event("first output", timestamp=wall + int(life.first_sent * 1e9))
        if life.outcome == "failed":
            span.set_status(Status(StatusCode.ERROR))
        span.end(wall + int(life.ended * 1e9))

    def close(self) -> None:
        """Send what waits."""
        if self._provider is not None:
            self._provider.shutdown()
