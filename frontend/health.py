"""Whether the deployment answers. The proof is an answer: a small synthetic generation through every stage.

Triton's own health stays green when a stage's process has died, so it isn't asked.
"""

from __future__ import annotations

import asyncio
import io
import logging
import math
import struct
import uuid
import wave
import zlib
from contextlib import aclosing
from time import monotonic
from typing import Final, Literal

from frontend.admission import Admission
from frontend.engine.base import Engine
from frontend.errors import INTERNAL
from frontend.metrics import Metrics
from frontend.settings import Settings
from omni.contract.errors import OmniError, Overloaded, StageFailed, TimedOut, Unavailable
from omni.contract.job import PROBE_PRIORITY, Job, MediaPart, Message, TextPart
from omni.contract.names import LISTEN_RATE, TALKER, THINKER
from omni.contract.params import SamplingParams
from omni.contract.params import Settings as Generation

log = logging.getLogger(__name__)

Status = Literal["starting", "ready", "unavailable", "draining"]

RETRY_S: Final = 1.0
"""Seconds between attempts while the deployment isn't ready."""
ALIVE_S: Final = 0.5
"""Seconds between looks at whether the engine still holds its stages."""
MAX_TOKENS: Final = 8
"""Length of the synthetic answer, in tokens and in codec frames."""


def _png(side: int) -> bytes:
    """A square image of one colour, 8-bit RGB."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    rows = (b"\0" + bytes((32, 96, 160)) * side) * side
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def _tone(seconds: float, hertz: float) -> bytes:
    """A WAV file with a sine at half of full scale, mono, 16 bits, at `LISTEN_RATE`."""
    samples = (int(16_384 * math.sin(2 * math.pi * hertz * n / LISTEN_RATE)) for n in range(int(seconds * LISTEN_RATE)))
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(LISTEN_RATE)
        out.writeframes(b"".join(struct.pack("<h", sample) for sample in samples))
    return file.getvalue()


_PARTS: Final = (
    MediaPart.of("image", _png(32)),
    MediaPart.of("audio", _tone(1.0, 440.0)),
    TextPart("Describe the image and the sound."),
)


def synthetic_job(speech: bool) -> Job:
    """A generation that uses every stage once: text, an image and a sound in, a few tokens of text and speech out.

    It waits behind no client's: a busy deployment is a healthy one.
    """
    sampling = {THINKER: SamplingParams(max_tokens=MAX_TOKENS, temperature=0.0)}
    if speech:
        sampling[TALKER] = SamplingParams(max_tokens=MAX_TOKENS)
    settings = Generation(speech=speech, sampling=sampling)
    messages = (Message("user", _PARTS),)
    return Job(id=str(uuid.uuid4()), messages=messages, settings=settings, priority=PROBE_PRIORITY)


class Health:
    """Runs the synthetic generation until it passes, and again when something failed or all was quiet for a while."""

    def __init__(self, engine: Engine, settings: Settings, metrics: Metrics, admission: Admission) -> None:
        self._engine = engine
        self._settings = settings
        self._metrics = metrics
        self._admission = admission
        self._status: Status = "starting" if settings.warmup else "ready"
        self._asked = asyncio.Event()
        self._proofs = 0
        self._task: asyncio.Task[None] | None = None
        self._probe: asyncio.Task[None] | None = None
        self.error: str | None = None
        """Code of the error that keeps the deployment from being ready."""
        metrics.triton_up.set_function(lambda: self._status == "ready")

    @property
    def status(self) -> Status:
        return "draining" if self._admission.closed else self._status

    def report(self, error: OmniError) -> None:
        """A generation failed. When the stages may be to blame, they have to prove themselves again at once.

        Until they have, the deployment isn't ready; only a timeout, which load alone can cause, leaves it ready.
        """
        if isinstance(error, (StageFailed, Unavailable)):
            self._failed(error)
        if isinstance(error, (StageFailed, Unavailable, TimedOut)):
            self._asked.set()

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="health")

    async def stop(self) -> None:
        tasks = [task for task in (self._task, self._probe) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self) -> None:
        if self._status == "starting":
            await self._prove(self._settings.warmup_timeout)
        while True:
            if await self._in_doubt() or not self._proven_by_others():
                await self._prove(self._settings.probe_timeout)

    async def _in_doubt(self) -> bool:
        """Wait for the next proof to be due: at once (True) after a report or when the engine lost its stages, else
        when the interval between proofs is over (False)."""
        interval = self._settings.probe_interval or math.inf
        due = monotonic() + interval
        while (left := due - monotonic()) > 0:
            if not self._engine.alive:
                self._failed(Unavailable("The stages are gone."))
                return True
            # Not wait_for: in Python 3.11 it loses a cancellation that comes together with the event.
            try:
                async with asyncio.timeout(min(left, ALIVE_S)):
                    await self._asked.wait()
            except TimeoutError:
                continue
            return True
        return False

    async def _prove(self, seconds: float) -> None:
        """Run synthetic generations, each in `seconds` at most, until one passes."""
        while True:
            if await self._proves(seconds):
                return
            await asyncio.sleep(RETRY_S)

    def _proven_by_others(self) -> bool:
        """Whether a client's generation has used every stage and completed since the last look."""
        before, self._proofs = self._proofs, self._metrics.proofs
        return self._proofs != before

    async def _proves(self, seconds: float) -> bool:
        """Run the synthetic generation; whether it passed in time.

        The deadline holds also when the engine doesn't let go of a cancelled generation. Before that one is gone, no
        other begins.
        """
        self._asked.clear()
        if self._probe is None or self._probe.done():
            self._probe = asyncio.create_task(self._generate(), name="synthetic generation")
        began = monotonic()
        await asyncio.wait({self._probe}, timeout=seconds)
        if self._probe.done() and not self._probe.cancelled():
            error = self._probe.exception()
        else:
            if not self._probe.cancelling():
                self._probe.cancel()
            error = None if self._proven_by_others() else TimedOut("The synthetic generation took too long.")
        if error is None or isinstance(error, Overloaded):
            self._passed(monotonic() - began)
            return True
        if not isinstance(error, OmniError):
            log.error("the synthetic generation failed unexpectedly", exc_info=error)
        self._failed(error if isinstance(error, OmniError) else INTERNAL)
        return False

    async def _generate(self) -> None:
        """One synthetic generation. Raises an `OmniError` when it fails or lacks its end or its speech."""
        speech = self._metrics.speech
        finished = spoke = False
        async with aclosing(self._engine.generate(synthetic_job(speech))) as chunks:
            async for chunk in chunks:
                finished |= chunk.finish is not None
                spoke |= bool(chunk.audio)
        if not finished:
            raise StageFailed("The synthetic generation didn't end.", stage=THINKER)
        if speech and not spoke:
            raise StageFailed("The synthetic generation has no speech.", stage=TALKER)

    def _passed(self, seconds: float) -> None:
        if self._status != "ready":
            log.info("ready", extra={"synthetic_generation_s": round(seconds, 3)})
        self._status, self.error = "ready", None

    def _failed(self, error: OmniError) -> None:
        if error.code != self.error:
            log.warning("not ready", extra={"error": error.code, "stage": error.stage})
        self.error = error.code
        if self._status == "ready":
            self._status = "unavailable"
