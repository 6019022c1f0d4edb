"""The talker: codec frames of token ids, one frame per generation and step, all generations in one batch.

A generation starts to speak with the answer's first token and then reads one token per frame; while the next one
isn't known yet it sits out. When the text has ended it reads an end mark once, then padding, until its own end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from omni.contract.errors import ContextExceeded, InvalidRequest
from omni.contract.names import TALKER
from omni.contract.params import TALKER_DEFAULTS, SamplingParams, Settings
from omni.contract.stage import Outputs, Stage, StageConfig
from omni.contract.tensors import StageMessage
from omni.engine.kv import KVSequence
from omni.stages.qwen3_omni.checkpoint import Place
from omni.stages.qwen3_omni.engines import load_predictor
from omni.stages.qwen3_omni.frames import Frames
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
    drawn: int = 0
    """First codes that were drawn, each with a frame."""

    @property
    def silent(self) -> bool:
        """Whether there is nothing to say at all."""
        return self.row is None and self.ended and not self.text

    @property
    def ready(self) -> bool:
        """Whether it can make its next frame."""
        return self.drawn > 0 and (bool(self.text) or self.ended)

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
    """Options: those of `Place` and of `Frames`; `engine`, a file of `build/export_onnx.py` or `build/engines.py` that
    computes the code predictor in the place of torch; `voices`, the default first, all of the checkpoint's when absent;
    `sampling` that stands in for what a request leaves open; `max_generations` (32) at once, `max_queue` (256) that
    wait; `prefill_chunk` (1024) rows that a step reads of prompts; `ends`, the thinker's ids that end an answer (the
    checkpoint's); `speak_last_token_on_length` (true).

    `max_tokens` counts first codes as `generate()` of `transformers` does: the last one makes no frame, whether it is
    the end or is cut off.

    **The last token**, which is the one that arrives with `eos`. `generate()` never speaks it. When it ends the answer
    nothing is lost, but when the thinker stops at its `max_tokens` or before a stop string, it is a part of the text
    that isn't heard. Who reads along would miss it, so here any last token but an end is spoken. With
    `speak_last_token_on_length` off none is, and the codes are those of `generate()` for every stop.
    """

    def __init__(self, config: StageConfig) -> None:
        options = config.options
        place = Place.of(options)
        self._model = model = TalkerModel(place)
        self._defaults = SamplingParams.from_json(options.get("sampling", {})).over(TALKER_DEFAULTS)
        self._voices = _voices(model.voices, options.get("voices") or ())
        self._ends = frozenset(options.get("ends", [model.config.im_end_token_id]))
        self._speak_last = bool(options.get("speak_last_token_on_length", True))
        self._chunk = int(options.get("prefill_chunk", 1024))
        rows = int(options.get("max_generations", 32))
        if (engine := options.get("engine")) is not None:
            sizes = rows, model.hidden, model.groups, model.codebook
            model.predictor = load_predictor(Path(engine), sizes, place.device)
        self._slots: Slots[_Run] = Slots(rows, int(options.get("max_queue", 256)))
        self._free = list(range(rows))
        self._sequences: dict[int, KVSequence] = {}
        self._frames = Frames(options, place, model, rows)
        self._kv = self._frames.kv

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
            self._frames.close(run.row)
            self._free.append(run.row)

    def step(self) -> Outputs:
        out: list[tuple[str, StageMessage]] = []
        for generation, run in self._slots:
            if run.silent:
                out.append((generation, StageMessage(eos=True)))
                self.abort(generation)
        speaking = [one for one in self._slots if one[1].ready]
        codes = [self._next_frames([run for _, run in speaking])] if speaking else []
        self._start()
        if fresh := self._prefill():
            speaking += [(generation, run) for generation, run, _ in fresh]
            rows = [run.row for _, run, _ in fresh if run.row is not None]
            codes.append(self._frames.first(rows, torch.cat([hidden for *_, hidden in fresh])))
        return [*out, *self._said(speaking, codes)]

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
            self._frames.open(run.row, run.params)

    def _prefill(self) -> list[tuple[str, _Run, Tensor]]:
        """Reads some rows of prompts; the last hidden states [1, hidden size] of those that are read to the end."""
        out = []
        left = self._chunk
        for generation, run in self._slots:
            if run.prefill is None or run.row is None or run.read == len(run.prefill) or left <= 0:
                continue
            rows = slice(run.read, run.read + left)
            embeddings, positions = run.prefill.embeddings[rows], run.prefill.positions[:, rows]
            hidden = self._frames.read(self._sequences[run.row], embeddings, positions)
            left -= len(embeddings)
            run.read += len(embeddings)
            if run.read == len(run.prefill):
                out.append((generation, run, hidden))
        return out

    def _next_frames(self, runs: Sequence[_Run]) -> Tensor:
        """Every run reads its next token; the codes [runs, groups] of the frames that come with them."""
        config = self._model.config
        tokens = [run.next_token(config.tts_eos_token_id, config.tts_pad_token_id) for run in runs]
        rows = [run.row for run in runs if run.row is not None]
        sequences = [self._sequences[row] for row in rows]
        deltas = [run.prefill.delta for run in runs if run.prefill is not None]
        positions = [sequence.length + delta for sequence, delta in zip(sequences, deltas, strict=True)]
        return self._frames.next(rows, sequences, tokens, positions)

    def _said(self, speaking: Sequence[tuple[str, _Run]], codes: Sequence[Tensor]) -> Outputs:
        """What the frames `codes` of those that speak come to. Waits for the device."""
        if not speaking:
            return []
        out: list[tuple[str, StageMessage]] = []
        told = self._frames.told([run.row for _, run in speaking if run.row is not None], codes)
        for (generation, run), frame in zip(speaking, told, strict=True):
            run.drawn += 1
            if frame[0] == self._model.end or run.drawn >= (run.params.max_tokens or 1):
                out.append((generation, StageMessage(eos=True)))
                self.abort(generation)
            else:
                out.append((generation, StageMessage(codes=frame[None].astype(np.int32))))
        return out

    def wait(self) -> float | None:
        reading = any(run.ready or (run.row is not None and not run.drawn) for _, run in self._slots)
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
