"""The conversation of a realtime session within its limits; the client is told of every change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from frontend.protocol.conversation import Conversation, Item, Speech
from frontend.protocol.fields import BadEvent
from frontend.protocol.realtime_limits import Limits

Event = dict[str, Any]


class History:
    """Over a limit, the oldest turns leave."""

    def __init__(
        self,
        limits: Limits,
        *,
        send: Callable[[Event], None],
        live: Callable[[], Item | None],
        gone: Callable[[str], None],
    ) -> None:
        """`live` tells the item that is being spoken, which stays; `gone` hears of items that left."""
        self.conversation = Conversation()
        self._limits = limits
        self._send = send
        self._live = live
        self._gone = gone

    def add(self, item: Item, after: str | None = None) -> None:
        """Raises `BadEvent`."""
        before = self.conversation.add(item, after)
        shown = item.to_json()
        self._send({"type": "conversation.item.added", "previous_item_id": before, "item": shown})
        self._send({"type": "conversation.item.done", "previous_item_id": before, "item": shown})
        self._fit(item)

    def retrieve(self, id: str) -> None:
        """Raises `BadEvent`."""
        found = self.conversation.find(id)
        self._send({"type": "conversation.item.retrieved", "item": found.to_json(media=True)})

    def delete(self, id: str) -> None:
        """Raises `BadEvent`."""
        live = self._live()
        if live is not None and live.id == id:
            raise BadEvent("The item is still being spoken; cancel its response first.", "item_in_progress", "item_id")
        self.conversation.remove(id)
        self._gone(id)
        self._send({"type": "conversation.item.deleted", "item_id": id})

    def speech(self, id: str, index: int) -> Speech:
        """What the assistant said in a part of an item. Raises `BadEvent`."""
        content = self.conversation.find(id).content
        speech = content[index] if index < len(content) else None
        if not isinstance(speech, Speech):
            raise BadEvent("Only the audio of an assistant's item can be truncated.", "invalid_value", "content_index")
        return speech

    def forget_oldest(self) -> bool:
        """Compaction: the oldest turn leaves; False when there is none that can."""
        live = self._live()
        gone = [id for id in self.conversation.oldest_turn() if live is None or id != live.id]
        for id in gone:
            self.delete(id)
        return bool(gone)

    def _fit(self, newest: Item) -> None:
        """Let go of speech that was played, then of the oldest turns."""
        limits, conversation = self._limits, self.conversation
        live = self._live()
        if conversation.nbytes > limits.media_bytes:
            for item in conversation:
                for one in item.content:
                    if isinstance(one, Speech) and item is not live:
                        one.pcm = None
        while (
            len(conversation) > limits.items
            or conversation.chars > limits.chars
            or conversation.nbytes > limits.media_bytes
        ):
            if not self.forget_oldest():
                spare = {newest.id, live.id if live is not None else ""}
                oldest = next((item.id for item in conversation if item.id not in spare), None)
                if oldest is None:
                    return
                self.delete(oldest)
