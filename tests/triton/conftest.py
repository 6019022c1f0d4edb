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


@pytest.fixture
async def engine(triton: EmbeddedTriton) -> AsyncIterator[TritonEngine]:
    engine = TritonEngine(triton.grpc_url, connect_timeout_s=10)
    await engine.start()
    yield engine
    await engine.close()
