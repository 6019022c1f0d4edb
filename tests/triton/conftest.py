from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
from support.stages import seconds_until

from frontend.engine.triton import TritonEngine
from omni.launch.server import EmbeddedTriton


@pytest.fixture(autouse=True)
def nothing_stays_open(triton: EmbeddedTriton) -> Iterator[None]:
    """After every scenario each stage has let go of every generation and of every request."""
    yield
    seconds_until(triton.metrics_url)


@pytest.fixture(scope="session", autouse=True)
async def one_event_loop(anyio_backend: str) -> AsyncIterator[None]:
    """One event loop for all tests here: gRPC's poller may still report to the one of the test before."""
    yield  # noqa: PT022  the loop lives until the fixture ends


@pytest.fixture
async def engine(triton: EmbeddedTriton) -> AsyncIterator[TritonEngine]:
    engine = TritonEngine(triton.grpc_url, connect_timeout_s=10)
    await engine.start()
    yield engine
    await engine.close()
