"""`topolog replay verify` finds broken invariants in logs that no service would write."""

from __future__ import annotations

from collections import Counter

from services.replay.verifying import Audit
from shared.events import streams
from shared.events.binding_events import BindIntended, PodBound
from shared.events.catalog import Event
from shared.events.cluster_events import PodEnded, PodObserved
from shared.events.codec import encode, type_of
from shared.events.envelope import Envelope
from shared.events.scheduling_events import NodeCharged, PodReserved, ReservationWithdrawn
from tests.ledger.given import pod


def told(*events: Event) -> list[str]:
    """Return the invariants that these events break."""
    audit, versions = Audit(), Counter[str]()
    for index, event in enumerate(events, 1):
        stream = (
            streams.node(event.node)
            if isinstance(event, NodeCharged)
            else streams.pod(event.about.pod)
        )
        versions[stream] += 1
        audit.see(
            Envelope(
                index, stream, versions[stream], type_of(event), 1, encode(event), 0, "test", 0, ""
            )
        )
    return [violation.invariant for violation in audit.violations]


def test_an_intent_to_bind_to_a_node_without_reservation_is_reported() -> None:
    observed, intended = (
        PodObserved(pod("p", uid="u1")),
        BindIntended("u1", "default", "p", "n1", 2),
    )
    reserved = (PodReserved("u1", "n1", 1, 1), NodeCharged("n1", "u1"))
    elsewhere = (PodReserved("u1", "n2", 1, 1), NodeCharged("n2", "u1"))
    withdrawn = ReservationWithdrawn("u1", "n1", "node_ended")
    assert told(observed, *reserved, intended) == []
    assert told(observed, *reserved, withdrawn, intended) == ["S7"]
    assert told(observed, *reserved, withdrawn, *elsewhere, intended) == ["S7"]
    assert told(observed, intended) == ["S7"]


def test_a_pod_is_bound_once_unless_the_cluster_was_set_back_in_between() -> None:
    """The log has the end of the pod before it is decided again."""
    observed = PodObserved(pod("p", uid="u1"))
    placed = (
        PodReserved("u1", "n1", 1, 1),
        NodeCharged("n1", "u1"),
        BindIntended("u1", "default", "p", "n1", 2),
    )
    bound = PodBound("u1", "n1")
    assert told(observed, *placed, bound, bound) == ["S5"]
    assert (
        told(
            observed,
            *placed,
            bound,
            PodEnded("u1", "absent_from_list", "n1"),
            observed,
            *placed,
            bound,
        )
        == []
    )
