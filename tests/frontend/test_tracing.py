from __future__ import annotations

import io
import logging
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from support.front import client

from frontend import logs
from frontend.app import create_app
from frontend.engine.fake import FakeEngine
from frontend.settings import Settings
from frontend.tracing import Tracing, make_tracing
from omni.contract.chunk import Chunk
from omni.contract.errors import StageFailed
from omni.contract.params import Settings as Generation

pytestmark = [pytest.mark.process, pytest.mark.anyio]
TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"
SECRET = "secretword"


def ask(**fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": f"one {SECRET}"}], **fields}


async def traced(
    engine: FakeEngine, sample: float, path: str = "/v1/chat/completions", **request: Any
) -> dict[str, ReadableSpan]:
    """The spans of one request, by name."""
    exporter = InMemorySpanExporter()
    app = create_app(Settings(engine="fake", warmup=False), engine, Tracing(sample, exporter))
    async with client(app) as http:
        await http.request("POST" if "json" in request else "GET", path, **request)
    return {span.name: span for span in exporter.get_finished_spans()}


async def test_a_request_and_its_turn() -> None:
    engine = FakeEngine()
    body = ask(modalities=["text", "audio"], audio={"voice": "Ethan", "format": "wav"})
    spans = await traced(engine, 1, json=body, headers={"x-request-id": "mine"})
    request, turn = spans["POST /v1/chat/completions"], spans["turn"]
    assert request.parent is None
    assert turn.parent is not None
    assert turn.parent.span_id == request.context.span_id
    assert request.attributes is not None
    assert request.attributes["omni.request_id"] == "mine"
    assert request.attributes["http.response.status_code"] == 200
    assert turn.attributes is not None
    assert turn.attributes["omni.outcome"] == "completed"
    assert turn.attributes["gen_ai.usage.output_tokens"] == 2
    assert [event.name for event in turn.events] == ["first text", "first audio"]
    (run,) = engine.runs
    assert run.job.settings.trace is not None
    assert run.job.settings.trace.startswith(f"00-{turn.context.trace_id:032x}-{turn.context.span_id:016x}-")
    assert SECRET not in "".join(span.to_json() for span in spans.values())


@pytest.mark.parametrize(("flags", "expected"), [("01", True), ("00", False)])
async def test_the_client_decides_when_it_sends_a_context(flags: str, expected: bool) -> None:
    engine = FakeEngine()
    headers = {"traceparent": f"00-{TRACE}-{PARENT}-{flags}"}
    spans = await traced(engine, 1 - expected, json=ask(), headers=headers)
    assert bool(spans) == expected
    (run,) = engine.runs
    assert bool(run.job.settings.trace) == expected
    if expected:
        request = spans["POST /v1/chat/completions"]
        assert f"{request.context.trace_id:032x}" == TRACE
        assert request.parent is not None
        assert f"{request.parent.span_id:016x}" == PARENT


async def test_a_broken_context_is_as_none() -> None:
    spans = await traced(FakeEngine(), 1, json=ask(), headers={"traceparent": "00-zz-1-01"})
    assert spans["POST /v1/chat/completions"].parent is None


async def test_a_failure() -> None:
    spans = await traced(FakeEngine([Chunk(text="a"), StageFailed("x")]), 1, json=ask())
    assert not spans["turn"].status.is_ok
    assert not spans["POST /v1/chat/completions"].status.is_ok
    assert spans["turn"].attributes is not None
    assert spans["turn"].attributes["omni.outcome"] == "stage_failed"


async def test_probes_and_scrapes_are_not_traced() -> None:
    for path in ("/live", "/health", "/metrics"):
        assert not await traced(FakeEngine(), 1, path)


async def test_a_path_that_a_client_made_up_is_not_told() -> None:
    assert list(await traced(FakeEngine(), 1, f"/{SECRET}")) == ["GET other"]


async def test_off_by_default() -> None:
    settings = Settings(engine="fake", warmup=False)
    assert make_tracing(settings) is None
    engine = FakeEngine()
    async with client(create_app(settings, engine)) as http:
        headers = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
        assert (await http.post("/v1/chat/completions", json=ask(), headers=headers)).status_code == 200
    assert engine.runs[0].job.settings.trace is None


async def test_logs_name_the_trace() -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logs.JsonFormatter())
    logger = logging.getLogger("frontend.access")
    logger.addHandler(handler)
    before = logger.level
    logger.setLevel(logging.INFO)
    try:
        await traced(FakeEngine(), 1, json=ask(), headers={"traceparent": f"00-{TRACE}-{PARENT}-01"})
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
    assert f'"trace_id": "{TRACE}"' in stream.getvalue()


def test_the_context_travels_with_the_settings() -> None:
    assert "trace" not in Generation().dumps()
    assert Generation.loads(Generation(trace="00-a-b-01").dumps()).trace == "00-a-b-01"
