"""`topolog doctor` against a real Postgres, a real NATS and the simulated API."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
import pytest

from services.cli.doctor import Installation, examine, machine_of
from services.doctor.finding import Finding
from services.simulator.api.cluster_store import ClusterStore
from services.simulator.api.serve import start
from services.simulator.api.settings import ApiSettings
from shared.bus.jetstream import JetStreamBus
from shared.eventlog.migrate import upgrade
from shared.eventlog.port import Commit, Draft
from shared.eventlog.postgres import PostgresEventLog
from shared.events import streams
from shared.events.report_events import NodeReported
from tests.fixtures.ports import free_port
from tests.topology_store.words import report


@pytest.fixture
async def api() -> AsyncIterator[str]:
    store = ClusterStore(ApiSettings(taint_new_nodes=False))
    status = {
        "conditions": [{"type": "Ready", "status": "True"}],
        "nodeInfo": {"kubeletVersion": "v1.36.2"},
    }
    store.create(
        "nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}, "status": status}
    )
    server = await start(store)
    yield server.url
    await server.stop()


async def test_a_reporting_installation_lacks_only_its_services(
    database_url: str, nats_url: str, api: str
) -> None:
    await upgrade(database_url)
    log = await PostgresEventLog.open(database_url)
    bus = JetStreamBus(nats_url)
    await bus.ensure_streams()
    draft = Draft(streams.report("n1"), NodeReported(report()))
    await log.append([Commit("first", "test", 0, 0, (draft,))])
    try:
        installation = Installation(database_url, nats_url, api, "topolog")
        findings = await examine(installation)
        of_a_folder = await examine(msgspec.structs.replace(installation, namespace=""))
        stopped = await examine(Installation(database_url, running=False))
        cell = Installation(database_url, "", api, "", cells={"b": database_url})
        of_another_cell = await examine(cell)
    finally:
        await bus.close()
        await log.close()
    problems = [finding for finding in findings if finding.severity == "problem"]
    assert problems
    for finding in problems:
        assert (finding.about, "the role" in finding.seen) == ("database", True)
    assert {finding.about for finding in findings} >= {"database", "bus", "cluster"}
    assert not [finding for finding in findings if finding.about == "node n1"]
    # The node is another cell's, so that this cell lacks nothing of it.
    assert {finding.about for finding in of_another_cell} >= {"cluster", "cell b: database"}
    assert not [finding for finding in of_another_cell if "n1" in finding.about]
    assert seen_about("the login", findings)
    assert not seen_about("the login", of_a_folder)
    # The simulated API has no SubjectAccessReview: the rights of accounts are named as not checked.
    assert seen_about("not checked: rights of topology-store, scheduler, binder", findings)
    assert not seen_about("not checked: rights of", of_a_folder)
    # The tests' Postgres runs without fsync.
    assert seen_about("fsync, full_page_writes, synchronous_commit off", stopped)
    assert [finding.severity for finding in stopped].count("note") == len(stopped) - 1
    assert len(seen_about("topolog up does not run on this data folder", stopped)) == 2


def seen_about(text: str, findings: list[Finding]) -> list[str]:
    return [finding.seen for finding in findings if text in finding.seen]


async def test_a_part_that_does_not_answer_is_a_finding(database_url: str) -> None:
    await upgrade(database_url)
    findings = await examine(
        Installation(
            database_url,
            f"nats://127.0.0.1:{free_port()}",
            f"http://127.0.0.1:{free_port()}",
            "topolog",
        )
    )
    problems = [finding for finding in findings if finding.severity == "problem"]
    assert {finding.about for finding in problems} >= {"bus", "cluster"}
    assert all(finding.remedy for finding in problems)


def test_a_node_object_of_any_shape_is_read() -> None:
    assert machine_of({})[0] == ""
    assert machine_of({"metadata": {"name": "n"}, "status": {"conditions": None}})[1].ready is False
