"""Each finding of `topolog doctor`: what must be seen for it, and that what is well yields nothing
but figures.
"""

from __future__ import annotations

import msgspec
import pytest

from services.cli.doctor import fold
from services.doctor import bus, cluster, database, nodes, reading
from services.doctor.finding import Finding
from services.doctor.nodes import POLICY_LABEL, Machine
from services.upkeep.skipping import skip
from shared.bus.description import StreamState
from shared.eventlog.inspection import Inspection
from shared.eventlog.port import Commit, Draft
from shared.events import streams
from shared.events.report_events import NodeReported
from shared.kube.rights import BINDER
from tests.ledger.given import History, zone
from tests.runtime.helpers import FaultyLog, undecodable
from tests.topology_store.words import report

WELL = Inspection(
    revision="0003",
    newest_revision="0003",
    login="topolog_service",
    head=1_000_000,
    relayed=999_990,
    size_bytes=10**9,
    leases={
        **dict.fromkeys(database.ROLES, 4.0),
        "scheduler/topolog/0": -9.0,
        "scheduler/topolog/1": 4.0,
        "topology-store/0": 4.0,
    },
    span_events=100_000,
    span_pods=10_000,
    span_s=1_000.0,
)


def bad(findings: list[Finding]) -> list[tuple[str, str]]:
    """Severity and text of everything but notes; each must say what mends it."""
    found = [one for one in findings if one.severity != "note"]
    assert all(one.mend for one in found)
    return [(one.severity, one.seen) for one in found]


def test_a_database_that_is_well_yields_its_growth_alone() -> None:
    (only,) = database.judge(WELL)
    assert only.severity == "note"
    assert "10.00 pods a second" in only.seen
    assert "8.64 GB a day (1000 bytes a fact, 10 facts a pod)" in only.seen


@pytest.mark.parametrize(
    ("change", "severity", "words"),
    [
        ({"revision": "0001", "works": False}, "problem", "revision 0001"),
        ({"revision": "", "works": False}, "problem", "revision none"),
        ({"rank": "the owner of the log"}, "warning", "is the owner of the log"),
        ({"leases": {**WELL.leases, "observer": -7.0}}, "problem", "no holder for 7 s"),
        (
            {"leases": {**WELL.leases, "observer": -1e9}},
            "problem",
            "observer was given up, and nobody has taken it",
        ),
        (
            {"leases": {role: 1.0 for role in WELL.leases if role != "observer"}},
            "problem",
            "observer was never held",
        ),
        (
            {"leases": {**WELL.leases, "scheduler/topolog/1": -1.0}},
            "problem",
            "scheduler has no member",
        ),
        ({"relayed": 5}, "warning", "999995 facts behind"),
        (
            {"longest_stream": "node/n1", "longest_facts": 2_000_000},
            "warning",
            "node/n1 has 2000000 facts",
        ),
        ({"clock_skew_s": -3.0}, "warning", "-3.0 s"),
    ],
)
def test_what_is_wrong_with_a_database(
    change: dict[str, object], severity: str, words: str
) -> None:
    ((found_severity, seen),) = bad(list(database.judge(msgspec.structs.replace(WELL, **change))))
    assert found_severity == severity
    assert words in seen


def test_nobody_is_told_to_migrate_another_programs_database() -> None:
    (found,) = database.judge(msgspec.structs.replace(WELL, revision="9f2b1c7d04ab", works=False))
    assert "another program's" in found.mend


def test_a_newer_schema_that_this_release_works_on_is_told_and_looked_into() -> None:
    found = list(database.judge(msgspec.structs.replace(WELL, revision="9000")))
    assert not bad(found)
    assert any("works on it" in each.seen for each in found)
    assert len(found) > 1


def test_streams_that_are_missing_full_or_on_too_few_servers() -> None:
    full = StreamState("REPORTS", messages=5, bytes=95, max_bytes=100, keeps_newest_of_each=True)
    behind = StreamState(
        "FACTS", bytes=99, max_bytes=100, replicas=1, servers=3, lagging=("nats-2",)
    )
    seen = bad(list(bus.judge([StreamState("GONE", exists=False), full, behind])))
    assert [severity for severity, _ in seen] == ["problem", "warning", "warning", "warning"]
    assert "does not exist" in seen[0][1]
    assert "will be dropped" in seen[1][1]
    assert "1 of 3 servers" in seen[2][1]
    assert "nats-2" in seen[3][1]
    assert bad(list(bus.judge([StreamState("FACTS", bytes=99, max_bytes=100)]))) == [], (
        "the log holds what a full mirror drops"
    )


