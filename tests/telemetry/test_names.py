"""Every name is declared once, has a sentence and is used. A metric is recorded with exactly its
labels and shown as declared."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from shared.telemetry import agent_names, declare, exporter_names, names
from shared.telemetry.instruments import count, observe, set_gauge
from shared.telemetry.setup import TelemetrySettings, set_up

ROOT = Path(__file__).resolve().parents[2]
DECLARED = {
    **{name: metric.help for name, metric in declare.METRICS.items()},
    **declare.SPANS,
    **{name: event.meaning for name, event in declare.EVENTS.items()},
}


REMEDIES = {name: event.remedy for name, event in declare.EVENTS.items() if event.remedy}


@pytest.mark.parametrize("remedy", sorted(REMEDIES.values()))
def test_a_remedy_is_a_sentence(remedy: str) -> None:
    assert remedy[0].isupper() or remedy[0] == "`"
    assert remedy.endswith(".")


@pytest.mark.parametrize("name", sorted(DECLARED))
def test_every_name_has_a_sentence(name: str) -> None:
    assert re.fullmatch(r"[a-z][a-z0-9_.]+", name)
    assert DECLARED[name][0].isupper() or DECLARED[name][0].isdigit()
    assert DECLARED[name].endswith(".")


def test_a_name_declared_twice_is_refused() -> None:
    taken = next(iter(declare.METRICS))
    with pytest.raises(ValueError, match="twice"):
        declare.counter(taken, "Again.")


def test_every_declared_name_is_used() -> None:
    sources = [
        path
        for room in ("services", "shared")
        for path in (ROOT / room).rglob("*.py")
        if path.name not in ("names.py", "agent_names.py", "exporter_names.py")
    ]
    used = set(
        re.findall(
            r"\b(?:exporter_)?names\.([A-Z][A-Z0-9_]+)",
            "\n".join(path.read_text() for path in sources),
        )
    )
    constants = {
        name
        for name, value in (vars(names) | vars(agent_names) | vars(exporter_names)).items()
        if name.isupper() and isinstance(value, str | declare.Metric)
    }
    assert constants - used == set()


def test_metrics_are_shown_under_their_declared_names() -> None:
    telemetry = set_up("test", TelemetrySettings(log_level="error"))
    for metric in declare.METRICS.values():
        labels = dict.fromkeys(metric.labels, "x")
        record: Any = {"counter": count, "gauge": set_gauge, "histogram": observe}[metric.kind]
        record(metric, 1, **labels)
    page = telemetry.metrics_page().decode()
    for metric in declare.METRICS.values():
        assert f"# TYPE {metric.exposed} {metric.kind}" in page
        assert metric.help.replace("\\", "\\\\") in page


def test_a_metric_refuses_labels_that_it_does_not_declare() -> None:
    with pytest.raises(ValueError, match="takes the labels"):
        count(names.RELAYED, 1, pod="a")
    with pytest.raises(ValueError, match="takes the labels"):
        set_gauge(names.CONSUMER_POSITION, 1)


def test_recording_works_before_anything_is_set_up() -> None:
    code = "from shared.telemetry import names, instruments; instruments.count(names.RELAYED, 1)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
