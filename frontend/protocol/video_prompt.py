"""What a streaming video session asks of the stages: the prompt of a query, and the part of it that is prefilled."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from frontend.protocol.frames import Frame
from frontend.protocol.pcm import wav
from frontend.protocol.video_config import SessionConfig
from omni.contract.job import Job, MediaPart, Message, Part, TextPart
from omni.contract.names import LISTEN_RATE, TALKER
from omni.contract.params import Settings

QUERY_PRIORITY: Final = 0
WARMUP_PRIORITY: Final = -1
AUDIO_PARAM: Final = "audio"


@dataclass(frozen=True, slots=True)
class Conversation:
    """What every prompt of a session begins with."""

    session: str
    """Name of the session, a hint for prefix reuse."""
    config: SessionConfig
    history: tuple[Message, ...] = ()
    """The last two messages, in text."""

    def after(self, asked: str, answered: str) -> Conversation:
        """The conversation once a turn is complete. Frames and sound of former turns aren't told again."""
        said = (Message("user", (TextPart(asked),)), Message("assistant", (TextPart(answered),)))
        return Conversation(self.session, self.config, tuple(message for message in said if message.text))

    def query(self, id: str, frames: Iterable[Frame], pcm: bytes, text: str) -> Job:
        """A question: the frames, then what was heard (PCM16 at `LISTEN_RATE`), then the text."""
        parts: list[Part] = []
        if pcm:
            parts.append(MediaPart.of("audio", wav(pcm, LISTEN_RATE), AUDIO_PARAM))
        if text:
            parts.append(TextPart(text))
        config = self.config
        settings = Settings(
            speech=config.speech,
            sampling=config.sampling,
            stage={TALKER: {"voice": config.voice}} if config.speech and config.voice else {},
            session=self.session,
        )
        messages = self._messages(frames, parts)
        return Job(id=id, messages=messages, settings=settings, priority=QUERY_PRIORITY)

    def warmup(self, id: str, frames: Iterable[Frame]) -> Job:
        """The beginning that every coming question about these frames shares; nothing is generated."""
        settings = Settings(prefill=True, session=self.session)
        return Job(id=id, messages=self._messages(frames, ()), settings=settings, priority=WARMUP_PRIORITY)

    def _messages(self, frames: Iterable[Frame], rest: Sequence[Part]) -> tuple[Message, ...]:
        prompt = self.config.system_prompt
        system = (Message("system", (TextPart(prompt),)),) if prompt else ()
        return (*system, *self.history, Message("user", (*(frame.part() for frame in frames), *rest)))
