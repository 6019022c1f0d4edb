"""Several engines as one: the least active first, a session where it was before, and none that is down."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import AsyncGenerator, Mapping, Set
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from frontend.engine.base import Engine
from omni.contract.chunk import Chunk
from omni.contract.errors import Overloaded, Unavailable
from omni.contract.job import Job

log = logging.getLogger(__name__)

SESSIONS_KEPT: Final = 16_384
"""Sessions whose place is remembered; the ones that were silent for longest are forgotten first."""


@dataclass(slots=True)
class _Member:
    name: str
    engine: Engine
    active: int = 0
    """Generations under way here."""
    was_alive: bool = True


class BalancedEngine:
    """An `Engine` over several, each with a whole deployment behind it.

    A generation that failed as `Unavailable` or `Overloaded` before its first chunk is tried on each other member once;
    afterwards nothing is repeated, since a client has heard part of the answer. Prefixes and media that a session left
    in one member's stages are found again because the session comes back there.
    """

    def __init__(self, engines: Mapping[str, Engine]) -> None:
        """`engines` by a name for the log, such as their address. At least one."""
        self._members = [_Member(name, engine) for name, engine in engines.items()]
        self._places: OrderedDict[str, _Member] = OrderedDict()

    @property
    def alive(self) -> bool:
        """Whether at least one member is."""
        return self.members_alive > 0

    @property
    def members_alive(self) -> int:
        return sum(member.engine.alive for member in self._members)

    @property
    def active(self) -> dict[str, int]:
        """Generations under way, by member."""
        return {member.name: member.active for member in self._members}

    async def start(self) -> None:
        for member in self._members:
            await member.engine.start()

    async def close(self) -> None:
        for member in self._members:
            await member.engine.close()

    async def generate(self, job: Job) -> AsyncGenerator[Chunk, None]:
        tried: set[str] = set()
        while True:
            member = self._pick(job.settings.session, tried)
            tried.add(member.name)
            member.active += 1
            begun = False
            try:
                async with aclosing(member.engine.generate(job)) as chunks:
                    async for chunk in chunks:
                        begun = begun or not chunk.kept
                        yield chunk
                return
            except (Unavailable, Overloaded) as error:
                if begun or not self._candidates(tried):
                    raise
                told = {"generation": job.id, "triton": member.name, "error": error.code}
                log.info("a generation goes elsewhere", extra=told)
            finally:
                member.active -= 1

    def _candidates(self, tried: Set[str]) -> list[_Member]:
        """Members that are up and weren't tried."""
        for member in self._members:
            if member.engine.alive != member.was_alive:
                member.was_alive = member.engine.alive
                word = "is back" if member.was_alive else "is left out"
                log.warning("a Triton server %s", word, extra={"triton": member.name})
        return [member for member in self._members if member.engine.alive and member.name not in tried]

    def _pick(self, session: str | None, tried: Set[str]) -> _Member:
        """Where a generation goes. With no member up it is any: that one waits for its lease, or says `Unavailable`."""
        candidates = self._candidates(tried) or [m for m in self._members if m.name not in tried] or self._members
        place = None if session is None else self._places.get(session)
        if place is None or place not in candidates:
            least = min(member.active for member in candidates)
            place = next(member for member in candidates if member.active == least)
        # Of members with the same load the one that was served longest ago comes first next time.
        self._members.remove(place)
        self._members.append(place)
        if session is not None:
            self._places[session] = place
            self._places.move_to_end(session)
            if len(self._places) > SESSIONS_KEPT:
                self._places.popitem(last=False)
        return place
