"""Where the media of a request may come from when they aren't in the request itself."""

from __future__ import annotations

import asyncio
from pathlib import Path

import anyio.to_thread

from frontend.media.fetch import Claim, Fetcher, unclaimed
from frontend.media.files import read_file
from omni.contract.errors import NotSupported

_REMOTE = ("http://", "https://")


class Sources:
    """The web, a folder of this machine, both or neither."""

    def __init__(self, fetcher: Fetcher | None = None, folder: Path | None = None, fetches: int = 32) -> None:
        """At most `fetches` URLs are fetched at a time; others wait for their turn."""
        self._fetcher = fetcher
        self._folder = folder
        self._turns = asyncio.Semaphore(fetches)

    async def read(self, source: str, max_bytes: int, claim: Claim = unclaimed) -> bytes:
        """What is at a URL or path; `claim` is told of its bytes.

        Raises an `InvalidRequest` whose message goes on after the name of the part, or what `claim` raises.
        """
        if source[:8].lower().startswith(_REMOTE):
            if self._fetcher is None:
                raise NotSupported("media URLs are not enabled on this server; send a data URL.")
            async with self._turns:
                return await self._fetcher.fetch(source, max_bytes, claim)
        if self._folder is None:
            raise NotSupported("local files are not enabled on this server; send a data URL.")
        data = await anyio.to_thread.run_sync(read_file, source, self._folder, max_bytes)
        claim(len(data))
        return data

    async def close(self) -> None:
        if self._fetcher is not None:
            await self._fetcher.close()


NOWHERE = Sources()
