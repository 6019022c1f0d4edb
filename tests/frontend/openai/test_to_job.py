from __future__ import annotations

from typing import Any

import pytest

from frontend.openai.conversation import MediaReference
from frontend.openai.requests import ChatRequest, parse
from frontend.openai.to_job import Draft, Wanted, draft
from omni.contract.errors import InvalidRequest, NotSupported, UnknownModel
from omni.contract.job import MediaPart, Message, TextPart, VideoOptions
from omni.contract.names import CODE2WAV, OMNI, OMNI_TEXT, TALKER, THINKER
from omni.contract.params import SamplingParams
from omni.profile import Profile

pytestmark = pytest.mark.pure

PROFILE = Profile(name="test", model="qwen3-omni", voices=("Ethan", "Chelsie"))
SPEECH: dict[str, Any] = {"modalities": ["text", "audio"]}


def read(profile: Profile = PROFILE, **fields: Any) -> Draft:
    body = {"messages": [{"role": "user", "content": "hi"}], **fields}
    return draft(parse(ChatRequest, body), profile)


def thinker(**fields: Any) -> SamplingParams:
    return read(**fields).settings.sampling.get(THINKER, SamplingParams())


def talker(**fields: Any) -> SamplingParams:
    return read(**fields).settings.sampling.get(TALKER, SamplingParams())


def image(url: str, param: str) -> MediaReference:
    return MediaReference(kind="image", source=url, param=param)


# -- the conversation


def test_roles_and_texts() -> None:
    messages = [
        {"role": "developer", "content": "Be brief."},
        {"role": "system", "content": ["Be kind.", {"type": "input_text", "text": "Be true."}]},
        {"role": "user", "content": None},
        {"role": "assistant", "content": "", "tool_calls": []},
        {"role": "user", "name": "Ann", "content": [{"type": "text", "text": ""}]},
    ]
    assert read(messages=messages).turns == (
        ("system", (TextPart("Be brief."),)),
        ("system", (TextPart("Be kind."), TextPart("Be true."))),
        ("user", ()),
        ("assistant", ()),
        ("user", ()),
    )


def test_media_keep_their_place_in_every_turn() -> None:
    messages = [
        {
            "role": "user",
            "content": [
                {"type": "image_url", "image_url": {"url": "a"}},
                {"type": "text", "text": "one"},
                {"type": "input_image", "image_url": "b"},
                {"type": "input_audio", "input_audio": {"data": "c", "format": "wav"}},
            ],
        },
        {"role": "assistant", "content": "two"},
        {
            "role": "user",
            "content": [{"type": "video_url", "video_url": "d"}, {"type": "audio_url", "audio_url": {"url": "e"}}],
        },
    ]
    plan = read(messages=messages)
    assert plan.references == (
        image("a", "messages.0.content.0.image_url.url"),
        image("b", "messages.0.content.2.image_url.url"),
        MediaReference(kind="audio", source="c", param="messages.0.content.3.input_audio.data", bare=True),
        MediaReference(kind="video", source="d", param="messages.2.content.0.video_url.url"),
        MediaReference(kind="audio", source="e", param="messages.2.content.1.audio_url.url"),
    )
    parts = [MediaPart.of(one.kind, str(one.source).encode(), one.param) for one in plan.references]
    job = plan.job("id", parts)
    assert job.id == "id"
    assert job.messages == (
        Message("user", (parts[0], TextPart("one"), parts[1], parts[2])),
        Message("assistant", (TextPart("two"),)),
        Message("user", (parts[3], parts[4])),
    )


def test_media_beside_the_messages_follow_the_last_user_message() -> None:
    messages = [
        {"role": "user", "content": "first"},
        {"role": "user", "content": "second"},
        {"role": "assistant", "content": "third"},
    ]
    turns = read(messages=messages, images=["a", "b"], audios=["c"], videos=["d"]).turns
    assert turns[1] == (
        "user",
        (
            TextPart("second"),
            image("a", "images.0"),
            image("b", "images.1"),
            MediaReference(kind="video", source="d", param="videos.0"),
            MediaReference(kind="audio", source="c", param="audios.0"),
        ),
    )
    assert turns[2] == ("assistant", (TextPart("third"),))


