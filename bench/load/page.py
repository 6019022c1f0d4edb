"""A load run as one HTML page that asks nothing of the network."""

from __future__ import annotations

import html
import json
import math
from collections.abc import Sequence
from typing import Any

from bench.load.run import Usage
from bench.load.turns import Turn

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 620, 210, 52, 14, 10, 24
COLOURS = ("#2563eb", "#dc2626", "#059669", "#d97706", "#7c3aed", "#0891b2", "#be185d", "#4b5563")
STYLE = """body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:1320px;padding:0 1rem;color:#1f2937}
h1{font-size:1.4rem}h2{font-size:1.1rem;margin-top:2rem}table{border-collapse:collapse}
td,th{padding:.2rem .8rem;border-bottom:1px solid #e5e7eb;text-align:right}
td:first-child,th:first-child{text-align:left}
.plots{display:flex;flex-wrap:wrap;gap:1rem}figure{margin:0;width:620px;border:1px solid #e5e7eb;padding:.6rem .6rem 0}
figcaption{font-weight:600;font-size:.9rem}figcaption span{font-weight:400;font-size:.8rem;margin-left:.8rem}
svg text{font:10px system-ui,sans-serif;fill:#4b5563}pre{overflow:auto;font-size:12px}"""

Series = dict[str, list[tuple[float, float]]]


def scale(most: float) -> list[float]:
    """Round numbers from 0 to `most` or a little beyond, three to six of them."""
    step = 10.0 ** math.floor(math.log10(most)) if most > 0 else 1.0
    step = next(step * part for part in (0.2, 0.25, 0.5, 1.0) if step * part * 5 >= most or part == 1.0)
    return [step * n for n in range(math.ceil(most / step - 1e-9) + 1)] if most > 0 else [0.0, 1.0]


def plot(title: str, series: Series, across: str = "s", *, dots: bool = False) -> str:
    """A figure of lines, or of dots; `across` is the unit of x. Nothing when there is nothing to show."""
    points = [point for line in series.values() for point in line]
    if not points:
        return ""
    columns, rows = scale(max(x for x, _ in points)), scale(max(y for _, y in points))

    def at(x: float, y: float) -> tuple[float, float]:
        left = LEFT + x / columns[-1] * (WIDTH - LEFT - RIGHT)
        return round(left, 1), round(HEIGHT - BOTTOM - y / rows[-1] * (HEIGHT - BOTTOM - TOP), 1)

    out = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img">']
    for value in rows:
        _, y = at(0, value)
        out.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}" stroke="#e5e7eb"/>')
        out.append(f'<text x="{LEFT - 6}" y="{y + 3}" text-anchor="end">{value:,.10g}</text>')
    for value in columns:
        x, _ = at(value, 0)
        unit = f" {across}" if value == columns[-1] else ""
        anchor = "end" if unit else "middle"
        out.append(f'<text x="{x}" y="{HEIGHT - 8}" text-anchor="{anchor}">{value:,.10g}{html.escape(unit)}</text>')
    legend = ""
    for n, (name, line) in enumerate(series.items()):
        colour = COLOURS[n % len(COLOURS)]
        spots = [at(x, y) for x, y in line]
        if dots:
            out += [f'<circle cx="{x}" cy="{y}" r="2.5" fill="{colour}" fill-opacity=".6"/>' for x, y in spots]
        else:
            path = " ".join(f"{x},{y}" for x, y in spots)
            out.append(f'<polyline fill="none" stroke="{colour}" stroke-width="1.5" points="{path}"/>')
        legend += f'<span style="color:{colour}">&#9679; {html.escape(name)}</span>'
    return f"<figure><figcaption>{html.escape(title)}{legend}</figcaption>{''.join(out)}</svg></figure>"


def cumulative(values: Sequence[float]) -> list[tuple[float, float]]:
    """For each value, the percentage of values that are no larger; both as `(value, percentage)`."""
    ordered = sorted(values)
    return [(value, 100 * (n + 1) / len(ordered)) for n, value in enumerate(ordered)]


