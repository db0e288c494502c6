"""Times of a pod's status: whole seconds by the node's clock; 0 for missing or invalid times."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.scheduler.watch import pods_and_nodes
from services.scheduler.watch.pods_and_nodes import finished_s, started_s
from shared.events.cluster_events import PodEnded, PodObserved, PodRunning
from tests.scheduler.observer.test_news import Watched, pod

START, FIRST, LAST = "2026-11-21T02:28:08Z", "2026-11-21T02:29:00Z", "2026-11-21T02:29:59Z"
START_S = 1_795_228_088
LAST_S = START_S + 111


def container(name: str, **state: Any) -> dict[str, Any]:
    return {"name": name, "state": state}


def terminated(at: str | None) -> dict[str, Any]:
    return {"exitCode": 0, "startedAt": START, "finishedAt": at}


def status(**more: Any) -> dict[str, Any]:
    """Two containers of three have finished, the init container first of all."""
    return {
        "startTime": START,
        "initContainerStatuses": [container("i", terminated=terminated(START))],
        "containerStatuses": [
            container("a", terminated=terminated(LAST)),
            container("b", terminated=terminated(FIRST)),
        ],
        **more,
    }


def test_a_pod_finished_with_its_last_container() -> None:
    assert started_s(status()) == START_S
    assert finished_s(status()) == LAST_S


def test_containers_that_run_or_are_forgotten_give_no_time() -> None:
    others = [
        container("a", running={"startedAt": START}),
        container("b", waiting={}),
        container("c", terminated=terminated(None)),
    ]
    assert finished_s({"containerStatuses": others}) == 0
    assert (
        finished_s({"containerStatuses": [*others, container("d", terminated=terminated(FIRST))]})
        == LAST_S - 59
    )


@pytest.mark.parametrize(
    "start_time",
    [None, 5, "", "soon", "2026-11-21T02:28:08", "0001-01-01T00:00:00Z", "9" * 400, {}, []],
)
def test_text_that_is_no_time_is_unknown(start_time: object) -> None:
    assert started_s({"startTime": start_time}) == 0
    assert (
        finished_s({"containerStatuses": [container("a", terminated={"finishedAt": start_time})]})
        == 0
    )


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(("state", "terminated", "finishedAt")), inner)
    ),
    max_leaves=8,
)


@given(JSON, JSON)
def test_whatever_a_status_holds_is_read(listed: object, start_time: object) -> None:
    status = {
        "startTime": start_time,
        "containerStatuses": listed,
        "initContainerStatuses": [listed],
    }
    assert started_s(status) >= 0
    assert finished_s(status) >= 0


def test_events_carry_the_nodes_time() -> None:
    """A pod that was first seen pending, runs, and succeeded; another that was first seen running,
    and is deleted.
    """
    watched = Watched()
    watched.pod(pod(node="n"))
    running = pod(node="n", phase="Running", version=6) | {
        "status": status(phase="Running", containerStatuses=[])
    }
    assert watched.pod(running) == PodRunning("uid-a", "n", "6", START_S)
    events = watched.pod(
        pod(node="n", phase="Succeeded", version=7) | {"status": status(phase="Succeeded")}
    )
    assert isinstance(events, PodEnded)
    assert (events.started_s, events.finished_s) == (START_S, LAST_S)
    events = watched.pod(pod("b", node="n") | {"status": status(phase="Running")})
    assert isinstance(events, PodObserved)
    assert events.started_s == START_S
    deleted = pods_and_nodes.pod_deleted(
        watched.history.ledger, pod("b", node="n") | {"status": status(phase="Running")}
    )
    assert deleted is not None
    assert (deleted.started_s, deleted.finished_s) == (START_S, LAST_S)
