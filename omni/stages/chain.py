"""The stages in a row by plain calls, as the ensembles join them: for tests, benchmarks, and a first look.

One thread runs them in turns, so a chain shows what the stages do together but not what they gain by running at once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from omni.contract.chunk import TextDelta
from omni.contract.errors import OmniError
from omni.contract.job import Job
from omni.contract.names import ENSEMBLES, PREPROCESS, STAGES
from omni.contract.stage import Stage, StageConfig
from omni.contract.tensors import StageMessage
from omni.stages import load

Listener = Callable[[str, str, StageMessage], None]
"""Is told the stage, the generation and what the stage said of it."""


@dataclass(slots=True)
class Said:
    """All that the stages said of one generation."""

    text: TextDelta = field(default_factory=TextDelta)
    tokens: list[int] = field(default_factory=list)
    """Thinker ids, the last one too; empty without speech."""
    codes: list[list[int]] = field(default_factory=list)
    chunks: list[npt.NDArray[np.int16]] = field(default_factory=list)
    error: OmniError | None = None

    @property
    def audio(self) -> npt.NDArray[np.int16]:
        """Speech [samples]."""
        return np.concatenate([np.empty(0, np.int16), *self.chunks])

    def add(self, message: StageMessage) -> None:
        if message.text is not None:
            self.text += message.text
        if message.tokens is not None:
            self.tokens += message.tokens.tolist()
        if message.codes is not None:
            self.codes += message.codes.tolist()
        if message.audio is not None:
            self.chunks.append(message.audio)
        self.error = self.error or message.error


class Chain:
    """`options` are those of each stage, as a profile has them."""

    def __init__(self, options: Mapping[str, Mapping[str, Any]], listener: Listener | None = None) -> None:
        self._woken = threading.Event()
        self._listener = listener
        self.stages: dict[str, Stage] = {
            stage: load(stage, StageConfig(options[stage], self._woken.set)) for stage in STAGES if stage in options
        }
        self.said: dict[str, Said] = {}
        self._ways: dict[str, list[str]] = {}
        """By generation, the stages that haven't ended it."""

    def __enter__(self) -> Chain:
        return self

    def __exit__(self, *_: object) -> None:
        for stage in self.stages.values():
            stage.close()

    def ask(self, job: Job) -> None:
        """Starts a job. Raises `OmniError` when a stage refuses it."""
        way = list[str](ENSEMBLES[job.model])
        for stage in way:
            self.stages[stage].open(job.id, job.settings)
        self.said[job.id], self._ways[job.id] = Said(), way
        self.stages[PREPROCESS].push(job.id, StageMessage(job=job, eos=True))

    def step(self) -> None:
        """One step of every stage; waits a little when no stage has anything to do."""
        self._woken.clear()
        heard = False
        for name, stage in self.stages.items():
            for generation, message in stage.step():
                heard = True
                self._pass_on(name, generation, message)
        if not heard and all(stage.wait() != 0 for stage in self.stages.values()):
            self._woken.wait(0.01)

    def run(self) -> None:
        """Steps until every generation has ended."""
        while self._ways:
            self.step()

    def _pass_on(self, stage: str, generation: str, message: StageMessage) -> None:
        self.said[generation].add(message)
        if self._listener is not None:
            self._listener(stage, generation, message)
        way = self._ways[generation]
        if message.error is not None:
            for one in way:
                self.stages[one].abort(generation)
            del self._ways[generation]
            return
        later = [one for one in way if STAGES.index(one) > STAGES.index(stage)]
        if later and STAGES.index(later[0]) == STAGES.index(stage) + 1:
            self.stages[later[0]].push(generation, message)
        if message.eos:
            way.remove(stage)
            if not way:
                del self._ways[generation]
