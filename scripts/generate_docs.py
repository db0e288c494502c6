"""Generate docs/metrics.md, docs/events.md and a table of docs/constraints.md from the code (`make
docs`). A test compares them.
"""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path
from typing import Any

import msgspec

from shared.domain.scheduler_keys import KEYS, TREATMENTS, SchedulerKey
from shared.events.catalog import CATALOG
from shared.telemetry import agent_names, exporter_names, names
from shared.telemetry.declare import METRICS, SPANS, Metric

ROOT = Path(__file__).resolve().parents[1]
GENERATED = "`make docs` generates this page from the code, and a test compares it."


def metrics() -> str:
    """Return the page of metrics and spans."""
    assert agent_names
    assert exporter_names
    assert names
    lines = ["# Metrics and spans", "", GENERATED, "", "## Metrics", ""]
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
        "[Messages](messages.md) has the events of log lines at level warning and above;",
        "`names.py`, `agent_names.py` and `exporter_names.py` in `shared/telemetry/` declare all",
        "with their meaning.",
    ]
    return "\n".join(lines) + "\n"


def _metric(metric: Metric) -> str:
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    return f"|`{metric.exposed}`|{metric.kind}|{labels}|{_cell(metric.help)}|"


_EVENTS = (
    "Every row of the log is one of these events, encoded as JSON; `shared/events` has the types",
    "of the fields. A field with `?` may be absent; its default is the one shown, or empty, 0,",
    "false or null. The schema is 1 unless an event says otherwise. Schemas only grow, so every",
    "release decodes the events of older ones.",
)


def events() -> str:
    """Return the page of event types with their meaning and fields."""
    lines = ["# Events", "", GENERATED, "", *_EVENTS, ""]
    for name in sorted(CATALOG):
        entry = CATALOG[name]
        schema = f"Schema {entry.schema}. " if entry.schema > 1 else ""
        lines += [f"## {name}", "", f"{schema}{_sentences(entry.struct)}", ""]
        fields = [_field(field) for field in msgspec.structs.fields(entry.struct)]
        lines += [f"Fields: {', '.join(fields)}." if fields else "No fields.", ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def _field(field: Any) -> str:
    """Return the name of a field, and a default that a reader could not guess."""
    required = field.default is msgspec.NODEFAULT and field.default_factory is msgspec.NODEFAULT
    is_plain = field.default is not msgspec.NODEFAULT and not isinstance(
        field.default, msgspec.Struct
    )
    is_shown = is_plain and field.default
    return f"`{field.name}{'' if required else '?'}{f' = {field.default!r}' if is_shown else ''}`"


def _sentences(struct: type[msgspec.Struct]) -> str:
    return " ".join((inspect.getdoc(struct) or "").split())


BEGIN, END = "<!-- make docs: keys -->", "<!-- end -->"


def constraints() -> str:
    """Return the page of constraints with the table of other schedulers' keys made again."""
    page = (ROOT / "docs" / "constraints.md").read_text(encoding="utf-8")
    head, _, rest = page.partition(BEGIN)
    return f"{head}{BEGIN}\n{_keys()}\n{rest[rest.index(END) :]}"


def _keys() -> str:
    """Return one row for the keys that are treated alike for the same reason."""
    lines = ["|keys|ask for|treatment|what keeps or replaces them|"]
    lines += ["|---|---|---|---|"]
    groups: dict[tuple[str, str], list[SchedulerKey]] = {}
    for row in KEYS:
        treatment = ", ".join(dict.fromkeys(TREATMENTS[ask] for ask in row.treated))
        # Messages name the scheduler; the table has it in its first column.
        remedy = re.sub(r"\blet [\w' -]+ place\b", "let that scheduler place", row.remedy)
        groups.setdefault((treatment, remedy), []).append(row)
    for (treatment, remedy), rows in groups.items():
        keys = [f"{place}: {names}" for place, names in _by_place(rows).items()]
        meanings = "<br>".join(dict.fromkeys(row.meaning for row in rows))
        cells = ["<br>".join(keys), meanings, treatment, remedy]
        lines.append(f"|{'|'.join(map(_cell, cells))}|")
    return "\n".join(lines)


def _by_place(rows: list[SchedulerKey]) -> dict[str, str]:
    """Return the keys by the scheduler that reads them and their place."""
    names: dict[str, list[str]] = {}
    for row in rows:
        names.setdefault(f"{row.reader}, {row.place}", []).append(f"`{row.key}`")
    return {place: ", ".join(keys) for place, keys in names.items()}


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
