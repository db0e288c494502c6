"""The startup taint goes with the first report, and nothing else of the node does."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from services.simulator.api.cluster_store import ClusterStore
from services.simulator.api.serve import start
from services.simulator.api.settings import ApiSettings
from services.topology_store.startup_taint import StartupTaint, patch_for
from shared.events.cluster_events import Taint
from shared.kube.client import KubeClient
from shared.kube.port import Answer
from shared.runtime.clock import SYSTEM_CLOCK
from tests.ledger.given import History, zone

KEY = "startup-taint.cluster-autoscaler.kubernetes.io/topolog"
OTHER = Taint("other", "", "NoSchedule")
OURS = Taint(KEY, "", "NoSchedule")


@pytest.fixture
async def kube() -> AsyncIterator[KubeClient]:
    server = await start(ClusterStore(ApiSettings(taint_new_nodes=False)))
    kube_client = KubeClient(server.url)
    yield kube_client
    await kube_client.close()
    await server.stop()


async def test_a_node_that_reported_loses_the_taint_and_keeps_the_others(kube: KubeClient) -> None:
    taints = [{"key": taint.key, "effect": taint.effect} for taint in (OTHER, OURS)]
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n1"},
        "spec": {"taints": taints},
    }
    made = await kube._call("POST", "/api/v1/nodes", body=node)
    assert isinstance(made, Answer)
    assert made.ok
    history = History()
    history.node(taints=(OTHER, OURS))
    taint = StartupTaint(kube, SYSTEM_CLOCK, KEY, lambda: history.ledger)
    await taint.sweep()
    assert [item["key"] for item in (await kube.list("nodes")).items[0]["spec"]["taints"]] == [
        "other",
        KEY,
    ]
    history.report(zone(0, 8))
    await taint.sweep()
    assert [item["key"] for item in (await kube.list("nodes")).items[0]["spec"]["taints"]] == [
        "other"
    ]
    await taint.sweep()
    assert len((await kube.list("nodes")).items[0]["spec"]["taints"]) == 1, (
        "the patch tests what it removes"
    )


def test_no_taint_is_removed_without_a_current_report() -> None:
    history = History()
    history.node(taints=(OURS,))
    assert patch_for(history.n1, KEY) == []
    history.report(zone(0, 8))
    assert patch_for(history.n1, KEY)
    assert patch_for(history.n1, "another") == []
    history.n1.expired = True
    assert patch_for(history.n1, KEY) == []
