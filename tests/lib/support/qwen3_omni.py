"""The tiny Qwen3-Omni: its checkpoint, what `transformers` makes of it, and jobs of every kind for it."""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import subprocess
import sys
import uuid
import warnings
import wave
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import av
import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from support.device import DEVICE

import omni.stages.qwen3_omni  # noqa: F401  it makes transformers importable
from omni.contract.job import Job, MediaPart, Message, Part, TextPart, VideoOptions
from omni.contract.params import SamplingParams, Settings
from omni.stages.media.audio import decode_audio
from omni.stages.media.image import decode_image
from omni.stages.media.video import Sampling, decode_video

ROOT = Path(__file__).parents[3]
SYSTEM = "You are a helpful assistant."
FPS = 2.0
"""Frames per second at which the clips below are sampled."""


def tiny_checkpoint(*options: str) -> Path:
    """The folder of the tiny checkpoint, made when there is none of these options and of today's script."""
    scripts = [ROOT / "build" / name for name in ("make_tiny.py", "qwen_vocabulary.py")]
    digest = hashlib.sha256("\0".join([*(s.read_text() for s in scripts), *options]).encode()).hexdigest()[:16]
    folder = ROOT / ".omni" / f"tiny-{digest}"
    if not folder.exists():
        making = folder.with_name(f"{folder.name}.{uuid.uuid4().hex}")
        subprocess.run([sys.executable, str(scripts[0]), str(making), *options], check=True, capture_output=True)
        try:
            making.rename(folder)
        except OSError:
            # Another session was faster.
            shutil.rmtree(making)
    return folder


# -- media, each the same for the same seed


def image(seed: int = 0, height: int = 64, width: int = 96) -> MediaPart:
    pixels = np.random.default_rng(seed).integers(0, 255, (height, width, 3), dtype=np.uint8)
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "PNG")
    return MediaPart.of("image", out.getvalue(), f"image {seed}")


def _tone(seed: int, seconds: float) -> npt.NDArray[np.int16]:
    random = np.random.default_rng(seed)
    t = np.arange(int(seconds * 16_000)) / 16_000
    sound = 0.3 * np.sin(2 * np.pi * (200 + 100 * random.random()) * t) + 0.05 * random.standard_normal(t.size)
    return (sound * 32767).astype(np.int16)


def audio(seed: int = 0, seconds: float = 2.3) -> MediaPart:
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16_000)
        file.writeframes(_tone(seed, seconds).tobytes())
    return MediaPart.of("audio", out.getvalue(), f"audio {seed}")


