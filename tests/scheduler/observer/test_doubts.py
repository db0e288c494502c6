"""The lists that the observer believes, and the ends that the next list must confirm: they depend
on the log, on the version of the list, and on the objects that it lacks.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from services.scheduler.state.state import SchedulerState
from services.scheduler.watch.kinds import Observed
from services.scheduler.watch.lists import MOST_LISTS, Doubt, JudgedList, WholeList, judged
from services.scheduler.watch.pods_and_nodes import MASS_SHARE
from shared.domain.pod import Pod
from shared.events.cluster_events import PodEnded, PodObserved
from shared.events.surroundings_events import ClaimObserved
from tests.ledger.given import History

PODS = 20
ALL = frozenset(f"p{number}" for number in range(PODS))
FEW = frozenset(sorted(ALL)[: int(PODS * MASS_SHARE)])
MANY = frozenset(sorted(ALL)[: int(PODS * MASS_SHARE) + 1])


@pytest.fixture
def state() -> SchedulerState:
    history = History()
    for uid in sorted(ALL):
        history.tell(
            f"pod/{uid}",
            PodObserved(pod=Pod(uid=uid, namespace="ns", name=uid), resource_version="5"),
        )
    return SchedulerState(ledger=history.ledger)


def of(
    present: frozenset[str], version: str = "9", unbound: frozenset[str] = frozenset()
) -> WholeList:
    return WholeList("pods", present, version, unbound)


def uids(events: Iterable[Observed]) -> set[str]:
    return {event.uid for event in events if isinstance(event, PodEnded)}


def next_doubt(judged_list: JudgedList) -> Doubt | None:
    """Return the doubt if nothing else confirms the ends that the list shows."""
    return judged_list.doubt(judged_list.unconfirmed)


def test_what_one_list_lacks_has_not_ended(state: SchedulerState) -> None:
    """This holds even for few objects: a GET of each, or the next list, must confirm their end."""
    outcome = judged(state, of(ALL - FEW), None)
    assert not outcome.confirmed
    assert uids(outcome.unconfirmed) == FEW
    assert outcome.may_ask
    assert next_doubt(outcome) == Doubt(of(ALL - FEW), FEW, empty=False)
    assert outcome.doubt([]) is None


def test_a_list_that_lacks_much_is_not_asked_about_pod_by_pod(state: SchedulerState) -> None:
    first = judged(state, of(ALL - MANY), None)
    assert not first.may_ask
    doubt = next_doubt(first)
    assert doubt == Doubt(of(ALL - MANY), MANY, empty=False)
    back = next(iter(MANY))
    second = judged(state, of(ALL - MANY | {back}, "10"), doubt)
    assert next_doubt(second) is None
    assert uids(second.confirmed) == MANY - {back}


def test_what_both_lack_ends_though_the_second_is_doubted_for_others(state: SchedulerState) -> None:
    first = judged(state, of(ALL - MANY), None)
    others = frozenset(sorted(ALL)[-len(MANY) :])
    second = judged(state, of(ALL - MANY - others, "10"), next_doubt(first))
    assert uids(second.confirmed) == MANY
    doubt = next_doubt(second)
    assert doubt is not None
    assert doubt.lacked == others


def test_a_kind_without_get_is_believed_after_some_lists(state: SchedulerState) -> None:
    """If claims come and go faster than lists are made, each list lacks others."""
    for claim in ("ns/a", "ns/b", *(f"ns/{number}" for number in range(20))):
        state.cluster_objects.fold(ClaimObserved(claim, "v", "5"))
    claims = frozenset(state.cluster_objects.claims)
    doubt = None
    for number in range(MOST_LISTS):
        lacked = ("ns/a", "ns/b")[number % 2]
        listed = WholeList("persistentvolumeclaims", claims - {lacked}, "9", frozenset())
        outcome = judged(state, listed, doubt)
        assert not outcome.may_ask
        assert outcome.is_last == (number == MOST_LISTS - 1)
        doubt = next_doubt(outcome)


def test_one_that_shows_nothing_is_asked_for_once_more() -> None:
    first = next_doubt(judged(SchedulerState(), of(frozenset()), None))
    assert first is not None
    assert first.empty
    assert next_doubt(judged(SchedulerState(), of(frozenset(), "10"), first)) is None


def test_one_older_than_what_is_known_ends_what_came_after_it_once_another_agrees(
    state: SchedulerState,
) -> None:
    """A list need not show pods that are younger than itself. If the cluster was set back, these
    pods do not exist.
    """
    first = judged(state, of(ALL - FEW, "4"), None)
    assert first.shows_set_back
    assert not first.may_ask
    doubt = next_doubt(first)
    assert doubt is not None
    assert not first.confirmed
    second = judged(state, of(ALL - FEW, "4"), doubt)
    assert next_doubt(second) is None
    assert uids(second.confirmed) == FEW


def test_bound_pods_that_are_shown_unbound_make_one_list_doubtful(state: SchedulerState) -> None:
    first = judged(state, of(ALL, unbound=FEW), None)
    assert first.shows_set_back
    doubt = first.doubt([])
    assert doubt is not None
    second = judged(state, of(ALL, "10", FEW), doubt)
    assert second.doubt([]) is None
    assert not second.shows_set_back
