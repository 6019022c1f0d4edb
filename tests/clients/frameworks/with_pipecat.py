"""A question through pipecat's `OpenAIRealtimeLLMService`, unchanged: `with_pipecat.py ws://HOST:PORT QUESTION.wav`.

Needs `pip install "pipecat-ai[openai]==1.14.0"` in an environment of its own. The last line of the output is JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
import wave
from typing import Any

from loguru import logger
from pipecat.frames.frames import (
    EndFrame,
    Frame,
    InputAudioRawFrame,
    LLMFullResponseEndFrame,
    LLMRunFrame,
    TTSAudioRawFrame,
    TTSTextFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import LLMContextAggregatorPair
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.services.openai.realtime import events
from pipecat.services.openai.realtime.llm import OpenAIRealtimeLLMService
from pipecat.workers.runner import WorkerRunner

PIECE_S = 0.02


class Sink(FrameProcessor):
    """Counts what an output transport would play."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[str, int] = {}
        self.text: list[str] = []
        self.samples = 0
        self.answered: asyncio.Queue[None] = asyncio.Queue()

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        name = type(frame).__name__
        self.seen[name] = self.seen.get(name, 0) + 1
        if isinstance(frame, TTSTextFrame):
            self.text.append(frame.text)
        elif isinstance(frame, TTSAudioRawFrame):
            self.samples += len(frame.audio) // 2
        elif isinstance(frame, LLMFullResponseEndFrame):
            self.answered.put_nowait(None)
        await self.push_frame(frame, direction)


async def main(url: str, question: str) -> dict[str, Any]:
    with wave.open(question) as file:
        rate, pcm = file.getframerate(), file.readframes(file.getnframes())
    transcription = events.InputAudioTranscription(model="qwen3-omni")
    heard = events.AudioInput(transcription=transcription, turn_detection=events.TurnDetection())
    properties = events.SessionProperties(
        instructions="Be brief.", audio=events.AudioConfiguration(input=heard, output=events.AudioOutput(voice="alloy"))
    )
    llm = OpenAIRealtimeLLMService(
        api_key="none",
        base_url=f"{url}/v1/realtime",
        settings=OpenAIRealtimeLLMService.Settings(model="qwen3-omni", session_properties=properties),
    )
    context = LLMContext([{"role": "user", "content": "Say hello!"}])
    both = LLMContextAggregatorPair(context)
    sink = Sink()
    pipeline = Pipeline([both.user(), llm, sink, both.assistant()])
    params = PipelineParams(audio_in_sample_rate=rate, audio_out_sample_rate=24_000)
    worker = PipelineWorker(pipeline, params=params, cancel_on_idle_timeout=False)
    started = asyncio.Event()

    @worker.event_handler("on_pipeline_started")
    async def _(*_: Any) -> None:
        started.set()

    async def talk() -> None:
        await started.wait()
        await worker.queue_frame(LLMRunFrame())
        async with asyncio.timeout(20):
            await sink.answered.get()
        step = int(rate * PIECE_S) * 2
        for at in range(0, len(pcm), step):
            piece = pcm[at : at + step]
            await worker.queue_frame(InputAudioRawFrame(audio=piece, sample_rate=rate, num_channels=1))
            await asyncio.sleep(PIECE_S)
        async with asyncio.timeout(20):
            await sink.answered.get()
        await asyncio.sleep(1.0)
        await worker.queue_frame(EndFrame())

    runner = WorkerRunner()
    await runner.add_workers(worker)
    await asyncio.gather(runner.run(), talk())
    return {"frames": sink.seen, "text": " ".join(sink.text), "speech_s": sink.samples / 24_000,
            "context": [message.get("role") for message in context.get_messages()]}  # fmt: skip


if __name__ == "__main__":
    logger.remove()
    logger.add(sys.stderr, level="WARNING")
    sys.stdout.write(json.dumps(asyncio.run(main(*sys.argv[1:]))) + "\n")
