"""A stage run by plain calls, without Triton: for tests, and for anyone who wants to see one work."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any

from omni.contract.params import Settings
from omni.contract.stage import StageConfig
from omni.contract.tensors import StageMessage
from omni.stages import load

DEFAULT = Settings()


class Drive:
    """One stage and what it said so far, by generation. Holds the stage to its protocol: nothing follows an end."""

    def __init__(self, stage: str, implementation: str = "dummy", **options: Any) -> None:
        self._woken = threading.Event()
        config = StageConfig({"implementation": implementation, **options}, self._woken.set)
        self.stage = load(stage, config)
        self.said: dict[str, list[StageMessage]] = {}
        """Messages of each generation that was opened and not aborted."""

    def __enter__(self) -> Drive:
        return self

    def __exit__(self, *_: object) -> None:
        self.stage.close()

    def open(self, generation: str, settings: Settings = DEFAULT) -> None:
        self.stage.open(generation, settings)
        self.said[generation] = []

    def push(self, generation: str, *messages: StageMessage) -> None:
        for message in messages:
            self.stage.push(generation, message)

    def abort(self, generation: str) -> None:
        self.stage.abort(generation)
        self.said.pop(generation, None)

    def step(self) -> list[tuple[str, StageMessage]]:
        """One step. Raises KeyError or ValueError when the stage speaks of a generation that isn't open."""
        out = list(self.stage.step())
        for generation, message in out:
            said = self.said[generation]
            if said and said[-1].eos:
                raise ValueError("a stage went on after the end")
            said.append(message)
        return out

    def finish(self, timeout: float = 60.0) -> Mapping[str, list[StageMessage]]:
        """Steps until every open generation has ended. Raises TimeoutError after `timeout` seconds."""
        deadline = time.monotonic() + timeout
        while any(not said or not said[-1].eos for said in self.said.values()):
            if time.monotonic() > deadline:
                raise TimeoutError("a stage didn't end its generations")
            pause = self.stage.wait()
            self._woken.wait(1.0 if pause is None else pause)
            self._woken.clear()
            self.step()
        return self.said

    def run(self, messages: Iterable[StageMessage], settings: Settings = DEFAULT) -> list[StageMessage]:
        """All that one generation says to `messages`."""
        self.open("one", settings)
        self.push("one", *messages)
        self.finish()
        return self.said.pop("one")
