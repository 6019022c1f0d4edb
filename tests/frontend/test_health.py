from __future__ import annotations

import asyncio
import io
import uuid
import wave
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI
from PIL import Image
from support.front import client, front, until

from frontend import health
from frontend.engine.fake import Beat, FakeEngine
from frontend.health import synthetic_job
from omni.contract.chunk import Chunk
from omni.contract.errors import InvalidRequest, OmniError, Overloaded, StageFailed, TimedOut, Unavailable
from omni.contract.job import Job, MediaPart

pytestmark = [pytest.mark.process, pytest.mark.anyio]

TEXT = Chunk(text="a", tokens=1, finish="stop")
SPEECH = Chunk(audio=b"\0\0" * 1920)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "RETRY_S", 0.01)
    monkeypatch.setattr(health, "ALIVE_S", 0.01)


class Stages:
    """A script whose beats can be changed while it is in use."""

    def __init__(self, *beats: Beat | ValueError) -> None:
        self.beats = beats

    def __call__(self, job: Job) -> Iterator[Beat]:
        for beat in self.beats:
            if isinstance(beat, ValueError):
                raise beat
            yield beat


@asynccontextmanager
async def watched(stages: Stages, **settings: Any) -> AsyncIterator[tuple[FastAPI, FakeEngine, httpx2.AsyncClient]]:
    engine = FakeEngine(stages)
    app = front(engine, **{"warmup": True, "probe_interval": 0, **settings})
    async with client(app) as http:
        yield app, engine, http


async def test_ready_once_the_synthetic_generation_has_passed() -> None:
    stages = Stages(Unavailable("not yet"))
    async with watched(stages) as (app, engine, http):
        await until(lambda: len(engine.runs) > 2)
        answer = await http.get("/health")
        assert answer.status_code == 503
        assert (answer.json()["status"], answer.json()["error"]) == ("starting", "unavailable")
        assert "omni_triton_up 0.0" in (await http.get("/metrics")).text
        assert (await http.get("/live")).json() == {"status": "live"}

        stages.beats = (TEXT, SPEECH)
        await until(lambda: app.state.health.status == "ready")
        for path in ("/health", "/health/ready"):
            answer = await http.get(path)
            assert answer.status_code == 200
        body = answer.json()
        assert body["status"] == "ready"
        assert (body["model"], body["profile"], body["in_flight"]) == ("qwen3-omni", "dummy", 0)
        assert "error" not in body
        assert "omni_triton_up 1.0" in (await http.get("/metrics")).text


@pytest.mark.parametrize(
    "beats", [(TEXT,), (SPEECH,), (), (ValueError("bug"),)], ids=["mute", "endless", "none", "bug"]
)
async def test_a_generation_that_lacks_something_is_no_proof(beats: tuple[Any, ...]) -> None:
    stages = Stages(*beats)
    async with watched(stages) as (app, engine, _):
        await until(lambda: len(engine.runs) > 1)
        assert app.state.health.status == "starting"
        assert app.state.health.error in ("stage_failed", "internal_error")


async def test_a_deployment_without_speech_needs_none(tmp_path: Path) -> None:
    profile = tmp_path / "mute.yaml"
    profile.write_text("model: m\nspeech: false\n")
    async with watched(Stages(TEXT), profile=str(profile)) as (app, engine, _):
        await until(lambda: app.state.health.status == "ready")
        assert not engine.runs[0].job.settings.speech


async def test_one_attempt_has_its_time() -> None:
    stages = Stages(60.0)
    async with watched(stages, warmup_timeout=0.05) as (app, engine, _):
        await until(lambda: len(engine.runs) > 1)
        assert (app.state.health.status, app.state.health.error) == ("starting", "timeout")
        assert engine.runs[0].outcome == "aborted"
        stages.beats = (TEXT, SPEECH)
        await until(lambda: app.state.health.status == "ready")


