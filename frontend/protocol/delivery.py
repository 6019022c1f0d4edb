"""A session's media on their way to the stages: the bytes of each go once, and later jobs name it by its digest."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final

from frontend.protocol.session import Action, Cancel, Start
from omni.contract.chunk import Chunk
from omni.contract.job import Job, MediaPart, Message, Part

KNOWN: Final = 4096
"""Media that are remembered to be with the stages."""


class Delivery:
    """Starts and cancels the generations of a session.

    A job must not overtake the media that it only names, and to send them twice takes longer than to wait. So a job
    waits for those of its media that are under way with another one, and a job that is cancelled is stopped when its
    media have arrived, of which preprocess tells as soon as it has them.
    """

    def __init__(self, do: Callable[[Action], None]) -> None:
        """`do` takes what is asked of the stages, in order."""
        self._do = do
        self._known: dict[str, bool] = {}
        """Digests of the media that preprocess was given, oldest first, and whether the thinker has read them."""
        self._unread: dict[int, set[str]] = {}
        """By generation, the digests of its media, until the thinker has read them."""
        self._under_way: dict[int, set[str]] = {}
        """By generation, the digests of those whose bytes go with it, until they have arrived."""
        self._unwanted: set[int] = set()
        """Generations to be cancelled when their media have arrived."""
        self._waiting: dict[int, Job] = {}

    def start(self, number: int, job: Job) -> None:
        """Begin a generation, now or when the media that it shares with others have arrived. All media of `job` come
        with their bytes."""
        self._waiting[number] = job
        self._begin()

    def cancel(self, number: int) -> None:
        if self._waiting.pop(number, None) is not None:
            return
        self._unread.pop(number, None)
        if number in self._under_way:
            self._unwanted.add(number)
        else:
            self._do(Cancel(number))

    def heard(self, number: int, chunk: Chunk) -> None:
        """The stages have said something of a generation: preprocess has its media, and unless that is all that was
        said, the thinker has read them."""
        if not chunk.kept:
            self._remember(self._unread.pop(number, ()), read=True)
        if (digests := self._under_way.pop(number, None)) is None:
            return
        self._remember(digests, read=False)
        if number in self._unwanted:
            self._unwanted.remove(number)
            self._do(Cancel(number))
        self._begin()

    def ended(self, number: int, *, failed: bool) -> None:
        """A generation is over; of one that failed before it was heard, nobody knows where its media are."""
        digests = self._unread.pop(number, ())
        if not failed:
            self._remember(digests, read=True)
        if self._under_way.pop(number, None) is not None:
            self._unwanted.discard(number)
            self._begin()

    def forget(self) -> None:
        """The stages lost what they were given."""
        self._known.clear()

    def drop(self) -> None:
        """Nothing more is wanted, and nothing is told any more."""
        self._waiting.clear()
        self._unread.clear()
        for number in self._under_way:
            self._do(Cancel(number))
        self._under_way.clear()
        self._unwanted.clear()

    def _remember(self, digests: Iterable[str], *, read: bool) -> None:
        for digest in digests:
            self._known[digest] = read or self._known.get(digest, False)
        while len(self._known) > KNOWN:
            del self._known[next(iter(self._known))]

    def _begin(self) -> None:
        """Start what no longer has to wait."""
        for number, job in list(self._waiting.items()):
            digests = {part.digest for part in job.media}
            new = digests - self._known.keys()
            if any(not new.isdisjoint(others) for others in self._under_way.values()):
                continue
            del self._waiting[number]
            if digests:
                self._unread[number] = digests
            if new:
                self._under_way[number] = new
            self._do(Start(number, replace(job, messages=_named(job, self._known))))


def _named(job: Job, known: Mapping[str, bool]) -> tuple[Message, ...]:
    """The messages of `job` with the media that are `known` named instead of sent."""

    def named(part: Part) -> Part:
        if isinstance(part, MediaPart) and part.digest in known:
            return part.by_digest(read=known[part.digest])
        return part

    return tuple(Message(message.role, tuple(named(part) for part in message.parts)) for message in job.messages)
