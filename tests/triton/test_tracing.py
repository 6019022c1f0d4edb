"""One trace, from the front door's turn to every stage."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from support.ask import answer, job

from frontend.engine.triton import TritonEngine
from omni.contract.names import STAGES
from omni.launch.server import EmbeddedTriton

pytestmark = [pytest.mark.triton, pytest.mark.anyio]
TRACE = "0af7651916cd43dd8448eb211c80319c"
TURN = "b7ad6b7169203331"


class Collector(http.server.ThreadingHTTPServer):
    """Takes spans over OTLP, as a collector does."""

    def __init__(self) -> None:
        self.requests: list[ExportTraceServiceRequest] = []
        super().__init__(("127.0.0.1", 0), Handler)


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, Collector)
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.headers.get("content-encoding") is None:
            self.server.requests.append(ExportTraceServiceRequest.FromString(body))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


async def test_every_stage_adds_its_span(collector: Collector, tmp_path: Path) -> None:
    env = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{collector.server_port}"}
    with EmbeddedTriton(profile="dummy", home=tmp_path, env=env) as server:
        engine = TritonEngine(server.grpc_url, connect_timeout_s=10)
        await engine.start()
        asked = job("one two three", speech=True)
        object.__setattr__(asked.settings, "trace", f"00-{TRACE}-{TURN}-01")
        await answer(engine, asked)
        await answer(engine, job("not traced", speech=True))
        await engine.close()
    spans = [
        (resource.resource.attributes[0], span)
        for request in collector.requests
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]
    assert sorted(span.name for _, span in spans) == sorted(STAGES)
    began = {}
    for _, span in spans:
        assert span.trace_id.hex() == TRACE
        assert span.parent_span_id.hex() == TURN
        assert span.start_time_unix_nano <= span.events[0].time_unix_nano <= span.end_time_unix_nano
        began[span.name] = span.start_time_unix_nano
    assert sorted(began, key=lambda name: began[name]) == list(STAGES)
