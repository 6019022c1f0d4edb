"""What a load run showed, as numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from bench.load.run import Usage
from bench.load.turns import Turn

SHARES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


def percentiles(values: Sequence[float], digits: int = 1) -> dict[str, float] | None:
    """Nearest-rank percentiles, the mean and the largest; None of nothing."""
    if not values:
        return None
    ordered = sorted(values)
    out = {name: ordered[min(len(ordered) - 1, int(share * len(ordered)))] for name, share in SHARES.items()}
    out |= {"max": ordered[-1], "mean": sum(ordered) / len(ordered)}
    return {name: round(value, digits) for name, value in out.items()}


def of(turns: Sequence[Turn], seconds: float) -> dict[str, Any]:
    """Times are milliseconds; `seconds` is how long the run took."""
    good = [turn for turn in turns if turn.error is None]
    spoken = [turn for turn in good if turn.audios]
    starved = [gap for turn in spoken if (gap := turn.starved()) > 0]
    return {
        "turns": len(turns),
        "completed": len(good),
        "errors": dict(Counter(turn.error for turn in turns if turn.error is not None)),
        "turns_per_s": round(len(good) / seconds, 3),
        "first_text_ms": percentiles([(t.texts[0] - t.asked) * 1e3 for t in good if t.texts]),
        "first_audio_ms": percentiles([(t.audios[0][0] - t.asked) * 1e3 for t in spoken]),
        "text_gap_ms": percentiles([(b - a) * 1e3 for t in good for a, b in zip(t.texts, t.texts[1:], strict=False)]),
        "audio_gap_ms": percentiles(
            [(b[0] - a[0]) * 1e3 for t in spoken for a, b in zip(t.audios, t.audios[1:], strict=False)]
        ),
        "turn_ms": percentiles([(t.ended - t.asked) * 1e3 for t in good]),
        "real_time_factor": percentiles([_factor(t) for t in spoken], 3),
        "speech_s_per_s": round(sum(s for t in spoken for _, s in t.audios) / seconds, 2),
        "spoken_turns": len(spoken),
        "starved_share": round(len(starved) / len(spoken), 4) if spoken else None,
        "starved_ms": percentiles([gap * 1e3 for gap in starved]),
    }


def _factor(turn: Turn) -> float:
    """Time from question to the last speech, over the seconds of speech; below 1 a player keeps up."""
    return (turn.audios[-1][0] - turn.asked) / max(sum(seconds for _, seconds in turn.audios), 1e-9)


def by_protocol(turns: Sequence[Turn], seconds: float) -> dict[str, dict[str, Any]]:
    return {name: of([t for t in turns if t.protocol == name], seconds) for name in sorted({t.protocol for t in turns})}


def processes(usage: Mapping[int, Usage], seconds: float) -> list[dict[str, Any]]:
    out = []
    for pid, one in usage.items():
        memory = one.memory or [0]
        row = {"pid": pid, "name": one.name, "cpu_s": round(one.cpu_seconds, 2)}
        row |= {"cpu_share": round(one.cpu_seconds / seconds, 3), "memory_mib": round(memory[-1] / 2**20, 1)}
        row |= {"memory_most_mib": round(max(memory) / 2**20, 1), "memory_first_mib": round(memory[0] / 2**20, 1)}
        out.append(row)
    return sorted(out, key=lambda row: -row["cpu_s"])
