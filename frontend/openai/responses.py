"""The wire shape of chat answers, for the OpenAPI document. Answers are written by `from_chunks`, not by these."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel


class TokenLogprob(BaseModel):
    token: str
    logprob: float
    bytes: list[int] | None
    top_logprobs: list[dict[str, Any]]


class Logprobs(BaseModel):
    content: list[TokenLogprob]
    refusal: None


class Audio(BaseModel):
    id: str
    data: str
    """Base64 of a file in the format that was asked for."""
    expires_at: int
    transcript: str


class AnswerMessage(BaseModel):
    role: Literal["assistant"]
    content: str | None
    refusal: None
    audio: Audio | None = None


class AnswerChoice(BaseModel):
    index: Literal[0]
    message: AnswerMessage
    logprobs: Logprobs | None
    finish_reason: Literal["stop", "length"]


class PromptDetails(BaseModel):
    cached_tokens: int
    audio_tokens: int


class CompletionDetails(BaseModel):
    reasoning_tokens: int
    audio_tokens: int
    accepted_prediction_tokens: int
    rejected_prediction_tokens: int


class UsageObject(BaseModel):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails
    completion_tokens_details: CompletionDetails


class ChatAnswer(BaseModel):
    """The answer to `POST /v1/chat/completions` without `stream`."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    system_fingerprint: str
    choices: list[AnswerChoice]
    usage: UsageObject
    sglext: dict[str, Any] | None = None


def inline_schema(model: type[BaseModel]) -> dict[str, Any]:
    """The JSON schema of `model` in one piece, fit for any place of an OpenAPI document. No model here is recursive."""
    schema = model.model_json_schema()
    parts = schema.pop("$defs", {})

    def inlined(node: Any) -> Any:
        if isinstance(node, dict):
            if "$ref" in node:
                return inlined(parts[node["$ref"].rsplit("/", 1)[1]])
            return {key: inlined(value) for key, value in node.items()}
        return [inlined(one) for one in node] if isinstance(node, list) else node

    out: dict[str, Any] = inlined(schema)
    return out
