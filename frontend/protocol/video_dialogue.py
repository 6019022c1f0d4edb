"""Questions and answers of a streaming video session, one at a time, and what is read ahead between them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from frontend.protocol.delivery import Delivery
from frontend.protocol.frames import Frame
from frontend.protocol.session import Action
from frontend.protocol.turns import Outcome, Turns
from frontend.protocol.video_answer import Answer, Event
from frontend.protocol.video_audio import Hearing
from frontend.protocol.video_config import SessionConfig
from frontend.protocol.video_deployment import Deployment
from frontend.protocol.video_prompt import Conversation
from frontend.protocol.video_sight import Sight, error
from frontend.protocol.warmup import Warmup
from omni.contract.chunk import Chunk
from omni.contract.errors import InvalidMedia, InvalidRequest, MediaMissing, OmniError, TooLarge

MAX_RESENDS: Final = 2
"""How often the stages may say that they lack the bytes of frames before a turn has failed."""


@dataclass(slots=True, eq=False)
class Query:
    """A question, from its message until its turn is over."""

    text: Any
    pcm: bytes
    frames: list[Frame] = field(default_factory=list)
    resends: int = 0


class Dialogue:
    """What was said so far, the turn that lives, and the warm-up that runs; never both of the last two."""

    def __init__(
        self,
        config: SessionConfig,
        deployment: Deployment,
        sight: Sight,
        hearing: Hearing,
        do: Callable[[Action], None],
        send: Callable[[Iterable[Event]], None],
    ) -> None:
        """`do` takes what is asked of the stages, `send` what the client is told, both in order."""
        self._config = config
        self._deployment = deployment
        self._sight = sight
        self._hearing = hearing
        self._send = send
        self._delivery = Delivery(do)
        self.conversation = Conversation(deployment.new_id(), config)
        self._turns = Turns()
        self._warmup = Warmup(deployment.prefill)
        self._query: Query | None = None
        """The question that is being answered,"""
        self._answer: Answer | None = None
        """and its answer. Both are there while a turn lives."""

    @property
    def answering(self) -> bool:
        """Whether a turn lives."""
        return self._turns.live is not None

    def ask(self, query: Query) -> None:
        """Begins a turn, when the question can be asked. The turn before must be over."""
        query.frames = self._sight.question()
        problem = self._config.sampling_problem
        most = self._deployment.limits.text_chars
        if not isinstance(query.text, str):
            problem = InvalidRequest("text must be a string")
        elif len(query.text) > most:
            problem = TooLarge(f"text may have {most} characters")
        if not query.frames:
            self._send([error("No frames buffered")])
        elif problem is not None:
            self._send([error(f"Failed to build request: {problem.message}", problem.code)])
        else:
            self.stop_reading()
            return self._begin(query)
        self._hearing.give_back(query.pcm)
        return None

    def feed(self, number: int, chunk: Chunk, now: float) -> None:
        self._delivery.heard(number, chunk)
        if chunk.kept or self._answer is None or self._turns.find(number) is None:
            return
        self._send(self._answer.feed(chunk, now))

    def ended(self, number: int, error: OmniError | None) -> None:
        self._delivery.ended(number, failed=error is not None)
        if self._warmup.running == number:
            self._end_warmup(error)
        elif self._turns.find(number) is not None and not (error and self._ask_again(error)):
            self._end("completed" if error is None else "failed", error)

    def cut_off(self) -> None:
        """The answer that is being given, if there is one, is stopped and closed."""
        self._end("cancelled")

    def drop(self) -> None:
        """Stop everything, and say nothing of it."""
        if (turn := self._turns.live) is not None:
            self._delivery.cancel(turn.number)
            self._turns.end("cancelled")
        self.stop_reading()
        self._delivery.drop()
        self._query = self._answer = None

    # -- turns

    def _begin(self, query: Query) -> None:
        id = self._deployment.new_id()
        turn = self._turns.begin(f"video-{id[:12]}")
        self._query = query
        self._answer = Answer(turn, self._config, self._deployment.streamed(), query.frames, self._sight.named)
        self._delivery.start(turn.number, self.conversation.query(id, query.frames, query.pcm, query.text))

    def _ask_again(self, problem: OmniError) -> bool:
        """Whether the turn, of which the client has seen nothing yet, could be asked for once more."""
        query, turn, answer = self._query, self._turns.live, self._answer
        if query is None or turn is None or answer is None or turn.started:
            return False
        if isinstance(problem, MediaMissing) and query.resends < MAX_RESENDS:
            query.resends += 1
            self._delivery.forget()
        elif (bad := self._undecodable(problem, query.frames)) is not None:
            query.frames = answer.frames = [frame for frame in query.frames if frame.digest != bad.digest]
        else:
            return False
        turn.number = self._turns.number()
        id = self._deployment.new_id()
        self._delivery.start(turn.number, self.conversation.query(id, query.frames, query.pcm, query.text))
        return True

    def _end(self, outcome: Outcome, problem: OmniError | None = None) -> None:
        """Say what is missing of the living turn, if there is one. Only a completed one is remembered."""
        turn, query, answer = self._turns.live, self._query, self._answer
        if turn is None or query is None or answer is None:
            return
        if outcome == "cancelled":
            self._delivery.cancel(turn.number)
        self._send(answer.end(outcome, problem))
        self._turns.end(outcome)
        self._query = self._answer = None
        if outcome == "completed":
            self.conversation = self.conversation.after(query.text, turn.text)
        else:
            self._hearing.give_back(query.pcm)

    def _undecodable(self, problem: OmniError, asked: Iterable[Frame]) -> Frame | None:
        """The frame that the stages couldn't decode, which is let go of."""
        if not isinstance(problem, (InvalidMedia, TooLarge)):
            return None
        bad = self._sight.undecodable(problem.param, asked)
        if bad is not None:
            self._send([error("Frame decode failed", InvalidMedia.code)])
        return bad

    # -- prefill

    def read_ahead(self) -> None:
        """Begin a warm-up, if there is something to read and none runs. No turn may live."""
        if self._warmup.due(self.conversation, self._sight.frames):
            number = self._turns.number()
            frames = list(self._sight.frames)
            self._warmup.begin(number, self.conversation, frames)
            self._delivery.start(number, self.conversation.warmup(self._deployment.new_id(), frames))

    def stop_reading(self) -> None:
        if (number := self._warmup.stop()) is not None:
            self._delivery.cancel(number)

    def _end_warmup(self, problem: OmniError | None) -> None:
        frames = self._warmup.end(problem)
        if isinstance(problem, MediaMissing):
            self._delivery.forget()
        elif problem is not None:
            self._undecodable(problem, frames)
