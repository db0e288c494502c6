"""docs/metrics.md and docs/facts.md from the code: `make docs`. A test holds the pages to what this
prints.
"""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from typing import Any

import msgspec

from shared.events.catalog import CATALOG
from shared.telemetry import names
from shared.telemetry.declare import EVENTS, METRICS, SPANS, Metric

ROOT = Path(__file__).resolve().parents[1]
MADE = "Made from the code by `make docs`; a test compares."


def metrics() -> str:
    """Every metric as /metrics shows it, every span, every log event."""
    assert names
    lines = ["# Metrics, spans and log events", "", MADE, "", "## Metrics", ""]
    lines += ["| name | kind | labels | what it tells |", "| --- | --- | --- | --- |"]
    lines += [
        _metric(metric) for metric in sorted(METRICS.values(), key=lambda metric: metric.exposed)
    ]
    lines += [
        "",
        "A histogram has `_bucket`, `_sum` and `_count` after its name.",
        "",
        "## Spans",
        "",
    ]
    lines += ["| span | what it covers |", "| --- | --- |"]
    lines += [f"| `{name}` | {_cell(says)} |" for name, says in sorted(SPANS.items())]
    lines += [
        "",
        "## Log events",
        "",
        "Each log line has an `event`:",
        "",
        "| event | what it tells |",
        "| --- | --- |",
    ]
    lines += [f"| `{name}` | {_cell(says)} |" for name, says in sorted(EVENTS.items())]
    return "\n".join(lines) + "\n"


def _metric(metric: Metric) -> str:
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    return f"| `{metric.exposed}` | {metric.kind} | {labels} | {_cell(metric.says)} |"


def events() -> str:
    """Every kind of fact with its stream's sentence and its fields."""
    says = "Every row of the log is one of these, encoded as JSON. Schemas only grow; old facts decode for ever."  # noqa: E501
    lines = ["# Facts", "", MADE, "", says, ""]
    for name in sorted(CATALOG):
        entry = CATALOG[name]
        lines += [f"## {name}", "", f"Schema {entry.schema}. {_sentences(entry.struct)}", ""]
        lines += ["| field | type | default |", "| --- | --- | --- |"]
        lines += [_field(entry.struct, field) for field in msgspec.structs.fields(entry.struct)]
        lines += [""]
    return "\n".join(lines).rstrip("\n") + "\n"


def _field(struct: type[msgspec.Struct], field: Any) -> str:
    hints = {
        name: hint
        for kind in reversed(struct.__mro__)
        for name, hint in vars(kind).get("__annotations__", {}).items()
    }
    hint = _cell(str(hints.get(field.name, "")))
    required = field.default is msgspec.NODEFAULT and field.default_factory is msgspec.NODEFAULT
    default = "" if required else f"`{_default(field)}`"
    return f"| `{field.name}` | `{hint}` | {default} |"


def _default(field: Any) -> str:
    if field.default is not msgspec.NODEFAULT:
        return _cell(repr(field.default))
    return repr(field.default_factory())


def _sentences(struct: type[msgspec.Struct]) -> str:
    return " ".join((inspect.getdoc(struct) or "").split())


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


PAGES = {"docs/metrics.md": metrics, "docs/facts.md": events}

if __name__ == "__main__":
    for page, make in PAGES.items():
        (ROOT / page).write_text(make(), encoding="utf-8")
        print(page, file=sys.stderr)
