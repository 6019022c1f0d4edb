"""Our stages: steps by batch size, requests side by side, first sound, and prompts that were read before."""

from __future__ import annotations

import io
import statistics
import time
import uuid
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from PIL import Image

from bench.stages.floors import Sizes
from omni.contract.job import Job, MediaPart, Message, Part, TextPart
from omni.contract.names import PREPROCESS, SAMPLE_RATE, STAGES, TALKER, THINKER
from omni.contract.params import SamplingParams, Settings
from omni.contract.stage import Stage, StageConfig
from omni.contract.tensors import StageMessage
from omni.engine.graphs import Graphs
from omni.stages import load
from omni.stages.chain import Chain
from omni.stages.qwen3_omni.checkpoint import DTYPES, Place
from omni.stages.qwen3_omni.code2wav import load_decoder
from omni.stages.qwen3_omni.handover import TalkerPrompt
from omni.stages.qwen3_omni.streams import Streams

Options = Mapping[str, Any]
QUESTION = "Hello, how are you today? What is in the picture?"


def job(parts: Sequence[Part], tokens: int, frames: int = 0, *, prefill: bool = False) -> Job:
    """A greedy job; with `frames` it speaks."""
    sampling = {
        THINKER: SamplingParams(temperature=0.0, max_tokens=tokens),
        TALKER: SamplingParams(temperature=0.0, max_tokens=max(1, frames)),
    }
    settings = Settings(speech=frames > 0, sampling=sampling, prefill=prefill)
    return Job(id=uuid.uuid4().hex, messages=(Message("user", tuple(parts)),), settings=settings)


def chain(options: Options, stages: Sequence[str] = STAGES) -> Chain:
    return Chain({stage: dict(options) for stage in stages})


def _rate(seconds: Sequence[float], batch: int, unit: str) -> dict[str, float]:
    median = statistics.median(seconds)
    return {"batch": batch, "ms_per_step": round(median * 1e3, 3), f"{unit}_per_s": round(batch / median, 1)}


@contextmanager
def _host_waits() -> Iterator[list[warnings.WarningMessage]]:
    """What torch warns of while it watches for operations in which the host waits for a GPU."""
    watched = torch.cuda.is_available()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if watched:
            torch.cuda.set_sync_debug_mode("warn")
        try:
            yield caught
        finally:
            if watched:
                torch.cuda.set_sync_debug_mode("default")


def _timed_steps(stage: Stage, batch: int, unit: str) -> dict[str, float]:
    """The steps in which all of `batch` said something, until all have ended."""
    seconds, waits = list[float](), list[int]()
    ended = 0
    with _host_waits() as caught:
        while ended < batch:
            caught.clear()
            began = time.perf_counter()
            said = stage.step()
            took = time.perf_counter() - began
            ended += sum(message.eos for _, message in said)
            if len(said) == batch and not any(message.eos or message.handover for _, message in said):
                seconds.append(took)
                waits.append(sum("synchroniz" in str(one.message) for one in caught))
    warm = len(seconds) // 10
    # Beside the one for the results, which torch doesn't count, there should be none.
    return {**_rate(seconds[warm:], batch, unit), "host_waits": statistics.median(waits[warm:])}


def thinker_steps(options: Options, batches: Sequence[int], steps: int) -> list[dict[str, float]]:
    with chain(options, (PREPROCESS, THINKER)) as stages:
        out = []
        for batch in batches:
            thinker = stages.stages[THINKER]
            for n in range(batch):
                one = job([TextPart(f"{n}: {QUESTION}")], steps)
                one_settings = Settings(
                    sampling={THINKER: SamplingParams(temperature=0.0, max_tokens=steps, ignore_eos=True)}
                )
                thinker.open(one.id, one_settings)
                thinker.push(one.id, _prepared(stages.stages[PREPROCESS], one))
            out.append(_timed_steps(thinker, batch, "tokens"))
        return out


def _prepared(preprocess: Stage, asked: Job) -> StageMessage:
    preprocess.open(asked.id, asked.settings)
    preprocess.push(asked.id, StageMessage(job=asked, eos=True))
    while not (said := preprocess.step()):
        time.sleep(0.001)
    return said[0][1]


def talker_steps(options: Options, batches: Sequence[int], steps: int) -> list[dict[str, float]]:
    talker = load(TALKER, StageConfig(options))
    none = np.zeros(0, np.int64)
    prompt = TalkerPrompt(
        user_ids=np.arange(20, dtype=np.int32) + 30,
        hidden=torch.zeros(0, 1),
        image_grid_thw=none.reshape(0, 3),
        video_grid_thw=none.reshape(0, 3),
        audio_feature_lengths=none,
        video_second_per_grid=none.astype(np.float32),
    )
    text = np.random.default_rng(0).integers(30, 300, steps).astype(np.int32)
    out = []
    for batch in batches:
        for n in range(batch):
            params = SamplingParams(seed=n, max_tokens=steps, ignore_eos=True)
            talker.open(str(n), Settings(speech=True, sampling={TALKER: params}))
            talker.push(str(n), StageMessage(handover=prompt.to_handover()))
            talker.push(str(n), StageMessage(tokens=text, eos=True))
        out.append(_timed_steps(talker, batch, "frames"))
    talker.close()
    return out


