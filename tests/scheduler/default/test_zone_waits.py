"""Pods that wait for a zone, not for a node: counted by resource, request and the node type that
would help, shown by doctor. And the room that is left for frequent requests.
"""

from __future__ import annotations

import pytest

from services.doctor import pods
from services.scheduler.explain import empty_nodes
from services.scheduler.explain.empty_nodes import TYPE_LABEL, EmptyNodes
from services.scheduler.handlers import Decider
from services.scheduler.snapshot.config import CycleConfig
from services.scheduler.state import totals
from shared.events import streams
from shared.events.cluster_events import Taint
from shared.events.scheduling_events import DemandWeighed, Wanted
from shared.runtime.clock import SYSTEM_CLOCK
from shared.runtime.lent_lease import LentLease
from shared.telemetry import instruments, names
from tests.ledger.given import pod, zone
from tests.scheduler.default.story import Story

SMALL = {"cpu": 10_000, "memory": 1 << 34, "pods": 110}


async def test_pods_are_counted_by_resource_and_request_until_they_are_placed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    story = Story()
    await story.node("n1", allocatable=SMALL)
    await story.report(zone(0, 8, free=3), zone(1, 8, free=3))
    first, two, large = pod("one", cpus=4), pod("two", cpus=4), pod("large", cpus=20)
    await story.arrives(first, two, large)
    await story.decide()
    ledger, asked = story.cores[0].ledger, EmptyNodes(CycleConfig())
    (((resource, request, node_type), count),) = asked.zone_waits(ledger).items()
    assert (resource, node_type, count) == ("cpu", "like n1", 2)
    assert request.startswith("cpu 4")
    (finding,) = pods.judge(ledger, CycleConfig())
    assert finding.severity == "warning"
    assert finding.seen.startswith(
        "2 pod(s) wait for a zone, not for a node: cpu (they request cpu 4"
    )
    assert finding.remedy
    namespace = first.namespace
    assert totals.unschedulable(ledger) == {(namespace, "zone"): 2, (namespace, "node"): 1}
    with monkeypatch.context() as few:
        few.setattr(totals, "MOST_NAMESPACES", 0)
        assert totals.unschedulable(ledger) == {(totals.OTHERS, "zone"): 2, ("other", "node"): 1}
    monkeypatch.setattr(empty_nodes, "MOST_CLASSES", 0)
    assert asked.zone_waits(ledger) == {("cpu", totals.OTHERS, ""): 2}
    await story.report(zone(0, 8, free=3), zone(1, 8, free=4), at=2)
    await story.decide()
    assert asked.zone_waits(ledger) == {("cpu", totals.OTHERS, ""): 1}
    assert totals.unschedulable(ledger) == {(namespace, "zone"): 1, (namespace, "node"): 1}


async def test_the_smallest_node_type_that_takes_the_pod_when_empty_is_named() -> None:
    story = Story()
    for name, cpus, label in (("n1", 14, "m-large"), ("n2", 20, "m-huge"), ("n3", 8, "m-small")):
        allocatable = {**SMALL, "cpu": cpus * 1000}
        await story.node(name, allocatable=allocatable, labels={TYPE_LABEL: label}, ready=False)
        await story.report(zone(0, cpus // 2), zone(1, cpus // 2), node=name)
    await story.node("n1", allocatable={**SMALL, "cpu": 14_000}, labels={TYPE_LABEL: "m-large"})
    fills, wants = [pod(f"fill-{at}", cpus=4) for at in range(2)], pod("wants", cpus=5)
    await story.arrives(*fills)
    await story.decide()
    await story.arrives(wants)
    await story.decide()
    ledger, asked = story.cores[0].ledger, EmptyNodes(CycleConfig())
    ((key, count),) = asked.zone_waits(ledger).items()
    assert (key[2], count) == ("m-large", 1)
    (finding,) = pods.judge(ledger, CycleConfig())
    assert "would fit on an empty node of type m-large" in finding.seen
    tainted = (Taint("gpu", "yes", "NoSchedule"),)
    labels = {TYPE_LABEL: "m-large"}
    await story.node("n1", allocatable={**SMALL, "cpu": 14_000}, labels=labels, taints=tainted)
    ((key, _),) = asked.zone_waits(ledger).items()
    assert key[2] == "m-huge"


def test_places_are_counted_in_zones_and_at_best() -> None:
    wanted = [
        Wanted({"cpu": 4000}, 1, 1, 0, 0),
        Wanted({"cpu": 9000}, 1, 1, 0, 0),
    ]
    counts = {False: [3, -1], True: [5, 2]}
    assert totals.places(wanted, lambda _classes, at_best: counts[at_best]) == {
        ("cpu 4", "zones"): 3,
        ("cpu 4", "at_best"): 5,
    }


async def test_the_decider_measures_waits_and_places() -> None:
    story = Story()
    await story.node("n1", allocatable=SMALL)
    await story.report(zone(0, 8, free=3), zone(1, 8, free=3))
    await story.arrives(pod("waits", cpus=4))
    await story.decide()
    core = story.cores[0]
    weighed = (Wanted({"cpu": 4000}, 1), Wanted({"cpu": 9000}, 1))
    await story.tell(streams.DEMAND, DemandWeighed(weighed))
    Decider(story.log, LentLease(), SYSTEM_CLOCK)._measure_fill(core)
    waits = instruments._values_of(names.ZONE_WAITS).values
    assert waits["cpu", "cpu 4", "like n1"] == 1
    places = instruments._values_of(names.PLACES).values
    assert (places["cpu 4", "zones"], places["cpu 4", "at_best"]) == (0, 2)
    assert ("cpu 9", "zones") not in places
