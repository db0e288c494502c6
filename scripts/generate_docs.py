"""Generate docs/metrics.md, docs/events.md and a table of docs/constraints.md from the code (`make
docs`). A test compares them.
"""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from typing import Any

import msgspec

from shared.domain.scheduler_keys import KEYS, TREATMENTS
from shared.events.catalog import CATALOG
from shared.telemetry import names
from shared.telemetry.declare import EVENTS, METRICS, SPANS, Metric

ROOT = Path(__file__).resolve().parents[1]
GENERATED = "`make docs` generates this page from the code, and a test compares it."


def metrics() -> str:
    """Return the page of metrics, spans and log events."""
    assert names
    lines = ["# Metrics, spans and log events", "", GENERATED, "", "## Metrics", ""]
    lines += ["|name|kind|labels|meaning|", "|---|---|---|---|"]
    lines += [
        _metric(metric) for metric in sorted(METRICS.values(), key=lambda metric: metric.exposed)
    ]
    lines += [
        "",
        "The series of a histogram end in `_bucket`, `_sum` and `_count`.",
        "",
        "## Spans",
        "",
    ]
    lines += ["|span|meaning|", "|---|---|"]
    lines += [f"|`{name}`|{_cell(text)}|" for name, text in sorted(SPANS.items())]
    lines += [
        "",
        "## Log events",
        "",
        "The `event` of log lines at level info. [messages](messages.md) has those of warning and",
        "above with their remedies.",
        "",
        "|event|meaning|",
        "|---|---|",
    ]
    lines += [
        f"|`{name}`|{_cell(event.meaning)}|"
        for name, event in sorted(EVENTS.items())
        if not event.remedy
    ]
    return "\n".join(lines) + "\n"


def _metric(metric: Metric) -> str:
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    return f"|`{metric.exposed}`|{metric.kind}|{labels}|{_cell(metric.help)}|"


def events() -> str:
    """Return the page of event types with their meaning and fields."""
    head = "Every row of the log is one of these events, encoded as JSON."
    compatible = "Schemas only grow, so every release decodes the events of older releases."
    lines = ["# Events", "", GENERATED, "", f"{head} {compatible}", ""]
    for name in sorted(CATALOG):
        entry = CATALOG[name]
        lines += [f"## {name}", "", f"Schema {entry.schema}. {_sentences(entry.struct)}", ""]
        fields = [_field(entry.struct, field) for field in msgspec.structs.fields(entry.struct)]
        lines += [f"Fields: {', '.join(fields)}." if fields else "No fields.", ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def _field(struct: type[msgspec.Struct], field: Any) -> str:
    hints = {
        name: hint
        for kind in reversed(struct.__mro__)
        for name, hint in vars(kind).get("__annotations__", {}).items()
    }
    required = field.default is msgspec.NODEFAULT and field.default_factory is msgspec.NODEFAULT
    default = "" if required else f" = {_default(field)}"
    return f"`{field.name}: {hints.get(field.name, '')}{default}`"


def _default(field: Any) -> str:
    if field.default is not msgspec.NODEFAULT:
        return repr(field.default)
    return repr(field.default_factory())


def _sentences(struct: type[msgspec.Struct]) -> str:
    return " ".join((inspect.getdoc(struct) or "").split())


BEGIN, END = "<!-- make docs: keys -->", "<!-- end -->"


def constraints() -> str:
    """Return the page of constraints with the table of other schedulers' keys made again."""
    page = (ROOT / "docs" / "constraints.md").read_text(encoding="utf-8")
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}\n{_keys()}\n{rest[rest.index(END) :]}"


def _keys() -> str:
    lines = ["| key | where, read by | meaning | treatment | what keeps or replaces it |"]
    lines += ["| --- | --- | --- | --- | --- |"]
    for row in KEYS:
        treatments = ", ".join(dict.fromkeys(TREATMENTS[ask] for ask in row.treated))
        cells = [f"`{row.key}`", f"{row.place}, {row.reader}", row.meaning, treatments, row.remedy]
        lines.append(f"| {' | '.join(map(_cell, cells))} |")
    return "\n".join(lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


PAGES = {
    "docs/metrics.md": metrics,
    "docs/events.md": events,
    "docs/constraints.md": constraints,
}

if __name__ == "__main__":
    for page, make in PAGES.items():
        (ROOT / page).write_text(make(), encoding="utf-8")
        print(page, file=sys.stderr)
