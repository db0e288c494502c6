"""The live plots, as SVG. Pure: samples in, text out.

pygal draws on the server, so that the browser runs no foreign script (docs/adr/0041-console.md).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import pygal
from pygal.style import Style

from services.console.live import Sample

Series = dict[str, Callable[[Sample], float | None]]
_SCRIPT = re.compile(rb"<script.*?</script>", re.DOTALL)
POINTS = 120
LABELS = 4


def _rate(kind: str) -> Callable[[Sample], float]:
    return lambda sample: sample.rates_per_s.get(kind, 0.0)


PLOTS: dict[str, tuple[str, Series]] = {
    "rates": (
        "Pods per second",
        {kind: _rate(kind) for kind in ("reserved", "bound", "admitted", "ended")},
    ),
    "waiting": (
        "Waiting pods",
        {
            "all": lambda sample: sample.counts.waiting,
            "for a zone": lambda sample: sample.counts.waiting_for_zone,
        },
    ),
    "unconfirmed": (
        "Charges that no report has confirmed",
        {"unconfirmed": lambda sample: sample.counts.unconfirmed},
    ),
    "rejections": (
        "Pods rejected by kubelets",
        {"rejected": lambda sample: sample.rejected},
    ),
    "nodes": (
        "Nodes with a mark",
        {
            "dirty": lambda sample: sample.counts.dirty,
            "expired": lambda sample: sample.counts.expired,
            "excluded": lambda sample: sample.counts.excluded,
        },
    ),
    "predictions": (
        "Predicted zones that came true, in %",
        {
            "hit rate": lambda sample: (
                100 * sample.hit / sample.predicted if sample.predicted else None
            )
        },
    ),
    "lag": ("Events behind the head of the log", {"lag": lambda sample: sample.lag}),
}
_COLORS = ("#2f6fde", "#c2660a", "#2a9d4e", "#a04ac0")
_LIGHT = ("#ffffff", "#1b1f24", "#59636e", "#dfe5ea")
_DARK = ("#151a21", "#e6edf3", "#9aa7b4", "#323c47")


def plot(name: str, samples: Sequence[Sample], is_dark: bool) -> bytes:
    """Return one plot of the newest samples. Raises KeyError for an unknown name."""
    title, series = PLOTS[name]
    background, strong, subtle, faint = _DARK if is_dark else _LIGHT
    style = Style(
        background=background,
        plot_background=background,
        foreground=subtle,
        foreground_strong=strong,
        foreground_subtle=subtle,
        guide_stroke_color=faint,
        major_guide_stroke_color=faint,
        guide_stroke_dasharray="1",
        major_guide_stroke_dasharray="1",
        colors=_COLORS,
        font_family="system-ui, sans-serif",
        title_font_size=14,
        label_font_size=11,
        major_label_font_size=11,
        legend_font_size=12,
        no_data_font_size=14,
    )
    step = max(1, -(-len(samples) // POINTS))
    shown = list(samples)[::step]
    chart = pygal.Line(
        style=style,
        title=title,
        width=420,
        height=240,
        js=(),
        include_x_axis=True,
        dots_size=1.5,
        legend_at_bottom=True,
        show_legend=len(series) > 1,
        pretty_print=False,
        disable_xml_declaration=True,
        no_data_text="no samples yet",
        show_minor_x_labels=False,
        truncate_label=-1,
        y_labels_major_count=LABELS,
        show_minor_y_labels=False,
        margin=12,
        margin_right=26,
    )
    chart.x_labels = [_clock(sample.time_us) for sample in shown]
    chart.x_labels_major = chart.x_labels[:: max(1, len(shown) // LABELS)]
    for label, value in series.items():
        chart.add(label, [value(sample) for sample in shown])
    # Pictures run no script; pygal adds one for tooltips.
    return _SCRIPT.sub(b"", chart.render().encode())


def _clock(time_us: int) -> str:
    return datetime.fromtimestamp(time_us / 1_000_000, UTC).strftime("%H:%M:%S")
