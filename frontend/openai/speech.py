"""Reading aloud: what is asked for, the job that does it, and what its answer looks like. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

import pybase64

from frontend.openai.from_chunks import DONE, event
from frontend.openai.requests import Text, Voice, Wire, bare
from frontend.openai.speech_format import FORMATS, SpeechEncoder, file_encoder
from frontend.openai.to_job import voice_of
from frontend.openai.transcription import usage_object
from omni.contract.chunk import Chunk, Usage
from omni.contract.errors import InvalidRequest, NotSupported, TooLarge, UnknownModel
from omni.contract.job import Job, Message, TextPart
from omni.contract.names import TALKER, THINKER
from omni.contract.params import TALKER_DEFAULTS, THINKER_DEFAULTS, SamplingParams, Settings
from omni.profile import Profile

PROMPT: Final = "You read texts aloud. Say the text of the user word for word, and nothing else."
TOKENS_PER_CHAR: Final = 2
"""More than any text needs."""
FRAMES_PER_CHAR: Final = 4
"""Codec frames: 0.32 s, slower than any language is spoken."""


class SpeechRequest(Wire):
    """The body of `POST /v1/audio/speech`."""

    input: Text
    model: Text | None = None
    voice: Annotated[Voice | None, bare("id")] = None
    response_format: Text | None = None
    """mp3, opus, aac, flac, wav or pcm."""
    stream_format: Text | None = None
    """audio, or sse for events."""
    speed: float | None = None
    """1 is the only one."""
    instructions: Text | None = None
    """How to read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A request that was found to be in order."""

    text: str
    format: str
    events: bool
    voice: str | None
    instructions: str

    def job(self, id: str) -> Job:
        tokens = max(THINKER_DEFAULTS.max_tokens or 0, TOKENS_PER_CHAR * len(self.text))
        frames = max(TALKER_DEFAULTS.max_tokens or 0, FRAMES_PER_CHAR * len(self.text))
        sampling = {
            THINKER: SamplingParams(temperature=0.0, max_tokens=tokens),
            TALKER: SamplingParams(max_tokens=frames),
        }
        how = PROMPT if not self.instructions else f"{PROMPT} This is how to read: {self.instructions}"
        messages = (Message("system", (TextPart(how),)), Message("user", (TextPart(self.text),)))
        stage = {} if self.voice is None else {TALKER: {"voice": self.voice}}
        return Job(id=id, messages=messages, settings=Settings(speech=True, sampling=sampling, stage=stage))


def reading(request: SpeechRequest, profile: Profile, models: Sequence[str], most_chars: int) -> Reading:
    """Raises `InvalidRequest`, `NotSupported`, `TooLarge` or `UnknownModel`."""
    if request.model is not None and request.model not in models:
        raise UnknownModel("This server has no such model; GET /v1/models lists what it has.", param="model")
    if not profile.speech:
        raise NotSupported("This deployment answers in text only.")
    if not request.input.strip():
        raise InvalidRequest("input must hold a text.", param="input")
    for name, text in (("input", request.input), ("instructions", request.instructions or "")):
        if len(text) > most_chars:
            raise TooLarge(f"{name} may have {most_chars} characters.", param=name)
    format = (request.response_format or "mp3").lower()
    if format not in FORMATS:
        raise InvalidRequest(f"response_format must be one of {', '.join(FORMATS)}.", param="response_format")
    if request.stream_format not in (None, "audio", "sse"):
        raise InvalidRequest("stream_format must be audio or sse.", param="stream_format")
    if request.speed not in (None, 1):
        raise NotSupported("speed must be 1: the model speaks at its own pace.", param="speed")
    return Reading(
        text=request.input,
        format=format,
        events=request.stream_format == "sse",
        voice=None if request.voice is None else voice_of(request.voice.id, profile, "voice"),
        instructions=request.instructions or "",
    )


class SpokenFile:
    """An `Answer` that is one sound file, in the pieces in which it is made."""

    def __init__(self, format: str) -> None:
        self._encoder: SpeechEncoder = file_encoder(format)

    @property
    def slow_sound(self) -> bool:
        return self._encoder.heavy

    @property
    def slow_end(self) -> bool:
        return self._encoder.heavy

    def feed(self, chunk: Chunk) -> bytes:
        return self._encoder.encode(chunk.audio) if chunk.audio else b""

    def finish(self) -> bytes:
        return self._encoder.finish()


class SpokenEvents(SpokenFile):
    """The same in `speech.audio.delta` events, then one `speech.audio.done`."""

    def __init__(self, format: str) -> None:
        super().__init__(format)
        self._usage = Usage()

    def feed(self, chunk: Chunk) -> bytes:
        self._usage = chunk.usage or self._usage
        return self._delta(super().feed(chunk))

    def finish(self) -> bytes:
        usage: dict[str, Any] = usage_object(self._usage)
        counts = {name: usage[name] for name in ("input_tokens", "output_tokens", "total_tokens")}
        done = event({"type": "speech.audio.done", "usage": counts})
        return self._delta(super().finish()) + done + DONE

    @staticmethod
    def _delta(sound: bytes) -> bytes:
        if not sound:
            return b""
        return event({"type": "speech.audio.delta", "audio": pybase64.b64encode_as_string(sound)})
