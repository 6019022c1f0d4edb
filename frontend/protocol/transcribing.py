"""Writing down what the user said: jobs of their own, one at a time, behind the answers."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any, Final

from frontend.openai.transcription import usage_object
from frontend.protocol.conversation import Sound
from frontend.protocol.realtime_config import Transcription
from omni.contract.chunk import Chunk, Usage
from omni.contract.errors import OmniError, Overloaded
from omni.contract.job import Message, TextPart
from omni.contract.names import THINKER
from omni.contract.params import SamplingParams, Settings

Event = dict[str, Any]
PRIORITY: Final = -1
"""Behind every answer."""
SETTINGS: Final = Settings(sampling={THINKER: SamplingParams(temperature=0.0, max_tokens=1024)})
"""Greedy: what was said isn't a matter of taste."""
WAITING: Final = 8
"""Most sounds that wait; one more isn't written down."""


@dataclass(slots=True)
class Transcript:
    """One sound that is to be written down, or is."""

    item_id: str
    index: int
    """Of the content part in its item."""
    sound: Sound
    asked: Transcription
    tries: int = 0
    """Times that it was asked for again."""
    text: str = ""
    usage: Usage = field(default_factory=Usage)

    def prompt(self) -> tuple[Message, ...]:
        """Of the sound alone, so that nothing said before colours it."""
        hints = []
        if self.asked.language:
            hints.append(f"The language is {self.asked.language}.")
        if self.asked.prompt:
            hints.append(self.asked.prompt)
        request = " ".join(["Transcribe the speech word for word. Write nothing else.", *hints])
        return (Message("user", (self.sound.part, TextPart(request))),)

    def feed(self, chunk: Chunk) -> list[Event]:
        self.usage = chunk.usage or self.usage
        if not chunk.text:
            return []
        self.text += chunk.text
        return [self._event("delta", delta=chunk.text)]

    def end(self, error: OmniError | None) -> list[Event]:
        if error is not None:
            problem = {"type": "transcription_error", "code": error.code, "message": error.message, "param": None}
            return [self._event("failed", error=problem)]
        self.sound.transcript = self.text = self.text.strip()
        return [self._event("completed", transcript=self.text, usage=usage_object(self.usage))]

    def _event(self, what: str, **fields: Any) -> Event:
        name = f"conversation.item.input_audio_transcription.{what}"
        return {"type": name, "item_id": self.item_id, "content_index": self.index, **fields}


class Transcripts:
    """Those that wait."""

    def __init__(self) -> None:
        self._waiting: deque[Transcript] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, transcript: Transcript) -> list[Event]:
        """What to say at once, when there is no room for it."""
        if len(self._waiting) >= WAITING:
            return transcript.end(Overloaded("Too much speech waits to be transcribed."))
        self._waiting.append(transcript)
        return []

    def next(self) -> Transcript | None:
        return self._waiting.popleft() if self._waiting else None

    def forget(self, item_id: str) -> None:
        """The item is gone."""
        self._waiting = deque(one for one in self._waiting if one.item_id != item_id)
