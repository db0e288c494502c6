"""The listing of an ended pod's name is complete only if a report confirmed exactly this pod."""

from __future__ import annotations

import pytest

from shared.events import streams
from shared.events.scheduling_events import ReservationWithdrawn
from shared.ledger.charging import ended_of
from shared.ledger.state import Alias, Charge
from tests.ledger.given import History, held, pod, zone


@pytest.mark.parametrize(
    ("charge", "is_complete"),
    [
        (Charge("u", "ns/p", 1, confirmed=True), True),
        (Charge("u", "ns/p", 1), False),
        (Charge("u", "ns/p", 1, confirmed=True, alias=Alias()), False),
    ],
)
def test_a_listing_of_a_namesake_is_not_complete(charge: Charge, is_complete: bool) -> None:
    """The report may list the pod that had the name before."""
    assert ended_of(charge).complete is is_complete


def test_a_withdrawn_reservation_leaves_nothing_to_doubt_after_a_new_boot() -> None:
    """A report that lists a pod which was sent after the end shows that the other pod is gone."""
    history, early, late = History(), pod("early", cpus=1), pod("late", cpus=1)
    history.node()
    history.report(zone(0, 4))
    history.reserve(early)
    history.tell(streams.pod(early.uid), ReservationWithdrawn(early.uid, "n1", "node_ended"))
    history.reserve(early)
    history.report(zone(0, 4), boot="boot-2")
    history.end(early)
    assert "ns/early" in history.n1.ended
    history.reserve(late)
    history.report(zone(0, 4, 3), boot="boot-2", at=2, placements=(held("late", 0, 1),))
    assert not history.n1.ended
