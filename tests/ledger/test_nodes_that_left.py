"""The ledger keeps nothing of nodes that no event mentions any more, so that short-lived nodes do
not accumulate.
"""

from __future__ import annotations

from itertools import permutations

import pytest

from shared.events import streams
from shared.events.cluster_events import NodeEnded
from shared.events.report_events import NodeReportExpired, NodeReportRefused
from shared.events.scheduling_events import NominationWithdrawn, PodNominated
from tests.ledger.given import History, pod, zone

EXPIRED = NodeReportExpired("n1", 60)
GONE = NodeEnded("n1", "node-uid-1", "deleted")


def in_use() -> History:
    history = History()
    history.node()
    history.report(zone(0, 8))
    history.reserve(pod("a", cpus=2))
    return history


@pytest.mark.parametrize("order", list(permutations(["gone", "silent", "empty"])))
def test_a_node_is_kept_until_it_is_gone_silent_and_empty(order: tuple[str, ...]) -> None:
    history = in_use()
    tell = {
        "gone": lambda: history.tell(streams.node("n1"), GONE),
        "silent": lambda: history.tell(streams.report("n1"), EXPIRED),
        "empty": lambda: history.end(pod("a", cpus=2)),
    }
    for step in order:
        assert "n1" in history.ledger.nodes, step
        tell[step]()
    assert history.ledger.nodes == {}


def test_a_name_that_comes_back_begins_with_its_first_report() -> None:
    history = in_use()
    history.end(pod("a", cpus=2))
    history.tell(streams.node("n1"), GONE)
    history.tell(streams.report("n1"), EXPIRED)
    history.report(zone(0, 8, free=5), at=2)
    assert history.free(0) == 5


def test_a_claim_holds_the_node() -> None:
    history = in_use()
    history.end(pod("a", cpus=2))
    history.seen(pod("preemptor", cpus=4))
    history.tell(
        streams.pod("uid-preemptor"),
        PodNominated("uid-preemptor", "n1", victims=(), zones={0: {"cpu": 4000}}),
    )
    history.tell(streams.node("n1"), GONE)
    history.tell(streams.report("n1"), EXPIRED)
    assert "n1" in history.ledger.nodes
    history.tell(streams.pod("uid-preemptor"), NominationWithdrawn("uid-preemptor", "n1", "gone"))
    assert history.ledger.nodes == {}


def test_a_reporting_name_without_a_node_object_is_kept() -> None:
    """An operator looks for it: the exporter's node has another name, or is locked out."""
    history = History()
    history.report(zone(0, 8))
    history.tell(streams.report("n1"), EXPIRED)
    history.tell(
        streams.report("n1"),
        NodeReportRefused("n1", "boot-0", "exporter-2", "boot boot-0 was superseded"),
    )
    assert history.n1.locked


def test_a_pod_that_turns_up_elsewhere_holds_no_node_that_left() -> None:
    history = in_use()
    history.node(name="n2")
    history.tell(streams.node("n1"), GONE)
    history.tell(streams.report("n1"), EXPIRED)
    assert "n1" in history.ledger.nodes
    history.seen(pod("a", cpus=2), node="n2")
    assert set(history.ledger.nodes) == {"n2"}


def test_a_node_known_from_one_pod_only_is_forgotten_with_the_pod() -> None:
    history = History()
    history.seen(pod("a", cpus=2), node="n1")
    assert "n1" in history.ledger.nodes
    history.end(pod("a", cpus=2))
    assert history.ledger.nodes == {}


def test_a_nominee_that_turns_up_elsewhere_claims_nothing_any_more() -> None:
    """The fold returns the node of the ended claim as changed, in addition to the pod's node."""
    history = in_use()
    history.node(name="n2")
    history.seen(pod("preemptor", cpus=4))
    history.tell(
        streams.pod("uid-preemptor"),
        PodNominated("uid-preemptor", "n1", victims=(), zones={0: {"cpu": 4000}}),
    )
    history.seen(pod("preemptor", cpus=4), node="n2")
    assert history.touched == ("n1", "n2")
