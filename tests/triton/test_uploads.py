"""Media that travel in pieces, through the real ensembles."""

from __future__ import annotations

import asyncio
import io
import json
import os
import time
from collections.abc import Generator
from dataclasses import replace
from typing import Any

import pytest
from PIL import Image
from support.ask import answer, job
from support.stages import held, seconds_until, stage_metrics

from frontend.engine import messages
from frontend.engine.messages import PIECE_BYTES
from frontend.engine.triton import TritonEngine
from omni.contract.errors import TooLarge
from omni.contract.job import Job, MediaPart
from omni.contract.names import PREPROCESS
from omni.launch.server import EmbeddedTriton
from omni.stages.dummy import tones

pytestmark = [pytest.mark.triton, pytest.mark.anyio]


def image(size: int) -> bytes:
    """A small PNG with so many bytes of noise behind its end, where no decoder looks."""
    out = io.BytesIO()
    Image.new("RGB", (64, 48), "#ff8040").save(out, "PNG")
    return out.getvalue() + os.urandom(size)


@pytest.mark.parametrize(("speech", "session"), [(False, None), (True, None), (True, "a session")])
async def test_every_byte_arrives(engine: TritonEngine, speech: bool, session: str | None) -> None:
    data = image(5 * PIECE_BYTES)
    parts = MediaPart("image", data, digest=""), MediaPart.of("image", image(PIECE_BYTES))
    asked = job("first", parts[0], "then", parts[1], "last", speech=speech)
    got = await answer(engine, replace(asked, settings=replace(asked.settings, session=session)))
    assert [got.text.count(word) for word in ("first", "64x48", "then", "last")] == [1, 2, 1, 1]
    assert tones.decode(got.pcm) == (got.text if speech else "")
    assert [chunk.kept for chunk in got.chunks].count(True) == (session is not None)
    # Preprocess knows it by the digest that it made itself, of what it was sent.
    again = MediaPart.of("image", data).by_digest()
    assert "64x48" in (await answer(engine, job(again, parts[1].by_digest()))).text


PIECES = 250
SLOWLY_S = 0.02


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the pieces that were sent so far: small ones, one after the other."""
    sizes: list[int] = []
    requests = messages.requests

    def slowly(job: Job, lease: str) -> Generator[bytes, None, None]:
        for request in requests(job, lease):
            sizes.append(len(request))
            time.sleep(SLOWLY_S)
            yield request

    monkeypatch.setattr(messages, "requests", slowly)
    monkeypatch.setattr(messages, "PIECE_BYTES", 1024)
    return sizes


async def test_a_client_that_leaves_while_it_sends_leaves_nothing(
    engine: TritonEngine, triton: EmbeddedTriton, taken: list[int]
) -> None:
    def cancelled() -> float:
        return stage_metrics(triton.metrics_url).get(("omni_stage_ended_total", PREPROCESS + "cancelled"), 0)

    before = cancelled()
    task = asyncio.create_task(answer(engine, job(MediaPart.of("image", image(PIECES * 1024)))))
    while not await asyncio.to_thread(held, triton.metrics_url):
        assert not task.done()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    sent = len(taken)
    await asyncio.to_thread(seconds_until, triton.metrics_url)
    assert cancelled() == before + 1
    assert len(taken) <= sent + 1 < PIECES
    assert (await answer(engine, job("hello"))).text


async def test_a_refusal_ends_the_sending(
    engine: TritonEngine, triton: EmbeddedTriton, taken: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    pack = messages.pack_blobs

    def lies(job: Job) -> tuple[bytes, list[bytes]]:
        head, media = pack(job)
        body: Any = json.loads(head)
        body["messages"][0]["parts"][0]["size"] = 1 << 40
        return json.dumps(body).encode(), media

    monkeypatch.setattr(messages, "pack_blobs", lies)
    with pytest.raises(TooLarge):
        await answer(engine, job(MediaPart.of("image", image(PIECES * 1024))))
    sent = len(taken)
    await asyncio.to_thread(seconds_until, triton.metrics_url)
    assert len(taken) <= sent + 1 < PIECES
