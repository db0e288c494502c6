"""The limits of reports: rate, nodes, bytes and resource names, per node and in total."""

from __future__ import annotations

import pytest

from services.topology_store import allowance
from services.topology_store.allowance import Allowance
from services.topology_store.handlers import Reports
from shared.bus.memory import MemoryBus
from shared.domain.report import Report, Zone, ZoneResource
from shared.eventlog.memory import MemoryEventLog
from shared.eventlog.port import Commit, Draft
from shared.events import streams
from shared.events.cluster_events import NodeEnded, NodeObserved
from shared.events.codec import decode
from shared.events.report_events import NodeReportExpired
from tests.runtime.helpers import lent
from tests.topology_store.words import Hands, load, message, report


def named(node: str, *names: str) -> Report:
    return report(node=node, zones=(Zone(0, {name: ZoneResource(1, 1, 1) for name in names}),))


def test_a_node_is_slowed_down_and_the_others_are_not() -> None:
    kept = Allowance()
    for node in ("loud", "calm"):
        kept.record(node, report(node=node), 100)
    taken = sum(not kept.problem_of(report(node="loud"), 100, 1.0) for _ in range(1000))
    assert 100 <= taken <= 121
    assert kept.problem_of(report(node="calm"), 100, 1.0) == ""
    assert kept.problem_of(report(node="loud"), 100, 2.0) == "", "a second later some more"


def test_all_together_are_bounded_too() -> None:
    kept = Allowance()
    taken = sum(
        not kept.problem_of(report(node=f"n{number}"), 100, 0.0) for number in range(60_000)
    )
    assert taken == allowance.ALL_BURST


def test_invented_nodes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allowance, "NODES", 3)
    kept = Allowance()
    for number in range(3):
        kept.record(f"n{number}", report(node=f"n{number}"), 100)
    assert "more than 3 nodes report" in kept.problem_of(report(node="n3"), 100, 0.0)
    assert kept.problem_of(report(node="n1"), 100, 0.0) == ""


def test_a_node_of_the_cluster_may_report_in_spite_of_invented_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(allowance, "NODES", 3)
    kept = Allowance()
    for number in range(3):
        kept.record(f"ghost-{number}", report(node=f"ghost-{number}"), 100)
    assert kept.problem_of(report(node="n1"), 100, 0.0)
    assert kept.problem_of(report(node="n1"), 100, 0.0, named=True) == ""


@pytest.mark.parametrize("restarted", [True, False])
async def test_what_nodes_took_is_free_again_when_they_have_left_the_cluster(
    monkeypatch: pytest.MonkeyPatch, restarted: bool
) -> None:
    """Otherwise a cluster that creates and deletes nodes all day would refuse new nodes after some
    weeks.
    """
    monkeypatch.setattr(allowance, "NODES", 1)
    log = MemoryEventLog("allowance")
    running = Reports(log, lent("topology-store/0"), MemoryBus(), Hands())

    async def judged(node: str) -> list[str]:
        reports = (
            Reports(log, lent("topology-store/0"), MemoryBus(), Hands()) if restarted else running
        )
        await load(reports, log)
        reports.folded(
            reports.nodes, [(envelope, decode(envelope)) for envelope in await log.read(0)]
        )
        await reports.take([message(report(node=node))])
        return [envelope.type for envelope in await log.read_stream(streams.report(node))]

    assert await judged("old") == ["NodeReported"]
    await log.append(
        [
            Commit(
                "expired",
                "test",
                0,
                0,
                (Draft(streams.report("old"), NodeReportExpired("old", 60)),),
            )
        ]
    )
    assert await judged("new") == [], "nobody has said that the old one has left"
    for event in (NodeObserved("old", "uid"), NodeEnded("old", "uid", "deleted")):
        await log.append(
            [Commit(type(event).__name__, "test", 0, 0, (Draft(streams.node("old"), event),))]
        )
    assert await judged("new") == ["NodeReported"]


def test_resource_names_are_bounded_and_freed_once_no_node_reports_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(allowance, "RESOURCE_NAMES", 3)
    kept = Allowance()
    kept.record("n1", named("n1", "a", "b"), 100)
    kept.record("n2", named("n2", "b", "c"), 100)
    assert "'d' is one resource too many" in kept.problem_of(named("n2", "b", "d"), 100, 0.0)
    assert kept.problem_of(named("n3", "a", "b", "c"), 100, 0.0) == ""
    kept.record("n1", named("n1", "b"), 100)
    assert kept.problem_of(named("n3", "b", "d"), 100, 0.0) == ""


def test_the_newest_reports_of_all_nodes_are_bounded_in_bytes() -> None:
    kept = Allowance()
    kept.record("n1", report(node="n1"), allowance.BYTES - 100)
    assert "bytes are too many" in kept.problem_of(report(node="n2"), 101, 0.0)
    assert kept.problem_of(report(node="n1"), 5000, 0.0) == "", (
        "its own newest report takes the place of the one before"
    )
