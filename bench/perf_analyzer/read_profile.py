"""First text, first speech and gaps from perf_analyzer's `--profile-export-file`.

perf_analyzer itself counts the first response of any kind. Which response carries sound is told by the recorded outputs
(`--verbose` isn't needed): a response of `omni` that has an output AUDIO which isn't empty.
"""

from __future__ import annotations

import argparse
import itertools
import json
from pathlib import Path
from typing import Any

from bench.load.figures import percentiles


def _has(outputs: Any, name: str) -> bool:
    return isinstance(outputs, dict) and outputs.get(name) not in (None, "", [], 0)


def rows(export: dict[str, Any]) -> list[dict[str, Any]]:
    """One row per load level. Times are milliseconds."""
    out = []
    for level in export["experiments"]:
        texts, audios, gaps, whole = [], [], [], []
        for request in level["requests"]:
            began, came = request["timestamp"], request["response_timestamps"]
            outputs = request.get("response_outputs") or [{}] * len(came)
            pairs = list(zip(came, outputs, strict=False))
            text = next((at for at, output in pairs if _has(output, "TEXT")), came[0] if came else None)
            audio = next((at for at, output in pairs if _has(output, "AUDIO")), None)
            if text is not None:
                texts.append((text - began) / 1e6)
                whole.append((came[-1] - began) / 1e6)
            if audio is not None:
                audios.append((audio - began) / 1e6)
            gaps += [(b - a) / 1e6 for a, b in itertools.pairwise(came)]
        row = {**level["experiment"], "requests": len(level["requests"])}
        row |= {"first_text_ms": percentiles(texts), "first_audio_ms": percentiles(audios)}
        out.append(row | {"gap_ms": percentiles(gaps), "answer_ms": percentiles(whole)})
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("export", type=Path, help="the file that perf_analyzer wrote")
    print(json.dumps(rows(json.loads(parser.parse_args().export.read_text())), indent=1))


if __name__ == "__main__":
    main()