def test_media_without_a_user_message_get_one() -> None:
    assert read(messages=[], images=["a"]).turns == (("user", (image("a", "images.0"),)),)
    assert read(messages=[{"role": "system", "content": "x"}], images=["a"]).turns[1][0] == "user"


def test_empty_content_with_media_is_the_media_alone() -> None:
    assert read(messages=[{"role": "user", "content": ""}], images=["a"]).turns == (
        ("user", (image("a", "images.0"),)),
    )


# -- what the client wants back


def test_defaults() -> None:
    plan = read()
    assert plan.wanted == Wanted(model="qwen3-omni")
    assert plan.settings.sampling == {}
    assert plan.settings.stage == {}
    assert plan.video == VideoOptions()
    assert plan.job("id", ()).model == OMNI_TEXT


@pytest.mark.parametrize(
    ("modalities", "text", "speech"),
    [
        (["text"], True, None),
        (["text", "audio"], True, "wav"),
        (["audio", "text"], True, "wav"),
        (["audio"], False, "wav"),
    ],
)
def test_modalities(modalities: list[str], text: bool, speech: str | None) -> None:
    plan = read(modalities=modalities)
    assert (plan.wanted.text, plan.wanted.speech) == (text, speech)
    assert plan.job("id", ()).model == (OMNI if speech else OMNI_TEXT)


@pytest.mark.parametrize("format", ["wav", "mp3", "flac", "opus", "aac", "pcm16", "pcm", "WAV"])
def test_formats_of_speech(format: str) -> None:
    assert read(**SPEECH, audio={"format": format}).wanted.speech == format.lower()


def test_the_format_is_only_looked_at_for_speech() -> None:
    assert read(audio={"format": "tape", "voice": "nobody", "ref_audio": "x"}).wanted.speech is None


@pytest.mark.parametrize("voice", ["Chelsie", "chelsie", {"id": "Chelsie"}])
def test_a_voice_reaches_the_talker_as_the_profile_spells_it(voice: Any) -> None:
    assert read(**SPEECH, audio={"voice": voice}).settings.stage == {TALKER: {"voice": "Chelsie"}}


def test_the_voice_of_the_stage_wins() -> None:
    plan = read(**SPEECH, audio={"voice": "Ethan"}, stage_params={"talker": {"voice": "chelsie"}})
    assert plan.settings.stage == {TALKER: {"voice": "Chelsie"}}


def test_streams() -> None:
    plan = read(stream=True, stream_options={"include_usage": True}, return_spec_tokens_details=True, logprobs=True)
    assert plan.wanted == Wanted(
        model="qwen3-omni", stream=True, include_usage=True, spec_tokens_details=True, logprobs=True
    )


def test_the_answer_names_the_model_as_the_client_did() -> None:
    request = parse(ChatRequest, {"messages": [{"role": "user", "content": "hi"}], "model": "alias"})
    assert draft(request, PROFILE, ["main", "alias"]).wanted.model == "alias"
    request = parse(ChatRequest, {"messages": [{"role": "user", "content": "hi"}]})
    assert draft(request, PROFILE, ["main", "alias"]).wanted.model == "main"


# -- sampling and knobs


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", 0.5), ("temperature", 1), ("top_p", 0.9), ("top_k", 20), ("min_p", 0.1),
        ("repetition_penalty", 1.1), ("frequency_penalty", -1.5), ("presence_penalty", 1.5), ("max_tokens", 7),
        ("min_tokens", 3), ("seed", -(1 << 53)), ("ignore_eos", True),
    ],
)  # fmt: skip
def test_sampling_fields_reach_the_thinker(name: str, value: Any) -> None:
    assert thinker(**{name: value}) == SamplingParams(**{name: value})


