"""Sixty-four clients at once, each answered in speech, each to the end."""

from __future__ import annotations

import asyncio
import base64

import numpy as np
import pytest
from openai import AsyncOpenAI
from support.launched import Launched
from support.stages import seconds_until

from omni.stages.dummy import tones

pytestmark = [pytest.mark.client, pytest.mark.anyio]
CLIENTS = 64


async def listen(client: AsyncOpenAI, n: int) -> tuple[str, str]:
    """What a client read, and what it heard."""
    stream = await client.chat.completions.create(
        model="qwen3-omni",
        messages=[{"role": "user", "content": f"speaker {n} says {n * 7} times nothing at all"}],
        modalities=["text", "audio"],
        audio={"voice": "Aiden", "format": "pcm16"},
        stream=True,
    )
    text, pcm = "", b""
    async for chunk in stream:
        delta = chunk.choices[0].delta
        text += delta.content or ""
        if delta.audio and delta.audio.data:
            pcm += base64.b64decode(delta.audio.data)
    return text, tones.decode(np.frombuffer(pcm, np.int16))


async def test_every_client_hears_its_own_answer_whole(server: Launched) -> None:
    async with AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=120) as client:
        answers = await asyncio.gather(*(listen(client, n) for n in range(CLIENTS)))
    for n, (read, heard) in enumerate(answers):
        assert f"speaker {n} says {n * 7} times nothing at all" in read
        assert heard == read
    await asyncio.to_thread(seconds_until, server.metrics_url)
