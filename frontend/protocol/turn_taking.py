"""The user's side of a conversation: the sound that comes in, the turns that are found in it, and what is shown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

from frontend.protocol.camera import Camera
from frontend.protocol.conversation import Item, Picture
from frontend.protocol.fields import BadEvent
from frontend.protocol.intake import sound
from frontend.protocol.listening import Happening, Listening
from frontend.protocol.realtime_config import Config, Detection
from frontend.protocol.realtime_limits import Limits
from frontend.protocol.senses import Senses
from frontend.protocol.session import Action, Hear, Work
from frontend.protocol.speech import Split, Started, Stopped
from omni.contract.job import MediaPart

Event = dict[str, Any]
AHEAD_EDGE_MS: Final = 20
"""Sound behind a block that its features and a change of rates look at."""


class Others(Protocol):
    """What the user's turns mean to the rest of the session."""

    def spoke_up(self, now: float) -> None:
        """A voice began."""

    def ahead(self, item: Item) -> None:
        """So much of a turn is there, and may be read ahead."""

    def turn(self, item: Item) -> None:
        """A turn is complete; it is put into the conversation."""


class TurnTaking:
    """Time is counted in samples of the sound that came in."""

    def __init__(
        self,
        config: Config,
        limits: Limits,
        senses: Senses,
        others: Others,
        *,
        ahead_s: float | None,
        send: Callable[[Event], None],
        do: Callable[[Action], None],
        new_id: Callable[[str], str],
        on_speech: Callable[[str], None],
    ) -> None:
        """`ahead_s` is how much of a turn makes a block that is read ahead.

        `on_speech` hears what voice detection found: speech_started, speech_stopped or timeout.
        """
        self._limits = limits
        self._ahead_s = ahead_s
        self._ahead = (0, 0)
        """Where the turn begins that is read ahead, and blocks of it that were."""
        self._senses = senses
        self._others = others
        self._send = send
        self._do = do
        self._new_id = new_id
        self._on_speech = on_speech
        self._format = config.listen
        self.detection: Detection | None = config.detection
        """How turns are found."""
        self.listening = self._listen(0.0)
        self._spoken: str | None = None
        """Id that the turn which is being spoken will have as an item."""
        self.camera = Camera(limits.frames)
        self.owed = False
        """Whether a turn waits for its answer."""
        self._nudged = False
        """Whether the idle timeout has come since the last answer."""

    @property
    def speaking(self) -> bool:
        return self.listening.speaking

    def configure(self, config: Config) -> None:
        self.detection = config.detection
        if config.listen != self._format:
            self._format = config.listen
            self.listening = self._listen(self.listening.now_ms)
        else:
            self.listening.detect(config.detection)
        if not self.listening.speaking:
            self._spoken = None

    def append(self, audio: bytes) -> None:
        """Raises `BadEvent`."""
        self.listening.append(self._senses.decode(audio, self._format))
        self._read_ahead()

    def listen(self) -> None:
        """Have the ear hear what has come, if there is enough for it."""
        if (pcm := self.listening.next_piece()) is not None:
            self._do(Hear(self.listening, self.listening.ear, pcm))

    def heard(self, key: object, result: Any, now: float) -> None:
        """What the ear heard, or why it couldn't. Raises `BadEvent` then."""
        if key is not self.listening:
            return  # it listened to a format that is no longer spoken
        failed = isinstance(result, Exception)
        for happening in self.listening.heard(None if failed else result):
            self._happened(happening, now)
        if failed:
            raise BadEvent("The sound could not be listened to; it was dropped.", "turn_detection_failed")

    def commit(self) -> None:
        """Raises `BadEvent`."""
        id = self._spoken or self._new_id("item")
        pcm, began = self.listening.commit()
        self._spoken = None
        self._turn(id, pcm, began, self.listening.now_ms)

    def clear(self) -> None:
        self.listening.clear()
        self._spoken = None
        self.camera.clear()
        self._send({"type": "input_audio_buffer.cleared"})

    def show(self, frame: MediaPart) -> None:
        """A camera frame: it waits for the turn whose time it belongs to."""
        data = frame.data
        assert data is not None
        self.camera.add(frame)
        self._do(Work(frame, lambda: self._senses.thumbnail(data)))

    def looked(self, frame: MediaPart, thumbnail: Any) -> bool:
        """Whether a frame shows something new. Raises `BadEvent` for one that can't be seen."""
        broken = isinstance(thumbnail, Exception)
        new = self.camera.looked(frame, None if broken else thumbnail)
        if broken:
            raise BadEvent("The image can't be decoded.", "invalid_media", "image")
        return new

    def seen(self) -> list[Item]:
        """The frames that wait, as they will be asked about."""
        return [Item("", "user", [Picture(one) for one in self.camera])]

    def answered(self) -> None:
        """The client asked for the answer itself."""
        self.owed = self._nudged = False

    def nudge_due(self, since: float) -> float | None:
        """When the idle timeout comes, if nobody spoke `since`."""
        detection = self.detection
        if detection is None or detection.idle_timeout_ms is None or self._nudged or self.speaking or self.owed:
            return None
        return since + detection.idle_timeout_ms / 1000

    def nudge(self) -> None:
        """The user has said nothing for so long that the model is to speak first."""
        self._nudged = True
        self._on_speech("timeout")
        id = self._new_id("item")
        end = self.listening.now_ms
        waiting = self.listening.samples * 1000 / self.listening.rate
        spoke = {"audio_start_ms": round(end - waiting), "audio_end_ms": round(end), "item_id": id}
        self._send({"type": "input_audio_buffer.timeout_triggered", **spoke})
        try:
            pcm, began = self.listening.commit()
        except BadEvent:
            pass  # nothing was heard at all: there is only the conversation to go by
        else:
            self._turn(id, pcm, began, end)
        self.owed = True

    def _read_ahead(self) -> None:
        """Each time that another block of the turn is complete, the stages may read all of them."""
        start, rate = self.listening.turn_start, self.listening.rate
        if self._ahead_s is None or start is None:
            return
        block = int(self._ahead_s * rate)
        blocks = (self.listening.end - start - AHEAD_EDGE_MS * rate // 1000) // block
        if blocks > 0 and (start, blocks) != self._ahead:
            self._ahead = (start, blocks)
            pcm = self.listening.read(start, start + blocks * block + AHEAD_EDGE_MS * rate // 1000)
            heard = sound(pcm, rate, "audio", self.listening.ms(start))
            self._others.ahead(Item("", "user", [*map(Picture, self.camera), heard]))

    def _happened(self, happening: Happening, now: float) -> None:
        match happening:
            case Started(at):
                self._nudged = False
                self._began(at)
                self._others.spoke_up(now)
            case Stopped(start, at):
                self._ended(start, at)
                if self.detection is not None and self.detection.create_response:
                    self.owed = True
            case Split(start, at):
                self._ended(start, at)
                self._began(at)

    def _began(self, at: int) -> None:
        self._spoken = self._new_id("item")
        self._speech("started", audio_start_ms=round(self.listening.ms(at)))

    def _ended(self, start: int, end: int) -> None:
        self._speech("stopped", audio_end_ms=round(self.listening.ms(end)))
        assert self._spoken is not None
        id, self._spoken = self._spoken, None
        self._turn(id, self.listening.cut(start, end), self.listening.ms(start), self.listening.ms(end))

    def _speech(self, what: str, **when: int) -> None:
        self._on_speech(f"speech_{what}")
        self._send({"type": f"input_audio_buffer.speech_{what}", **when, "item_id": self._spoken})

    def _turn(self, id: str, pcm: bytes, began_ms: float, ended_ms: float) -> None:
        """A turn is complete: its sound, behind the camera frames of its time, is an item."""
        seen = map(Picture, self.camera.take(began_ms, ended_ms))
        self._others.turn(Item(id, "user", [*seen, sound(pcm, self.listening.rate, "audio", began_ms)]))

    def _listen(self, began_ms: float) -> Listening:
        rate = self._format.rate
        limits, ear = self._limits, self._senses.ear(rate)
        listening = Listening(ear, rate, buffer_s=limits.buffer_s, turn_s=limits.turn_s, began_ms=began_ms)
        listening.detect(self.detection)
        return listening
