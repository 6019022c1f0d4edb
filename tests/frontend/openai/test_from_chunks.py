from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from frontend.openai.from_chunks import DONE, ChatReply, ChatStream, Envelope
from frontend.openai.responses import ChatAnswer
from frontend.openai.speech_format import wav_header
from frontend.openai.to_job import Wanted
from omni.contract.chunk import Chunk, Usage

pytestmark = pytest.mark.pure

ENVELOPE = Envelope(id="abc", created=1_700_000_000, version="1.2")
USAGE = Usage(prompt_tokens=5, completion_tokens=2, cached_tokens=3, audio_tokens=1)
USAGE_OBJECT = {
    "prompt_tokens": 5,
    "completion_tokens": 2,
    "total_tokens": 7,
    "prompt_tokens_details": {"cached_tokens": 3, "audio_tokens": 1},
    "completion_tokens_details": {
        "reasoning_tokens": 0,
        "audio_tokens": 0,
        "accepted_prediction_tokens": 0,
        "rejected_prediction_tokens": 0,
    },
}
LOGPROB = {"token": "Hi", "logprob": -0.5, "bytes": [72, 105], "top_logprobs": []}
ANSWER = [
    Chunk(event={"type": "prompt", "prompt_tokens": 5}),
    Chunk(text="Hello", tokens=1),
    Chunk(text=" there", tokens=1, finish="length", usage=USAGE),
]
SPOKEN = [ANSWER[1], Chunk(audio=b"\1\0"), ANSWER[2], Chunk(audio=b"\2\0\3\0")]


def wanted(**fields: Any) -> Wanted:
    return Wanted(model="qwen3-omni", stream=True, **fields)


def events(chunks: Iterable[Chunk], want: Wanted) -> list[dict[str, Any]]:
    """The objects of a stream, which must be well formed and end as streams do."""
    stream = ChatStream(ENVELOPE, want)
    data = b"".join(stream.feed(chunk) for chunk in chunks) + stream.finish()
    assert data.endswith(DONE)
    bodies = data[: -len(DONE)].split(b"\n\n")
    assert bodies.pop() == b""
    out = [json.loads(body.removeprefix(b"data: ")) for body in bodies]
    for one in out:
        ChatCompletionChunk.model_validate(one, strict=True)
        assert one["id"] == "chatcmpl-abc"
        assert one["object"] == "chat.completion.chunk"
        assert one["created"] == 1_700_000_000
        assert one["model"] == "qwen3-omni"
        assert one["system_fingerprint"] == "omni-1.2"
    return out


def choices(chunks: Iterable[Chunk], want: Wanted) -> list[dict[str, Any]]:
    return [choice for one in events(chunks, want) for choice in one["choices"]]


def deltas(chunks: Iterable[Chunk], want: Wanted) -> list[dict[str, Any]]:
    return [choice["delta"] for choice in choices(chunks, want)]


def reply(chunks: Iterable[Chunk], want: Wanted) -> dict[str, Any]:
    whole = ChatReply(ENVELOPE, want)
    for chunk in chunks:
        whole.feed(chunk)
    body: dict[str, Any] = json.loads(whole.finish())
    ChatCompletion.model_validate(body)
    ChatAnswer.model_validate(body, strict=True, extra="forbid")
    return body


# -- streams


def test_a_stream_of_text_byte_for_byte() -> None:
    stream = ChatStream(ENVELOPE, wanted())
    head = (
        b'data: {"id":"chatcmpl-abc","object":"chat.completion.chunk","created":1700000000,"model":"qwen3-omni",'
        b'"system_fingerprint":"omni-1.2","choices":[{"index":0,"delta":'
    )
    assert stream.feed(ANSWER[0]) == b""
    assert stream.feed(ANSWER[1]) == (
        head + b'{"role":"assistant","content":"Hello"},"logprobs":null,"finish_reason":null}]}\n\n'
    )
    assert stream.feed(ANSWER[2]) == head + b'{"content":" there"},"logprobs":null,"finish_reason":null}]}\n\n'
    assert stream.finish() == (head + b'{},"logprobs":null,"finish_reason":"length"}]}\n\ndata: [DONE]\n\n')


