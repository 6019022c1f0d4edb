"""The generations that one stage is working on: what came in, what the stage must be told, what has to go out.

Plain synchronous code without threads, clock or Triton; `loop` calls it under one lock. It owns these rules:

* Every message from the stage before is a request of its own. The first one of a generation is its **anchor**: it stays
  open as the generation's output channel. Each later one is closed at once, carrying whatever is ready to go out.
  So it is with the pieces of a job, which preprocess is told of when all are there.
* Text and news from the stage before go out before the stage has seen them. The stage learns of a generation when
  there is something for it: news alone take no place in it.
* A generation ends once: when its stage is done and nothing more will come from the stage before, by an error, by an
  abort, or because nothing was heard for the time-to-live. Then the anchor is closed. What arrives later is closed too.
* Text is coalesced: the first piece that can be read goes out at once, later ones wait until there are enough tokens or
  the time is up.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field, replace
from typing import Protocol

from omni.contract import tensors
from omni.contract.errors import Cancelled, OmniError, StageFailed, TimedOut
from omni.contract.names import PREPROCESS
from omni.contract.order import InOrder
from omni.contract.params import Settings
from omni.contract.stage import Outputs
from omni.contract.tensors import StageMessage, Tensors
from omni.runtime.upload import MAX_MEDIA_BYTES, Inputs, Upload

MAX_ENDED = 8192
"""Ended generations that are remembered, so that a late message doesn't open them again."""


class Responder(Protocol):
    """The answering side of one Triton request."""

    def send(self, tensors: Tensors | None, final: bool) -> None:
        """One response, or with None only the end. May block; raises nothing."""

    def cancelled(self) -> bool:
        """Whether the client withdrew the request. May block; raises nothing."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How text is coalesced."""

    window_s: float = 0.0
    """Longest time that a piece of text waits for more; 0 sends each at once."""
    tokens: int = 1
    """Tokens that are enough to send at once."""


AT_ONCE = Pace()


@dataclass(frozen=True, slots=True)
class Open:
    id: str
    settings: Settings


@dataclass(frozen=True, slots=True)
class Push:
    id: str
    message: StageMessage


@dataclass(frozen=True, slots=True)
class Abort:
    id: str


Work = Open | Push | Abort
"""What the stage has to be told."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """What the sender has to send."""

    responder: Responder
    message: StageMessage | None
    final: bool


@dataclass(frozen=True, slots=True)
class Life:
    """What became of a traced generation in this stage. Times are seconds of the stage's steady clock."""

    trace: str
    id: str
    began: float
    first_sent: float
    ended: float
    outcome: str


@dataclass(slots=True, eq=False)
class Generation:
    id: str
    settings: Settings
    anchor: Responder
    heard: float
    """When the stage before was last heard."""
    upload: Upload
    """Of preprocess: what came of the job."""
    begun: bool
    """Whether its first message has come, which a later one may overtake."""
    order: InOrder[StageMessage] = field(default_factory=InOrder)
    opened: bool = False
    """Whether the stage was told of it."""
    upstream_done: bool = False
    stage_done: bool = False
    ended: bool = False
    pending: list[StageMessage] = field(default_factory=list)
    closing: list[Responder] = field(default_factory=list)
    """Requests to close, other than the anchor."""
    seq: int = 0
    text_sent: bool = False
    sent_at: float = 0.0
    began: float = 0.0
    first_sent: float = 0.0
    outcome: str = ""

    def add(self, message: StageMessage) -> None:
        if self.pending and self.pending[-1].joins(message):
            self.pending[-1] += message
        else:
            self.pending.append(message)

    def due(self, pace: Pace) -> float:
        """When the pending output should go out; 0 is at once."""
        if self.closing or self.ended or len(self.pending) > 1 or not self.text_sent:
            return 0.0
        only = self.pending[0]
        plain_text = only.text is not None and only.handover is None and only.event is None and not only.eos
        if not plain_text or only.text is None or only.text.finish or only.text.tokens >= pace.tokens:
            return 0.0
        return self.sent_at + pace.window_s


