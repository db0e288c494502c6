"""Dashboards and alerts ask for metrics that the code declares, by labels that they have; every
alert has its runbook.
"""

import json
import os
import re
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml

from shared.runtime.log_size import NEAR_PERCENT
from shared.telemetry import agent_names, exporter_names, names
from shared.telemetry.declare import METRICS, Metric
from tests.deploy.manifests import K8S, KUSTOMIZATION, ROOT, built, documents, name_of, of_kind

MONITORING = K8S / "components" / "monitoring"
DASHBOARDS: dict[str, dict[str, Any]] = {
    path.stem: json.loads(path.read_text(encoding="utf-8"))
    for path in sorted((MONITORING / "dashboards").glob("*.json"))
}
ALERTS: list[dict[str, Any]] = documents(MONITORING / "alerts.yaml")[0]["spec"]["groups"][0][
    "rules"
]
DECLARED_IN = names, agent_names, exporter_names
FROM_PROMETHEUS = {"le", "app", "pod"}


def exposed() -> dict[str, Metric]:
    """Return every name at /metrics with its kind."""
    exposed_names = {}
    for metric in METRICS.values():
        for suffix in ("_bucket", "_sum", "_count") if metric.kind == "histogram" else ("",):
            exposed_names[metric.exposed + suffix] = metric
    return exposed_names


def panels(dashboard: dict[str, Any]) -> list[dict[str, Any]]:
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


EXPRESSIONS = [
    (f"{reader}: {panel['title']}", target["expr"])
    for reader, dashboard in DASHBOARDS.items()
    for panel in panels(dashboard)
    for target in panel["targets"]
]
EXPRESSIONS += [(rule["alert"], rule["expr"]) for rule in ALERTS]


@pytest.mark.parametrize(("where", "expression"), EXPRESSIONS)
def test_an_expression_asks_for_declared_metrics_and_labels(where: str, expression: str) -> None:
    """Read as Prometheus reads it."""
    declared, (asked, labels) = exposed(), read(expression)
    assert asked
    assert asked <= set(declared), where
    assert labels <= FROM_PROMETHEUS | {
        label for name in asked for label in declared[name].labels
    }, where


def read(expression: str) -> tuple[set[str], set[str]]:
    """Return the metrics of an expression, and the labels that it uses."""
    metrics, labels = set[str](), set[str]()

    def visit(node: promql_parser.Expr) -> None:
        if isinstance(node, promql_parser.VectorSelector):
            metrics.add(node.name or "")
            labels.update(matcher.name for matcher in node.matchers.matchers)
        elif isinstance(node, promql_parser.AggregateExpr) and node.modifier is not None:
            labels.update(node.modifier.labels)

    promql_parser.walk(promql_parser.parse(expression.replace("$__rate_interval", "1m")), visit)
    return metrics, labels


def test_counters_are_asked_for_their_rate_alone() -> None:
    for where, expression in EXPRESSIONS:
        for name, metric in exposed().items():
            if metric.kind == "counter" and name in expression:
                assert re.search(rf"(rate|increase)\({name}\b", expression), where


def test_an_alert_on_any_count_sees_the_first_one_too() -> None:
    """A counter has no value before its first count, so `increase` misses the first count."""
    expressions = [
        (rule, match)
        for rule in ALERTS
        for match in re.findall(r"increase\((\S+)\[(\w+)\]\)\) > 0", rule["expr"])
    ]
    assert len(expressions) == 3
    for rule, (counter, span) in expressions:
        assert f"({counter} unless {counter} offset {span}) > 0" in rule["expr"], rule["alert"]


def test_no_alert_waits_for_a_counter_that_was_never_counted() -> None:
    for rule in ALERTS:
        assert not re.search(r"(rate|increase)\([^)]*\)\) == 0", rule["expr"]), rule["alert"]


def test_there_is_a_dashboard_for_each_reader_and_the_component_has_them() -> None:
    (generator,) = documents(MONITORING / KUSTOMIZATION)[0]["configMapGenerator"]
    files = {file.split("=")[1] for file in generator["files"]}
    assert files == {f"dashboards/{reader}.json" for reader in DASHBOARDS}
    assert set(DASHBOARDS) == {"health", "waiting", "capacity"}
    assert len({dashboard["uid"] for dashboard in DASHBOARDS.values()}) == len(DASHBOARDS)