def test_a_stream_of_text_and_speech() -> None:
    first, second = (
        base64.b64encode(wav_header(2) + b"\1\0").decode(),
        base64.b64encode(wav_header(4) + b"\2\0\3\0").decode(),
    )
    assert choices(SPOKEN, wanted(speech="wav")) == [
        {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        for delta, finish in (
            ({"role": "assistant", "content": "Hello", "audio": {"transcript": "Hello"}}, None),
            ({"audio": {"id": "audio-abc", "data": first}}, None),
            ({"content": " there", "audio": {"transcript": " there"}}, None),
            ({"audio": {"id": "audio-abc", "data": second}}, None),
            ({"audio": {"expires_at": 1_700_000_000}}, None),
            ({}, "length"),
        )
    ]


def test_speech_alone_has_its_transcript_and_no_content() -> None:
    said = deltas(SPOKEN, wanted(speech="pcm16", text=False))
    assert said == [
        {"role": "assistant", "audio": {"transcript": "Hello"}},
        {"audio": {"id": "audio-abc", "data": "AQA="}},
        {"audio": {"transcript": " there"}},
        {"audio": {"id": "audio-abc", "data": "AgADAA=="}},
        {"audio": {"expires_at": 1_700_000_000}},
        {},
    ]


def test_speech_that_nobody_asked_for_is_left_out() -> None:
    assert deltas(SPOKEN, wanted()) == [{"role": "assistant", "content": "Hello"}, {"content": " there"}, {}]


def test_the_role_rides_on_whatever_comes_first() -> None:
    assert deltas([Chunk(audio=b"\1\0")], wanted(speech="pcm"))[0] == {
        "role": "assistant",
        "audio": {"id": "audio-abc", "data": "AQA="},
    }
    assert deltas([], wanted()) == [{"role": "assistant"}]


def test_one_chunk_with_text_and_sound_becomes_two_events() -> None:
    said = deltas([Chunk(text="a", audio=b"\1\0")], wanted(speech="pcm"))
    assert [list(delta) for delta in said[:2]] == [["role", "content", "audio"], ["audio"]]


def test_the_reason_to_finish_is_the_texts_whatever_the_speech_does() -> None:
    late = [*SPOKEN, Chunk(audio=b"\0\0", finish="stop")]
    assert [choice["finish_reason"] for choice in choices(late, wanted(speech="wav"))][-2:] == [None, "length"]
    assert choices([Chunk(text="x")], wanted())[-1]["finish_reason"] == "stop"


def test_usage_comes_last_and_only_when_asked_for() -> None:
    assert all("usage" not in one for one in events(ANSWER, wanted()))
    asked = events(ANSWER, wanted(include_usage=True))
    assert [one["usage"] for one in asked] == [None, None, None, USAGE_OBJECT]
    assert asked[-1]["choices"] == []


def test_usage_is_counted_when_the_stages_do_not_tell() -> None:
    untold = [ANSWER[0], Chunk(text="a", tokens=2), Chunk(text="b", tokens=3)]
    usage = events(untold, wanted(include_usage=True))[-1]["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (5, 5, 10)


def test_speculative_statistics_have_a_chunk_of_their_own() -> None:
    last = events(ANSWER, wanted(spec_tokens_details=True, include_usage=True))[-1]
    assert last["choices"] == []
    assert last["sglext"]["spec_tokens_details"]["spec_verify_ct"] == 0
    told = [*ANSWER, Chunk(event={"type": "spec_tokens_details", "spec_verify_ct": 4})]
    assert events(told, wanted(spec_tokens_details=True))[-1]["sglext"] == {
        "spec_tokens_details": {"spec_verify_ct": 4}
    }


@pytest.mark.parametrize("speech", [None, "wav"])
def test_logprobs_ride_with_their_text(speech: str | None) -> None:
    choice = choices([Chunk(text="Hi", logprobs=(LOGPROB,))], wanted(logprobs=True, speech=speech))[0]
    assert choice["logprobs"] == {"content": [LOGPROB], "refusal": None}
    assert choice["delta"]["content"] == "Hi"
    assert choice["finish_reason"] is None


def test_logprobs_of_a_token_without_text_are_not_lost() -> None:
    choice = choices([Chunk(logprobs=(LOGPROB,))], wanted(logprobs=True))[0]
    assert choice["delta"] == {"role": "assistant", "content": ""}


@given(st.lists(st.text()), st.booleans(), st.booleans())
def test_deltas_put_together_are_the_text(texts: list[str], speech: bool, usage: bool) -> None:
    want = wanted(speech="wav" if speech else None, include_usage=usage)
    said = deltas([Chunk(text=text) for text in texts], want)
    text = "".join(texts).encode("utf-8", "replace").decode()
    assert "".join(delta.get("content", "") for delta in said) == text
    if speech:
        assert "".join(delta.get("audio", {}).get("transcript", "") for delta in said) == text


@given(st.lists(st.binary(max_size=40).map(lambda sound: sound[: len(sound) // 2 * 2])))
def test_sounds_put_together_are_the_speech(sounds: list[bytes]) -> None:
    said = deltas([Chunk(audio=sound) for sound in sounds], wanted(speech="wav"))
    files = [base64.b64decode(delta["audio"]["data"]) for delta in said if "data" in delta.get("audio", {})]
    assert all(file[:44] == wav_header(len(file) - 44) for file in files)
    assert b"".join(file[44:] for file in files) == b"".join(sounds)


def test_what_an_encoder_holds_back_comes_before_the_end() -> None:
    said = deltas([Chunk(text="a", audio=b"\0\0" * 100)], wanted(speech="aac"))
    assert [sorted(delta.get("audio", {})) for delta in said] == [["transcript"], ["data", "id"], ["expires_at"], []]


# -- whole answers


def test_a_whole_answer_in_text() -> None:
    assert reply(ANSWER, wanted()) == {
        "id": "chatcmpl-abc",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": "qwen3-omni",
        "system_fingerprint": "omni-1.2",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "Hello there", "refusal": None},
                "logprobs": None,
                "finish_reason": "length",
            }
        ],
        "usage": USAGE_OBJECT,
    }


def test_a_whole_answer_in_text_and_speech() -> None:
    message = reply(SPOKEN, wanted(speech="wav"))["choices"][0]["message"]
    assert message == {
        "role": "assistant",
        "content": "Hello there",
        "refusal": None,
        "audio": {
            "id": "audio-abc",
            "data": base64.b64encode(wav_header(6) + b"\1\0\2\0\3\0").decode(),
            "expires_at": 1_700_000_000,
            "transcript": "Hello there",
        },
    }


def test_a_whole_answer_in_speech_alone() -> None:
    message = reply(SPOKEN, wanted(speech="pcm16", text=False))["choices"][0]["message"]
    assert message["content"] is None
    assert message["audio"]["transcript"] == "Hello there"
    assert base64.b64decode(message["audio"]["data"]) == b"\1\0\2\0\3\0"


def test_a_whole_answer_with_logprobs_and_statistics() -> None:
    body = reply([Chunk(text="Hi", logprobs=(LOGPROB, LOGPROB))], wanted(logprobs=True, spec_tokens_details=True))
    assert body["choices"][0]["logprobs"] == {"content": [LOGPROB, LOGPROB], "refusal": None}
    assert body["sglext"]["spec_tokens_details"]["spec_accept_rate"] == 0.0


def test_an_empty_answer_is_an_answer() -> None:
    body = reply([], wanted(speech="wav"))
    assert body["choices"][0]["message"]["content"] == ""
    assert body["choices"][0]["finish_reason"] == "stop"
    assert base64.b64decode(body["choices"][0]["message"]["audio"]["data"]) == wav_header(0)


@given(st.lists(st.text()))
def test_a_whole_answer_is_the_text(texts: list[str]) -> None:
    content = reply([Chunk(text=text) for text in texts], wanted())["choices"][0]["message"]["content"]
    assert content == "".join(texts).encode("utf-8", "replace").decode()
