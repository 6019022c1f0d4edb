"""`sampling_params_list`: one entry per stage in pipeline order, as vLLM's `SamplingParams(**entry)` would read it.

An entry that is given replaces its stage's settings as a whole: what it doesn't name gets the constructor's defaults
and not the deployment's, so that `[{"temperature": 0.2}]` also limits the answer to 16 tokens. Stages after the last
entry keep the deployment's settings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from omni.contract.errors import InvalidRequest
from omni.contract.names import CODE2WAV, TALKER, THINKER
from omni.contract.params import SAMPLED_STAGES, SamplingParams

PIPELINE: Final = (THINKER, TALKER, CODE2WAV)

CONSTRUCTOR_DEFAULTS: Final = SamplingParams(
    temperature=1.0, top_p=1.0, top_k=-1, min_p=0.0, repetition_penalty=1.0, frequency_penalty=0.0,
    presence_penalty=0.0, max_tokens=16, min_tokens=0, stop=(), ignore_eos=False, logit_bias={},
)  # fmt: skip
"""What vLLM's `SamplingParams()` is."""

_WITHOUT_EFFECT: Final[Mapping[str, Any]] = {
    "n": 1,
    "best_of": None,
    "detokenize": True,
    "skip_special_tokens": True,
    "spaces_between_special_tokens": True,
    "include_stop_str_in_output": False,
    "stop_token_ids": None,
    "bad_words": None,
    "prompt_logprobs": None,
    "logprobs": None,
}
"""Fields of vLLM's that mean what we do anyway at this value, which is their default."""


def sampling(entries: Sequence[Mapping[str, Any]]) -> dict[str, SamplingParams]:
    """By stage, complete parameters for the stages that `entries` name. Raises `InvalidRequest`."""
    if len(entries) > len(PIPELINE):
        raise InvalidRequest(f"sampling_params_list may have {len(PIPELINE)} entries, one for each stage.")
    out: dict[str, SamplingParams] = {}
    for place, (stage, entry) in enumerate(zip(PIPELINE, entries, strict=False)):
        given = {k: v for k, v in entry.items() if not (k in _WITHOUT_EFFECT and v == _WITHOUT_EFFECT[k])}
        given = {k: v for k, v in given.items() if not (v is None and k in SamplingParams.__dataclass_fields__)}
        try:
            params = SamplingParams.from_json(given).over(CONSTRUCTOR_DEFAULTS)
        except InvalidRequest as problem:
            raise InvalidRequest(f"sampling_params_list[{place}]: {problem.message}"[:300]) from None
        if stage in SAMPLED_STAGES:
            out[stage] = params
    return out
