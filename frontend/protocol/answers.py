"""The generations of a realtime session: its answers, and what is done in their shadow (transcripts and prefills)."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from frontend.protocol.answering import Reason, Response
from frontend.protocol.conversation import Conversation, Item, Sound, messages
from frontend.protocol.delivery import Delivery
from frontend.protocol.fields import BadEvent
from frontend.protocol.realtime_config import Config
from frontend.protocol.senses import Senses
from frontend.protocol.session import Action
from frontend.protocol.transcribing import PRIORITY, Transcript, Transcripts
from frontend.protocol.transcribing import SETTINGS as TRANSCRIBE
from frontend.protocol.turns import Turn
from omni.contract.chunk import Chunk
from omni.contract.errors import ContextExceeded, MediaMissing, OmniError
from omni.contract.job import Job, Message
from omni.contract.params import Settings

Event = dict[str, Any]
RETRIES: Final = 8
"""Times that one answer is asked for again: media that were forgotten, and a context that was too long."""


@dataclass(slots=True)
class _Prefill:
    """Only to have the stages know a prompt before it is needed."""


_Run = Response | Transcript | _Prefill


class Answers:
    """At most one answer of the conversation lives, next to a few outside of it."""

    def __init__(
        self,
        session_id: str,
        conversation_id: str,
        conversation: Conversation,
        senses: Senses,
        *,
        most: int,
        send: Callable[[Event], None],
        do: Callable[[Action], None],
        new_id: Callable[[str], str],
        forget_oldest: Callable[[], bool],
    ) -> None:
        """`most` answers at a time; `forget_oldest` drops a turn of the conversation, False when there is none."""
        self._session_id = session_id
        self._conversation_id = conversation_id
        self._conversation = conversation
        self._senses = senses
        self._most = most
        self._send = send
        self._delivery = Delivery(do)
        self._new_id = new_id
        self._forget_oldest = forget_oldest
        self._numbers = itertools.count(1)
        self._runs: dict[int, _Run] = {}
        self._transcripts = Transcripts()
        self.live: Response | None = None
        """The answer of the conversation."""
        self.playing_until = 0.0
        """When a client that plays the last answer as it comes has played it."""
        self.last_ended = 0.0

    @property
    def idle(self) -> bool:
        return not self._runs

    def check(self, *, in_conversation: bool) -> None:
        """Raises `BadEvent` when no answer can be begun now."""
        if in_conversation and self.live is not None:
            raise BadEvent(
                "The conversation already has an active response; wait for it to finish, or cancel it.",
                "conversation_already_has_active_response",
            )
        if sum(isinstance(run, Response) for run in self._runs.values()) >= self._most:
            raise BadEvent(f"At most {self._most} responses may be active at a time.", "too_many_responses")

    def ask(
        self,
        config: Config,
        *,
        in_conversation: bool = True,
        metadata: Mapping[str, str] | None = None,
        items: list[Item] | None = None,
    ) -> None:
        """Begin an answer to the conversation, or to `items`. Raises what `check` raises."""
        self.check(in_conversation=in_conversation)
        turn = Turn(0, self._new_id("resp"))  # its number comes with the generation
        anchor = self._conversation.last

        def add(item: Item) -> str | None:
            return self._conversation.add(item, anchor if anchor in self._conversation else None)

        response = Response(
            turn,
            self._new_id("item"),
            config,
            prompt=None if items is None else messages(items, config.instructions),
            encoder=self._senses.encoder(config.speak),
            alignment=self._senses.alignment(),
            conversation_id=self._conversation_id if in_conversation else None,
            metadata=metadata,
            add=add if in_conversation else None,
        )
        if in_conversation:
            self.live = response
        self._send(response.created())
        self._start(response)

    def cancel(self, response: Response, reason: Reason, now: float) -> None:
        """Ends an answer; its item keeps what was said."""
        number = response.turn.number
        self._drop(number)
        self._over(response, now)
        self.playing_until = now
        for event in response.end("cancelled", reason):
            self._send(event)
        self._next_transcript()

    def find(self, id: str | None) -> Response | None:
        """The active answer of this id; without one, that of the conversation, or the newest outside of it."""
        responses = [run for run in self._runs.values() if isinstance(run, Response)]
        if id is not None:
            return next((one for one in responses if one.turn.id == id), None)
        return self.live or (responses[-1] if responses else None)

    def cancel_all(self, now: float) -> None:
        """Ends everything, and begins nothing more."""
        self._transcripts = Transcripts()
        for number, run in list(self._runs.items()):
            if isinstance(run, Response):
                self.cancel(run, "client_cancelled", now)
            elif number in self._runs:
                self._drop(number)

    def transcribe(self, item: Item, config: Config) -> None:
        """Have the sounds of `item` written down, behind the answer."""
        if config.transcription is None:
            return
        for index, one in enumerate(item.content):
            if isinstance(one, Sound):
                for event in self._transcripts.add(Transcript(item.id, index, one, config.transcription)):
                    self._send(event)

    def settle(self) -> None:
        """Nothing more is about to be asked: let what waits behind answers begin."""
        if self.live is None:
            self._next_transcript()

    def forget(self, item_id: str) -> None:
        """The item is gone, and nobody wants its transcript."""
        self._transcripts.forget(item_id)
        for number, run in list(self._runs.items()):
            if isinstance(run, Transcript) and run.item_id == item_id:
                self._drop(number)
        self._next_transcript()

    def prefill(self, config: Config, coming: list[Item]) -> None:
        """Let the stages read the conversation and `coming`, unless they are at work for this session already."""
        if self._runs:
            return
        prompt = messages([*self._conversation, *coming], config.instructions)
        settings = replace(config.settings(), prefill=True, speech=False, stage={})
        self._run(_Prefill(), prompt, settings, PRIORITY)

    def feed(self, number: int, chunk: Chunk, now: float) -> None:
        self._delivery.heard(number, chunk)
        run = self._runs.get(number)
        if chunk.kept or run is None or isinstance(run, _Prefill):
            return
        for event in run.feed(chunk):
            self._send(event)
        if isinstance(run, Response) and run.began:
            if chunk.audio:
                self.playing_until = max(self.playing_until, now) + chunk.audio_seconds
            self._next_transcript()

    def ended(self, number: int, error: OmniError | None, now: float) -> None:
        self._delivery.ended(number, failed=error is not None)
        run = self._runs.pop(number, None)
        if run is None:
            return
        if error is not None and self._again(run, error):
            return
        if isinstance(run, Response):
            self._over(run, now)
            for event in run.end("completed" if error is None else "failed", error=error):
                self._send(event)
        elif isinstance(run, Transcript):
            for event in run.end(error):
                self._send(event)
        self._next_transcript()

    def _drop(self, number: int) -> None:
        del self._runs[number]
        self._delivery.cancel(number)

    def _over(self, response: Response, now: float) -> None:
        if self.live is response:
            self.live = None
            self.last_ended = now

    def _start(self, response: Response) -> None:
        config, prompt = response.config, response.prompt
        if prompt is None:
            prompt = messages(self._conversation, config.instructions)
        response.turn.number = self._run(response, prompt, config.settings(), 0)

    def _run(self, run: _Run, prompt: tuple[Message, ...], settings: Settings, priority: int) -> int:
        number = next(self._numbers)
        self._runs[number] = run
        settings = replace(settings, session=self._session_id)
        job = Job(id=self._senses.job_id(), messages=prompt, settings=settings, priority=priority)
        self._delivery.start(number, job)
        return number

    def _again(self, run: _Run, error: OmniError) -> bool:
        """Ask once more when nothing was said yet and the failure is one that we can mend."""
        if isinstance(run, _Prefill) or (run.began if isinstance(run, Response) else run.text):
            return False
        if run.tries >= RETRIES:
            return False
        run.tries += 1
        if isinstance(error, MediaMissing):
            self._delivery.forget()
        elif isinstance(run, Transcript) or not self._shortened(run, error):
            return False
        if isinstance(run, Response):
            self._start(run)
        else:
            self._run(run, run.prompt(), TRANSCRIBE, PRIORITY)
        return True

    def _shortened(self, response: Response, error: OmniError) -> bool:
        may = response.config.truncation == "auto" and response.prompt is None
        return isinstance(error, ContextExceeded) and may and self._forget_oldest()

    def _next_transcript(self) -> None:
        """The next sound is written down once the answer to it, if there is one, has begun."""
        if self.live is not None and not self.live.began:
            return
        if any(isinstance(run, Transcript) for run in self._runs.values()):
            return
        if (transcript := self._transcripts.next()) is not None:
            self._run(transcript, transcript.prompt(), TRANSCRIBE, PRIORITY)
