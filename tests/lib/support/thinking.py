"""A thinker driven by plain calls, its prompts made by the real preprocess."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from omni.contract.chunk import Usage
from omni.contract.job import Job
from omni.contract.stage import StageConfig
from omni.contract.tensors import StageMessage, pack, unpack
from omni.stages.drive import Drive
from omni.stages.qwen3_omni.handover import TalkerPrompt
from omni.stages.qwen3_omni.thinker import Thinker


class Thinking:
    """`model` is the loaded thinker; `options` are the stage's."""

    def __init__(self, preprocess: Drive, checkpoint: Path, model: Any, **options: Any) -> None:
        self._preprocess = preprocess
        self.stage = Thinker(StageConfig({"checkpoint": str(checkpoint), **options}), model)
        self.said: dict[str, list[StageMessage]] = {}

    def start(self, job: Job, told: Callable[[StageMessage], StageMessage] = lambda message: message) -> str:
        """Opens a generation and pushes its prompt, as it comes over the wire; its id."""
        (message,) = self._preprocess.run([StageMessage(job=job, eos=True)], job.settings)
        if message.error is not None:
            raise message.error
        self.stage.open(job.id, job.settings)
        self.said[job.id] = []
        self.stage.push(job.id, told(unpack(pack("preprocess", message))))
        return job.id

    def step(self) -> None:
        for id, message in self.stage.step():
            said = self.said[id]
            assert not said or not said[-1].eos, "a stage went on after the end"
            pack("thinker", message)
            said.append(message)

    def abort(self, id: str) -> None:
        self.stage.abort(id)
        del self.said[id]

    def ended(self, id: str) -> bool:
        return bool(self.said[id]) and self.said[id][-1].eos

    def finish(self, most: int = 3000) -> None:
        """Steps until all generations have ended."""
        for _ in range(most):
            if all(self.ended(id) for id in self.said):
                return
            self.step()
        raise AssertionError("the thinker didn't end")

    def run(self, job: Job) -> str:
        """Runs a job alone; its id."""
        id = self.start(job)
        self.finish()
        return id

    def ids(self, id: str) -> list[int]:
        """Token ids; only generations with speech tell them."""
        return [int(token) for m in self.said[id] if m.tokens is not None for token in np.asarray(m.tokens)]

    def text(self, id: str) -> str:
        return "".join(m.text.text for m in self.said[id] if m.text is not None)

    def finished(self, id: str) -> str | None:
        return next((m.text.finish for m in self.said[id] if m.text is not None and m.text.finish), None)

    def usage(self, id: str) -> Usage:
        return next(m.text.usage for m in self.said[id] if m.text is not None and m.text.usage is not None)

    def event(self, id: str) -> dict[str, Any]:
        """What was told of the prompt."""
        event = self.said[id][0].event
        assert event is not None
        return dict(event)

    def talker(self, id: str) -> TalkerPrompt:
        handover = self.said[id][0].handover
        assert handover is not None
        return TalkerPrompt.from_handover(handover)