class Generations:
    """All generations of one stage. Every method that takes `now` wants seconds of one steady clock."""

    def __init__(
        self, stage: str, *, pace: Pace = AT_ONCE, ttl_s: float = 60.0, max_media_bytes: int = MAX_MEDIA_BYTES
    ) -> None:
        self._stage = stage
        self._pace = pace
        self._ttl = ttl_s
        self._max_media = max_media_bytes
        self._live: dict[str, Generation] = {}
        self._going_out: dict[Generation, None] = {}
        self._ended: OrderedDict[str, None] = OrderedDict()
        self._unborn: OrderedDict[str, None] = OrderedDict()
        """Generations that were over before their first message came."""
        self._lost_leases: OrderedDict[str, None] = OrderedDict()
        self._work: list[Work] = []
        self._loose: list[Responder] = []
        self._lives: list[Life] = []
        self.outcomes: dict[str, int] = {"completed": 0, "cancelled": 0, "failed": 0}

    def __len__(self) -> int:
        return len(self._live)

    @property
    def open_requests(self) -> int:
        """Requests that wait for their end."""
        return len(self._loose) + sum(1 + len(g.closing) for g in {*self._live.values(), *self._going_out})

    def receive(self, id: str, settings: str, inputs: Inputs, responder: Responder, now: float) -> None:
        """A request of generation `id` arrived, with its `settings` as JSON."""
        first = self._is_first(inputs)
        if self._comes_too_late(id, first):
            self._loose.append(responder)
            return
        generation = self._live.get(id)
        try:
            if generation is None:
                generation = self._open(id, settings, responder, now, first)
            else:
                generation.closing.append(responder)
                self._going_out[generation] = None
            generation.heard = now
            generation.begun = generation.begun or first
            if self._stage == PREPROCESS:
                self._uploaded(generation, inputs)
            else:
                told = tensors.unpack(inputs)
                for message in generation.order.push(told.seq, told):
                    if not generation.ended:
                        self._told(generation, message)
        except OmniError as error:
            if generation is None:
                generation = self._live[id] = Generation(id, Settings(), responder, now, Upload(), first)
            if not generation.ended:
                self._end(generation, error)

    def _is_first(self, inputs: Inputs) -> bool:
        """Whether a message is the first of its generation. A job in one request has no number."""
        if self._stage == PREPROCESS:
            return tensors.seq_of(inputs, tensors.PIECE) <= 0
        return tensors.seq_of(inputs) == 0

    def _comes_too_late(self, id: str, first: bool) -> bool:
        """Whether a message is the rest of something that is over. An id may be used again once it is."""
        if id in self._unborn:
            if first:
                del self._unborn[id]
                self._remember(self._ended, id)
            return True
        if first and id not in self._live:
            self._ended.pop(id, None)
        return id in self._ended

    def _open(self, id: str, settings: str, responder: Responder, now: float, first: bool) -> Generation:
        parsed = Settings.loads(settings)
        generation = Generation(id, parsed, responder, now, Upload(self._max_media), first, began=now)
        self._live[id] = generation
        if parsed.lease is not None and parsed.lease in self._lost_leases:
            self._end(generation, Cancelled("The client is gone."))
        return generation

    def _uploaded(self, generation: Generation, inputs: Inputs) -> None:
        """A job came, or a piece of one. The stage is told of it at once, and may refuse it before the rest comes."""
        if generation.ended:
            return
        self._tell_of(generation)
        if (whole := generation.upload.add(generation.id, inputs, generation.settings)) is not None:
            self._told(generation, whole)

    def _tell_of(self, generation: Generation) -> None:
        if not generation.opened:
            generation.opened = True
            self._work.append(Open(generation.id, generation.settings))

    def _told(self, generation: Generation, message: StageMessage) -> None:
        if generation.ended:
            return
        if (through := message.passed_through) is not None:
            self._out(generation, through)
        if message.error is not None:
            self._end(generation, message.error)
            return
        if message.eos:
            generation.upstream_done = True
        if generation.stage_done:
            if message.eos:
                self._end(generation, None)
        elif not replace(message, event=None).empty:
            self._tell_of(generation)
            self._work.append(Push(generation.id, message))

    def produced(self, outputs: Outputs) -> None:
        """What the stage had to say."""
        for id, message in outputs:
            generation = self._live.get(id)
            if generation is None:
                continue
            if message.error is not None:
                self._out(generation, replace(message, error=None, eos=False))
                self._end(generation, message.error, tell_stage=False)
            elif message.eos:
                generation.stage_done = True
                self._out(generation, replace(message, eos=False))
                if generation.upstream_done:
                    self._end(generation, None)
            else:
                self._out(generation, message)

    def fail(self, id: str, error: OmniError) -> None:
        """End one generation with a typed failure; unknown ids are ignored."""
        if (generation := self._live.get(id)) is not None:
            self._end(generation, error)

    def fail_all(self, error: OmniError) -> None:
        for generation in list(self._live.values()):
            self._end(generation, error)

    def abort(self, id: str) -> None:
        """Stop a generation at once, also one whose first message is still on its way."""
        if (generation := self._live.get(id)) is not None:
            self._end(generation, Cancelled("The request was cancelled."))
        elif id not in self._ended:
            self._remember(self._unborn, id)

    def lease_lost(self, name: str) -> None:
        """Stop everything that lived on a lease, now and later."""
        self._remember(self._lost_leases, name)
        for generation in [g for g in self._live.values() if g.settings.lease == name]:
            self._end(generation, Cancelled("The client is gone."))

    def reap(self, now: float) -> int:
        """End the generations of which nothing was heard for too long; how many there were."""
        silent = [g for g in self._live.values() if not g.upstream_done and now - g.heard > self._ttl]
        for generation in silent:
            self._end(generation, TimedOut("The stage before fell silent.", stage=self._stage))
        return len(silent)

    def work(self) -> list[Work]:
        """What the stage has to be told, in order; each thing is given out once."""
        work, self._work = self._work, []
        return work

    def outgoing(self, now: float) -> list[Delivery]:
        """What is to be sent now, in order; each thing is given out once."""
        out = [Delivery(responder, None, True) for responder in self._loose]
        self._loose.clear()
        for generation in list(self._going_out):
            if generation.due(self._pace) <= now:
                del self._going_out[generation]
                out += self._deliver(generation, now)
        return out

    def lives(self) -> list[Life]:
        """Traced generations that ended; each is given out once."""
        lives, self._lives = self._lives, []
        return lives

    def next_due(self) -> float | None:
        """When `outgoing` will have something to give; None when nothing waits."""
        if self._loose:
            return 0.0
        return min((g.due(self._pace) for g in self._going_out), default=None)

    def _deliver(self, generation: Generation, now: float) -> list[Delivery]:
        messages = []
        for message in generation.pending:
            messages.append(replace(message, seq=generation.seq))
            generation.seq += 1
            generation.text_sent = generation.text_sent or (message.text is not None and bool(message.text.text))
        closing, generation.pending, generation.closing = generation.closing, [], []
        generation.sent_at = now
        generation.first_sent = generation.first_sent or now
        # The last message belongs to the anchor when it ends the generation; any other may ride on a request that is
        # to be closed anyway, which saves a round trip between processes.
        last = messages.pop() if generation.ended else None
        out: list[Delivery] = []
        for responder in closing:
            out.append(Delivery(responder, messages.pop(0) if messages else None, True))
        out += [Delivery(generation.anchor, message, False) for message in messages]
        if generation.ended:
            out.append(Delivery(generation.anchor, last, True))
            if (trace := generation.settings.trace) is not None:
                times = (generation.began, generation.first_sent, now)
                self._lives.append(Life(trace, generation.id, *times, generation.outcome))
        return out

    def _out(self, generation: Generation, message: StageMessage) -> None:
        if not message.empty:
            generation.add(message)
            self._going_out[generation] = None

    def _end(self, generation: Generation, error: OmniError | None, *, tell_stage: bool = True) -> None:
        if error is not None:
            if tell_stage and not generation.stage_done:
                self._work = [w for w in self._work if w.id != generation.id]
                self._work.append(Abort(generation.id))
            if error.stage is None and isinstance(error, StageFailed):
                error = StageFailed(error.message, param=error.param, stage=self._stage)
        self._out(generation, StageMessage(error=error, eos=True))
        generation.ended = True
        del self._live[generation.id]
        self._remember(self._ended if generation.begun else self._unborn, generation.id)
        outcome = "completed" if error is None else "cancelled" if isinstance(error, Cancelled) else "failed"
        self.outcomes[outcome] += 1
        generation.outcome = outcome

    @staticmethod
    def _remember(place: OrderedDict[str, None], id: str) -> None:
        place[id] = None
        if len(place) > MAX_ENDED:
            place.popitem(last=False)
