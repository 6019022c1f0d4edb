"""Questions through LiveKit's `RealtimeModel`, unchanged: `with_livekit.py http://HOST:PORT QUESTION.wav`.

Needs `pip install livekit-plugins-openai==1.8.9` in an environment of its own. The last line of the output is JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
import wave
from typing import Any

import aiohttp
from livekit import rtc
from livekit.agents import llm
from livekit.plugins.openai.realtime import RealtimeModel

PIECE_S = 0.02


async def collect(generation: llm.GenerationCreatedEvent) -> dict[str, Any]:
    """All of one answer."""
    out: dict[str, Any] = {"text": "", "speech_s": 0.0}
    async for message in generation.message_stream:
        async for text in message.text_stream:
            out["text"] += str(text)
        async for frame in message.audio_stream:
            out["speech_s"] += frame.duration
    return out


async def main(url: str, question: str) -> dict[str, Any]:
    with wave.open(question) as file:
        rate, pcm = file.getframerate(), file.readframes(file.getnframes())
    errors: list[str] = []
    heard: list[str] = []
    transcripts: list[str] = []
    unasked: asyncio.Queue[llm.GenerationCreatedEvent] = asyncio.Queue()
    async with aiohttp.ClientSession() as http:
        model = RealtimeModel(model="qwen3-omni", base_url=f"{url}/v1", api_key="none", http_session=http)
        session = model.session()
        session.on("error", lambda event: errors.append(str(event.error)))
        session.on("input_speech_started", lambda event: heard.append("started"))
        session.on("input_speech_stopped", lambda event: heard.append("stopped"))
        session.on("input_audio_transcription_completed", lambda event: transcripts.append(event.transcript))

        def created(event: llm.GenerationCreatedEvent) -> None:
            if not event.user_initiated:
                unasked.put_nowait(event)

        session.on("generation_created", created)
        await session.update_instructions("Be brief.")
        context = llm.ChatContext.empty()
        context.add_message(role="user", content="Hello!")
        await session.update_chat_ctx(context)
        async with asyncio.timeout(20):
            asked = await collect(await session.generate_reply())
        step = int(rate * PIECE_S)
        for at in range(0, len(pcm) - 2 * step + 1, 2 * step):
            session.push_audio(rtc.AudioFrame(pcm[at : at + 2 * step], rate, 1, step))
            await asyncio.sleep(PIECE_S)
        async with asyncio.timeout(20):
            spoken = await collect(await unasked.get())
        item = next(one for one in reversed(session.chat_ctx.items) if one.type == "message")
        session.truncate(message_id=item.id, modalities=["audio"], audio_end_ms=200)
        await asyncio.sleep(1.5)
        roles = [one.role for one in session.chat_ctx.items if one.type == "message"]
        await session.aclose()
    return {"asked": asked, "spoken": spoken, "heard": heard, "transcripts": transcripts, "errors": errors,
            "roles": roles}  # fmt: skip


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(main(*sys.argv[1:]))) + "\n")