async def test_the_warm_up_can_be_skipped() -> None:
    async with watched(Stages(Unavailable("never")), warmup=False) as (_, engine, http):
        assert (await http.get("/health")).status_code == 200
        assert not engine.runs


@pytest.mark.parametrize("error", [StageFailed("broken"), Unavailable("gone")])
async def test_a_reported_failure_counts_at_once_and_is_over_with_the_next_proof(error: OmniError) -> None:
    stages = Stages(TEXT, SPEECH)
    async with watched(stages) as (app, engine, http):
        await until(lambda: app.state.health.status == "ready")
        stages.beats = (error,)
        app.state.health.report(error)
        answer = await http.get("/health")
        assert (answer.status_code, answer.json()["status"], answer.json()["error"]) == (503, "unavailable", error.code)
        runs = len(engine.runs)
        await until(lambda: len(engine.runs) > runs + 1)
        assert app.state.health.status == "unavailable"
        stages.beats = (TEXT, SPEECH)
        await until(lambda: app.state.health.status == "ready")
        assert app.state.health.error is None


async def test_a_reported_timeout_asks_for_a_proof_and_no_more() -> None:
    async with watched(Stages(TEXT, SPEECH)) as (app, engine, _):
        await until(lambda: app.state.health.status == "ready")
        app.state.health.report(TimedOut("slow"))
        assert app.state.health.status == "ready"
        await until(lambda: len(engine.runs) == 2)


@pytest.mark.parametrize("error", [InvalidRequest("bad"), Overloaded("full")])
async def test_failures_that_say_nothing_of_the_stages_change_nothing(error: OmniError) -> None:
    async with watched(Stages(TEXT, SPEECH)) as (app, engine, _):
        await until(lambda: app.state.health.status == "ready")
        app.state.health.report(error)
        await asyncio.sleep(0.05)
        assert (app.state.health.status, len(engine.runs)) == ("ready", 1)


async def test_stages_that_are_full_are_alive() -> None:
    async with watched(Stages(Overloaded("full"))) as (app, _, _http):
        await until(lambda: app.state.health.status == "ready")


async def test_when_all_is_quiet_a_proof_is_asked_for_now_and_then() -> None:
    stages = Stages(TEXT, SPEECH)
    async with watched(stages, probe_interval=0.02) as (app, engine, _):
        await until(lambda: len(engine.runs) > 3)
        assert app.state.health.status == "ready"
        stages.beats = (StageFailed("dead"),)
        await until(lambda: app.state.health.status == "unavailable")
        stages.beats = (TEXT, SPEECH)
        await until(lambda: app.state.health.status == "ready")


async def test_a_frozen_stage_is_found_out() -> None:
    stages = Stages(TEXT, SPEECH)
    async with watched(stages, probe_interval=0.02, probe_timeout=0.05) as (app, _, _http):
        await until(lambda: app.state.health.status == "ready")
        stages.beats = (60.0,)
        await until(lambda: app.state.health.status == "unavailable")
        assert app.state.health.error == "timeout"


async def test_answers_to_clients_are_proof_enough() -> None:
    async with watched(Stages(TEXT, SPEECH), probe_interval=0.02) as (app, engine, _):
        await until(lambda: app.state.health.status == "ready")

        async def clients() -> None:
            while True:
                turn = app.state.metrics.turn("chat")
                turn.chunk(SPEECH)
                turn.end("completed")
                await asyncio.sleep(0.002)

        task = asyncio.create_task(clients())
        await asyncio.sleep(0.05)
        runs = len(engine.runs)
        await asyncio.sleep(0.2)
        assert len(engine.runs) <= runs + 1
        task.cancel()
        await until(lambda: len(engine.runs) > runs + 1)


