from __future__ import annotations

import threading
from dataclasses import dataclass, field

from omni.contract.tensors import StageMessage, Tensors, unpack


@dataclass
class Recorder:
    """A responder that keeps what it is sent."""

    got: list[StageMessage] = field(default_factory=list)
    finals: int = 0
    gone: bool = False
    closed: threading.Event = field(default_factory=threading.Event)

    def send(self, tensors: Tensors | None, final: bool) -> None:
        assert not self.finals, "sent after the end"
        if tensors is not None:
            self.got.append(unpack(tensors))
        if final:
            self.finals += 1
            self.closed.set()

    def cancelled(self) -> bool:
        return self.gone