def test_stop_logit_bias_and_logprobs() -> None:
    assert thinker(stop="x").stop == ("x",)
    assert thinker(stop=["x", "y"]).stop == ("x", "y")
    assert thinker(logit_bias={"12": -5}).logit_bias == {12: -5}
    assert thinker(logprobs=True).logprobs == 0
    assert thinker(logprobs=True, top_logprobs=5).logprobs == 5
    assert thinker(logprobs=False, top_logprobs=0).logprobs is None


def test_max_completion_tokens_wins() -> None:
    assert thinker(max_tokens=5, max_completion_tokens=6).max_tokens == 6


def test_the_seed_is_the_talkers_too() -> None:
    assert talker(seed=7).seed == 7


def test_talker_fields() -> None:
    asked = talker(
        talker_temperature=0.5, talker_top_p=0.6, talker_top_k=7, talker_repetition_penalty=1.2, talker_max_new_tokens=9
    )
    assert asked == SamplingParams(temperature=0.5, top_p=0.6, top_k=7, repetition_penalty=1.2, max_tokens=9)


def test_stage_sampling_overrides() -> None:
    fields = {
        "temperature": 0.5,
        "top_p": 0.9,
        "talker_top_k": 5,
        "stage_sampling": {"thinker": {"temperature": 0.8, "stop": "."}, "talker": {"top_k": 6}},
    }
    assert thinker(**fields) == SamplingParams(temperature=0.8, top_p=0.9, stop=(".",))
    assert talker(**fields) == SamplingParams(top_k=6)


def test_stage_params_reach_their_stages() -> None:
    asked = {"code2wav": {"max_chunk_frames": 5}, "thinker": {"token_interval_ms": 2}, "preprocess": {}}
    stage = read(**SPEECH, stage_params=asked).settings.stage
    assert stage == {CODE2WAV: {"max_chunk_frames": 5}, THINKER: {"token_interval_ms": 2}}


def test_video_options() -> None:
    plan = read(
        use_audio_in_video=True, video_fps=2, video_max_frames=8, video_min_pixels=100, video_max_pixels=200,
        video_total_pixels=900,
    )  # fmt: skip
    assert plan.video == VideoOptions(
        use_audio=True, fps=2, max_frames=8, min_pixels=100, max_pixels=200, total_pixels=900
    )


# -- refusals


