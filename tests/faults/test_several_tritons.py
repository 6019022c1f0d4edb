"""Three Triton servers behind one front door; one is killed and one frozen under load."""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, aclosing

import psutil
import pytest
from support.ask import job
from support.stages import seconds_until

from frontend.engine.balanced import BalancedEngine
from frontend.engine.triton import TritonEngine
from omni.contract.errors import OmniError, TimedOut, Unavailable
from omni.launch.server import EmbeddedTriton

pytestmark = [pytest.mark.fault, pytest.mark.anyio]
CLIENTS = 12
FROZEN_S = 3.0
"""Silence after which an engine takes its stages for frozen; the default is longer."""
PACE = {"thinker": {"token_interval_ms": 20.0}}


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[EmbeddedTriton]]:
    with ExitStack() as stack:
        servers = [EmbeddedTriton(home=tmp_path_factory.mktemp(f"triton{n}"), exit_timeout=1) for n in range(3)]
        for server in servers:
            server.start()
            stack.callback(server.kill)
        for server in servers:
            server.wait_ready()
        yield servers


@pytest.fixture
async def engine(servers: list[EmbeddedTriton]) -> AsyncIterator[BalancedEngine]:
    engine = BalancedEngine(
        {one.grpc_url: TritonEngine(one.grpc_url, frozen_timeout_s=FROZEN_S, connect_timeout_s=10) for one in servers}
    )
    await engine.start()
    await until(lambda: engine.members_alive == 3, 60)
    yield engine
    await engine.close()


async def until(condition: Callable[[], bool], seconds: float) -> None:
    """Raises TimeoutError."""
    async with asyncio.timeout(seconds):
        while True:
            if condition():
                return
            await asyncio.sleep(0.05)


class Load:
    """Clients that ask again and again, and what became of it."""

    def __init__(self, engine: BalancedEngine) -> None:
        self._engine = engine
        self.outcomes: Counter[str] = Counter()
        self.stopping = False
        self._tasks = [asyncio.create_task(self._client(), name=f"client {n}") for n in range(CLIENTS)]

    async def _client(self) -> None:
        while not self.stopping:
            begun = False
            try:
                async with aclosing(self._engine.generate(job("word " * 100, speech=True, stage=PACE))) as chunks:
                    async for chunk in chunks:
                        begun = begun or bool(chunk.text or chunk.audio)
                self.outcomes["completed"] += 1
            except (Unavailable, TimedOut):
                self.outcomes["failed after it began" if begun else "lost"] += 1
            except OmniError as error:
                self.outcomes[f"untyped {error.code}"] += 1

    async def stop(self) -> None:
        self.stopping = True
        await asyncio.wait_for(asyncio.gather(*self._tasks), 60)


async def test_one_killed_and_one_frozen_under_load(servers: list[EmbeddedTriton], engine: BalancedEngine) -> None:
    killed, frozen, healthy = servers
    load = Load(engine)
    await until(lambda: all(engine.active.values()), 20)
    await asyncio.sleep(1)  # in the middle of answers
    processes = [psutil.Process(frozen.pid), *psutil.Process(frozen.pid).children(recursive=True)]

    killed.kill()
    for process in processes:
        process.send_signal(signal.SIGSTOP)
    began = time.monotonic()
    await until(lambda: engine.members_alive == 1, FROZEN_S + 15)
    ejected_after = time.monotonic() - began
    before = load.outcomes["completed"]
    await until(lambda: load.outcomes["completed"] > before and engine.active[healthy.grpc_url] == CLIENTS, 15)
    assert engine.active[killed.grpc_url] == engine.active[frozen.grpc_url] == 0

    for process in processes:
        process.send_signal(signal.SIGCONT)
    killed.start()
    await asyncio.to_thread(killed.wait_ready)
    await until(lambda: engine.members_alive == 3 and all(engine.active.values()), 30)
    await load.stop()

    assert load.outcomes["lost"] == 0, load.outcomes
    assert not [kind for kind in load.outcomes if kind.startswith("untyped")]
    assert 0 < load.outcomes["failed after it began"] <= CLIENTS
    assert load.outcomes["completed"] >= CLIENTS
    assert ejected_after < FROZEN_S + 10

    for server in servers:
        await asyncio.to_thread(seconds_until, server.metrics_url)
