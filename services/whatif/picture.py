"""The two sides over time as an SVG: waiting pods, rejections, zones in use, fragmentation. Values
in, text out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from xml.sax.saxutils import escape

from services.whatif.playing import Sample, Side

WIDTH, PANEL, LEFT, TOP = 860, 130, 70, 40
COLOURS = ("#8a8f98", "#1f77b4")
PANELS: tuple[tuple[str, Callable[[Sample], float]], ...] = (
    ("pods waiting", lambda each: each.waiting),
    ("rejections so far", lambda each: each.rejected),
    ("zones in use", lambda each: each.zones_used),
    ("fragmentation, %", lambda each: 100 * each.fragmentation),
)


def picture(sides: Sequence[Side], title: str) -> str:
    """Draw one panel per measure, one line per side."""
    height = TOP + len(PANELS) * (PANEL + 40) + 20
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        'font-family="sans-serif" font-size="12">'
    )
    parts = [
        head,
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        _text(LEFT, 20, title, "bold"),
    ]
    for number, side in enumerate(sides):
        parts.append(
            f'<text x="{WIDTH - 20}" y="{16 + 16 * number}" text-anchor="end" '
            f'fill="{COLOURS[number]}">{escape(side.name)}</text>'
        )
    until_s = max((side.samples[-1].at_s for side in sides if side.samples), default=1.0)
    for number, (name, value) in enumerate(PANELS):
        parts += _panel(TOP + number * (PANEL + 40), name, value, sides, until_s)
    return "\n".join([*parts, "</svg>", ""])


def _panel(
    top: int, name: str, value: Callable[[Sample], float], sides: Sequence[Side], until_s: float
) -> list[str]:
    most = max((value(sample) for side in sides for sample in side.samples), default=0) or 1
    bottom, room = top + 16 + PANEL, WIDTH - LEFT - 20
    parts = [
        _text(LEFT, top + 10, name),
        f'<path d="M{LEFT} {top + 16}V{bottom}H{WIDTH - 20}" fill="none" stroke="#ccc"/>',
        f'<text x="{LEFT - 6}" y="{top + 26}" text-anchor="end">{most:g}</text>',
        f'<text x="{LEFT - 6}" y="{bottom}" text-anchor="end">0</text>',
        f'<text x="{WIDTH - 20}" y="{bottom + 14}" text-anchor="end">{until_s:,.0f} s</text>',
    ]
    for side, colour in zip(sides, COLOURS, strict=False):
        points = " ".join(
            f"{LEFT + room * sample.at_s / until_s:.1f},{bottom - PANEL * value(sample) / most:.1f}"
            for sample in side.samples
        )
        parts.append(
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>'
        )
    return parts


def _text(x: int, y: int, text: str, weight: str = "normal") -> str:
    return f'<text x="{x}" y="{y}" font-weight="{weight}">{escape(text)}</text>'