@pytest.mark.parametrize("dashboard", DASHBOARDS.values(), ids=list(DASHBOARDS))
def test_panels_say_what_they_show_and_do_not_overlap(dashboard: dict[str, Any]) -> None:
    places = set[tuple[int, int]]()
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & places, panel["title"]
        places |= cells
    assert all(
        panel["title"] and panel["description"] and panel["fieldConfig"]["defaults"]["unit"]
        for panel in panels(dashboard)
    )
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: str(rule["alert"]))
def test_every_alert_has_a_runbook(rule: dict[str, Any]) -> None:
    page, _, anchor = rule["annotations"]["runbook_url"].partition("#")
    headings = re.findall(r"^#+ (.*)$", (ROOT / page).read_text(encoding="utf-8"), re.M)
    assert anchor == rule["alert"].lower()
    assert rule["alert"] in headings
    assert rule["labels"]["severity"] in ("critical", "warning", "info")


def test_one_value_sets_the_address_of_all_runbooks(tmp_path: Path) -> None:
    """Follow the comment of `components/runbooks` in an overlay."""
    folder = K8S / "components" / "runbooks"
    comment = (folder / KUSTOMIZATION).read_text(encoding="utf-8")
    lines = [line[3:] for line in comment.splitlines() if line.startswith("#   ")]
    (tmp_path / "runbooks.yaml").write_text("\n".join(lines), encoding="utf-8")
    components = [os.path.relpath(path, tmp_path.resolve()) for path in (MONITORING, folder)]
    overlay = {"resources": ["runbooks.yaml"], "components": components}
    (tmp_path / KUSTOMIZATION).write_text(yaml.safe_dump(overlay), encoding="utf-8")
    objects = built(tmp_path)
    (rules,) = [entry for entry in objects if entry["kind"] == "PrometheusRule"]
    assert [rule["annotations"]["runbook_url"] for rule in rules["spec"]["groups"][0]["rules"]] == [
        f"https://wiki.example.com/topolog/operate.md#{rule['alert'].lower()}" for rule in ALERTS
    ]
    assert "topolog-runbooks" not in map(name_of, objects)


def test_a_silent_service_has_an_alert() -> None:
    """Every other expression is silent if no process exposes its metric."""
    (rule,) = [rule for rule in ALERTS if "absent(" in rule["expr"]]
    absent = re.findall(r'absent\((\w+)\{app="([\w-]+)"\}\)', rule["expr"])
    assert {metric for metric, _ in absent} == {names.TASK_RUNNING.exposed}
    assert {app for _, app in absent} == {
        name_of(document) for document in of_kind("Deployment", folder="base")
    }


def test_a_stream_that_is_not_followed_has_an_alert() -> None:
    assert any(names.STREAMS_QUARANTINED.exposed in rule["expr"] for rule in ALERTS)


def test_the_operators_page_has_no_runbook_without_an_alert() -> None:
    headings = re.findall(
        r"^### (Topolog\w+)$", (ROOT / "docs" / "operate.md").read_text(encoding="utf-8"), re.M
    )
    assert sorted(headings) == sorted(rule["alert"] for rule in ALERTS)


@pytest.mark.parametrize("component", ["postgres", "cloudnative-pg"])
def test_the_log_is_near_its_limit_while_a_quarter_of_its_volume_is_free(component: str) -> None:
    folder = K8S / "components" / component
    (size_gib,) = re.findall(
        r"(?:storage|size): (\d+)Gi",
        "".join(path.read_text() for path in folder.glob("[!k]*.yaml")),
    )
    patches = [patch["patch"] for patch in documents(folder / KUSTOMIZATION)[0].get("patches", [])]
    told_gib = re.findall(r'name: TOPOLOG_LOG_LIMIT_GIB, value: "(\d+)"', "".join(patches))
    (limit_gib,) = (int(gib) for gib in told_gib)
    assert limit_gib * NEAR_PERCENT <= int(size_gib) * 75
    assert limit_gib * NEAR_PERCENT >= int(size_gib) * 50, "and is not while most of it is"
