"""A load run as one HTML page that asks nothing of the network."""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from typing import Any

from bench.load.run import Usage
from bench.load.turns import Turn

WIDTH, HEIGHT, LEFT, BOTTOM = 620, 220, 56, 30
COLOURS = ("#2563eb", "#dc2626", "#059669", "#d97706", "#7c3aed", "#0891b2", "#be185d", "#4b5563")
STYLE = """body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:1320px;padding:0 1rem;color:#1f2937}
h1{font-size:1.4rem}h2{font-size:1.1rem;margin-top:2rem}table{border-collapse:collapse}
td,th{padding:.2rem .8rem;border-bottom:1px solid #e5e7eb;text-align:right}
td:first-child,th:first-child{text-align:left}
.plots{display:flex;flex-wrap:wrap;gap:1rem}svg{background:#fff;border:1px solid #e5e7eb}pre{overflow:auto}"""

Series = dict[str, list[tuple[float, float]]]


def plot(title: str, unit: str, series: Series, *, dots: bool = False) -> str:
    """An SVG of lines, or of dots; x is seconds."""
    points = [point for line in series.values() for point in line]
    if not points:
        return ""
    right, top = max(x for x, _ in points) or 1.0, max(y for _, y in points) or 1.0

    def at(x: float, y: float) -> tuple[float, float]:
        across = LEFT + x / right * (WIDTH - LEFT - 12)
        return round(across, 1), round(HEIGHT - BOTTOM - y / top * (HEIGHT - BOTTOM - 34), 1)

    out = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img">']
    out.append(f'<text x="{LEFT}" y="16" font-size="13" font-weight="600">{html.escape(title)}</text>')
    for part in (0, 0.5, 1):
        _, y = at(0, top * part)
        out.append(f'<line x1="{LEFT}" x2="{WIDTH - 12}" y1="{y}" y2="{y}" stroke="#e5e7eb"/>')
        label = f"{top * part:.3g} {unit}"
        out.append(f'<text x="{LEFT - 4}" y="{y + 4}" font-size="10" text-anchor="end">{html.escape(label)}</text>')
    out.append(f'<text x="{WIDTH - 12}" y="{HEIGHT - 10}" font-size="10" text-anchor="end">{right:.0f} s</text>')
    for n, (name, line) in enumerate(series.items()):
        colour = COLOURS[n % len(COLOURS)]
        spots = [at(x, y) for x, y in line]
        if dots:
            out += [f'<circle cx="{x}" cy="{y}" r="2" fill="{colour}" fill-opacity=".6"/>' for x, y in spots]
        else:
            path = " ".join(f"{x},{y}" for x, y in spots)
            out.append(f'<polyline fill="none" stroke="{colour}" stroke-width="1.5" points="{path}"/>')
        place = LEFT + 8 + n % 4 * 135
        row = HEIGHT - 8 if n < 4 else 30
        out.append(f'<text x="{place}" y="{row}" font-size="10" fill="{colour}">{html.escape(name)}</text>')
    return "".join([*out, "</svg>"])


def cumulative(values: Sequence[float]) -> list[tuple[float, float]]:
    """For each value, the share of values that are no larger; both as `(value, share)`."""
    ordered = sorted(values)
    return [(value, (n + 1) / len(ordered)) for n, value in enumerate(ordered)]


def _by_protocol(turns: Sequence[Turn], value: Any, origin: float) -> Series:
    out: Series = {}
    for turn in turns:
        if turn.error is None and (y := value(turn)) is not None:
            out.setdefault(turn.protocol, []).append((turn.asked - origin, y))
    return out


def page(report: dict[str, Any], turns: Sequence[Turn], usage: Sequence[Usage]) -> str:
    origin = min((turn.asked for turn in turns), default=0.0)
    errors: Series = {}
    for turn in turns:
        if turn.error is not None:
            errors.setdefault(turn.error, []).append((turn.ended - origin, 1.0))
    plots = [
        plot("First text", "ms", _by_protocol(turns, _first_text, origin), dots=True),
        plot("First speech", "ms", _by_protocol(turns, _first_audio, origin), dots=True),
        plot("Whole turn", "ms", _by_protocol(turns, lambda t: (t.ended - t.asked) * 1e3, origin), dots=True),
        plot("A real-time player without sound", "ms", _by_protocol(turns, _starved, origin), dots=True),
        plot("Errors", "", errors, dots=True),
        plot("Memory", "MiB", {u.name: [(float(n), m / 2**20) for n, m in enumerate(u.memory or [])] for u in usage}),
    ]
    rows = "".join(_row(name, figures) for name, figures in report["protocols"].items())
    title = html.escape(report["title"])
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{title}</title><style>{STYLE}</style>"
        f"<h1>{title}</h1><table><tr><th>protocol<th>turns<th>completed<th>first text p50 / p95 / p99, ms"
        "<th>first speech p50 / p95 / p99, ms<th>real-time factor p50<th>players that starved</tr>"
        f"{rows}</table><h2>Over time</h2><div class=plots>{''.join(plots)}</div><h2>Processes</h2>"
        f"{_processes(report['processes'])}<h2>All figures</h2>"
        f"<pre>{html.escape(json.dumps(report, indent=1))}</pre></html>\n"
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

    factor = figures["real_time_factor"]["p50"] if figures["real_time_factor"] else "-"
    starved = "-" if figures["starved_share"] is None else f"{figures['starved_share']:.1%}"
    cells = [figures["turns"], figures["completed"], three("first_text_ms"), three("first_audio_ms"), factor, starved]
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
