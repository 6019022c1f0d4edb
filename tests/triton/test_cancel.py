"""Stop means stop: in every stage, in every phase, within 250 ms."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import grpc
import pytest
from support.ask import answer, job
from support.stages import seconds_until, stage_metrics, until_held
from tritonclient.grpc import service_pb2, service_pb2_grpc

from frontend.engine.triton import TritonEngine
from omni.contract.errors import Unavailable
from omni.contract.names import THINKER
from omni.contract.tensors import Control
from omni.launch.server import EmbeddedTriton
from omni.runtime.loop import MAX_LEASES

pytestmark = [pytest.mark.triton, pytest.mark.anyio]

LIMIT_S = 0.25
SLOW_TEXT = {"thinker": {"token_interval_ms": 20.0}}
SLOW_SPEECH = {"code2wav": {"chunk_delay_ms": 200.0}}
LONG = "word " * 2000


async def cancelled_after(engine: TritonEngine, triton: EmbeddedTriton, speech: bool, phase: str) -> float:
    """Seconds from the client's leaving until no stage holds anything."""
    stage = SLOW_TEXT if phase == "text" else SLOW_SPEECH
    async with aclosing(engine.generate(job(LONG, speech=speech, stage=stage))) as chunks:
        async for chunk in chunks:
            if chunk.audio if phase == "speech" else chunk.text:
                break
        await asyncio.to_thread(until_held, triton.metrics_url)
    return await asyncio.to_thread(seconds_until, triton.metrics_url)


@pytest.mark.parametrize(("speech", "phase"), [(False, "text"), (True, "text"), (True, "speech")])
async def test_a_client_that_leaves_stops_every_stage(
    engine: TritonEngine, triton: EmbeddedTriton, speech: bool, phase: str
) -> None:
    took = [await cancelled_after(engine, triton, speech, phase) for _ in range(3)]
    assert min(took) < LIMIT_S
    ended = stage_metrics(triton.metrics_url)
    assert ended["omni_stage_ended_total", "thinkercancelled"] + ended["omni_stage_ended_total", "talkercancelled"] > 0


async def test_the_stages_do_no_more_work(engine: TritonEngine, triton: EmbeddedTriton) -> None:
    await cancelled_after(engine, triton, True, "text")
    await asyncio.sleep(0.2)
    before = {k: v for k, v in stage_metrics(triton.metrics_url).items() if k[0] == "omni_stage_steps_total"}
    await asyncio.sleep(0.5)
    after = {k: v for k, v in stage_metrics(triton.metrics_url).items() if k[0] == "omni_stage_steps_total"}
    assert before == after


async def test_a_client_that_leaves_at_once_leaves_nothing(
    engine: TritonEngine, triton: EmbeddedTriton, monkeypatch: pytest.MonkeyPatch
) -> None:
    infer, calls = engine._infer, list[Any]()
    monkeypatch.setattr(engine, "_infer", lambda *given, **named: calls.append(infer(*given, **named)) or calls[-1])
    for _ in range(20):
        task = asyncio.create_task(answer(engine, job(LONG, speech=True, stage=SLOW_TEXT)))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    await asyncio.to_thread(seconds_until, triton.metrics_url)
    # A cancelled stream may stay in Triton for good.
    assert {await call.code() for call in calls} == {grpc.StatusCode.OK}


CLIENT = """
import asyncio, sys
from contextlib import aclosing
from frontend.engine.triton import TritonEngine
from support.ask import job

async def main():
    engine = TritonEngine(sys.argv[1], connect_timeout_s=10)
    await engine.start()
    stage = {"thinker": {"token_interval_ms": 20.0}}
    async with aclosing(engine.generate(job("word " * 2000, speech=True, stage=stage))) as chunks:
        async for chunk in chunks:
            if chunk.text:
                print("running", flush=True)
                break
        await asyncio.sleep(60)

asyncio.run(main())
"""


def test_a_killed_front_door_stops_every_stage(triton: EmbeddedTriton) -> None:
    took = []
    for _ in range(3):
        with subprocess.Popen(
            [sys.executable, "-c", CLIENT, triton.grpc_url],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        ) as client:
            assert client.stdout is not None
            assert client.stdout.readline() == b"running\n"
            until_held(triton.metrics_url)
            client.send_signal(signal.SIGKILL)
            began = time.monotonic()
            seconds_until(triton.metrics_url)
            took.append(time.monotonic() - began)
    assert min(took) < LIMIT_S


async def leases(count: int) -> AsyncIterator[Any]:
    """Requests for so many leases of the thinker, on a stream that stays open."""
    for number in range(count):
        data = Control("lease", f"lease {number}").dumps()
        request = service_pb2.ModelInferRequest(model_name=THINKER, id=str(number))
        request.inputs.add(name="CONTROL", datatype="BYTES", shape=[1])
        request.raw_input_contents.append(len(data).to_bytes(4, "little") + data)
        yield request
    await asyncio.Event().wait()


async def test_a_front_door_without_a_lease_waits_for_one(triton: EmbeddedTriton) -> None:
    async with grpc.aio.insecure_channel(triton.grpc_url) as channel:
        others = service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelStreamInfer(leases(MAX_LEASES + 5))
        answers = [await others.read() for _ in range(MAX_LEASES + 5)]
        refused = [b"overloaded" in reply.infer_response.SerializeToString() for reply in answers]
        assert refused.count(True) >= 5
        late = TritonEngine(triton.grpc_url, connect_timeout_s=1)
        await late.start()
        with pytest.raises(Unavailable):
            await answer(late, job("hello"))
        others.cancel()
    assert (await answer(late, job("hello"))).text
    await late.close()