def _by_protocol(turns: Sequence[Turn], value: Any, origin: float) -> Series:
    out: Series = {}
    for turn in turns:
        if turn.error is None and (y := value(turn)) is not None:
            out.setdefault(turn.protocol, []).append((turn.asked - origin, y))
    return out


def page(report: dict[str, Any], turns: Sequence[Turn], usage: Sequence[Usage]) -> str:
    origin = min((turn.asked for turn in turns), default=0.0)
    errors: Series = {}
    for turn in sorted(turns, key=lambda turn: turn.ended):
        if turn.error is not None:
            so_far = errors.setdefault(turn.error, [])
            so_far.append((turn.ended - origin, len(so_far) + 1.0))
    first_text = _by_protocol(turns, _first_text, origin)
    first_audio = _by_protocol(turns, _first_audio, origin)
    starved = _by_protocol(turns, _starved, origin)
    times = [
        plot("First text, ms", first_text, dots=True),
        plot("First speech, ms", first_audio, dots=True),
        plot("Whole turn, ms", _by_protocol(turns, lambda t: (t.ended - t.asked) * 1e3, origin), dots=True),
        plot("Time without sound in a real-time player, ms", starved, dots=True),
        plot("Errors so far", errors, dots=True),
        plot("Memory, MiB", {u.name: [(float(n), m / 2**20) for n, m in enumerate(u.memory or [])] for u in usage}),
    ]
    shares = [
        plot(f"{name}, % of turns", {key: cumulative([y for _, y in line]) for key, line in series.items()}, "ms")
        for name, series in (("First text within", first_text), ("First speech within", first_audio))
    ]
    rows = "".join(_row(name, figures) for name, figures in report["protocols"].items())
    title = html.escape(report["title"])
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{title}</title><style>{STYLE}</style>"
        f"<h1>{title}</h1><table><tr><th>protocol<th>turns<th>completed<th>errors<th>first text p50 / p95 / p99, ms"
        "<th>first speech p50 / p95 / p99, ms<th>speech gap p95, ms<th>real-time factor p50<th>players starved</tr>"
        f"{rows}</table><h2>Over time</h2><div class=plots>{''.join(times)}</div>"
        f"<h2>How many were how quick</h2><div class=plots>{''.join(shares)}</div><h2>Processes</h2>"
        f"{_processes(report['processes'])}<h2>All figures</h2><details><summary>as JSON</summary>"
        f"<pre>{html.escape(json.dumps(report, indent=1))}</pre></details></html>\n"
    )


def _first_text(turn: Turn) -> float | None:
    return (turn.texts[0] - turn.asked) * 1e3 if turn.texts else None


def _first_audio(turn: Turn) -> float | None:
    return (turn.audios[0][0] - turn.asked) * 1e3 if turn.audios else None


def _starved(turn: Turn) -> float | None:
    return turn.starved() * 1e3 if turn.audios else None


def _row(name: str, figures: dict[str, Any]) -> str:
    def three(key: str) -> str:
        return " / ".join(str(figures[key][p]) for p in ("p50", "p95", "p99")) if figures[key] else "-"

    def one(key: str, percentile: str) -> Any:
        return figures[key][percentile] if figures[key] else "-"

    starved = "-" if figures["starved_share"] is None else f"{figures['starved_share']:.1%}"
    cells = [figures["turns"], figures["completed"], sum(figures["errors"].values())]
    cells += [three("first_text_ms"), three("first_audio_ms"), one("audio_gap_ms", "p95")]
    cells += [one("real_time_factor", "p50"), starved]
    return f"<tr><td>{html.escape(name)}" + "".join(f"<td>{cell}" for cell in cells) + "</tr>"


def _processes(rows: Sequence[dict[str, Any]]) -> str:
    if not rows:
        return "<p>None were watched.</p>"
    body = "".join(
        f"<tr><td>{html.escape(row['name'])}<td>{row['cpu_s']}<td>{row['cpu_share']:.1%}"
        f"<td>{row['memory_first_mib']}<td>{row['memory_most_mib']}<td>{row['memory_mib']}</tr>"
        for row in rows
    )
    head = "<tr><th>process<th>CPU, s<th>of one core<th>memory first<th>most<th>last, MiB</tr>"
    return f"<table>{head}{body}</table>"
