"""What a stage is: plain Python, called from one thread, knowing nothing of Triton."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from omni.contract.params import Settings
from omni.contract.tensors import StageMessage

Outputs = Sequence[tuple[str, StageMessage]]
"""Pairs of a generation's id and what its stage has to say."""


@dataclass(frozen=True, slots=True)
class StageConfig:
    """What a stage is made from."""

    options: Mapping[str, Any] = field(default_factory=dict)
    """The stage's section of the profile."""
    wake: Callable[[], None] = lambda: None
    """Tells the host that `step` has something to do; callable from any thread."""


class Stage(Protocol):
    """All methods are called from one thread, the host's engine loop. None may block for long except `step`.

    A stage ends a generation by a message with `eos`, after which it holds nothing of it. A failure of one generation
    is a message with `error` and `eos`. `open` and `push` may raise an `OmniError`, which fails that generation alone;
    any other exception fails it as `StageFailed`. An exception out of `step` fails all generations of the stage.
    """

    def open(self, generation: str, settings: Settings) -> None:
        """A new generation. Raises `Overloaded` when the stage's queue is full."""

    def push(self, generation: str, message: StageMessage) -> None:
        """What the stage before has to say. `message.eos` means that nothing follows; it never carries an error."""

    def abort(self, generation: str) -> None:
        """Forget the generation at once; say nothing more of it. Unknown ids are ignored."""

    def step(self) -> Outputs:
        """Advance all generations by one unit of work and return what came of it."""

    def wait(self) -> float | None:
        """Seconds until `step` can do something: 0 now, None when only `push`, `open` or `wake` can change that."""

    def close(self) -> None:
        """Free everything; no other call follows."""