def video(seed: int = 0, frames: int = 8, height: int = 64, width: int = 64, sound: float | None = None) -> MediaPart:
    """A fade between two patterns at `FPS`, lossless, with `sound` seconds of sound."""
    random = np.random.default_rng(seed)
    first, last = random.integers(0, 255, (2, height, width, 3))
    out = io.BytesIO()
    with av.open(out, "w", format="matroska") as file:
        film = file.add_stream("ffv1", rate=Fraction(FPS), options={})
        film.width, film.height, film.pix_fmt = width, height, "bgr0"
        track = None if sound is None else file.add_stream("pcm_s16le", rate=16_000, layout="mono")
        for t in np.linspace(0, 1, frames):
            picture = ((1 - t) * first + t * last).astype(np.uint8)
            file.mux(film.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        file.mux(film.encode(None))
        if track is not None:
            heard = av.AudioFrame.from_ndarray(_tone(seed, sound or 0)[None], format="s16", layout="mono")
            heard.sample_rate = 16_000
            file.mux(track.encode(heard))
            file.mux(track.encode(None))
    return MediaPart.of("video", out.getvalue(), f"video {seed}")


# -- jobs


def job(
    *parts: str | MediaPart,
    system: str | None = SYSTEM,
    history: tuple[tuple[str, tuple[str | MediaPart, ...]], ...] = (),
    speech: bool = False,
    prefill: bool = False,
    use_audio: bool = False,
    **sampling: Any,
) -> Job:
    """A question of one user message after `history`, pairs of a role and its parts."""

    def message(role: Any, content: tuple[str | MediaPart, ...]) -> Message:
        made: tuple[Part, ...] = tuple(TextPart(part) if isinstance(part, str) else part for part in content)
        return Message(role, made)

    first = () if system is None else (message("system", (system,)),)
    past = tuple(message(role, content) for role, content in history)
    settings = Settings(speech=speech, prefill=prefill, sampling={"thinker": SamplingParams(**sampling)})
    options = VideoOptions(use_audio=use_audio)
    return Job(id=uuid.uuid4().hex, messages=(*first, *past, message("user", parts)), settings=settings, video=options)


QUESTION = "What is in the image and the sound?"
KINDS: Mapping[str, Any] = {
    "text": {"parts": (QUESTION,)},
    "image": {"parts": (image(), QUESTION)},
    "audio": {"parts": (audio(), QUESTION)},
    "video": {"parts": (video(), QUESTION)},
    "image+audio+video": {"parts": (image(), audio(), video(), QUESTION)},
    "audio-in-video": {"parts": (video(1, sound=4.0), QUESTION), "use_audio": True},
    "no-system": {"parts": ("Hello, how are you today?",), "system": None},
    "multi-turn": {
        "parts": (image(3), QUESTION),
        "history": (("user", ("Hello",)), ("assistant", ("Hello, how are you?",))),
    },
}
"""The kinds of input, as arguments of `of_kind`."""


def of_kind(kind: str, **settings: Any) -> Job:
    arguments = {**KINDS[kind], **settings}
    return job(*arguments.pop("parts"), **arguments)


# -- the reference


@dataclass(frozen=True, slots=True)
class Spoken:
    """What `generate` said."""

    text: list[int]
    """Thinker ids, the last one too."""
    codes: npt.NDArray[np.int64]
    """Frames [frames, groups]."""
    wav: torch.Tensor
    """Samples [samples]."""


class Reference:
    """`transformers` itself, one request at a time."""

    def __init__(self, checkpoint: Path) -> None:
        from transformers import Qwen3OmniMoeForConditionalGeneration, Qwen3OmniMoeProcessor
        from transformers.utils import logging

        logging.set_verbosity_error()
        loaded = Qwen3OmniMoeForConditionalGeneration.from_pretrained(
            checkpoint, dtype=torch.float32, attn_implementation="sdpa"
        )
        self.model: Any = loaded.to(DEVICE).eval()
        self.processor: Any = Qwen3OmniMoeProcessor.from_pretrained(checkpoint)
        self.eos = int(self.model.config.im_end_token_id)
        # Without it, images or clips together with sounds can't be spoken about.
        self.model.talker.config.audio_config = self.model.config.thinker_config.audio_config

    def inputs(self, job: Job) -> dict[str, Any]:
        """What the processor makes of the job, as `generate` takes it."""
        messages, media = [], _Media()
        for message in job.messages:
            content: list[dict[str, Any]] = []
            for part in message.parts:
                if isinstance(part, TextPart):
                    content.append({"type": "text", "text": part.text})
                else:
                    content.append({"type": part.kind, part.kind: None})
                    media.add(part, job.video)
            messages.append({"role": message.role, "content": content})
        prompt = self.processor.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        options: dict[str, Any] = {}
        if media.videos:
            size = {"shortest_edge": 4096, "longest_edge": 1 << 22}
            options["videos_kwargs"] = {"fps": FPS, "do_sample_frames": False, "size": size}
        if any(index is not None for index in media.of_video):
            options |= {"load_audio_from_video": True, "audio_from_video_indices": media.of_video}
        made = self.processor(
            text=[prompt],
            images=media.images or None,
            videos=media.videos or None,
            audio=media.sounds or None,
            return_tensors="pt",
            **options,
        )
        inputs = {k: v for k, v in made.items() if v is not None and k not in self.processor.unused_input_names}
        if options.get("load_audio_from_video"):
            inputs["use_audio_in_video"] = True
        return inputs

    @torch.no_grad()
    def think(self, job: Job, *, eos: int | None = None, **options: Any) -> list[int]:
        """Generated ids. `options` are those of `generate`; a `seed` among them is set first."""
        inputs = _placed(self.inputs(job))
        _seed(options)
        options.setdefault("do_sample", False)
        out = self.model.thinker.generate(**inputs, eos_token_id=self.eos if eos is None else eos, **options)
        return [int(token) for token in out[0, inputs["input_ids"].shape[1] :]]

    @torch.no_grad()
    def hidden(self, job: Job) -> torch.Tensor:
        """Hidden states of the layer that the talker accepts, of the whole prompt [tokens, hidden size]."""
        layer = self.model.config.talker_config.accept_hidden_layer
        out = self.model.thinker.generate(
            **_placed(self.inputs(job)), max_new_tokens=1, do_sample=False, output_hidden_states=True,
            return_dict_in_generate=True, eos_token_id=self.eos,
        )  # fmt: skip
        hidden: torch.Tensor = out.hidden_states[0][layer][0].cpu()
        return hidden

    @torch.no_grad()
    def speak(self, job: Job, *, eos: int | None = None, **options: Any) -> Spoken:
        """Text and speech. `options` are those of `generate` (`thinker_max_new_tokens`, `talker_do_sample`, ...)."""
        inputs = _placed(self.inputs(job))
        _seed(options)
        for name in ("thinker_do_sample", "talker_do_sample"):
            options.setdefault(name, False)
        with self._recording() as codes, warnings.catch_warnings():
            # The penalty is meant for the generated frames alone, as the warning says.
            warnings.filterwarnings("ignore", message="Passing `repetition_penalty`")
            ids, wav = self.model.generate(
                **inputs,
                return_audio=True,
                thinker_eos_token_id=self.eos if eos is None else eos,
                **options,
            )
        text = [int(token) for token in ids[0, inputs["input_ids"].shape[1] :]]
        return Spoken(text, codes[0][0].T.cpu().numpy(), wav[0, 0].cpu())

    @contextmanager
    def _recording(self) -> Iterator[list[torch.Tensor]]:
        decode, codes = self.model.code2wav.chunked_decode, []

        def recorded(frames: torch.Tensor, **options: Any) -> torch.Tensor:
            codes.append(frames.clone())
            return decode(frames, **options)

        self.model.code2wav.chunked_decode = recorded
        try:
            yield codes
        finally:
            self.model.code2wav.chunked_decode = decode

    def early_eos(self, ids: list[int]) -> int:
        """A token that greedy decoding meets for the first time half-way, to stand in as the end token."""
        fresh = [n for n in range(5, len(ids)) if ids[n] not in ids[:n]]
        return ids[fresh[len(fresh) // 2]] if fresh else ids[-1]


def _placed(inputs: dict[str, Any]) -> dict[str, Any]:
    return {name: value.to(DEVICE) if isinstance(value, torch.Tensor) else value for name, value in inputs.items()}


def _seed(options: dict[str, Any]) -> None:
    seed = options.pop("seed", None)
    if seed is not None:
        torch.manual_seed(seed)


class _Media:
    """Decoded media by kind, in the order of the conversation."""

    def __init__(self) -> None:
        self.images: list[Any] = []
        self.videos: list[Any] = []
        self.sounds: list[Any] = []
        self.of_video: list[int | None] = []
        """For each sound the clip that it belongs to."""

    def add(self, part: MediaPart, options: VideoOptions) -> None:
        assert part.data is not None
        if part.kind == "image":
            self.images.append(decode_image(part.data))
        elif part.kind == "audio":
            self.sounds.append(decode_audio(part.data))
            self.of_video.append(None)
        else:
            clip = decode_video(part.data, Sampling(fps=FPS), sound=options.use_audio)
            if clip.sound is not None:
                self.sounds.append(clip.sound)
                self.of_video.append(len(self.videos))
            self.videos.append(clip.frames)
