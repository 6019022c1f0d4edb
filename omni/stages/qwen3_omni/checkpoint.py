"""Reading a Qwen3-Omni checkpoint: its figures, its tokenizer, and the thinker alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import torch

from omni.stages.qwen3_omni.quantised import quantisation_of
from omni.stages.qwen3_omni.weights import read_weights

DTYPES: Final[Mapping[str, torch.dtype]] = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where and how a stage's model runs."""

    checkpoint: Path
    device: str = "cpu"
    dtype: torch.dtype = torch.float32
    attention: str = "sdpa"
    """As `transformers` names it."""
    experts: str | None = None
    """Implementation of the experts as `transformers` names it: `eager`, `grouped_mm`, `batched_mm`, which copies the
    weights that each token needs; None is its own choice, `grouped_mm`."""
    random: bool = False
    """Whether weights of the checkpoint's sizes are made up on the device and none are read, with the option `weights:
    random`: for benchmarks, which then need no more than configuration and tokenizer."""

    @property
    def capturable(self) -> bool:
        """Whether what runs here can be captured as a CUDA graph.

        Experts in groups of any sizes need a kernel that reads the sizes on the device: torch's is for bfloat16 on
        compute capability 9.0 and 10.0, elsewhere it waits for the host (`_grouped_mm_cuda` in ATen).
        """
        if torch.device(self.device).type != "cuda":
            return False
        grouped = self.dtype == torch.bfloat16 and torch.cuda.get_device_capability(self.device) in ((9, 0), (10, 0))
        return self.experts == "batched_mm" or (grouped and self.experts in (None, "grouped_mm"))

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Self:
        """The place in a profile's options. Sets torch's `threads` when given. Raises ValueError for a bad one."""
        if "checkpoint" not in options:
            raise ValueError("the stage needs the option checkpoint, the folder of a Qwen3-Omni checkpoint")
        dtype = str(options.get("dtype", "float32"))
        if dtype not in DTYPES:
            raise ValueError(f"dtype must be one of {', '.join(DTYPES)}")
        if (weights := options.get("weights", "checkpoint")) not in ("checkpoint", "random"):
            raise ValueError("weights must be checkpoint or random")
        if threads := options.get("threads"):
            torch.set_num_threads(int(threads))
        return cls(
            checkpoint=Path(options["checkpoint"]),
            device=str(options.get("device", "cpu")),
            dtype=DTYPES[dtype],
            attention=str(options.get("attention", "sdpa")),
            experts=options.get("experts"),
            random=weights == "random",
        )


def load_thinker(place: Place) -> Any:
    """The thinker with its encoders, ready to infer. Reads no other stage's weights. Raises OSError, and ValueError for
    weights that are quantised in a way that can't be read."""
    from transformers import Qwen3OmniMoeConfig, Qwen3OmniMoeThinkerForConditionalGeneration

    architecture: Any = Qwen3OmniMoeThinkerForConditionalGeneration
    options: dict[str, Any] = {"dtype": place.dtype, "attn_implementation": place.attention}
    if place.experts is not None:
        options["experts_implementation"] = place.experts
    config: Any = Qwen3OmniMoeConfig.from_pretrained(place.checkpoint, local_files_only=True).thinker_config
    if place.random:
        with torch.device(place.device):
            model = architecture._from_config(config, **options)
    elif quantisation_of(place.checkpoint) is None:
        model = architecture.from_pretrained(place.checkpoint, local_files_only=True, **options)
    else:
        # By itself `transformers` reads them with other packages and on some GPUs alone.
        for part in (config, config.text_config):
            part.__dict__.pop("quantization_config", None)
        weights = read_weights(place.checkpoint, "thinker.")
        model = architecture.from_pretrained(None, config=config, state_dict=weights, **options)
    return model.to(place.device).eval().requires_grad_(False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Numbers of a checkpoint that prompts are made by."""

    im_start: int
    im_end: int
    user: int
    """Role of the user, the token that follows `im_start`."""
    image: int
    """Placeholder of an image."""
    audio: int
    video: int
    audio_start: int
    audio_end: int
    accept_hidden_layer: int
    """Layer whose hidden states at placeholders go to the talker."""
    positions_per_second: float
    """Steps of the temporal position per second of a clip; a sound token is one step."""
    audio_window: int
    """Half of the mel frames that the audio encoder takes in one piece."""
    audio_block: int
    """Mel frames that attend to each other in the audio encoder, and to no others: 8 s."""
    patch: int
    """Pixels of a patch's side."""
    merge: int
    """Patches of a token's side."""
    temporal_patch: int
    """Frames of a patch."""
    mean: tuple[float, ...]
    std: tuple[float, ...]
    min_pixels: int
    """Of an image."""
    max_pixels: int

    @property
    def placeholders(self) -> tuple[int, int, int]:
        return self.image, self.audio, self.video

    @property
    def factor(self) -> int:
        """What the sides of a picture are a multiple of, pixels."""
        return self.patch * self.merge

    @classmethod
    def of(cls, checkpoint: Path) -> Self:
        """Raises OSError, or KeyError for a checkpoint of another kind."""
        config = json.loads((checkpoint / "config.json").read_text("utf-8"))
        pixels = json.loads((checkpoint / "preprocessor_config.json").read_text("utf-8"))
        thinker, talker = config["thinker_config"], config["talker_config"]
        size = pixels.get("size") or {}
        return cls(
            im_start=config["im_start_token_id"],
            im_end=config["im_end_token_id"],
            user=config["user_token_id"],
            image=thinker["image_token_id"],
            audio=thinker["audio_token_id"],
            video=thinker["video_token_id"],
            audio_start=thinker["audio_start_token_id"],
            audio_end=thinker["audio_end_token_id"],
            accept_hidden_layer=talker["accept_hidden_layer"],
            positions_per_second=thinker["position_id_per_seconds"],
            audio_window=thinker["audio_config"].get("n_window", 50),
            audio_block=thinker["audio_config"].get("n_window_infer", 800),
            patch=pixels["patch_size"],
            merge=pixels["merge_size"],
            temporal_patch=pixels["temporal_patch_size"],
            mean=tuple(pixels["image_mean"]),
            std=tuple(pixels["image_std"]),
            min_pixels=pixels.get("min_pixels") or size["shortest_edge"],
            max_pixels=pixels.get("max_pixels") or size["longest_edge"],
        )


def load_tokenizer(checkpoint: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(checkpoint, local_files_only=True)


def chat_template(checkpoint: Path) -> str:
    """The checkpoint's own template. Raises OSError when it has none."""
    for name in ("chat_template.jinja", "chat_template.json", "tokenizer_config.json"):
        file = checkpoint / name
        if file.is_file():
            text = file.read_text("utf-8")
            template = text if name.endswith("jinja") else json.loads(text).get("chat_template")
            if isinstance(template, str):
                return template
    raise OSError("the checkpoint has no chat template")