def code2wav_steps(
    options: Options, batches: Sequence[int], frames: Sequence[int], steps: int
) -> list[dict[str, float]]:
    place = Place.of(options)
    decoder = load_decoder(place.checkpoint, device=place.device, random=place.random)
    out = []
    for count in frames:
        for batch in batches:
            streams = Streams(decoder, decoder.config.states(batch, device=place.device), Graphs(place.device))
            size = (batch, count, decoder.config.num_quantizers)
            codes = torch.randint(0, decoder.config.codebook_size, size, device=place.device)
            seconds = []
            for _ in range(steps):
                began = time.perf_counter()
                streams.decode(range(batch), codes).cpu()
                seconds.append(time.perf_counter() - began)
            rate = _rate(seconds[steps // 10 :], batch * count, "frames")
            speed = rate["frames_per_s"] * decoder.config.hop / SAMPLE_RATE
            out.append({**rate, "batch": batch, "frames": count, "times_real_time": round(speed, 1)})
    return out


def steps(
    options: Options, batches: Sequence[int], count: int, sizes: Sizes, bytes_per_second: float
) -> dict[str, Any]:
    """`count` steps of every stage and batch size, each beside the least time that the device could take."""
    weight = DTYPES[str(options.get("dtype", "float32"))].itemsize

    def beside(rows: list[dict[str, float]], *parts: str) -> list[dict[str, float]]:
        out = []
        for row in rows:
            floors = sizes.floors(int(row["batch"]), bytes_per_second, weight)
            least = sum(floors[part] for part in parts)
            out.append({**row, "floor_ms": round(least, 4), "times_floor": round(row["ms_per_step"] / least, 1)})
        return out

    return {
        "bytes_per_second": round(bytes_per_second),
        "thinker": beside(thinker_steps(options, batches, count), "thinker"),
        "talker": beside(talker_steps(options, batches, count), "talker", "predictor"),
        "code2wav": beside(code2wav_steps(options, batches, (1, 8), count), "code2wav"),
    }


def side_by_side(stages: Chain, questions: Sequence[str], tokens: int, frames: int) -> dict[str, float]:
    """Requests that speak, all asked at once."""
    jobs = [job([TextPart(question)], tokens, frames) for question in questions]
    began = time.perf_counter()
    for one in jobs:
        stages.ask(one)
    stages.run()
    seconds = time.perf_counter() - began
    return {"seconds": seconds, "frames": sum(len(stages.said[one.id].codes) for one in jobs)}


def first_sound(stages: Chain, question: str, tokens: int, frames: int) -> dict[str, float]:
    """Seconds to the first text, the first sound and the end of one request that speaks."""
    one = job([TextPart(question)], tokens, frames)
    began = time.perf_counter()
    stages.ask(one)
    said, out = stages.said[one.id], dict[str, float]()
    while not said.chunks:
        stages.step()
        if said.text.tokens and "first_text" not in out:
            out["first_text"] = time.perf_counter() - began
    out["first_audio"] = time.perf_counter() - began
    stages.run()
    return {**out, "end": time.perf_counter() - began}


def _pictures(count: int, seed: int, side: int = 64) -> list[MediaPart]:
    dice = np.random.default_rng(seed)
    out = []
    for _ in range(count):
        file = io.BytesIO()
        Image.fromarray(dice.integers(0, 255, (side, side, 3), dtype=np.uint8)).save(file, "PNG")
        out.append(MediaPart.of("image", file.getvalue()))
    return out


def first_token_after_prefix(options: Options, frames: int, rounds: int) -> dict[str, float]:
    """Seconds to the first token of a question about `frames` pictures, that were prefilled or weren't."""
    cold, warm = [], []
    with chain(options, (PREPROCESS, THINKER)) as stages:

        def first_token(pictures: Sequence[MediaPart]) -> float:
            one = job([*pictures, TextPart("What is it?")], 2)
            began = time.perf_counter()
            stages.ask(one)
            while not stages.said[one.id].text.tokens:
                stages.step()
            took = time.perf_counter() - began
            stages.run()
            return took

        for number in range(rounds + 1):
            cold.append(first_token(_pictures(frames, 2 * number)))
            pictures = _pictures(frames, 2 * number + 1)
            stages.ask(job(pictures, 1, prefill=True))
            stages.run()
            warm.append(first_token(pictures))
    return {"cold": statistics.median(cold[1:]), "prefilled": statistics.median(warm[1:])}
