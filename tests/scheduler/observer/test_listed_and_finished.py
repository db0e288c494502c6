"""Kubelets to 1.33 list ended pods. A pod that finished before it was first seen
holds nothing, once its end is an event.
"""

from __future__ import annotations

import pytest

from services.scheduler.state.state import SchedulerState
from services.scheduler.watch.kinds import Kinds
from services.scheduler.watch.seen_specs import SeenSpecs
from shared.domain.report import Placement, ZonedAmount
from shared.events.cluster_events import PodEnded, PodObserved
from shared.kube.port import WatchEvent
from tests.ledger.given import History, zone
from tests.scheduler.observer.test_news import pod

CPUS = ZonedAmount("cpu", (0,), 2000, "2-3")


def events_of(history: History, name: str, **fields: str) -> list[object]:
    kinds, state = Kinds(("topolog",), SeenSpecs()), SchedulerState()
    state.ledger = history.ledger
    seen = WatchEvent("ADDED", pod(name, node="n1", **fields))  # type: ignore[arg-type]
    return list(kinds.events(state, "topolog", "pods", seen))


def listed(held: tuple[ZonedAmount, ...] = (CPUS,)) -> History:
    history = History()
    history.node()
    history.report(zone(0, 8, 6), placements=(Placement("ns", "a", "c", held),))
    return history


def test_it_is_observed_and_ended_and_its_resources_are_free() -> None:
    history = listed()
    assert history.ledger.nodes["n1"].free_min[0]["cpu"] == 6000
    events = events_of(history, "a", phase="Succeeded")
    assert [type(event) for event in events] == [PodObserved, PodEnded]
    for event in events:
        history.tell("pod/uid-a", event)  # type: ignore[arg-type]
    assert history.ledger.nodes["n1"].free_min[0]["cpu"] == 8000
    assert "uid-a" not in history.ledger.pods
    assert events_of(history, "a", phase="Succeeded") == []


@pytest.mark.parametrize("case", ["not listed", "nothing held", "another pod of the name lives"])
def test_other_pods_that_finished_unseen_are_no_events(case: str) -> None:
    history = listed(() if case == "nothing held" else (CPUS,))
    if case == "another pod of the name lives":
        (event,) = events_of(history, "a", phase="Running")
        history.tell("pod/uid-a", event)  # type: ignore[arg-type]
    name = "b" if case == "not listed" else "a"
    uid = {"uid": "uid-2"} if case == "another pod of the name lives" else {}
    assert events_of(history, name, phase="Succeeded", **uid) == []
