"""How much the front door takes on at a time. What is over a limit is refused at once, before any work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Self

from omni.contract.errors import Overloaded, TooLarge, Unavailable

Kind = Literal["generation", "session"]


class Ticket:
    """The right to something bounded, until `release`. Also a context manager; a second release does nothing."""

    __slots__ = ("_give_back",)

    def __init__(self, give_back: Callable[[], None]) -> None:
        self._give_back: Callable[[], None] | None = give_back

    def release(self) -> None:
        if (give_back := self._give_back) is not None:
            self._give_back = None
            give_back()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class Admission:
    """Counts generations, sessions and media bytes against their limits. Belongs to one event loop."""

    def __init__(
        self, *, generations: int, sessions: int, media_bytes: int, on_refusal: Callable[[str], None] = lambda _: None
    ) -> None:
        """`on_refusal` hears the reason of each refusal: generation, session, media or draining."""
        self._limits: dict[Kind, int] = {"generation": generations, "session": sessions}
        self._counts: dict[Kind, int] = {"generation": 0, "session": 0}
        self._media_limit = media_bytes
        self._media = 0
        self._on_refusal = on_refusal
        self._closed = False

    @property
    def in_flight(self) -> int:
        """Generations that hold a ticket."""
        return self._counts["generation"]

    @property
    def sessions(self) -> int:
        return self._counts["session"]

    @property
    def media_bytes(self) -> int:
        return self._media

    @property
    def closed(self) -> bool:
        """Whether the server is on its way out and takes nothing new."""
        return self._closed

    def close(self) -> None:
        """Refuse everything from now on; what was admitted goes on."""
        self._closed = True

    def admit(self, kind: Kind) -> Ticket:
        """A ticket for one generation or session. Raises `Overloaded`, or `Unavailable` once closed."""
        if self._closed:
            self._on_refusal("draining")
            raise Unavailable("The server is shutting down. Please try again elsewhere or later.")
        if self._counts[kind] >= self._limits[kind]:
            self._on_refusal(kind)
            raise Overloaded(f"The server is busy: all {self._limits[kind]} {kind}s are taken. Please try again later.")
        self._counts[kind] += 1
        return Ticket(lambda: self._leave(kind))

    def admit_media(self, size: int) -> Ticket:
        """A ticket for `size` bytes of media, to be released once Triton has them.

        Raises `Overloaded`; `TooLarge` when the bytes wouldn't even fit alone. A generation that was admitted before
        `close` still gets its media through.
        """
        if size > self._media_limit:
            raise TooLarge(f"The media of a request may be {self._media_limit} bytes in all.")
        if self._media + size > self._media_limit:
            self._on_refusal("media")
            raise Overloaded("The server is busy with the media of other requests. Please try again later.")
        self._media += size
        return Ticket(lambda: self._drop(size))

    def _leave(self, kind: Kind) -> None:
        self._counts[kind] -= 1

    def _drop(self, size: int) -> None:
        self._media -= size
