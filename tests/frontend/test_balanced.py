from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

import pytest
from support.ask import answer, job
from support.front import until

from frontend.app import make_engine
from frontend.engine import balanced
from frontend.engine.balanced import BalancedEngine
from frontend.engine.base import Engine
from frontend.engine.fake import FakeEngine
from frontend.settings import Settings
from omni.contract.chunk import KEPT, Chunk
from omni.contract.errors import InvalidRequest, OmniError, Overloaded, StageFailed, Unavailable
from omni.contract.job import Job
from omni.profile import load_profile

pytestmark = [pytest.mark.process, pytest.mark.anyio]
SLOW = (Chunk(text="a"), 1000.0)


def three(*scripts: Any) -> tuple[BalancedEngine, list[FakeEngine]]:
    engines = [FakeEngine(script) for script in scripts]
    members: dict[str, Engine] = {f"host{n}": engine for n, engine in enumerate(engines)}
    return BalancedEngine(members), engines


def of_session(name: str) -> Job:
    asked = job("x")
    object.__setattr__(asked.settings, "session", name)
    return asked


def counts(engines: list[FakeEngine]) -> list[int]:
    return [len(engine.runs) for engine in engines]


async def test_the_least_active_comes_first() -> None:
    engine, engines = three(SLOW, SLOW, SLOW)
    running = [engine.generate(job("x")) for _ in range(6)]
    for one in running:
        await anext(one)
    assert counts(engines) == [2, 2, 2]
    await running[1].aclose()
    place = next(n for n, one in enumerate(engines) if one.runs[0].outcome == "aborted")
    seventh = engine.generate(job("x"))
    await anext(seventh)
    assert counts(engines)[place] == 3
    for one in (*running, seventh):
        await one.aclose()
    assert set(engine.active.values()) == {0}


async def test_equal_members_take_turns() -> None:
    engine, engines = three([Chunk(text="a")], [Chunk(text="b")], [Chunk(text="c")])
    for _ in range(9):
        await answer(engine, job("x"))
    assert counts(engines) == [3, 3, 3]


async def test_a_session_comes_back_to_its_place() -> None:
    engine, engines = three([Chunk(text="a")], [Chunk(text="b")], [Chunk(text="c")])
    texts = {name: (await answer(engine, of_session(name))).text for name in "pqrstu"}
    for name, text in texts.items():
        assert (await answer(engine, of_session(name))).text == text
    home = next(one for one in engines if one.runs[0].job.settings.session == "p")
    home.alive = False
    elsewhere = (await answer(engine, of_session("p"))).text
    assert elsewhere != texts["p"]
    home.alive = True
    assert (await answer(engine, of_session("p"))).text == elsewhere


async def test_sessions_are_forgotten_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(balanced, "SESSIONS_KEPT", 4)
    engine, _ = three([Chunk(text="a")], [Chunk(text="b")])
    for n in range(20):
        await answer(engine, of_session(str(n)))
    assert list(engine._places) == ["16", "17", "18", "19"]


async def test_who_is_down_is_left_out_and_comes_back() -> None:
    engine, engines = three([Chunk(text="a")], [Chunk(text="b")])
    engines[0].alive = False
    assert engine.alive
    assert engine.members_alive == 1
    for _ in range(4):
        assert (await answer(engine, job("x"))).text == "b"
    engines[0].alive = True
    assert {(await answer(engine, job("x"))).text for _ in range(2)} == {"a", "b"}


@pytest.mark.parametrize("error", [Unavailable("gone"), Overloaded("full")])
async def test_what_has_not_begun_goes_elsewhere(error: OmniError) -> None:
    engine, engines = three([error], [error], [Chunk(text="c")])
    assert (await answer(engine, job("x"))).text == "c"
    assert counts(engines) == [1, 1, 1]
    assert set(engine.active.values()) == {0}


async def test_what_has_begun_is_not_repeated() -> None:
    engine, engines = three([Chunk(text="a"), Unavailable("gone")], [Chunk(text="b")])
    with pytest.raises(Unavailable):
        await answer(engine, job("x"))
    assert counts(engines) == [1, 0]


async def test_that_media_are_held_is_no_beginning() -> None:
    engine, engines = three([Chunk(event=KEPT), Overloaded("full")], [Chunk(event=KEPT), Chunk(text="b")])
    assert (await answer(engine, job("x"))).text == "b"
    assert counts(engines) == [1, 1]


@pytest.mark.parametrize("error", [InvalidRequest("no"), StageFailed("broke")])
async def test_what_would_fail_elsewhere_too_is_not_repeated(error: OmniError) -> None:
    engine, engines = three([error], [Chunk(text="b")])
    with pytest.raises(type(error)):
        await answer(engine, job("x"))
    assert counts(engines) == [1, 0]


async def test_all_fail_or_all_are_down() -> None:
    engine, engines = three([Unavailable("1")], [Unavailable("2")])
    with pytest.raises(Unavailable):
        await answer(engine, job("x"))
    assert counts(engines) == [1, 1]
    for one in engines:
        one.alive = False
    assert not engine.alive
    with pytest.raises(Unavailable):
        await answer(engine, job("x"))


async def test_a_client_that_leaves_aborts_where_it_runs() -> None:
    engine, engines = three(SLOW, SLOW)
    async with aclosing(engine.generate(job("x"))) as chunks:
        await anext(chunks)
    assert engines[0].runs[0].outcome == "aborted"
    task = asyncio.create_task(answer(engine, job("x")))
    await until(lambda: bool(engines[1].runs))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert engines[1].runs[0].outcome == "aborted"
    await engine.close()


def test_the_setting_takes_a_list() -> None:
    profile = load_profile("dummy")
    one = Settings(triton_url="a:1")
    assert not isinstance(make_engine(one, profile), BalancedEngine)
    several = make_engine(Settings(triton_url="a:1, b:2,c:3"), profile)
    assert isinstance(several, BalancedEngine)
    assert list(several.active) == ["a:1", "b:2", "c:3"]
    with pytest.raises(ValueError, match="triton_url"):
        Settings(triton_url="")
