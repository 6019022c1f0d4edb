"""The thinker: text of prompts, for many generations at once.

A step runs one token of every answer and up to `max_prefill_tokens` of prompts, and waits for the device once. What a
finished generation leaves in the cache serves later prompts that begin as its own did. A prefill job only fills that
cache: it runs when no query wants to be prefilled, needs no slot, and gives way when a query needs its memory.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from omni.contract.chunk import Usage
from omni.contract.errors import ContextExceeded, OmniError, Overloaded, StageFailed
from omni.contract.handover import Handover
from omni.contract.names import TALKER, THINKER
from omni.contract.params import THINKER_DEFAULTS, SamplingParams, Settings
from omni.contract.stage import Outputs, Stage, StageConfig
from omni.contract.tensors import StageMessage
from omni.engine.detokenizer import byte_table
from omni.engine.sampler import Choice, Sampler
from omni.stages.qwen3_omni.answer import Answer
from omni.stages.qwen3_omni.checkpoint import Figures, Place, load_tokenizer
from omni.stages.qwen3_omni.generation import Generation
from omni.stages.qwen3_omni.handover import TalkerPrompt
from omni.stages.qwen3_omni.memory import Memory
from omni.stages.qwen3_omni.prompt import Prompt
from omni.stages.qwen3_omni.talker_prompt import talker_prompt
from omni.stages.qwen3_omni.thinker_model import ThinkerModel

log = logging.getLogger(__name__)


def create(config: StageConfig) -> Stage:
    return Thinker(config)


class Thinker:
    """Options: those of `Place` and of `ThinkerModel`; `max_generations` (32) at once, `max_queue` (256) queries and
    `max_prefills` (64) prefill jobs that wait; `max_prefixes` (256) prompts that are remembered; `max_prefill_tokens`
    (512) per step; `context_length` (32768); `ends`, the ids that end an answer (the checkpoint's); `sampling` that
    stands in for what a request leaves open.
    """

    def __init__(self, config: StageConfig, model: Any = None) -> None:
        """`model` is the thinker when it is loaded already."""
        options = config.options
        place = Place.of(options)
        self._figures = Figures.of(place.checkpoint)
        self._model = ThinkerModel(options, place, self._figures, model)
        self._kv = self._model.kv
        self._memory = Memory(self._kv, int(options.get("max_prefixes", 256)), self._figures, self._model.no_states)
        self._table = byte_table(load_tokenizer(place.checkpoint))
        self._ends = frozenset(options.get("ends", [self._figures.im_end]))
        slots = int(options.get("max_generations", 32))
        self._sampler = Sampler(slots, self._model.vocab, self._model.device)
        self._free = list(range(slots))[::-1]
        self._slots = slots
        self._max_queue = int(options.get("max_queue", 256))
        self._max_prefills = int(options.get("max_prefills", 64))
        self._chunk = int(options.get("max_prefill_tokens", 512))
        self._context_length = min(int(options.get("context_length", 32_768)), self._kv.capacity * self._kv.block)
        self._defaults = SamplingParams.from_json(options.get("sampling", {})).over(THINKER_DEFAULTS)
        self._held: dict[str, Generation] = {}
        self._waiting: list[Generation] = []
        """Queries with a prompt, the next one first."""
        self._filling: list[Generation] = []
        """Queries that are prefilled, the oldest first."""
        self._answering: list[Generation] = []
        self._background: list[Generation] = []
        """Prefill jobs with a prompt; the first one may be under way."""
        self.computed_tokens = 0
        """Prompt tokens that were computed so far; those that were found cached aren't among them."""

    def __len__(self) -> int:
        """Generations that are held."""
        return len(self._held)

    @property
    def kv_blocks(self) -> tuple[int, int]:
        """Blocks of keys and values in use, by generations and by remembered prompts, and at most."""
        return self._kv.used, self._kv.capacity

    @property
    def slots_in_use(self) -> int:
        return self._slots - len(self._free)

    @property
    def encoded_media(self) -> int:
        """Parts that were encoded so far."""
        return self._model.encoders.encoded

    def open(self, generation: str, settings: Settings) -> None:
        alike = sum(one.settings.prefill == settings.prefill for one in self._held.values())
        if alike >= (self._max_prefills if settings.prefill else self._slots + self._max_queue):
            raise Overloaded("Too many generations are waiting; try again later.")
        self._held[generation] = Generation(generation, settings)

    def push(self, generation: str, message: StageMessage) -> None:
        run = self._held.get(generation)
        if run is None or message.handover is None:
            return
        try:
            self._take(run, Prompt.from_handover(message.handover))
        except OmniError:
            self.abort(generation)
            raise

    def abort(self, generation: str) -> None:
        run = self._held.pop(generation, None)
        if run is not None:
            self._forget(run)
            if run.kv is not None:
                run.kv.free()

    def step(self) -> Outputs:
        out: list[tuple[str, StageMessage]] = []
        self._admit()
        speakers, hidden = self._decode()
        for run, last in self._prefill(out):
            speakers.append(run)
            hidden.append(last)
        if speakers:
            logits = self._model.logits(torch.cat(hidden))
            choices = self._sampler([run.slot for run in speakers if run.slot is not None], logits)
            for run, choice in zip(speakers, choices, strict=True):
                out += ((run.id, message) for message in self._say(run, choice))
        return out

    def wait(self) -> float | None:
        return 0.0 if self._waiting or self._filling or self._answering or self._background else None

    def close(self) -> None:
        for generation in tuple(self._held):
            self.abort(generation)
        self._memory.clear()

    # -- who runs

    def _take(self, run: Generation, prompt: Prompt) -> None:
        """Raises `ContextExceeded` for a prompt without room for an answer."""
        tokens = len(prompt.ids)
        room = self._context_length - tokens
        if room < 1:
            raise ContextExceeded(
                f"The prompt has {tokens} tokens, which is longer than the model's context length of "
                f"{self._context_length} tokens.",
                param="messages",
            )
        params = run.settings.sampling_of(THINKER, self._defaults)
        run.prompt = prompt
        run.params = replace(params, max_tokens=min(params.max_tokens or room, room))
        if run.settings.prefill:
            run.reserved = self._kv.blocks_for(tokens)
            self._background.append(run)
            return
        run.reserved = self._kv.blocks_for(tokens + (run.params.max_tokens or 0))
        later = (n for n, one in enumerate(self._waiting) if one.prompt and one.prompt.priority < prompt.priority)
        self._waiting.insert(next(later, len(self._waiting)), run)

    def _admit(self) -> None:
        """Lets waiting queries run, in order, while there are slots and memory for the longest that they may get."""
        while self._waiting and self._free:
            run = self._waiting[0]
            if not self._memory.fits(run, self._running()):
                if not self._step_aside():
                    return
                continue
            self._waiting.pop(0)
            self._memory.begin(run, self._running())
            run.slot = self._free.pop()
            self._filling.append(run)
        first = next(iter(self._background), None)
        if first is None or first.kv is not None or self._waiting:
            return
        if self._memory.fits(first, self._running()):
            self._memory.begin(first, self._running())

    def _running(self) -> list[Generation]:
        return [run for run in self._held.values() if run.kv is not None]

    def _step_aside(self) -> bool:
        """Stops the prefill job that is under way, which begins again from what it has so far; False when there is
        none."""
        if not self._background or self._background[0].kv is None:
            return False
        self._memory.keep(self._background[0])
        return True

    def _forget(self, run: Generation) -> None:
        """Takes a generation out of all queues and gives its slot back."""
        for queue in (self._waiting, self._filling, self._answering, self._background):
            if run in queue:
                queue.remove(run)
        if run.slot is not None:
            self._sampler.close(run.slot)
            self._free.append(run.slot)
            run.slot = None

    def _end(self, run: Generation) -> None:
        del self._held[run.id]
        self._forget(run)
        self._memory.keep(run)

    # -- what runs

    def _decode(self) -> tuple[list[Generation], list[Tensor]]:
        """One more token of every answer: who answers, and the hidden states [rows, hidden] that tell the next one."""
        runs = list(self._answering)
        if not runs:
            return [], []
        sequences = [run.kv for run in runs if run.kv is not None]
        self._memory.make_room(sum(kv.length % self._kv.block == 0 for kv in sequences))
        positions = [run.computed + run.prompt.delta for run in runs if run.prompt is not None]
        return runs, [self._model.step(sequences, [run.said[-1] for run in runs], positions)]

    def _prefill(self, out: list[tuple[str, StageMessage]]) -> list[tuple[Generation, Tensor]]:
        """Computes a part of prompts; who has all of its prompt now, with the hidden state of its last token."""
        budget, ready = self._chunk, []
        for run in tuple(self._filling):
            if budget <= 0:
                break
            count = min(budget, run.left)
            budget -= count
            last = self._compute(run, count, out)
            if last is not None and not run.left:
                self._filling.remove(run)
                self._answering.append(run)
                self._start_answer(run)
                out.append((run.id, self._opening(run)))
                ready.append((run, last))
        if not self._filling and not ready and self._background and self._background[0].kv is not None:
            self._prefill_background(out)
        return ready

    def _prefill_background(self, out: list[tuple[str, StageMessage]]) -> None:
        run = self._background[0]
        count = min(run.left, self._chunk if not self._answering else max(1, self._chunk // 4))
        if count and self._compute(run, count, out) is None:
            return
        if not run.left:
            assert run.prompt is not None
            news = {"prompt_tokens": len(run.prompt.ids), "cached_tokens": run.cached or 0}
            out.append((run.id, StageMessage(event={"type": "prefilled", **news}, eos=True)))
            self._end(run)

    def _compute(self, run: Generation, count: int, out: list[tuple[str, StageMessage]]) -> Tensor | None:
        """The next `count` tokens of a prompt; the hidden state of the last one [1, hidden]. A prompt that can't be
        computed fails alone: None."""
        prompt, kv = run.prompt, run.kv
        assert prompt is not None
        assert kv is not None
        try:
            self._memory.make_room(self._kv.blocks_for(kv.length + count) - len(kv.blocks))
            last, states = self._model.read(prompt, kv, count, run.features)
        except OmniError as problem:
            # Asked again, it goes on from what it has so far.
            out.append((run.id, StageMessage(error=problem, eos=True)))
            self._end(run)
            return None
        except Exception:
            log.exception("a prompt could not be computed")
            out.append((run.id, StageMessage(error=StageFailed("The prompt could not be computed."), eos=True)))
            self.abort(run.id)
            return None
        self.computed_tokens += count
        run.hidden.append(states)
        return last

    # -- what is said

    def _start_answer(self, run: Generation) -> None:
        assert run.params is not None
        assert run.prompt is not None
        assert run.slot is not None
        ends = () if run.params.ignore_eos else self._ends
        self._sampler.open(run.slot, run.params, prompt=run.prompt.ids.tolist(), ends=ends)
        run.answer = Answer(run.params, self._table, self._ends)

    def _opening(self, run: Generation) -> StageMessage:
        """What is known once the prompt is read, and for speech what the talker needs of it."""
        assert run.prompt is not None
        news = {"type": "prompt", "prompt_tokens": len(run.prompt.ids), "cached_tokens": run.cached or 0}
        handover: Handover | None = None
        if run.settings.speech:
            voice = run.settings.knob(TALKER, "voice", None)
            told: TalkerPrompt = talker_prompt(run.prompt, torch.cat(run.hidden), self._figures, voice)
            handover = told.to_handover()
        return StageMessage(event=news, handover=handover)

    def _say(self, run: Generation, choice: Choice) -> Iterator[StageMessage]:
        answer = run.answer
        assert answer is not None
        assert run.prompt is not None
        run.said.append(choice.token)
        piece = answer.feed(choice)
        if piece is None:
            return
        if answer.finish is not None:
            usage = Usage(
                prompt_tokens=len(run.prompt.ids),
                cached_tokens=run.cached or 0,
                audio_tokens=run.prompt.audio_tokens(self._figures),
            )
            piece = answer.with_usage(piece, usage)
            self._end(run)
        tokens = piece.tokens if run.settings.speech and len(piece.tokens) else None
        yield StageMessage(text=piece.delta, tokens=tokens, eos=answer.finish is not None)
