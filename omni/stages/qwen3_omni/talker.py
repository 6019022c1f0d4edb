"""The talker: codec frames of token ids, one frame per generation and step, all generations in one batch.

A generation starts to speak with the answer's first token and then reads one token per frame; while the next one
isn't known yet it sits out. When the text has ended it reads an end mark once, then padding, until its own end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from omni.contract.errors import ContextExceeded, InvalidRequest
from omni.contract.names import TALKER
from omni.contract.params import TALKER_DEFAULTS, SamplingParams, Settings
from omni.contract.stage import Outputs, Stage, StageConfig
from omni.contract.tensors import StageMessage
from omni.engine.kv import KVPool, KVSequence
from omni.engine.language import LanguageModel
from omni.engine.sampler import Sampler
from omni.stages.qwen3_omni.checkpoint import Place
from omni.stages.qwen3_omni.handover import TalkerPrompt
from omni.stages.qwen3_omni.talker_model import OPENING, Prefill, TalkerModel
from omni.stages.slots import Slots

_DEFAULT_VOICE = "ethan"
"""Who speaks when neither request nor deployment says: the voice of `generate()`."""


def create(config: StageConfig) -> Stage:
    return Talker(config)


@dataclass(slots=True)
class _Run:
    params: SamplingParams
    voice: int
    """Codec id of who speaks."""
    prompt: TalkerPrompt | None = None
    text: deque[int] = field(default_factory=deque)
    """Tokens to speak that aren't read yet."""
    ended: bool = False
    """Whether no tokens follow."""
    marked: bool = False
    """Whether the end of the text was read."""
    row: int | None = None
    """Its place among those that speak; None while it waits for its first token or for memory."""
    prefill: Prefill | None = None
    """What it reads before its first frame; None without a row."""
    read: int = 0
    """Rows of that which are read."""
    frame: Tensor | None = None
    """The last frame's embedding [hidden size]; None before the first."""
    drawn: int = 0
    """First codes that were drawn."""

    @property
    def silent(self) -> bool:
        """Whether there is nothing to say at all."""
        return self.row is None and self.ended and not self.text

    @property
    def ready(self) -> bool:
        """Whether it can make its next frame."""
        return self.frame is not None and (bool(self.text) or self.ended)

    def next_token(self, mark: int, pad: int) -> int:
        """The token to read, the end `mark` or `pad`. Only when `ready`."""
        if self.text:
            return self.text.popleft()
        token = pad if self.marked else mark
        self.marked = True
        return token

    @property
    def tokens(self) -> int:
        """Most that it can come to hold."""
        asked = 0 if self.prompt is None else len(self.prompt.user_ids)
        return asked + OPENING + (self.params.max_tokens or 1)


