"""First text, first speech and gaps from what aiperf writes with `--export-level raw`.

aiperf counts the first token of any kind. `profile_export_raw.jsonl` has one JSON object per request, in which every
event of the stream stands with the time at which it came: that tells sound from text.
"""

from __future__ import annotations

import argparse
import itertools
import json
from pathlib import Path
from typing import Any

from bench.load.figures import percentiles

EXPORT = "profile_export_raw.jsonl"


def _deltas(record: dict[str, Any], field: str) -> list[float]:
    """When the deltas came that have `field`, milliseconds from the request."""
    out = []
    for response in record["responses"]:
        for packet in response.get("packets", ()):
            if packet["value"] == "[DONE]":
                continue
            choices = json.loads(packet["value"]).get("choices") or [{}]
            value = choices[0].get("delta", {}).get(field)
            if value.get("data") if isinstance(value, dict) else value:
                out.append((response["perf_ns"] - record["start_perf_ns"]) / 1e6)
    return out


def row(folder: Path) -> dict[str, Any]:
    """The figures of a run whose artifacts are in `folder`; times are milliseconds."""
    records = [json.loads(line) for line in (folder / EXPORT).read_text().splitlines()]
    good = [record for record in records if record["status"] == 200 and not record["metadata"]["was_cancelled"]]
    texts = [times for record in good if (times := _deltas(record, "content"))]
    audios = [times for record in good if (times := _deltas(record, "audio"))]
    return {
        "requests": len(records),
        "errors": len(records) - len(good),
        "first_text_ms": percentiles([times[0] for times in texts]),
        "first_audio_ms": percentiles([times[0] for times in audios]),
        "text_gap_ms": percentiles([b - a for times in texts for a, b in itertools.pairwise(times)]),
        "audio_gap_ms": percentiles([b - a for times in audios for a, b in itertools.pairwise(times)]),
        "answer_ms": percentiles(
            [(record["responses"][-1]["perf_ns"] - record["start_perf_ns"]) / 1e6 for record in good]
        ),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="the --artifact-dir of a run")
    print(json.dumps(row(parser.parse_args().folder), indent=1))


if __name__ == "__main__":
    main()
