"""The conversation as token ids, by the checkpoint's own template and tokenizer."""

from __future__ import annotations

import re
import secrets
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from omni.contract.errors import InvalidRequest
from omni.contract.job import Message, TextPart
from omni.stages.qwen3_omni.checkpoint import chat_template, load_tokenizer


class Chat:
    """Renders conversations. Usable from many threads.

    A special token that a text spells out is text, not a special token: it can neither end a turn nor stand for a
    picture that isn't there.
    """

    def __init__(self, checkpoint: Path) -> None:
        self.tokenizer: Any = load_tokenizer(checkpoint)
        self._template = chat_template(checkpoint)
        special = [token.content for token in self.tokenizer.added_tokens_decoder.values() if token.special]
        self._special = re.compile("|".join(re.escape(one) for one in sorted(special, key=len, reverse=True)))
        # The tokenizer keeps settings of the last call.
        self._lock = threading.Lock()

    def ids(self, messages: Sequence[Message]) -> list[int]:
        """Token ids up to where the answer begins, with one placeholder for every part that isn't text.

        Raises `InvalidRequest` when the template refuses the conversation.
        """
        from jinja2 import TemplateError

        spelled: list[str] = []
        mark = secrets.token_hex(8)

        def quoted(text: str) -> str:
            def quote(found: re.Match[str]) -> str:
                spelled.append(found.group())
                return f"{mark}{len(spelled) - 1}{mark}"

            # A lone surrogate has no encoding.
            return self._special.sub(quote, text.encode("utf-8", "replace").decode())

        conversation = [
            {
                "role": message.role,
                "content": [
                    {"type": "text", "text": quoted(part.text)} if isinstance(part, TextPart) else {"type": part.kind}
                    for part in message.parts
                ],
            }
            for message in messages
        ]
        try:
            text = self.tokenizer.apply_chat_template(
                conversation, chat_template=self._template, tokenize=False, add_generation_prompt=True
            )
        except TemplateError:
            raise InvalidRequest("The model's template can't express this conversation.", param="messages") from None
        ids: list[int] = []
        with self._lock:
            for number, piece in enumerate(re.split(f"{mark}([0-9]+){mark}", text)):
                literal = number % 2 == 1
                ids += self.tokenizer(
                    spelled[int(piece)] if literal else piece, add_special_tokens=False, split_special_tokens=literal
                ).input_ids
        return ids
