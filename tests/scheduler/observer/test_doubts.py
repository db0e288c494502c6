"""Which lists are believed, and what the next one must confirm: given what the log holds, when a
list comes, then who ended.
"""

from __future__ import annotations

import pytest

from services.scheduler.state.state import SchedulerState
from services.scheduler.watch.lists import Doubt, Judged, WholeList, judged
from services.scheduler.watch.pods_and_nodes import MASS_SHARE
from shared.domain.pod import Pod
from shared.events.cluster_events import PodObserved
from tests.ledger.given import History

PODS = 20
ALL = frozenset(f"p{number}" for number in range(PODS))
FEW = frozenset(sorted(ALL)[: int(PODS * MASS_SHARE)])
MANY = frozenset(sorted(ALL)[: int(PODS * MASS_SHARE) + 1])


@pytest.fixture
def known() -> SchedulerState:
    history = History()
    for uid in sorted(ALL):
        history.tell(
            f"pod/{uid}",
            PodObserved(pod=Pod(uid=uid, namespace="ns", name=uid), resource_version="5"),
        )
    return SchedulerState(ledger=history.ledger)


def of(
    present: frozenset[str], version: str = "9", adrift: frozenset[str] = frozenset()
) -> WholeList:
    return WholeList("pods", present, version, adrift)


def ended(found: Judged) -> set[str]:
    return {event.uid for event in found.ended}  # type: ignore[union-attr]


def test_a_list_that_lacks_little_is_believed(known: SchedulerState) -> None:
    found = judged(known, of(ALL - FEW), None)
    assert (found.doubt, ended(found)) == (None, FEW)


def test_one_that_lacks_much_ends_nothing_until_the_next_lacks_it_too(
    known: SchedulerState,
) -> None:
    first = judged(known, of(ALL - MANY), None)
    assert first.doubt == Doubt(of(ALL - MANY), MANY, empty=False)
    assert not ended(first)
    back = next(iter(MANY))
    second = judged(known, of(ALL - MANY | {back}, "10"), first.doubt)
    assert (second.doubt, ended(second)) == (None, MANY - {back})


def test_what_both_lack_ends_though_the_second_is_doubted_for_others(known: SchedulerState) -> None:
    first = judged(known, of(ALL - MANY), None)
    others = frozenset(sorted(ALL)[-len(MANY) :])
    second = judged(known, of(ALL - MANY - others, "10"), first.doubt)
    assert ended(second) == MANY
    assert second.doubt is not None
    assert second.doubt.lacked == others


def test_one_that_shows_nothing_is_asked_for_once_more() -> None:
    first = judged(SchedulerState(), of(frozenset()), None)
    assert first.doubt is not None
    assert first.doubt.empty
    assert judged(SchedulerState(), of(frozenset(), "10"), first.doubt).doubt is None


def test_one_older_than_what_is_known_ends_what_came_after_it_once_another_agrees(
    known: SchedulerState,
) -> None:
    """Pods younger than a list are not lacking in it; in a cluster that was set back they are gone."""
    first = judged(known, of(ALL - FEW, "4"), None)
    assert first.tells_of_set_back
    assert first.doubt is not None
    assert not ended(first)
    second = judged(known, of(ALL - FEW, "4"), first.doubt)
    assert (second.doubt, ended(second)) == (None, FEW)


def test_pods_that_wait_though_they_are_bound_make_one_list_doubtful(known: SchedulerState) -> None:
    first = judged(known, of(ALL, adrift=FEW), None)
    assert first.tells_of_set_back
    assert first.doubt is not None
    second = judged(known, of(ALL, "10", FEW), first.doubt)
    assert second.doubt is None
    assert not second.tells_of_set_back
