"""An engine without stages: it plays a script. For tests, and to measure the front door alone."""

from __future__ import annotations

import asyncio
import math
from array import array
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import repeat
from typing import Final, Literal

from omni.contract.chunk import KEPT, Chunk, FinishReason, Usage
from omni.contract.errors import OmniError, Unavailable
from omni.contract.job import Job
from omni.contract.names import CODEC_FRAME_SAMPLES, SAMPLE_RATE, TALKER, THINKER
from omni.contract.params import TALKER_DEFAULTS, THINKER_DEFAULTS

Beat = Chunk | float | OmniError
"""One step of a script: yield a chunk, sleep for seconds, or fail."""
Script = Callable[[Job], Iterable[Beat]]

RUNS_KEPT: Final = 4096
"""Runs that are remembered; a load test makes more."""


@dataclass(slots=True)
class Run:
    """What became of one generation."""

    job: Job
    outcome: Literal["running", "completed", "failed", "aborted"] = "running"
    """`aborted` when the front door closed the generator before its end."""
    chunks: int = 0
    """Chunks that were taken."""


def frame(hertz: float = 440.0) -> bytes:
    """80 ms of a tone as speech: the sound of one codec frame."""
    step = 2 * math.pi * hertz / SAMPLE_RATE
    return array("h", (int(8192 * math.sin(step * n)) for n in range(CODEC_FRAME_SAMPLES))).tobytes()


_FRAME: Final = frame()


def echo(job: Job) -> Iterator[Beat]:
    """The last message's text, word by word, each with 80 ms of a tone when the job asks for speech.

    Obeys `max_tokens`; with `ignore_eos` the text is repeated up to it, and with the talker's the tone goes on up to
    the talker's. `thinker.token_interval_ms` sets the pace.
    """
    params = job.settings.sampling_of(THINKER, THINKER_DEFAULTS)
    limit = params.max_tokens or 1
    pause = job.settings.knob(THINKER, "token_interval_ms", 0.0) / 1000
    words = job.messages[-1].text.split() or ["nothing"]
    count = limit if params.ignore_eos else min(len(words), limit)
    reason: FinishReason = "length" if count == limit else "stop"
    usage = Usage(prompt_tokens=sum(len(message.text.split()) for message in job.messages), completion_tokens=count)
    said = [Chunk(text=f"{word} ", tokens=1) for word in words]
    sound = Chunk(audio=_FRAME) if job.settings.speech else None
    talker = job.settings.sampling_of(TALKER, TALKER_DEFAULTS)
    more = (talker.max_tokens or 0) - count if sound is not None and talker.ignore_eos else 0
    for n in range(count):
        if pause:
            yield pause
        place = n % len(words)
        yield said[place] if n < count - 1 else Chunk(text=words[place], tokens=1, finish=reason, usage=usage)
        if sound is not None:
            yield sound
    if sound is not None:
        yield from repeat(sound, max(0, more))


class FakeEngine:
    """An `Engine` that plays `script`: one for all jobs, or a function of the job.

    `runs` holds what was asked for, the newest last. Between two chunks the event loop always gets its turn.
    """

    def __init__(self, script: Script | Iterable[Beat] = echo) -> None:
        beats = script if callable(script) else tuple(script)
        self._script: Script = beats if callable(beats) else lambda _: beats
        self._closing = asyncio.Event()
        self.runs: deque[Run] = deque(maxlen=RUNS_KEPT)
        self.alive = True
        """May be set to False, as if the stages were gone."""

    async def start(self) -> None:
        return None

    async def generate(self, job: Job) -> AsyncGenerator[Chunk, None]:
        run = Run(job)
        self.runs.append(run)
        try:
            if job.tells_kept:
                yield Chunk(event=KEPT)
            for beat in self._script(job):
                if isinstance(beat, OmniError):
                    raise beat
                if isinstance(beat, Chunk):
                    await self._pause(0)
                    run.chunks += 1
                    yield beat
                else:
                    await self._pause(beat)
            run.outcome = "completed"
        except OmniError:
            run.outcome = "failed"
            raise
        finally:
            if run.outcome == "running":
                run.outcome = "aborted"

    async def _pause(self, seconds: float) -> None:
        """Sleep. Raises `Unavailable` when the engine is closed meanwhile."""
        if seconds:
            try:
                async with asyncio.timeout(seconds):
                    await self._closing.wait()
            except TimeoutError:
                return
        else:
            await asyncio.sleep(0)
        if self._closing.is_set():
            raise Unavailable("The server is shutting down.")

    async def close(self) -> None:
        self._closing.set()
