"""Write perf_analyzer's input: `python -m bench.perf_analyzer.make_input --out input.json [--speech]`.

Prints the request parameter `settings` as perf_analyzer takes it on its command line: percent-encoded, since it splits
what it is given at colons.
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path
from urllib.parse import quote

from bench.load.turns import WORDS
from omni.contract.job import Job, Message, TextPart, pack_job
from omni.contract.names import THINKER
from omni.contract.params import SamplingParams, Settings


def settings(tokens: int, *, speech: bool, interval_ms: float | None) -> Settings:
    stage = {} if interval_ms is None else {THINKER: {"token_interval_ms": interval_ms}}
    sampling = {THINKER: SamplingParams(max_tokens=tokens, temperature=0.0, ignore_eos=interval_ms is not None)}
    return Settings(speech=speech, sampling=sampling, stage=stage)


def parameter(settings: Settings) -> str:
    """`settings` as a value of --request-parameter: percent-encoded, since perf_analyzer splits it at colons."""
    return f"settings:{quote(settings.dumps(), safe='')}:string"


def questions(count: int, words: int, seed: int) -> list[str]:
    chance = random.Random(seed)
    return [" ".join(chance.choice(WORDS) for _ in range(words)) for _ in range(count)]


def entries(count: int, words: int, seed: int) -> list[dict[str, object]]:
    """One entry per question; JOB is a string of JSON, as `omni.contract.tensors` has it."""
    out: list[dict[str, object]] = []
    for n, text in enumerate(questions(count, words, seed)):
        head, _ = pack_job(Job(id=str(n), messages=(Message("user", (TextPart(text),)),), settings=Settings()))
        out.append({"JOB": {"content": [head.decode()], "shape": [1]}})
    return out


def chats(count: int, words: int, seed: int, tokens: int, interval_ms: float | None) -> list[dict[str, object]]:
    """The same questions as bodies of the chat API, answered in text."""
    body: dict[str, object] = {"model": "qwen3-omni", "stream": True, "max_tokens": tokens}
    if interval_ms is not None:
        body |= {"ignore_eos": True, "stage_params": {THINKER: {"token_interval_ms": interval_ms}}}
    return [
        {"payload": [{"messages": [{"role": "user", "content": text}], **body}]}
        for text in questions(count, words, seed)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="file to write")
    parser.add_argument("--speech", action="store_true", help="for model omni; without it, for omni_text")
    parser.add_argument("--count", type=int, default=16, help="questions")
    parser.add_argument("--words", type=int, default=20, help="words of a question")
    parser.add_argument("--tokens", type=int, default=60, help="most tokens of an answer")
    parser.add_argument("--interval-ms", type=float, help="pace of the dummy thinker; leave out for a real model")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    options.out.write_text(json.dumps({"data": entries(options.count, options.words, options.seed)}, indent=1))
    print(parameter(settings(options.tokens, speech=options.speech, interval_ms=options.interval_ms)))


if __name__ == "__main__":
    main()