def test_rights_and_definition() -> None:
    held = {"binder": {right: right.verb != "create" for right in BINDER}}
    ((severity, seen),) = bad(list(cluster.judge_rights(held)))
    assert severity == "problem"
    assert "create pods/binding" in seen
    assert "get pods" not in seen
    assert bad(list(cluster.judge_rights({"binder": dict.fromkeys(BINDER, True)}))) == []
    assert [
        len(bad(list(cluster.judge_definition(found))))
        for found in ((), ("v1alpha1",), ("v1alpha2", "v1alpha1"))
    ] == [
        1,
        1,
        0,
    ]


def history(**fields: object) -> History:
    made = History()
    made.node(labels={})
    made.report(zone(0, 8), zone(1, 8), **fields)
    return made


def found_on(
    made: History, machine: Machine | None = None, rejected: int = 0
) -> list[tuple[str, str]]:
    machines = {"n1": machine or Machine("v1.36.2")}
    return bad(list(nodes.judge(made.ledger, machines, {"n1": rejected} if rejected else {})))


def test_a_node_that_is_well_yields_nothing() -> None:
    assert found_on(history()) == []


def test_nodes_that_never_reported_or_fell_silent_while_they_are_ready() -> None:
    empty = History()
    empty.node()
    silent = history()
    silent.n1.expired = True
    for made, words in (
        (empty, "never reported"),
        (History(), "never reported"),
        (silent, "has expired"),
    ):
        ((severity, seen),) = found_on(made)
        assert severity == "problem"
        assert words in seen
        assert found_on(made, Machine("v1.36.2", ready=False)) == []


@pytest.mark.parametrize(
    ("fields", "severity", "words"),
    [
        ({"policy": "unknown"}, "problem", "nobody told its exporter"),
        ({"placements": None, "source": "nrt"}, "problem", "neither placements nor a fingerprint"),
    ],
)
def test_reports_that_cannot_be_used(fields: dict[str, object], severity: str, words: str) -> None:
    ((found_severity, seen),) = found_on(history(**fields))
    assert found_severity == severity
    assert words in seen


def test_labels_rejections_and_kubelets_that_say_something_else() -> None:
    made = history()
    made.node(labels={POLICY_LABEL: "Restricted"})
    seen = [words for _, words in found_on(made, Machine("v1.29.4"), rejected=3)]
    assert len(seen) == 3
    assert "label says restricted, its kubelet does single-numa-node" in seen[0]
    assert "rejected 3 pod(s)" in seen[1]
    assert "kubelet v1.29.4" in seen[2]


def test_a_kubelet_of_an_unknown_version_is_not_called_proven() -> None:
    ((_, seen),) = found_on(history(), Machine())
    assert seen.startswith(
        "kubelet of a version that its object does not tell: the model is proven for"
    )


def test_a_dirty_node_whose_fingerprint_does_not_match() -> None:
    made = history(placements=None, source="nrt", fingerprint="pfp0v001x", fingerprint_method="all")
    made.n1.dirty = "rejections"
    ((_, seen),) = found_on(made)
    assert "fingerprint (all) does not match" in seen


def test_a_machine_whose_kubelet_may_not_finish_its_merge() -> None:
    made = History()
    made.node()
    made.report(*(zone(number, 8) for number in range(8)))
    ((_, seen),) = found_on(made)
    assert "8 zones and 4 resources" in seen


async def test_streams_that_this_release_cannot_read_are_named_with_what_to_do() -> None:
    """As after a rollback: facts of the newer release stand in the log."""
    log = FaultyLog()
    drafts = [
        Draft(streams.report(f"n{number}"), NodeReported(report(node=f"n{number}")))
        for number in range(12)
    ]
    await log.append(
        [Commit(f"c{number}", "test", 0, 0, (draft,)) for number, draft in enumerate(drafts)]
    )
    log.damage = lambda page: [
        event if event.position == 5 else msgspec.structs.replace(event, schema=99)
        for event in page
    ]
    ledger, _, aside = await fold(log)
    assert set(ledger.nodes) == {"n4"}
    found = list(reading.judge(aside))
    assert [one.severity for one in found] == ["problem"] * (reading.SHOWN + 1)
    assert (
        "stream report/n0 is set aside by this release: fact 1 (NodeReported schema 99 on report/n0)"
        in found[0].seen
    )
    assert found[0].mend.startswith(
        "run a release that knows it, or inspect it with: topolog replay log --from 1"
    )
    assert "1 more" in found[-1].seen


async def test_a_event_that_is_skipped_is_no_finding() -> None:
    log = FaultyLog()
    await log.append(
        [Commit("c", "test", 0, 0, (Draft(streams.report("n1"), NodeReported(report())),))]
    )
    log.damage = undecodable(1)
    await skip(log, 1, "me", "damaged", 1, force=True)
    assert (await fold(log))[2] == {}
