from __future__ import annotations

import asyncio
import uuid
from contextlib import aclosing

import pytest
from support.front import until

from frontend.engine.fake import RUNS_KEPT, FakeEngine
from omni.contract.chunk import Chunk
from omni.contract.errors import StageFailed, Unavailable
from omni.contract.job import Job, Message, TextPart
from omni.contract.params import SamplingParams, Settings

pytestmark = [pytest.mark.process, pytest.mark.anyio]


def job(text: str = "one two three", speech: bool = False, **sampling: object) -> Job:
    settings = Settings(speech=speech, sampling={"thinker": SamplingParams(**sampling)})  # type: ignore[arg-type]
    return Job(id=str(uuid.uuid4()), messages=(Message("user", (TextPart(text),)),), settings=settings)


async def answer(engine: FakeEngine, job: Job) -> list[Chunk]:
    async with aclosing(engine.generate(job)) as chunks:
        return [chunk async for chunk in chunks]


async def test_it_plays_its_script_and_remembers_the_job() -> None:
    engine = FakeEngine([Chunk(text="a"), 0.001, Chunk(text="b")])
    asked = job()
    assert [chunk.text for chunk in await answer(engine, asked)] == ["a", "b"]
    assert await answer(engine, job()) != []
    assert (engine.runs[0].job, engine.runs[0].outcome, engine.runs[0].chunks) == (asked, "completed", 2)


async def test_a_script_may_depend_on_the_job() -> None:
    engine = FakeEngine(lambda job: [Chunk(text=job.messages[0].text)])
    assert (await answer(engine, job("hello")))[0].text == "hello"


async def test_it_fails_where_the_script_says() -> None:
    engine = FakeEngine([Chunk(text="a"), StageFailed("broken")])
    with pytest.raises(StageFailed):
        await answer(engine, job())
    assert (engine.runs[0].outcome, engine.runs[0].chunks) == ("failed", 1)


async def test_it_tells_that_it_was_closed_early() -> None:
    engine = FakeEngine([Chunk(text="a"), 60.0])
    async with aclosing(engine.generate(job())) as chunks:
        await anext(chunks)
        before = engine.runs[0].outcome
    assert (before, engine.runs[0].outcome) == ("running", "aborted")


async def test_a_cancelled_consumer_aborts() -> None:
    engine = FakeEngine([Chunk(text="a"), 60.0])
    task = asyncio.create_task(answer(engine, job()))
    await until(lambda: bool(engine.runs and engine.runs[0].chunks))
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert engine.runs[0].outcome == "aborted"


@pytest.mark.parametrize("pause", [60.0, 0.0])
async def test_closing_the_engine_ends_what_runs(pause: float) -> None:
    engine = FakeEngine([Chunk(text="a"), pause, Chunk(text="b")])
    async with aclosing(engine.generate(job())) as chunks:
        await anext(chunks)
        await engine.close()
        with pytest.raises(Unavailable):
            await asyncio.wait_for(anext(chunks), 5)
    await engine.close()


async def test_by_default_it_echoes_the_question() -> None:
    chunks = await answer(FakeEngine(), job("one two three", speech=True))
    assert "".join(chunk.text for chunk in chunks) == "one two three"
    assert sum(chunk.audio_seconds for chunk in chunks) == pytest.approx(0.24)
    (last,) = [chunk for chunk in chunks if chunk.finish]
    assert last.usage is not None
    assert (last.finish, last.usage.prompt_tokens, last.usage.completion_tokens) == ("stop", 3, 3)


async def test_the_echo_obeys_its_limit() -> None:
    short = await answer(FakeEngine(), job("one two three", max_tokens=2))
    assert ("".join(chunk.text for chunk in short), short[-1].finish) == ("one two", "length")
    long = await answer(FakeEngine(), job("one two", max_tokens=5, ignore_eos=True))
    assert "".join(chunk.text for chunk in long) == "one two one two one"


async def test_it_remembers_a_bounded_number_of_runs() -> None:
    assert FakeEngine().runs.maxlen == RUNS_KEPT
