"""Each finding of `topolog doctor`, and that a healthy installation yields only notes."""

from __future__ import annotations

import msgspec
import pytest

from services.cli.doctor import fold
from services.doctor import bus, cluster, database, nodes, reading
from services.doctor.finding import Finding
from services.doctor.nodes import Machine
from services.scheduler.snapshot.topology_policy import POLICY_LABEL
from services.upkeep.skipping import skip
from shared.bus.description import StreamState
from shared.domain.report import Placement, ZonedAmount
from shared.domain.zone_allocation import ZoneAllocation
from shared.eventlog.inspection import Inspection
from shared.eventlog.port import Commit, Draft
from shared.events import streams
from shared.events.report_events import NodeReported
from shared.events.scheduling_events import NodeCharged, PodReserved
from shared.kube.rights import BINDER
from tests.ledger.given import History, held, pod, zone
from tests.runtime.helpers import FaultyLog, undecodable
from tests.topology_store.words import report

HEALTHY = Inspection(
    revision="0003",
    newest_revision="0003",
    login="topolog_service",
    head=1_000_000,
    relayed=999_990,
    size_bytes=10**9,
    row_bytes=1000.0,
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
    """Return severity and text of problems and warnings, and check that each has a remedy."""
    serious = [finding for finding in findings if finding.severity != "note"]
    assert all(finding.remedy for finding in serious)
    return [(finding.severity, finding.seen) for finding in serious]


def test_a_healthy_database_yields_only_its_growth() -> None:
    (only,) = database.judge(HEALTHY)
    assert only.severity == "note"
    assert "10.00 pods a second" in only.seen
    assert "8.64 GB a day (1000 bytes an event, 10 events a pod)" in only.seen
    assert "needs 415 GB, and 56 GB more a year, and 347 GB of files a year" in only.seen


@pytest.mark.parametrize(
    ("change", "severity", "words"),
    [
        ({"not_durable": ("synchronous_commit",)}, "warning", "synchronous_commit off"),
        ({"revision": "0001", "works": False}, "problem", "revision 0001"),
        ({"revision": "", "works": False}, "problem", "revision none"),
        ({"rank": "the owner of the log"}, "warning", "is the owner of the log"),
        ({"leases": {**HEALTHY.leases, "observer": -7.0}}, "problem", "no holder for 7 s"),
        (
            {"leases": {**HEALTHY.leases, "observer": -1e9}},
            "problem",
            "observer was given up and has no holder",
        ),
        (
            {"leases": {role: 1.0 for role in HEALTHY.leases if role != "observer"}},
            "problem",
            "observer never had a holder",
        ),
        (
            {"leases": {**HEALTHY.leases, "scheduler/topolog/1": -1.0}},
            "problem",
            "scheduler has no member",
        ),
        ({"relayed": 5}, "warning", "999995 events behind"),
        (
            {"longest_stream": "node/n1", "longest_events": 2_000_000},
            "warning",
            "node/n1 has 2000000 events",
        ),
        ({"clock_skew_s": -3.0}, "warning", "-3.0 s"),
    ],
)
def test_the_faults_of_a_database(change: dict[str, object], severity: str, words: str) -> None:
    ((found_severity, seen),) = bad(
        list(database.judge(msgspec.structs.replace(HEALTHY, **change)))
    )
    assert found_severity == severity
    assert words in seen


def test_no_remedy_migrates_another_programs_database() -> None:
    (finding,) = database.judge(
        msgspec.structs.replace(HEALTHY, revision="9f2b1c7d04ab", works=False)
    )
    assert "another program's" in finding.remedy


def test_a_newer_schema_that_this_release_works_on_is_noted_and_examined() -> None:
    findings = list(database.judge(msgspec.structs.replace(HEALTHY, revision="9000")))
    assert not bad(findings)
    assert any("works on it" in finding.seen for finding in findings)
    assert len(findings) > 1


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
    large = StreamState(
        "REPORTS", messages=9, bytes=130 << 20, max_bytes=128 << 20, keeps_newest_of_each=True
    )
    (finding,) = bus.judge([large])
    assert finding.remedy == "TOPOLOG_NATS_NODES=5000 for topology-store and scheduler"
    assert bad(list(bus.judge([StreamState("FACTS", bytes=99, max_bytes=100)]))) == [], (
        "the log holds what a full mirror drops"
    )


ACCOUNT = "system:serviceaccount:topolog:binder"


def test_missing_rights_are_a_problem_with_the_account() -> None:
    answers = {"binder": {right: right.verb != "create" for right in BINDER}}
    ((severity, seen),) = bad(list(cluster.judge_rights(answers, {}, {"binder": ACCOUNT})))
    assert severity == "problem"
    assert "create pods/binding" in seen
    assert "get pods" not in seen
    assert f"(as {ACCOUNT})" in seen
    granted = {"binder": dict.fromkeys(BINDER, True)}
    assert bad(list(cluster.judge_rights(granted, {}, {"binder": ACCOUNT}))) == []


def test_rights_that_could_not_be_checked_are_named() -> None:
    reason = 'subjectaccessreviews is forbidden: User "dev" cannot create resource'
    unanswered = {"binder": reason, "scheduler": reason}
    accounts = {name: f"system:serviceaccount:topolog:{name}" for name in unanswered}
    findings = list(cluster.judge_rights({}, unanswered, accounts))
    assert bad(findings) == [
        ("warning", f"not checked: rights of binder, scheduler: {reason}"),
    ]
    assert any("only options need" in finding.seen for finding in findings)


def test_the_definition_must_be_served_as_v1alpha2() -> None:
    counts = {
        versions: len(bad(list(cluster.judge_definition(versions))))
        for versions in ((), ("v1alpha1",), ("v1alpha2", "v1alpha1"))
    }
    assert counts == {(): 1, ("v1alpha1",): 1, ("v1alpha2", "v1alpha1"): 0}


def test_a_stopped_data_folder_has_no_findings_about_its_missing_services() -> None:
    stopped = msgspec.structs.replace(HEALTHY, leases={}, relayed=0)
    assert bad(list(database.judge(stopped, in_cluster=False, running=False))) == []
    assert bad(list(database.judge(stopped, in_cluster=False)))


def history(**fields: object) -> History:
    history_file = History()
    history_file.node(labels={})
    history_file.report(zone(0, 8), zone(1, 8), **fields)
    return history_file


def findings_of(
    made: History, machine: Machine | None = None, rejected: int = 0
) -> list[tuple[str, str]]:
    machines = {"n1": machine or Machine("v1.36.2")}
    return bad(list(nodes.judge(made.ledger, machines, {"n1": rejected} if rejected else {})))


def test_a_healthy_node_yields_nothing() -> None:
    assert findings_of(history()) == []


def test_ready_nodes_that_never_reported_or_whose_report_expired() -> None:
    empty = History()
    empty.node()
    silent = history()
    silent.n1.expired = True
    for made, words in (
        (empty, "never reported"),
        (History(), "never reported"),
        (silent, "has expired"),
    ):
        ((severity, seen),) = findings_of(made)
        assert severity == "problem"
        assert words in seen
        assert findings_of(made, Machine("v1.36.2", ready=False)) == []


@pytest.mark.parametrize(
    ("fields", "severity", "words"),
    [
        ({"policy": "unknown"}, "problem", "its exporter does not know"),
        ({"placements": None, "source": "nrt"}, "problem", "neither placements nor a fingerprint"),
    ],
)
def test_reports_that_cannot_be_used(fields: dict[str, object], severity: str, words: str) -> None:
    ((found_severity, seen),) = findings_of(history(**fields))
    assert found_severity == severity
    assert words in seen


def test_labels_rejections_and_kubelet_versions() -> None:
    history_log = history()
    history_log.node(labels={POLICY_LABEL: "Restricted"})
    seen = [words for _, words in findings_of(history_log, Machine("v1.29.4"), rejected=3)]
    assert len(seen) == 3
    assert "label says restricted, its kubelet uses single-numa-node" in seen[0]
    assert "rejected 3 pod(s)" in seen[1]
    assert "kubelet v1.29.4" in seen[2]


@pytest.mark.parametrize(
    ("certain", "actual", "drifts"), [(True, 1, True), (True, 0, False), (False, 1, False)]
)
def test_a_pod_in_another_zone_than_was_certain_is_a_warning(
    certain: bool, actual: int, drifts: bool
) -> None:
    made, web = history(), pod("web", cpus=2)
    made.seen(web)
    reserved = PodReserved(web.uid, "n1", predicted={"c": (0,)}, certain=certain)
    made.tell(streams.pod(web.uid), reserved)
    made.tell(streams.node("n1"), NodeCharged("n1", web.uid))
    free = [8, 8]
    free[actual] = 6
    made.report(
        zone(0, 8, free[0]), zone(1, 8, free[1]), at=2, placements=(held("web", actual, 2),)
    )
    messages = [message for _, message in findings_of(made)]
    assert len(messages) == drifts
    assert all("ns/web: in other zones than were predicted" in message for message in messages)


def test_a_pod_on_other_cpus_than_reserved_is_a_warning() -> None:
    made, web = history(), pod("web", cpus=2)
    made.seen(web)
    allocation = ZoneAllocation({0: {"cpu": 2000}}, "2-3")
    made.tell(streams.pod(web.uid), PodReserved(web.uid, "n1", allocation=allocation))
    made.tell(streams.node("n1"), NodeCharged("n1", web.uid))
    entry = Placement("ns", "web", "c", (ZonedAmount("cpu", (0,), 2000, "4-5"),), web.uid)
    made.report(zone(0, 8, 8), zone(1, 8, 8), at=2, placements=(), enforced=(entry,))
    ((_, message),) = findings_of(made)
    assert "ns/web (container c: CPUs 4-5, reserved are 2-3)" in message


def test_a_kubelet_of_unknown_version_is_a_warning() -> None:
    ((_, seen),) = findings_of(history(), Machine())
    assert seen.startswith("kubelet of unknown version: unknown: every version is considered (")


def test_a_dirty_node_whose_fingerprint_does_not_match() -> None:
    history_log = history(
        placements=None, source="nrt", fingerprint="pfp0v001x", fingerprint_method="all"
    )
    history_log.n1.dirty = "rejections"
    ((_, seen),) = findings_of(history_log)
    assert "fingerprint (all) does not match" in seen


def test_objects_without_fingerprint_confirm_nothing() -> None:
    ((_, seen),) = findings_of(history(placements=None, source="nrt"))
    assert "no placement is ever confirmed" in seen


def test_koordlet_does_not_report_the_memory_managers_policy() -> None:
    made = history(source="nrt", exporter="koordlet", unlisted=("memory",))
    ((_, seen),) = findings_of(made)
    assert "koordlet does not report the Memory Manager's policy" in seen


def test_a_machine_whose_kubelet_may_not_finish_its_merge() -> None:
    history_file = History()
    history_file.node()
    history_file.report(*(zone(number, 8) for number in range(8)))
    ((_, seen),) = findings_of(history_file)
    assert "8 zones and 4 resources" in seen


async def test_streams_that_this_release_cannot_read_are_named_with_what_to_do() -> None:
    """After a rollback the log has events of the newer release."""
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
    ledger, _, quarantined = await fold(log)
    assert set(ledger.nodes) == {"n4"}
    findings = list(reading.judge(quarantined))
    assert [finding.severity for finding in findings] == ["problem"] * (reading.SHOWN + 1)
    assert (
        "stream report/n0 is quarantined by this release: event 1 (NodeReported schema "
        "99 on report/n0)"
    ) in findings[0].seen
    assert findings[0].remedy.startswith(
        "run a release that knows it, or inspect it with: topolog replay log --from 1"
    )
    assert "1 more" in findings[-1].seen


async def test_a_skipped_event_is_no_finding() -> None:
    log = FaultyLog()
    await log.append(
        [Commit("c", "test", 0, 0, (Draft(streams.report("n1"), NodeReported(report())),))]
    )
    log.damage = undecodable(1)
    await skip(log, 1, "me", "damaged", 1, force=True)
    assert (await fold(log))[2] == {}


def test_a_node_without_a_cell_is_a_problem() -> None:
    machines = {"n1": Machine(cell="a"), "n2": Machine(), "n3": Machine(cell="z")}
    findings = [(f.about, f.seen) for f in nodes.without_cell(machines, ("a", "b"))]
    assert findings == [
        ("node n2", "no cell owns it: it takes no pod"),
        ("node n3", "its owner 'z' is no cell: it takes no pod"),
    ]
