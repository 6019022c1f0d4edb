"""The talker's part of a prompt, taken from the thinker's."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from omni.stages.qwen3_omni.checkpoint import Figures
from omni.stages.qwen3_omni.handover import TalkerPrompt
from omni.stages.qwen3_omni.prompt import Prompt


def talker_prompt(prompt: Prompt, hidden: Tensor, figures: Figures, voice: str | None) -> TalkerPrompt:
    """`hidden` are the thinker's states at all placeholders of the prompt [placeholders, hidden]; only those of user
    turns are for the talker."""
    user, placeholder = prompt.user_mask(figures), prompt.media_mask(figures)
    if placeholder.any():
        hidden = hidden[torch.tensor(user[placeholder], device=hidden.device)]
    clips = [media for media in prompt.media if media.kind == "video"]
    images = [media.grid for media in prompt.media if media.kind == "image"]
    sounds: list[int] = []
    for media in prompt.media:
        if media.continues:
            sounds[-1] += media.mel_frames
        elif media.mel_frames:
            sounds.append(media.mel_frames)
    return TalkerPrompt(
        user_ids=prompt.ids[user],
        hidden=hidden.cpu(),
        image_grid_thw=np.array(images, np.int64).reshape(-1, 3),
        video_grid_thw=np.array([clip.grid for clip in clips], np.int64).reshape(-1, 3),
        audio_feature_lengths=np.array(sounds, np.int64),
        video_second_per_grid=np.array([clip.second_per_grid for clip in clips], np.float32),
        use_audio_in_video=prompt.use_audio_in_video,
        voice=voice,
    )
