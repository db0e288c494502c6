"""`topolog doctor` against a real Postgres, a real NATS and the simulated API: figures when all is
well, exit code 1 when not.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from services.cli.doctor import examine, machine_of
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


async def test_an_installation_that_reports_has_no_problem_but_its_missing_services(
    database_url: str, nats_url: str, api: str
) -> None:
    await upgrade(database_url)
    log = await PostgresEventLog.open(database_url)
    bus = JetStreamBus(nats_url)
    await bus.ensure_streams()
    draft = Draft(streams.report("n1"), NodeReported(report()))
    await log.append([Commit("first", "test", 0, 0, (draft,))])
    try:
        found = await examine(database_url, nats_url, api, "topolog")
        of_a_folder = await examine(database_url, nats_url, api, "")
    finally:
        await bus.close()
        await log.close()
    problems = [one for one in found if one.severity == "problem"]
    assert all(one.about == "database" and "the role" in one.seen for one in problems)
    assert {one.about for one in found} >= {"database", "bus", "cluster"}
    assert not [one for one in found if one.about == "node n1"]
    told = [
        [one.seen for one in each if "the login" in one.seen or "rights" in one.seen]
        for each in (found, of_a_folder)
    ]
    assert (len(told[0]), told[1]) == (2, [])


async def test_what_does_not_answer_is_a_finding(database_url: str) -> None:
    await upgrade(database_url)
    found = await examine(
        database_url,
        f"nats://127.0.0.1:{free_port()}",
        f"http://127.0.0.1:{free_port()}",
        "topolog",
    )
    assert {one.about for one in found if one.severity == "problem"} >= {"bus", "cluster"}
    assert all(one.mend for one in found if one.severity == "problem")


def test_a_node_object_of_any_shape_is_read() -> None:
    assert machine_of({})[0] == ""
    assert machine_of({"metadata": {"name": "n"}, "status": {"conditions": None}})[1].ready is False
