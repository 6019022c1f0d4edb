"""What the thinker tells the talker about the prompt, once, right after the prefill.

The text of the answer follows as token ids in `StageMessage.tokens`: every id that the thinker generated, in order,
also the last one (an end token, or whatever stood at `max_tokens`); `eos` is set on the message after which none
follows. Which of them are spoken is the talker's business.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from omni.contract.errors import OmniError
from omni.contract.handover import Handover

_DTYPES: Final[Mapping[str, torch.dtype]] = {
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float32": torch.float32,
    "float64": torch.float64,
}


@dataclass(frozen=True, slots=True)
class TalkerPrompt:
    """The user's part of a prompt. M of its U tokens are placeholders of media, in the order of `hidden`."""

    user_ids: npt.NDArray[np.int32]
    """Ids of all tokens of all user turns [U]: each turn from its `<|im_start|>` up to the next one."""
    hidden: Tensor
    """The thinker's hidden states of layer `accept_hidden_layer` at the placeholders of image, audio and video among
    `user_ids` [M, thinker hidden size]; on the CPU, in the thinker's dtype."""
    image_grid_thw: npt.NDArray[np.int64]
    """Temporal, vertical and horizontal patches of each image [images, 3]."""
    video_grid_thw: npt.NDArray[np.int64]
    """The same of each clip [videos, 3]."""
    audio_feature_lengths: npt.NDArray[np.int64]
    """Mel frames of each sound [sounds], sound tracks of clips among them, in the order of the conversation."""
    video_second_per_grid: npt.NDArray[np.float32]
    """Seconds between two temporal patches of each clip [videos]."""
    use_audio_in_video: bool = False
    """Whether clips are heard, their sound interleaved with their frames."""
    voice: str | None = None
    """Who speaks; None is the deployment's own."""

    def to_handover(self) -> Handover:
        meta = {
            "hidden_dtype": str(self.hidden.dtype).removeprefix("torch."),
            "use_audio_in_video": self.use_audio_in_video,
            "voice": self.voice,
        }
        arrays = {
            "user_ids": self.user_ids,
            "hidden": to_numpy(self.hidden),
            "image_grid_thw": self.image_grid_thw,
            "video_grid_thw": self.video_grid_thw,
            "audio_feature_lengths": self.audio_feature_lengths,
            "video_second_per_grid": self.video_second_per_grid,
        }
        return Handover(meta, arrays)

    @classmethod
    def from_handover(cls, handover: Handover) -> TalkerPrompt:
        """Raises `OmniError` when the hand-over isn't one of this kind."""
        meta, arrays = handover.meta, handover.arrays
        try:
            return cls(
                user_ids=arrays["user_ids"],
                hidden=to_torch(arrays["hidden"], meta["hidden_dtype"]),
                image_grid_thw=arrays["image_grid_thw"],
                video_grid_thw=arrays["video_grid_thw"],
                audio_feature_lengths=arrays["audio_feature_lengths"],
                video_second_per_grid=arrays["video_second_per_grid"],
                use_audio_in_video=meta["use_audio_in_video"],
                voice=meta["voice"],
            )
        except KeyError:
            raise OmniError("The hand-over to the talker can't be read.") from None


def to_numpy(tensor: Tensor) -> npt.NDArray[Any]:
    """The tensor's bytes as numpy can hold them: bfloat16 travels as uint16."""
    tensor = tensor.detach().cpu()
    return (tensor.view(torch.uint16) if tensor.dtype == torch.bfloat16 else tensor).numpy()


def to_torch(array: npt.NDArray[Any], dtype: str) -> Tensor:
    """The inverse of `to_numpy`; a copy. Raises KeyError for an unknown dtype."""
    tensor = torch.from_numpy(np.array(array))
    return tensor.view(_DTYPES[dtype]) if dtype == "bfloat16" else tensor.to(_DTYPES[dtype])