def parts(*content: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": list(content)}]}


@pytest.mark.parametrize(
    ("fields", "param", "kind"),
    [
        ({"model": "gpt-4o"}, "model", UnknownModel),
        ({"messages": []}, "messages", InvalidRequest),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages.0.role", InvalidRequest),
        ({"messages": [{"role": "tool", "content": "x", "tool_call_id": "1"}]}, "messages.0.role", NotSupported),
        ({"messages": [{"role": "function", "content": "x", "name": "f"}]}, "messages.0.role", NotSupported),
        ({"messages": [{"role": "assistant", "tool_calls": [{}]}]}, "messages.0.tool_calls", NotSupported),
        ({"messages": [{"role": "assistant", "audio": {"id": "a"}}]}, "messages.0.audio", NotSupported),
        (parts({"type": "file", "file": {}}), "messages.0.content.0.type", InvalidRequest),
        (parts("x", {"type": "text"}), "messages.0.content.1.text", InvalidRequest),
        (parts({"type": "image_url"}), "messages.0.content.0.image_url", InvalidRequest),
        (parts({"type": "input_image"}), "messages.0.content.0.image_url", InvalidRequest),
        (parts({"type": "audio_url", "video_url": "x"}), "messages.0.content.0.audio_url", InvalidRequest),
        (parts({"type": "input_audio"}), "messages.0.content.0.input_audio", InvalidRequest),
        ({"modalities": []}, "modalities", InvalidRequest),
        ({"modalities": ["video"]}, "modalities", InvalidRequest),
        ({"modalities": ["text", "image"]}, "modalities", InvalidRequest),
        ({**SPEECH, "audio": {"format": "ogg"}}, "audio.format", InvalidRequest),
        ({**SPEECH, "audio": {"voice": "alloy"}}, "audio.voice", InvalidRequest),
        ({**SPEECH, "audio": {"ref_audio": "x"}}, "audio.ref_audio", NotSupported),
        ({**SPEECH, "stage_params": {"talker": {"voice": "alloy"}}}, "stage_params.talker.voice", InvalidRequest),
        ({"n": 2}, "n", NotSupported),
        ({"n": 0}, "n", NotSupported),
        ({"response_format": {"type": "json_object"}}, "response_format.type", NotSupported),
        ({"tools": [{}]}, "tools", NotSupported),
        ({"tools": [{}], "tool_choice": "auto"}, "tools", NotSupported),
        ({"tool_choice": "required"}, "tool_choice", NotSupported),
        ({"tool_choice": {"type": "function"}}, "tool_choice", NotSupported),
        ({"functions": [{}]}, "functions", NotSupported),
        ({"top_logprobs": 3}, "top_logprobs", InvalidRequest),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs", InvalidRequest),
        ({"temperature": 2.1}, "temperature", InvalidRequest),
        ({"top_p": 0}, "top_p", InvalidRequest),
        ({"top_k": -2}, "top_k", InvalidRequest),
        ({"max_tokens": 0}, "max_tokens", InvalidRequest),
        ({"max_completion_tokens": 0}, "max_completion_tokens", InvalidRequest),
        ({"stop": [""]}, "stop", InvalidRequest),
        ({"stop": ["x"] * 17}, "stop", InvalidRequest),
        ({"logit_bias": {"foo": 0}}, "logit_bias", InvalidRequest),
        ({"logit_bias": {"5": 101}}, "logit_bias", InvalidRequest),
        ({"talker_temperature": 3}, "talker_temperature", InvalidRequest),
        ({"talker_max_new_tokens": 0}, "talker_max_new_tokens", InvalidRequest),
        ({"stage_sampling": {"vision": {}}}, "stage_sampling", InvalidRequest),
        ({"stage_sampling": {"thinker": {"heat": 1}}}, "stage_sampling.thinker.heat", InvalidRequest),
        ({"stage_sampling": {"talker": {"top_p": 2}}}, "stage_sampling.talker.top_p", InvalidRequest),
        ({"stage_params": {"vision": {}}}, "stage_params", InvalidRequest),
        ({"stage_params": {"talker": {"hat": 1}}}, "stage_params.talker.hat", InvalidRequest),
        ({"stage_params": {"talker": {"voice": 5}}}, "stage_params.talker.voice", InvalidRequest),
        ({"video_fps": 0}, "video_fps", InvalidRequest),
        ({"video_max_frames": 0}, "video_max_frames", InvalidRequest),
        ({"video_min_pixels": -1}, "video_min_pixels", InvalidRequest),
        ({"video_max_pixels": 0}, "video_max_pixels", InvalidRequest),
        ({"video_total_pixels": 0}, "video_total_pixels", InvalidRequest),
    ],
)  # fmt: skip
def test_refusals_name_the_field(fields: dict[str, Any], param: str, kind: type[InvalidRequest]) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        read(**fields)
    assert type(refusal.value) is kind
    assert refusal.value.param == param
    assert refusal.value.message.endswith(".")


def test_the_message_names_the_field_too() -> None:
    with pytest.raises(InvalidRequest, match=r"^max_completion_tokens must be"):
        read(max_completion_tokens=0)
    with pytest.raises(InvalidRequest, match=r"^talker_top_p must be"):
        read(talker_top_p=7)


def test_tools_that_must_not_be_used_are_let_through() -> None:
    assert read(tools=[{"type": "function"}], tool_choice="none", functions=[{}], function_call="none")


def test_speech_of_a_deployment_without_it_is_refused() -> None:
    mute = Profile(name="mute", model="m", speech=False)
    with pytest.raises(NotSupported) as refusal:
        read(mute, **SPEECH)
    assert refusal.value.param == "modalities"


def test_a_voice_of_a_deployment_with_one_is_refused() -> None:
    with pytest.raises(NotSupported) as refusal:
        read(Profile(name="one", model="m"), **SPEECH, audio={"voice": "Ethan"})
    assert refusal.value.param == "audio.voice"
