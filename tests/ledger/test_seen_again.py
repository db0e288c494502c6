"""A pod that is seen again on its node is the same pod: its kubelet's listing is its own, it stays
confirmed, and its reservation stays known. Labels change with the binding (PodTopologyLabels,
Kubernetes 1.35); `spec.nodeName` comes with the next change, as the beginning of a deletion."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from shared.domain.pod import Constraints, Container, Pod
from shared.events.binding_events import PodBound
from shared.events.cluster_events import NodeObserved, PodObserved, PodRunning
from shared.events.report_events import NodeReported
from shared.events.scheduling_events import NodeCharged, PodReserved
from shared.ledger.state import Charge
from tests.ledger.given import History, cpu, held, pod, report, zone

P = pod("p", cpus=2)
SEEN: dict[str, Callable[[Pod], PodObserved]] = {
    "labelled": lambda p: PodObserved(
        msgspec.structs.replace(p, labels={"topology.kubernetes.io/zone": "a"}), node="n1"
    ),
    "with its node": lambda p: PodObserved(
        msgspec.structs.replace(p, constraints=Constraints(node_name="n1")), node="n1"
    ),
    "terminating": lambda p: PodObserved(p, node="n1", terminating=True),
    "with another priority": lambda p: PodObserved(
        msgspec.structs.replace(p, priority=7), node="n1"
    ),
}
again = pytest.mark.parametrize("again", SEEN.values(), ids=SEEN)


def bound() -> History:
    history = History()
    history.tell("node/n1", NodeObserved("n1", "node-1", allocatable={"cpu": 16_000, "pods": 110}))
    history.tell("report/n1", NodeReported(report(zone(0, 8), zone(1, 8))))
    history.tell("pod/uid-p", PodObserved(P))
    history.tell("pod/uid-p", PodReserved("uid-p", "n1"))
    history.tell("node/n1", NodeCharged("n1", "uid-p"))
    history.tell("pod/uid-p", PodBound("uid-p", "n1"))
    return history


def lists(history: History, cpus: int = 2) -> None:
    placements = (held("p", 0, cpus),)
    history.tell(
        "report/n1",
        NodeReported(report(zone(0, 8, 8 - cpus), zone(1, 8), at=2, placements=placements)),
    )


def charge(history: History) -> Charge:
    return history.ledger.nodes["n1"].charges["uid-p"]


@again
def test_the_first_report_that_lists_it_proves_it(again: Callable[[Pod], PodObserved]) -> None:
    history = bound()
    sent_at = charge(history).sent_at
    history.tell("pod/uid-p", again(P))
    assert (charge(history).sent_at, charge(history).alias) == (sent_at, None)
    lists(history)
    assert charge(history).confirmed
    assert history.ledger.nodes["n1"].free_min == {0: cpu(6), 1: cpu(8)}


@again
def test_a_confirmed_pod_stays_confirmed(again: Callable[[Pod], PodObserved]) -> None:
    history = bound()
    history.tell("pod/uid-p", PodRunning("uid-p", "n1"))
    lists(history)
    earlier = msgspec.structs.replace(charge(history))
    history.tell("pod/uid-p", msgspec.structs.replace(again(P), phase="Running"))
    assert charge(history) == earlier
    assert history.ledger.nodes["n1"].ended == {}
    assert history.ledger.nodes["n1"].free_min == {0: cpu(6), 1: cpu(8)}


@pytest.mark.parametrize(("listed", "proven"), [(2, False), (3, True)])
def test_a_resized_pod_is_confirmed_by_a_listing_of_all_its_resources(
    listed: int, proven: bool
) -> None:
    """The pod was resized in place, so its earlier holdings are not enough."""
    history = bound()
    lists(history)
    sent_at = charge(history).sent_at
    more = msgspec.structs.replace(P, containers=(Container("c", "app", cpu(3), cpu(3)),))
    history.tell("pod/uid-p", PodObserved(more, node="n1"))
    lists(history, listed)
    assert charge(history).demand[0].amounts == cpu(3)
    assert (charge(history).confirmed, charge(history).sent_at) == (proven, sent_at)
