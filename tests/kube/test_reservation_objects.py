"""Reservation objects of Koordinator as bookings, from the object to its pods and its end."""

from __future__ import annotations

from typing import Any

import pytest

from services.scheduler.watch.kinds import Kinds, absent, identity
from services.scheduler.watch.seen_specs import SeenSpecs
from shared.domain.booking import Owner, Terms
from shared.domain.pod import NodeSelectorTerm
from shared.events import streams
from shared.events.scheduling_events import BookingEnded, BookingMade
from shared.kube.port import WatchEvent
from shared.kube.reservation_objects import booking_of
from tests.scheduler.owned.test_bookings import Booked, web

CREATED = "2026-01-01T00:00:00Z"
DAY_US = 86_400_000_000
CREATED_US = 1_767_225_600_000_000


def reservation(version: int = 7, phase: str = "Pending", **spec: Any) -> dict[str, Any]:
    """An object as users write it for koord-scheduler, with our scheduler's name."""
    amounts = {"cpu": "8", "memory": "8Gi"}
    container = {"name": "c", "image": "x", "resources": {"requests": amounts, "limits": amounts}}
    pod = {"schedulerName": "topolog", "nodeSelector": {"pool": "a"}, "containers": [container]}
    return {
        "metadata": {
            "name": "room",
            "uid": "uid-r",
            "creationTimestamp": CREATED,
            "resourceVersion": str(version),
        },
        "spec": {
            "template": {"metadata": {"labels": {"x": "y"}}, "spec": pod},
            "owners": [{"labelSelector": {"matchLabels": {"app": "web"}}}],
            **spec,
        },
        "status": {"phase": phase},
    }


class Observed(Booked):
    """What the observer sees becomes events."""

    def see(self, obj: dict[str, Any], kind: str = "ADDED") -> list[Any]:
        kinds = Kinds(("topolog",), SeenSpecs())
        events = kinds.events(self.core.folded, "topolog", "reservations", WatchEvent(kind, obj))
        for event in events:
            self.tell(streams.pod(event.about.pod), event)
        self.turn()
        return events


def test_a_reservation_is_read_with_koordinators_defaults() -> None:
    made = booking_of(reservation(), "topolog")
    assert made is not None
    assert made.terms == Terms(
        (Owner(labels={"app": "web"}),), "Aligned", True, CREATED_US + DAY_US
    )
    assert (made.uid, made.pod.key, made.pod.qos) == ("uid-r", "@booking/room", "Guaranteed")
    assert made.pod.constraints.node_selector == {"pool": "a"}
    assert made.pod.constraints.required_affinity == tuple[NodeSelectorTerm, ...]()
    assert made.pod.containers[0].requests == {"cpu": 8000, "memory": 8 << 30}
    assert booking_of(reservation(), "other") is None


@pytest.mark.parametrize(
    ("spec", "terms"),
    [
        ({"ttl": "1h", "allocateOnce": False}, ("Aligned", False, CREATED_US + DAY_US // 24)),
        ({"ttl": "0s", "allocatePolicy": "Restricted"}, ("Restricted", True, 0)),
        ({"expires": "2026-01-01T00:00:01Z"}, ("Aligned", True, CREATED_US + 1_000_000)),
    ],
)
def test_terms(spec: dict[str, Any], terms: tuple[object, ...]) -> None:
    made = booking_of(reservation(**spec), "topolog")
    assert made is not None
    assert (made.terms.policy, made.terms.once, made.terms.expires_us) == terms


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"owners": [{"controller": {"controller": False}}]}, "owners that are no controllers"),
        ({"owners": [{"claim": {}}]}, "unknown field `claim`"),
        ({"owners": []}, "spec.owners: write at least one"),
        (
            {"owners": [{"labelSelector": {"matchExpressions": [{"operator": "Near"}]}}]},
            "matchExpressions[0].operator",
        ),
        ({"taints": [{"key": "a", "effect": "NoSchedule"}]}, "spec.taints are not kept"),
        ({"preAllocation": True}, "spec.preAllocation is not kept"),
        ({"ttl": "soon"}, "spec.ttl: 'soon' is no duration"),
        (
            {"template": {"metadata": ["x"], "spec": {"schedulerName": "topolog"}}},
            "spec.template.metadata: a list of 1 items: write an object",
        ),
    ],
)
def test_what_cannot_be_kept_is_a_problem_of_the_booking(
    spec: dict[str, Any], problem: str
) -> None:
    world = Observed()
    world.node(labels={"pool": "a"})
    (made,) = world.see(reservation(**spec))
    assert problem in made.problem
    entry = world.core.ledger.pods["uid-r"]
    assert (entry.node, problem in entry.verdict) == ("", True)


