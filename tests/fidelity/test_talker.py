"""The talker against `generate()` of `transformers`: given the same text, the same codes."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from support.qwen3_omni import KINDS, Reference, image, job, of_kind
from support.recorded_graphs import recorded_graphs

from omni.contract.errors import ContextExceeded, InvalidRequest, Overloaded
from omni.contract.names import TALKER
from omni.contract.params import SamplingParams, Settings
from omni.contract.stage import StageConfig
from omni.contract.tensors import StageMessage
from omni.engine.kv import BLOCK
from omni.stages.qwen3_omni.handover import TalkerPrompt
from omni.stages.qwen3_omni.talker import Talker
from omni.stages.qwen3_omni.talker_model import OPENING

pytestmark = pytest.mark.fidelity

TEXT_TOKENS, FRAMES, SEED = 24, 28, 7
MODES = ("greedy", "early end", "sampled")
GREEDY = SamplingParams(temperature=0.0, max_tokens=FRAMES)
SAMPLED = SamplingParams(temperature=0.9, top_k=50, max_tokens=FRAMES, seed=SEED)


@dataclass(frozen=True)
class Spoken:
    prompt: TalkerPrompt
    text: list[int]
    codes: npt.NDArray[np.int64]


def prompt_of(reference: Reference, asked: Any) -> TalkerPrompt:
    """The hand-over of a thinker that is `transformers` itself."""
    config, inputs = reference.model.config, reference.inputs(asked)
    ids = inputs["input_ids"][0]
    starts = torch.where(ids == config.im_start_token_id, torch.arange(len(ids)), 0).cummax(0).values
    user = ids[(starts + 1).clamp_max(len(ids) - 1)] == config.user_token_id
    thinker = config.thinker_config
    media = torch.isin(ids, torch.tensor([thinker.audio_token_id, thinker.image_token_id, thinker.video_token_id]))

    def array(name: str, shape: tuple[int, ...], dtype: Any) -> npt.NDArray[Any]:
        value = inputs.get(name)
        return np.zeros(shape, dtype) if value is None else np.asarray(value).astype(dtype)

    heard = inputs.get("feature_attention_mask")
    return TalkerPrompt(
        user_ids=ids[user].numpy().astype(np.int32),
        hidden=reference.hidden(asked)[user & media],
        image_grid_thw=array("image_grid_thw", (0, 3), np.int64),
        video_grid_thw=array("video_grid_thw", (0, 3), np.int64),
        audio_feature_lengths=np.zeros(0, np.int64) if heard is None else heard.sum(-1).numpy(),
        video_second_per_grid=array("video_second_per_grid", (0,), np.float32),
        use_audio_in_video=bool(inputs.get("use_audio_in_video", False)),
    )


@pytest.fixture(scope="module")
def spoken(reference: Reference) -> Any:
    """What `generate` says to each kind of input in each mode."""

    @cache
    def of(kind: str, mode: str) -> Spoken:
        asked = of_kind(kind)
        eos = None
        if mode == "early end":
            eos = reference.early_eos(of(kind, "greedy").text)
        options: dict[str, Any] = {"talker_do_sample": True, "seed": SEED} if mode == "sampled" else {}
        said = reference.speak(
            asked, eos=eos, thinker_max_new_tokens=TEXT_TOKENS, talker_max_new_tokens=FRAMES, **options
        )
        return Spoken(prompt_of(reference, asked), said.text, said.codes)

    return of


@pytest.fixture(scope="module")
def talker(checkpoint: Path) -> Talker:
    """As on a GPU, in captured graphs of few shapes; test_speech has it without."""
    options = {
        "max_generations": 4,
        "max_queue": 8,
        "speak_last_token_on_length": False,
        "prefill_chunk": 16,
        "kv_tokens": 4096,
    }
    with recorded_graphs():
        return Talker(StageConfig({"checkpoint": str(checkpoint), "graphs": True, **options}))


def settings(params: SamplingParams = GREEDY, **knobs: Any) -> Settings:
    return Settings(speech=True, sampling={TALKER: params}, stage={TALKER: knobs})


def tokens(ids: list[int], eos: bool = False, **rest: Any) -> StageMessage:
    return StageMessage(tokens=np.array(ids, np.int32), eos=eos, **rest)


class Heard:
    """What a talker says, by generation."""

    def __init__(self, talker: Talker) -> None:
        self.talker = talker
        self.frames: dict[str, list[npt.NDArray[np.int32]]] = {}
        self.ended: set[str] = set()

    def step(self) -> int:
        """How many frames the step made."""
        made = 0
        for generation, message in self.talker.step():
            assert generation not in self.ended
            if message.codes is not None:
                self.frames.setdefault(generation, []).append(message.codes)
                made += 1
            if message.eos:
                self.ended.add(generation)
        return made

    def finish(self) -> None:
        while self.talker.wait() is not None:
            self.step()

    def of(self, generation: str) -> npt.NDArray[np.int32]:
        return np.concatenate(self.frames.get(generation, [np.zeros((0, 4), np.int32)]))


def say(talker: Talker, asked: Spoken, params: SamplingParams = GREEDY, **knobs: Any) -> npt.NDArray[np.int32]:
    heard = Heard(talker)
    talker.open("one", settings(params, **knobs))
    talker.push("one", StageMessage(handover=asked.prompt.to_handover()))
    talker.push("one", tokens(asked.text, eos=True))
    heard.finish()
    assert heard.ended == {"one"}
    assert len(talker) == talker.rows_in_use == talker.blocks_in_use == 0
    return heard.of("one")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", KINDS)
def test_codes_are_those_of_generate(talker: Talker, spoken: Any, kind: str, mode: str) -> None:
    expected: Spoken = spoken(kind, mode)
    codes = say(talker, expected, SAMPLED if mode == "sampled" else GREEDY)
    assert codes.dtype == np.int32
    assert codes.tolist() == expected.codes.tolist()
    assert len(np.unique(codes, axis=0)) > len(codes) / 2, "a talker that repeats itself proves nothing"


def test_the_modes_differ(spoken: Any) -> None:
    greedy, early, sampled = (spoken("text", mode) for mode in MODES)
    assert len(early.text) < len(greedy.text) == TEXT_TOKENS
    assert sampled.codes.tolist() != greedy.codes.tolist() != early.codes.tolist()


def test_a_frame_comes_with_each_token_and_none_before(talker: Talker, spoken: Any) -> None:
    asked: Spoken = spoken("audio", "greedy")
    heard = Heard(talker)
    talker.open("g", settings())
    talker.push("g", StageMessage(handover=asked.prompt.to_handover()))
    heard.finish()
    assert heard.frames == {}
    for count, token in enumerate(asked.text[:-1], 1):
        talker.push("g", tokens([token]))
        heard.finish()
        assert len(heard.of("g")) == count
    talker.push("g", tokens(asked.text[-1:], eos=True))
    heard.finish()
    assert heard.of("g").tolist() == asked.codes.tolist()


def test_eight_in_four_rows_with_starving_text_are_as_one_by_one(talker: Talker, spoken: Any) -> None:
    dice = random.Random(3)
    kinds = list(KINDS)
    asked: list[Spoken] = [spoken(kind, MODES[n % 3]) for n, kind in enumerate(kinds)]
    params = [SAMPLED if n % 3 == 2 else GREEDY for n in range(8)]
    heard, text, arrival = Heard(talker), [deque(one.text) for one in asked], [dice.randint(0, 12) for _ in asked]
    rate = [dice.choice([0.4, 0.7, 1.0, 2.0]) for _ in asked]
    credit, stalled, widest, tick = [0.0] * 8, 0, 0, 0
    while len(heard.ended) < 8:
        for n, one in enumerate(asked):
            if arrival[n] == tick:
                talker.open(str(n), settings(params[n]))
                talker.push(str(n), StageMessage(handover=one.prompt.to_handover()))
            credit[n] += rate[n] if tick >= arrival[n] else 0
            while credit[n] >= 1 and text[n]:
                credit[n] -= 1
                talker.push(str(n), tokens([text[n].popleft()], eos=not text[n]))
        made = heard.step()
        widest = max(widest, made)
        stalled += len(talker) - made
        assert talker.rows_in_use <= 4
        tick += 1
    for n, one in enumerate(asked):
        assert heard.of(str(n)).tolist() == one.codes.tolist(), kinds[n]
    assert stalled > 20
    assert widest == 4
    assert len(talker) == talker.rows_in_use == talker.blocks_in_use == 0


def test_a_seed_decides_whatever_else_is_spoken(talker: Talker, spoken: Any) -> None:
    asked: Spoken = spoken("text", "sampled")
    alone = say(talker, asked, SAMPLED)
    assert say(talker, asked, SAMPLED).tolist() == alone.tolist()
    assert say(talker, asked, SamplingParams(max_tokens=FRAMES, seed=8)).tolist() != alone.tolist()
    assert say(talker, asked, SamplingParams(max_tokens=FRAMES)).tolist() != alone.tolist()


def test_the_last_token_is_spoken_unless_it_is_an_end(checkpoint: Path, reference: Reference) -> None:
    """`generate` with one token more speaks what is the last token here."""
    asked = of_kind("text")
    longer, shorter = (
        reference.speak(asked, thinker_max_new_tokens=count, talker_max_new_tokens=FRAMES) for count in (9, 8)
    )
    assert shorter.text == longer.text[:8]
    assert longer.codes.tolist() != shorter.codes.tolist()
    prompt = prompt_of(reference, asked)
    talker = Talker(StageConfig({"checkpoint": str(checkpoint)}))
    assert say(talker, Spoken(prompt, longer.text[:8], longer.codes)).tolist() == longer.codes.tolist()
    ended = [*longer.text[:7], reference.eos]
    assert say(talker, Spoken(prompt, ended, longer.codes)).tolist() == shorter.codes.tolist()
    talker = Talker(StageConfig({"checkpoint": str(checkpoint), "ends": [longer.text[7]]}))
    assert say(talker, Spoken(prompt, longer.text[:8], longer.codes)).tolist() == shorter.codes.tolist()


@pytest.mark.parametrize("said", [[361], []])
def test_an_answer_without_words_is_silent(talker: Talker, spoken: Any, said: list[int]) -> None:
    asked: Spoken = spoken("text", "greedy")
    assert len(say(talker, Spoken(asked.prompt, said, asked.codes))) == 0


def test_voices_go_by_name(talker: Talker, checkpoint: Path, reference: Reference, spoken: Any) -> None:
    asked: Spoken = spoken("text", "greedy")
    said = {name: say(talker, asked, voice=name).tolist() for name in ("Ethan", "chelsie", "AIDEN")}
    for name, codes in said.items():
        expected = reference.speak(
            of_kind("text"), speaker=name, thinker_max_new_tokens=TEXT_TOKENS, talker_max_new_tokens=FRAMES
        )
        assert codes == expected.codes.tolist()
    assert len({str(codes) for codes in said.values()}) == 3
    with pytest.raises(InvalidRequest) as refused:
        talker.open("one", settings(voice="Nobody"))
    assert refused.value.param == "voice"
    two = Talker(StageConfig({"checkpoint": str(checkpoint), "voices": ["Chelsie", "Ethan"]}))
    assert say(two, Spoken(asked.prompt, [*asked.text[:-1], 361], asked.codes)).tolist() == said["chelsie"]
    with pytest.raises(InvalidRequest):
        two.open("one", settings(voice="Aiden"))
    with pytest.raises(ValueError, match="Nobody"):
        Talker(StageConfig({"checkpoint": str(checkpoint), "voices": ["Nobody"]}))


def test_an_abort_frees_the_row_at_any_phase(talker: Talker, spoken: Any) -> None:
    asked: Spoken = spoken("image+audio+video", "greedy")
    heard = Heard(talker)

    def assert_freed() -> None:
        talker.abort("g")
        assert len(talker) == talker.rows_in_use == talker.blocks_in_use == 0
        assert talker.wait() is None

    talker.open("g", settings())
    assert_freed()
    talker.open("g", settings())
    talker.push("g", StageMessage(handover=asked.prompt.to_handover()))
    assert_freed()
    talker.open("g", settings())
    talker.push("g", StageMessage(handover=asked.prompt.to_handover()))
    talker.push("g", tokens(asked.text[:2]))
    assert heard.step() == 0, "a long prompt is read in several steps"
    assert talker.rows_in_use == 1
    assert_freed()
    talker.open("g", settings())
    talker.push("g", StageMessage(handover=asked.prompt.to_handover()))
    talker.push("g", tokens(asked.text[:3]))
    heard.finish()
    assert len(heard.of("g")) == 3
    assert talker.blocks_in_use > 0
    assert_freed()
    talker.push("g", tokens([1], eos=True))
    assert say(talker, asked).tolist() == asked.codes.tolist()


def test_the_queue_is_bounded_and_an_abort_lets_the_next_one_speak(talker: Talker, spoken: Any) -> None:
    asked: Spoken = spoken("text", "greedy")
    names = [str(n) for n in range(12)]
    for name in names:
        talker.open(name, settings())
    with pytest.raises(Overloaded):
        talker.open("more", settings())
    for name in names[:4]:
        talker.abort(name)
    for name in names[4:]:
        talker.push(name, StageMessage(handover=asked.prompt.to_handover()))
        talker.push(name, tokens(asked.text, eos=True))
    heard = Heard(talker)
    heard.finish()
    assert heard.ended == set(names[4:])
    assert all(heard.of(name).tolist() == asked.codes.tolist() for name in names[4:])


def test_memory_is_bounded_and_who_has_none_waits(checkpoint: Path, spoken: Any) -> None:
    asked: Spoken = spoken("text", "greedy")
    need = len(asked.prompt.user_ids) + OPENING + FRAMES
    blocks = -(-need // BLOCK)
    # All the tokens of two would fit, but not their blocks.
    options = {"kv_tokens": (2 * blocks - 1) * BLOCK, "speak_last_token_on_length": False}
    assert 2 * need <= options["kv_tokens"]
    talker = Talker(StageConfig({"checkpoint": str(checkpoint), **options}))
    heard = Heard(talker)
    for name in ("a", "b"):
        talker.open(name, settings())
        talker.push(name, StageMessage(handover=asked.prompt.to_handover()))
        talker.push(name, tokens(asked.text, eos=True))
    heard.step()
    assert talker.rows_in_use == 1
    heard.finish()
    assert heard.of("a").tolist() == heard.of("b").tolist() == asked.codes.tolist()
    talker.open("c", settings(SamplingParams(max_tokens=2 * FRAMES + 3 * BLOCK)))
    with pytest.raises(ContextExceeded):
        talker.push("c", StageMessage(handover=asked.prompt.to_handover()))


def test_rules_of_sampling_reach_the_codes(talker: Talker, spoken: Any) -> None:
    asked: Spoken = spoken("text", "early end")
    assert len(say(talker, asked, SamplingParams(temperature=0.0, max_tokens=3))) == 2
    forced = int(asked.codes[0, 0]) ^ 1
    biased = say(talker, asked, SamplingParams(temperature=0.0, max_tokens=4, logit_bias={forced: 100.0}))
    assert biased[:, 0].tolist() == [forced] * 3


def test_a_prompt_of_two_images_is_placed_as_generate_places_it(talker: Talker, reference: Reference) -> None:
    asked = job(image(5), "and", image(6, 96, 64), "Which?", history=(("user", (image(7),)), ("assistant", ("Yes.",))))
    said = reference.speak(asked, thinker_max_new_tokens=6, talker_max_new_tokens=12)
    codes = say(talker, Spoken(prompt_of(reference, asked), said.text, said.codes),
                SamplingParams(temperature=0.0, max_tokens=12))  # fmt: skip
    assert codes.tolist() == said.codes.tolist()
