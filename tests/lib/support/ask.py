"""Jobs for the dummy stages, and what comes of them."""

from __future__ import annotations

import uuid
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from frontend.engine.base import Engine
from omni.contract.chunk import Chunk
from omni.contract.job import Job, MediaPart, Message, TextPart
from omni.contract.params import SamplingParams, Settings


def job(*parts: str | MediaPart, speech: bool = False, stage: Any = None, **sampling: Any) -> Job:
    """A question of one user message."""
    content = tuple(TextPart(part) if isinstance(part, str) else part for part in parts)
    settings = Settings(speech=speech, sampling={"thinker": SamplingParams(**sampling)}, stage=stage or {})
    return Job(id=uuid.uuid4().hex, messages=(Message("user", content),), settings=settings)


@dataclass
class Answer:
    chunks: list[Chunk] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(chunk.text for chunk in self.chunks)

    @property
    def pcm(self) -> np.ndarray[Any, np.dtype[np.int16]]:
        return np.frombuffer(b"".join(chunk.audio for chunk in self.chunks), np.int16)

    @property
    def finish(self) -> str | None:
        return next((chunk.finish for chunk in self.chunks if chunk.finish), None)


async def answer(engine: Engine, asked: Job) -> Answer:
    got = Answer()
    async with aclosing(engine.generate(asked)) as chunks:
        async for chunk in chunks:
            got.chunks.append(chunk)
    return got
