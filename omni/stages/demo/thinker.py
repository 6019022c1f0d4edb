"""The demo's thinker: answers prompts in words, several at once, and stops within a token."""

from __future__ import annotations

import logging
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from omni.contract.chunk import FinishReason, TextDelta, Usage
from omni.contract.errors import ContextExceeded, OmniError, StageFailed
from omni.contract.handover import Handover
from omni.contract.job import PROBE_PRIORITY
from omni.contract.names import TALKER, THINKER
from omni.contract.params import THINKER_DEFAULTS, SamplingParams, Settings
from omni.contract.stage import Outputs, Stage, StageConfig
from omni.contract.tensors import StageMessage
from omni.stages.demo.language import Begun, Ended, Language, News, Piece
from omni.stages.slots import Slots
from omni.stages.stop import StopStrings

log = logging.getLogger(__name__)


def create(config: StageConfig) -> Stage:
    return Thinker(config)


@dataclass(slots=True)
class _Run:
    settings: Settings
    params: SamplingParams
    stops: StopStrings
    prompt: str | None = None
    answer: str | None = None
    """What is to be said, when preprocess knows it already."""
    priority: int = 0
    started: bool = False
    dropped: bool = False
    """Whether the model is to stop: aborted, or at its end."""
    usage: Usage = field(default_factory=Usage)
    tokens: int = 0
    """Tokens of the pieces so far."""


class Thinker:
    """Options: `max_generations` (3) at once, `max_queue` (64) that wait, `context_length` (2048), `sampling` that
    stands in for what a request leaves open. A probe of whether the server lives has a place of its own.
    """

    def __init__(self, config: StageConfig) -> None:
        options = config.options
        self._wake = config.wake
        self._context_length = int(options.get("context_length", 2048))
        self._defaults = SamplingParams.from_json(options.get("sampling", {})).over(THINKER_DEFAULTS)
        most = int(options.get("max_generations", 3))
        self._slots: Slots[_Run] = Slots(most, int(options.get("max_queue", 64)), lambda run: run.priority)
        self._language = Language(most + 1, self._context_length)
        self._pool = ThreadPoolExecutor(most + 1, thread_name_prefix="thinker")
        self._news: deque[tuple[str, _Run, News]] = deque()
        """What the model's threads leave for `step`."""

    def __len__(self) -> int:
        """Generations that are held."""
        return len(self._slots)

    def open(self, generation: str, settings: Settings) -> None:
        params = settings.sampling_of(THINKER, self._defaults)
        self._slots.add(generation, _Run(settings, params, StopStrings(params.stop or ())))

    def push(self, generation: str, message: StageMessage) -> None:
        if message.handover is not None and (run := self._slots.get(generation)) is not None:
            meta = message.handover.meta
            run.prompt, run.answer = str(meta["prompt"]), meta.get("answer")
            run.priority = int(meta.get("priority", 0))
            if run.priority >= PROBE_PRIORITY:
                self._slots.hurry(generation)

    def abort(self, generation: str) -> None:
        if (run := self._slots.remove(generation)) is not None:
            run.dropped = True

    def step(self) -> Outputs:
        for generation, run in self._slots:
            if run.prompt is not None and not run.started:
                run.started = True
                if run.answer is None or run.settings.prefill:
                    self._pool.submit(self._work, generation, run, run.prompt)
                else:
                    said = (Begun(0, 0), Piece(run.answer), Ended(1, False))
                    self._news.extend((generation, run, news) for news in said)
        out: list[tuple[str, StageMessage]] = []
        while self._news:
            generation, run, news = self._news.popleft()
            if run.dropped:
                continue
            message = self._message(run, news)
            if message.eos:
                self.abort(generation)
            if not message.empty:
                out.append((generation, message))
        return out

    def wait(self) -> float | None:
        due = self._news or any(run.prompt is not None and not run.started for _, run in self._slots)
        return 0.0 if due else None

    def close(self) -> None:
        for generation, _ in self._slots:
            self.abort(generation)
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _work(self, generation: str, run: _Run, prompt: str) -> None:
        """One generation, on a thread that waits for the model."""

        def hear(news: News) -> bool:
            self._news.append((generation, run, news))
            self._wake()
            return not run.dropped

        if run.dropped:
            return
        params = replace(run.params, max_tokens=None) if run.settings.prefill else self._fitting(run)
        try:
            self._language.generate(prompt, params, hear)
        except Exception:
            log.exception("the model could not answer")
            hear(StageFailed("The model could not answer.", stage=THINKER))

    def _fitting(self, run: _Run) -> SamplingParams:
        """What nobody asked for more of than there is room for."""
        return replace(run.params, max_tokens=min(run.params.max_tokens or 1, self._context_length))

    def _message(self, run: _Run, news: News) -> StageMessage:
        match news:
            case Begun():
                return self._begun(run, news)
            case Piece():
                run.tokens += 1
                text = run.stops.feed(news.text, armed=run.tokens >= (run.params.min_tokens or 0))
                if run.stops.found:
                    return self._end(run, TextDelta(text, 1, "stop", logprobs=news.logprobs))
                return StageMessage(text=TextDelta(text, 1, logprobs=news.logprobs))
            case Ended():
                finish: FinishReason = "length" if news.full else "stop"
                # The token that ends an answer has no piece, and some characters need several.
                return self._end(run, TextDelta(run.stops.flush(), max(0, news.tokens - run.tokens), finish))
            case OmniError():
                return StageMessage(error=news, eos=True)

    def _begun(self, run: _Run, begun: Begun) -> StageMessage:
        run.usage = Usage(prompt_tokens=begun.prompt_tokens, cached_tokens=begun.cached_tokens)
        asked = run.settings.sampling.get(THINKER, SamplingParams()).max_tokens or 0
        if begun.prompt_tokens + asked > self._context_length:
            error = ContextExceeded(
                f"Requested token count exceeds the model's context length: {begun.prompt_tokens} tokens of prompt and "
                f"{asked} tokens of answer are more than {self._context_length} tokens.",
                param="max_tokens",
            )
            return StageMessage(error=error, eos=True)
        if run.settings.prefill:
            return StageMessage()
        handover = Handover({"voice": run.settings.knob(TALKER, "voice", None)}) if run.settings.speech else None
        news = {"prompt_tokens": begun.prompt_tokens, "cached_tokens": begun.cached_tokens}
        return StageMessage(event={"type": "prompt", **news}, handover=handover)

    def _end(self, run: _Run, last: TextDelta) -> StageMessage:
        prompt, cached = run.usage.prompt_tokens, run.usage.cached_tokens
        if run.settings.prefill:
            return StageMessage(event={"type": "prefilled", "prompt_tokens": prompt, "cached_tokens": cached}, eos=True)
        run.tokens += 0 if run.stops.found else last.tokens
        usage = replace(run.usage, completion_tokens=run.tokens)
        return StageMessage(text=replace(last, usage=usage), eos=True)
