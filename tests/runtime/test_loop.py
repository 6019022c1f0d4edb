from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from support.recorder import Recorder

from omni.contract import names
from omni.contract.chunk import TextDelta
from omni.contract.errors import Cancelled, InvalidRequest, OmniError, Overloaded, StageFailed, Unavailable
from omni.contract.params import Settings
from omni.contract.stage import Outputs
from omni.contract.tensors import Control, StageMessage, pack
from omni.runtime.loop import StageLoop

pytestmark = pytest.mark.process
PROMPT = pack(names.PREPROCESS, StageMessage(eos=True))


@dataclass
class Parrot:
    """A thinker that says one word per step, for as long as it is told to."""

    words: int = 5
    wait_breaks: bool = False
    refuse: Exception | None = None
    break_at: int | None = None
    live: dict[str, int] = field(default_factory=dict)
    closed: bool = False

    def open(self, generation: str, settings: Settings) -> None:
        if self.refuse is not None:
            raise self.refuse

    def push(self, generation: str, message: StageMessage) -> None:
        self.live[generation] = 0

    def abort(self, generation: str) -> None:
        self.live.pop(generation, None)

    def step(self) -> Outputs:
        out: list[tuple[str, StageMessage]] = []
        for id in list(self.live):
            self.live[id] += 1
            if self.live[id] == self.break_at:
                self.live.clear()
                raise RuntimeError("secret")
            done = self.live[id] == self.words
            if done:
                del self.live[id]
            out.append((id, StageMessage(text=TextDelta("x", 1), eos=done)))
        time.sleep(0.001)
        return out

    def wait(self) -> float | None:
        if self.wait_breaks:
            raise RuntimeError("secret")
        return 0 if self.live else None

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def run() -> Iterator[Callable[[Parrot], StageLoop]]:
    loops: list[StageLoop] = []

    def start(stage: Parrot, **options: Any) -> StageLoop:
        loops.append(StageLoop(names.THINKER, lambda wake: stage, **options))
        return loops[-1]

    yield start
    for loop in loops:
        loop.close()


def ask(loop: StageLoop, id: str = "g", settings: str = "{}") -> Recorder:
    responder = Recorder()
    loop.receive(id, settings, PROMPT, responder)
    return responder


def heard(responder: Recorder) -> str:
    assert responder.closed.wait(10)
    return "".join(m.text.text for m in responder.got if m.text is not None)


def ending(responder: Recorder) -> OmniError | None:
    assert responder.closed.wait(10)
    assert responder.got[-1].eos
    return responder.got[-1].error


def test_a_generation_runs_to_its_end(run: Callable[[Parrot], StageLoop]) -> None:
    loop = run(Parrot())
    answers = [ask(loop, f"g{n}") for n in range(20)]
    assert [heard(a) for a in answers] == ["xxxxx"] * 20
    assert (loop.generations, loop.open_requests) == (0, 0)
    assert loop.outcomes == {"completed": 20, "cancelled": 0, "failed": 0}


def test_an_abort_stops_the_stage(run: Callable[[Parrot], StageLoop]) -> None:
    stage = Parrot(words=10**9)
    loop = run(stage)
    answer, control = ask(loop), Recorder()
    while not answer.got:
        time.sleep(0.001)
    loop.control(Control("abort", "g").dumps(), control)
    assert isinstance(ending(answer), Cancelled)
    assert control.finals == 1
    deadline = time.monotonic() + 5
    while stage.live:
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_a_lost_lease_stops_its_generations_alone(run: Callable[[Parrot], StageLoop]) -> None:
    loop = run(Parrot(words=10**9))
    lease = Recorder()
    loop.control(Control("lease", "L").dumps(), lease)
    assert lease.got[0].event == {"type": "leased"}
    mine, other = ask(loop, "g", Settings(lease="L").dumps()), ask(loop, "h")
    lease.gone = True
    assert isinstance(ending(mine), Cancelled)
    assert lease.closed.wait(5)
    assert not other.finals


def test_a_broken_step_fails_all_and_the_stage_goes_on(run: Callable[[Parrot], StageLoop]) -> None:
    stage = Parrot(words=10**9, break_at=3)
    loop = run(stage)
    error = ending(ask(loop))
    assert isinstance(error, StageFailed)
    assert error.stage == names.THINKER
    assert "secret" not in error.message
    stage.break_at, stage.words = None, 2
    assert heard(ask(loop, "h")) == "xx"


def test_whatever_breaks_the_engine_thread_goes_on(run: Callable[[Parrot], StageLoop]) -> None:
    stage = Parrot(words=10**9)
    loop = run(stage)
    answer = ask(loop)
    while not answer.got:
        time.sleep(0.001)
    stage.wait_breaks = True
    error = ending(answer)
    assert isinstance(error, StageFailed)
    assert error.stage == names.THINKER
    assert "secret" not in error.message
    stage.wait_breaks, stage.words = False, 2
    assert heard(ask(loop, "h")) == "xx"
    assert loop.generations == loop.open_requests == 0


def test_leases_are_bounded(run: Callable[..., StageLoop]) -> None:
    loop = run(Parrot(), max_leases=2)
    first, second, third, again = Recorder(), Recorder(), Recorder(), Recorder()
    for name, responder in (("a", first), ("b", second), ("c", third), ("a", again)):
        loop.control(Control("lease", name).dumps(), responder)
    assert isinstance(ending(third), Overloaded)
    assert isinstance(ending(again), InvalidRequest)
    assert not first.finals + second.finals
    first.gone = True
    assert first.closed.wait(5)
    fourth = Recorder()
    loop.control(Control("lease", "d").dumps(), fourth)
    assert fourth.got[0].event == {"type": "leased"}


@pytest.mark.parametrize(("refuse", "expected"), [(Overloaded("full"), Overloaded), (KeyError("secret"), StageFailed)])
def test_a_refused_generation_ends_typed(
    run: Callable[[Parrot], StageLoop], refuse: Exception, expected: type[OmniError]
) -> None:
    loop = run(Parrot(refuse=refuse))
    error = ending(ask(loop))
    assert isinstance(error, expected)
    assert "secret" not in error.message


def test_a_ping_and_a_bad_control_are_answered(run: Callable[[Parrot], StageLoop]) -> None:
    loop, ping, bad = run(Parrot()), Recorder(), Recorder()
    loop.control(Control("ping").dumps(), ping)
    loop.control(b"explode", bad)
    assert ping.got[0].event == {"type": "ping"}
    assert isinstance(ending(bad), InvalidRequest)


def test_closing_ends_what_runs() -> None:
    stage = Parrot(words=10**9)
    loop = StageLoop(names.THINKER, lambda wake: stage)
    answer, lease = ask(loop), Recorder()
    loop.control(Control("lease", "L").dumps(), lease)
    loop.close()
    assert isinstance(ending(answer), Unavailable)
    assert lease.finals == 1
    assert stage.closed


def test_a_stage_that_cannot_be_made_says_so() -> None:
    def create(wake: Callable[[], None]) -> Parrot:
        raise ValueError("no such checkpoint")

    with pytest.raises(ValueError, match="checkpoint"):
        StageLoop(names.THINKER, create)
