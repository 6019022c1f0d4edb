"""Whether a prompt and its answer fit into the model's context."""

from __future__ import annotations

from omni.contract.errors import ContextExceeded
from omni.contract.names import THINKER
from omni.contract.params import Settings


def check_context(prompt_tokens: int, settings: Settings, most: int) -> None:
    """Raises `ContextExceeded` when the prompt, or the prompt and the answer that was asked for, are too long."""
    if prompt_tokens >= most:
        raise ContextExceeded(
            f"The prompt has {prompt_tokens} tokens, which is longer than the model's context length of {most} tokens.",
            param="messages",
        )
    sampling = settings.sampling.get(THINKER)
    asked = sampling.max_tokens if sampling is not None else None
    if asked is not None and prompt_tokens + asked > most:
        raise ContextExceeded(
            f"Requested token count exceeds the model's context length: {prompt_tokens} tokens of prompt and "
            f"{asked} tokens of answer are more than {most} tokens.",
            param="max_tokens",
        )
