"""Whole generations through the real ensembles, straight from the engine."""

from __future__ import annotations

import asyncio
import io
import statistics
import time
from contextlib import aclosing
from dataclasses import replace

import pytest
from PIL import Image
from support.ask import answer, job

from frontend.engine.triton import TritonEngine
from omni.contract.errors import InvalidMedia, InvalidRequest, MediaMissing, OmniError
from omni.contract.job import MediaPart
from omni.contract.params import Settings
from omni.stages.dummy import tones

pytestmark = [pytest.mark.triton, pytest.mark.anyio]
WORDS = "one two two two 1000000 three\n\n three \U0001f600 end"


def image(colour: str = "#ff8040", size: tuple[int, int] = (64, 48)) -> MediaPart:
    out = io.BytesIO()
    Image.new("RGB", size, colour).save(out, "PNG")
    return MediaPart.of("image", out.getvalue(), "messages.0.content.1")


async def test_text_comes_back_whole(engine: TritonEngine) -> None:
    got = await answer(engine, job(WORDS))
    assert WORDS in got.text
    assert got.finish == "stop"
    assert got.pcm.size == 0
    usage = got.chunks[-1].usage or next(c.usage for c in got.chunks if c.usage)
    assert usage.completion_tokens == sum(chunk.tokens for chunk in got.chunks)


async def test_speech_says_exactly_the_text(engine: TritonEngine) -> None:
    got = await answer(engine, job(WORDS, speech=True))
    assert WORDS in got.text
    assert tones.decode(got.pcm) == got.text


async def test_parts_are_described_in_order(engine: TritonEngine) -> None:
    got = await answer(engine, job("first", image("#ff8040"), "then", image("#0000ff", (32, 16)), "last"))
    places = [got.text.index(word) for word in ("first", "64x48", "then", "32x16", "last")]
    assert places == sorted(places)


async def test_a_broken_image_names_its_part(engine: TritonEngine) -> None:
    broken = MediaPart.of("image", b"\x89PNG\r\n\x1a\nrubbish", "messages.0.content.0")
    for speech in (False, True):
        with pytest.raises(InvalidMedia) as caught:
            await answer(engine, job(broken, speech=speech))
        assert caught.value.param == "messages.0.content.0"


async def test_media_travel_once(engine: TritonEngine) -> None:
    part = image("#123456")
    with pytest.raises(MediaMissing):
        await answer(engine, job(part.by_digest()))
    first = await answer(engine, job(part))
    assert (await answer(engine, job(part.by_digest()))).text == first.text


@pytest.mark.parametrize("speech", [False, True])
async def test_media_of_a_session_are_held_as_soon_as_it_is_told(engine: TritonEngine, speech: bool) -> None:
    part = image("#654321" if speech else "#765432", (640, 480))
    of_session = replace(job(part, speech=speech), settings=Settings(session="s", speech=speech))
    async with aclosing(engine.generate(of_session)) as chunks:
        assert (await anext(chunks)).kept
    assert "640x480" in (await answer(engine, job(part.by_digest()))).text


async def test_max_tokens_ends_with_length_also_when_spoken(engine: TritonEngine) -> None:
    for speech in (False, True):
        got = await answer(engine, job(WORDS, speech=speech, max_tokens=3))
        assert got.finish == "length"
        assert sum(chunk.tokens for chunk in got.chunks) == 3


async def test_sixty_four_speakers_at_once(engine: TritonEngine) -> None:
    asked = [job(f"speaker {n} says {n * 7} times nothing at all", speech=True) for n in range(64)]
    answers = await asyncio.gather(*(answer(engine, one) for one in asked))
    for n, got in enumerate(answers):
        assert f"speaker {n} says {n * 7} times nothing at all" in got.text
        assert tones.decode(got.pcm) == got.text


async def test_text_is_not_held_up_by_speech(engine: TritonEngine) -> None:
    interval, delay = 0.05, 0.3
    stage = {"thinker": {"token_interval_ms": interval * 1000}, "code2wav": {"chunk_delay_ms": delay * 1000}}
    arrived = []
    async with aclosing(engine.generate(job("a b c d e f g h i j k l", speech=True, stage=stage))) as chunks:
        async for chunk in chunks:
            if chunk.text:
                arrived.append(time.monotonic())
    late = [at - arrived[0] - n * interval for n, at in enumerate(arrived)]
    assert len(arrived) > 10
    assert statistics.median(late) < delay / 3


async def test_settings_that_cannot_be_read_are_a_typed_error(engine: TritonEngine) -> None:
    asked = job("x")
    object.__setattr__(asked.settings, "stage", {"thinker": {"colour": 1}})
    with pytest.raises(InvalidRequest):
        await answer(engine, asked)


async def test_an_id_runs_once_at_a_time(engine: TritonEngine) -> None:
    asked = job("x " * 200, stage={"thinker": {"token_interval_ms": 20.0}})
    async with aclosing(engine.generate(asked)) as chunks:
        await anext(chunks)
        with pytest.raises(OmniError, match="already"):
            await answer(engine, asked)