async def test_a_slow_proof_is_no_failure_while_clients_are_answered() -> None:
    stages = Stages(TEXT, SPEECH)
    async with watched(stages, probe_timeout=0.05) as (app, engine, _):
        await until(lambda: app.state.health.status == "ready")
        stages.beats = (60.0,)
        app.state.health.report(TimedOut("slow"))
        await until(lambda: len(engine.runs) == 2)
        turn = app.state.metrics.turn("chat")
        turn.chunk(SPEECH)
        turn.end("completed")
        await until(lambda: engine.runs[1].outcome == "aborted")
        assert app.state.health.status == "ready"


async def test_an_engine_that_lost_its_stages_is_noticed_without_any_request() -> None:
    stages = Stages(TEXT, SPEECH)
    async with watched(stages) as (app, engine, _):
        await until(lambda: app.state.health.status == "ready")
        stages.beats = (Unavailable("gone"),)
        engine.alive = False
        await until(lambda: app.state.health.status == "unavailable")
        engine.alive = True
        stages.beats = (TEXT, SPEECH)
        await until(lambda: app.state.health.status == "ready")


class Clinging(FakeEngine):
    """Doesn't let go of a generation that is given up."""

    def __init__(self) -> None:
        super().__init__()
        self.let_go = asyncio.Event()
        self.calls = 0

    async def generate(self, job: Job) -> AsyncGenerator[Chunk, None]:
        self.calls += 1
        try:
            await asyncio.sleep(60)
        finally:
            await self.let_go.wait()
        yield Chunk()


async def test_the_deadline_holds_although_the_engine_clings_to_a_generation() -> None:
    engine = Clinging()
    app = front(engine, warmup=False, probe_interval=0.01, probe_timeout=0.02)
    async with client(app):
        await until(lambda: app.state.health.status == "unavailable")
        await asyncio.sleep(0.1)
        assert engine.calls == 1
        engine.let_go.set()
        await until(lambda: engine.calls > 1)


async def test_a_server_on_its_way_out_is_not_ready() -> None:
    async with watched(Stages(TEXT, SPEECH)) as (app, _, http):
        await until(lambda: app.state.health.status == "ready")
        app.state.admission.close()
        answer = await http.get("/health")
        assert (answer.status_code, answer.json()["status"]) == (503, "draining")
        assert answer.headers["connection"] == "close"


async def test_nothing_runs_on_after_the_server() -> None:
    engine = FakeEngine([60.0])
    async with client(front(engine, warmup=True)):
        await until(lambda: len(engine.runs) == 1)
    assert engine.runs[0].outcome == "aborted"
    with pytest.raises(Unavailable):
        await anext(engine.generate(synthetic_job(False)))


@pytest.mark.parametrize("turns", range(4))
async def test_a_report_in_the_last_moment_does_not_keep_the_server_alive(turns: int) -> None:
    app = front(FakeEngine(Stages(TEXT, SPEECH)), probe_interval=0)
    app.state.health.start()
    await asyncio.sleep(0.005)
    app.state.health.report(StageFailed("broken"))
    for _ in range(turns):
        await asyncio.sleep(0)
    await asyncio.wait_for(app.state.health.stop(), 5)


async def test_the_synthetic_job_is_what_clients_send() -> None:
    job = synthetic_job(speech=True)
    uuid.UUID(job.id)
    assert job.priority > Job(id="a client's", messages=()).priority
    image, sound, text = job.messages[0].parts
    assert isinstance(image, MediaPart)
    assert isinstance(sound, MediaPart)
    picture = Image.open(io.BytesIO(image.data or b""))
    picture.load()
    assert (image.kind, picture.format, picture.size, picture.mode) == ("image", "PNG", (32, 32), "RGB")
    with wave.open(io.BytesIO(sound.data or b"")) as file:
        assert (file.getframerate(), file.getnchannels(), file.getnframes()) == (16_000, 1, 16_000)
    assert job.settings.speech
    assert job.settings.sampling["thinker"].max_tokens == job.settings.sampling["talker"].max_tokens == 8
    assert not isinstance(text, MediaPart)
    assert "talker" not in synthetic_job(speech=False).settings.sampling