class Talker:
    """Options: those of `Place`; `voices`, the default first, all of the checkpoint's when absent; `sampling` that
    stands in for what a request leaves open; `max_generations` (32) at once, `max_queue` (256) that wait;
    `kv_tokens` (262144) held at most; `prefill_chunk` (1024) rows that a step reads of prompts; `ends`, the thinker's
    ids that end an answer (the checkpoint's); `speak_last_token_on_length` (true).

    `max_tokens` counts first codes as `generate()` of `transformers` does: the last one makes no frame, whether it is
    the end or is cut off.

    **The last token**, which is the one that arrives with `eos`. `generate()` never speaks it. When it ends the answer
    nothing is lost, but when the thinker stops at its `max_tokens` or before a stop string, it is a part of the text
    that isn't heard. Who reads along would miss it, so here any last token but an end is spoken. With
    `speak_last_token_on_length` off none is, and the codes are those of `generate()` for every stop.
    """

    def __init__(self, config: StageConfig) -> None:
        options = config.options
        self._model = model = TalkerModel(Place.of(options))
        self._defaults = SamplingParams.from_json(options.get("sampling", {})).over(TALKER_DEFAULTS)
        self._voices = _voices(model.voices, options.get("voices") or ())
        self._ends = frozenset(options.get("ends", [model.config.im_end_token_id]))
        self._speak_last = bool(options.get("speak_last_token_on_length", True))
        self._chunk = int(options.get("prefill_chunk", 1024))
        rows = int(options.get("max_generations", 32))
        self._slots: Slots[_Run] = Slots(rows, int(options.get("max_queue", 256)))
        self._free = list(range(rows))
        self._sequences: dict[int, KVSequence] = {}
        self._kv = KVPool.of(
            model.lm, int(options.get("kv_tokens", 262_144)), reserve=model.device.type != "cpu"
        )  # fmt: skip
        self._lm = LanguageModel(model.lm, self._kv)
        self._sampler = Sampler(rows, model.head.out_features, model.device)

    def __len__(self) -> int:
        """Generations that are held."""
        return len(self._slots)

    @property
    def rows_in_use(self) -> int:
        return len(self._sequences)

    @property
    def blocks_in_use(self) -> int:
        """Blocks of keys and values that are held."""
        return self._kv.used

    def open(self, generation: str, settings: Settings) -> None:
        params = settings.sampling_of(TALKER, self._defaults)
        self._slots.add(generation, _Run(params, self._voice(settings.knob(TALKER, "voice", None))))

    def _voice(self, name: str | None) -> int:
        if name is None:
            return next(iter(self._voices.values()))
        if (voice := self._voices.get(name.lower())) is None:
            have = ", ".join(sorted(self._voices))
            raise InvalidRequest(f"There is no voice of that name; there are: {have}.", param="voice")
        return voice

    def push(self, generation: str, message: StageMessage) -> None:
        run = self._slots.get(generation)
        if run is None:
            return
        if message.handover is not None:
            run.prompt = TalkerPrompt.from_handover(message.handover)
            if self._kv.blocks_for(run.tokens) > self._kv.capacity:
                raise ContextExceeded("The prompt is too long to be answered in speech.")
        tokens = [] if message.tokens is None else message.tokens.tolist()
        if message.eos:
            run.ended = True
            if tokens and (not self._speak_last or tokens[-1] in self._ends):
                tokens.pop()
        run.text.extend(tokens)

    def abort(self, generation: str) -> None:
        run = self._slots.remove(generation)
        if run is not None and run.row is not None:
            self._sequences.pop(run.row).free()
            self._sampler.close(run.row)
            self._free.append(run.row)

    def step(self) -> Outputs:
        out: list[tuple[str, StageMessage]] = []
        for generation, run in self._slots:
            if run.silent:
                out.append((generation, StageMessage(eos=True)))
                self.abort(generation)
        ready = [one for one in self._slots if one[1].ready]
        if ready:
            out += self._speak(ready, self._read_text([run for _, run in ready]))
        self._start()
        for generation, run, hidden in self._prefill():
            out += self._speak([(generation, run)], hidden)
        return out

    def _next_to_start(self) -> _Run | None:
        """Who may begin: in order, and with memory for all that it may come to hold."""
        held = sum(self._kv.blocks_for(run.tokens) for _, run in self._slots if run.row is not None)
        for _, run in self._slots:
            if run.row is None and run.prompt is not None and run.text:
                return run if held + self._kv.blocks_for(run.tokens) <= self._kv.capacity else None
        return None

    def _start(self) -> None:
        while (run := self._next_to_start()) is not None and run.prompt is not None:
            run.row = self._free.pop()
            run.prefill = self._model.prefill(run.prompt, run.text.popleft(), run.voice)
            self._sequences[run.row] = self._kv.sequence()
            end = [self._model.end]
            suppressed = [*self._model.suppressed, *(end if run.params.ignore_eos else ())]
            self._sampler.open(run.row, run.params, ends=end, suppress=suppressed)

    def _prefill(self) -> list[tuple[str, _Run, Tensor]]:
        """Reads some rows of prompts; the last hidden states [1, hidden size] of those that are read to the end."""
        out = []
        left = self._chunk
        for generation, run in self._slots:
            if run.prefill is None or run.row is None or run.read == len(run.prefill) or left <= 0:
                continue
            rows = slice(run.read, run.read + left)
            embeddings, positions = run.prefill.embeddings[None, rows], run.prefill.positions[:, None, rows]
            hidden, _ = self._lm([self._sequences[run.row]], embeddings, positions)
            left -= embeddings.shape[1]
            run.read += embeddings.shape[1]
            if run.read == len(run.prefill):
                out.append((generation, run, hidden[:, -1]))
        return out

    @torch.inference_mode()
    def _read_text(self, runs: Sequence[_Run]) -> Tensor:
        """Every run reads its last frame and next token; the hidden states [runs, hidden size] of the next frame."""
        config = self._model.config
        tokens = [run.next_token(config.tts_eos_token_id, config.tts_pad_token_id) for run in runs]
        frames = torch.stack([run.frame for run in runs if run.frame is not None])
        embeddings = frames + self._model.text[torch.tensor(tokens, device=self._model.device)]
        sequences = [self._sequences[run.row] for run in runs if run.row is not None]
        deltas = [run.prefill.delta for run in runs if run.prefill is not None]
        at = [sequence.length + delta for sequence, delta in zip(sequences, deltas, strict=True)]
        positions = torch.tensor(at, device=self._model.device).expand(3, -1)
        hidden, _ = self._lm(sequences, embeddings[:, None], positions[..., None])
        return hidden[:, 0]

    @torch.inference_mode()
    def _speak(self, batch: Sequence[tuple[str, _Run]], hidden: Tensor) -> Outputs:
        """The frames that `hidden` [batch, hidden size] is about."""
        model = self._model
        rows = [run.row for _, run in batch if run.row is not None]
        first = self._sampler.pick(rows, model.head(hidden).float())
        codes, embeddings = model.predictor(hidden, first, *self._noise(rows))
        out: list[tuple[str, StageMessage]] = []
        for (generation, run), frame, embedding in zip(batch, codes.cpu().numpy(), embeddings, strict=True):
            run.drawn += 1
            if frame[0] == model.end or run.drawn >= (run.params.max_tokens or 1):
                out.append((generation, StageMessage(eos=True)))
                self.abort(generation)
            else:
                run.frame = embedding
                out.append((generation, StageMessage(codes=frame[None].astype(np.int32))))
        return out

    def _noise(self, rows: Sequence[int]) -> tuple[Tensor | None, Tensor | None]:
        """What the code predictor draws the other codes with, and which rows draw; None when none does."""
        generators = [self._sampler.generator(row) for row in rows]
        if not any(generators):
            return None, None
        predictor, device = self._model.predictor, self._model.device
        noise = torch.ones(len(rows), predictor.groups - 1, predictor.codebook, device=device)
        for row, generator in enumerate(generators):
            if generator is not None:
                # One draw per group: `generate()` draws so, and a draw of all at once gives other numbers.
                for group in range(predictor.groups - 1):
                    noise[row, group].exponential_(generator=generator)
        return noise, torch.tensor([generator is not None for generator in generators], device=device)

    def wait(self) -> float | None:
        reading = any(run.ready or (run.row is not None and run.frame is None) for _, run in self._slots)
        due = reading or any(run.silent for _, run in self._slots) or self._next_to_start() is not None
        return 0.0 if due else None

    def close(self) -> None:
        self._slots.clear()


def _voices(known: Mapping[str, int], offered: Sequence[str]) -> dict[str, int]:
    """The voices that a deployment offers, by name in lower case, the default first. Raises ValueError."""
    if not offered:
        return dict(sorted(known.items(), key=lambda one: one[0] != _DEFAULT_VOICE))
    if unknown := [name for name in offered if name.lower() not in known]:
        raise ValueError(f"the checkpoint has no voices {', '.join(unknown)}; it has: {', '.join(sorted(known))}")
    return {name.lower(): known[name.lower()] for name in offered}
