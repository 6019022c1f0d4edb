"""The dummy talker: spells the text that it sees in codec frames, one frame per generation and step."""

from __future__ import annotations

from dataclasses import dataclass, field

from omni.contract.names import TALKER
from omni.contract.params import TALKER_DEFAULTS, SamplingParams, Settings
from omni.contract.stage import Outputs, Stage, StageConfig
from omni.contract.tensors import StageMessage
from omni.stages.dummy.frames import Speller
from omni.stages.slots import Slots


def create(config: StageConfig) -> Stage:
    return Talker(config)


@dataclass(slots=True)
class _Run:
    most: int
    """Frames at which the speech is cut off, without its end mark."""
    frames: int = 0
    speller: Speller = field(default_factory=Speller)

    @property
    def ready(self) -> bool:
        return self.speller.due or self.speller.done


class Talker:
    """Options: `max_generations` (256) at once, `max_queue` (256) that wait, `sampling` that stands in for what a
    request leaves open; of that only `max_tokens` counts.
    """

    def __init__(self, config: StageConfig) -> None:
        options = config.options
        self._defaults = SamplingParams.from_json(options.get("sampling", {})).over(TALKER_DEFAULTS)
        self._slots: Slots[_Run] = Slots(int(options.get("max_generations", 256)), int(options.get("max_queue", 256)))

    def __len__(self) -> int:
        """Generations that are held."""
        return len(self._slots)

    def open(self, generation: str, settings: Settings) -> None:
        params = settings.sampling_of(TALKER, self._defaults)
        self._slots.add(generation, _Run(params.max_tokens or 1))

    def push(self, generation: str, message: StageMessage) -> None:
        run = self._slots.get(generation)
        if run is None:
            return
        if message.text is not None:
            run.speller.feed(message.text.text)
        if message.eos:
            run.speller.end()

    def abort(self, generation: str) -> None:
        self._slots.remove(generation)

    def step(self) -> Outputs:
        out: list[tuple[str, StageMessage]] = []
        for generation, run in self._slots:
            if not run.ready:
                continue
            codes = None
            if run.speller.due:
                codes = run.speller.next()
                run.frames += 1
            ended = run.speller.done or run.frames >= run.most
            out.append((generation, StageMessage(codes=codes, eos=ended)))
            if ended:
                self._slots.remove(generation)
        return out

    def wait(self) -> float | None:
        return 0.0 if any(run.ready for _, run in self._slots) else None

    def close(self) -> None:
        self._slots.clear()