SET = "apps/v1 ReplicaSet web-1 uid-rs"


@pytest.mark.parametrize(
    ("owner", "owns"),
    [
        ({}, True),
        ({"object": {"uid": "uid-a", "namespace": "ns"}}, True),
        ({"object": {"name": "b"}}, False),
        ({"controller": {"kind": "ReplicaSet", "name": "web-1", "namespace": "ns"}}, True),
        ({"controller": {"uid": "uid-rs", "apiVersion": "apps/v1", "controller": True}}, True),
        ({"controller": {"kind": "Job", "name": "web-1"}}, False),
        ({"controller": {"name": "web-1", "namespace": "other"}}, False),
        ({"labelSelector": {"matchLabels": {"app": "web"}}, "object": {"name": "b"}}, False),
        ({"labelSelector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]}}, True),
        (
            {
                "labelSelector": {
                    "matchLabels": {"app": "web"},
                    "matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["web"]}],
                }
            },
            False,
        ),
    ],
)
def test_owners_are_matched_as_in_koordinator(owner: dict[str, Any], owns: bool) -> None:
    made = booking_of(reservation(owners=[owner]), "topolog")
    assert made is not None
    assert made.problem == ""
    assert made.terms.is_for(web("a", 4, controller=SET)) == owns
    has_controller = "controller" in owner
    assert made.terms.is_for(web("a", 4)) == (owns and not has_controller)


@pytest.mark.parametrize("wrong", [{"spec": "x"}, {"spec": {"template": {"spec": ["x"]}}}])
def test_an_object_without_a_scheduler_that_can_be_read_is_not_ours(wrong: dict[str, Any]) -> None:
    world = Observed()
    assert world.see({**reservation(), **wrong}) == []


def test_from_the_object_to_its_pods_and_its_end() -> None:
    world = Observed()
    world.node(labels={"pool": "a"})
    (made,) = world.see(reservation(allocateOnce=False))
    assert isinstance(made, BookingMade)
    assert world.see(reservation(8, allocateOnce=False)) == [], "once is enough"
    assert world.place(web("a", 4))["a"].drawn_from == "uid-r"
    (end,) = world.see(reservation(9), "DELETED")
    assert end == BookingEnded("uid-r", "deleted", "9")
    assert "uid-r" not in world.core.ledger.pods
    assert world.see(reservation(9, "Succeeded")) == []


def test_a_booking_that_was_used_up_does_not_come_back_with_its_object() -> None:
    world = Observed()
    world.node(labels={"pool": "a"})
    world.see(reservation())
    assert world.place(web("a", 4))["a"].drawn_from == "uid-r"
    assert world.see(reservation(8)) == []
    assert world.place(web("c", 4))["c"].drawn_from == ""
    assert absent(world.core.folded, "reservations", {"uid-r"}, "9") == []
    assert identity("reservations", reservation()) == "uid-r"
    (end,) = absent(world.core.folded, "reservations", set(), "9")
    assert end == BookingEnded("uid-r", "deleted", "9")
    assert [e for e in world.core.decide(9, now_us=CREATED_US + 2 * DAY_US) if e.uid] == []
