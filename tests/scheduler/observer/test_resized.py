"""A pod that is resized in place counts for its old and its new amounts, until the kubelet has
finished.
"""

from __future__ import annotations

from typing import Any

import pytest

from services.scheduler.watch import pods_and_nodes
from services.scheduler.watch.seen_specs import SeenSpecs
from shared.events.cluster_events import PodObserved
from tests.ledger.given import History
from tests.scheduler.observer.test_news import Json, pod

COUNTED = [
    ("4", "2", "2", "", 4000),
    ("1", "2", "2", "", 2000),
    ("1", "1", "2", "", 2000),
    ("4", "2", "2", "Deferred", 4000),
    ("4", "2", "2", "Infeasible", 2000),
    ("1", "1", "1", "", 1000),
]


def resizing(asked: str, allocated: str, running: str, reason: str = "") -> Json:
    """A bound pod in the middle of a resize."""
    made = pod(node="n1", phase="Running", cpu=asked)
    status: dict[str, Any] = {
        "name": "c",
        "resources": {"requests": {"cpu": running, "memory": "1Gi"}},
    }
    made["status"]["containerStatuses"] = [
        {**status, "allocatedResources": {"cpu": allocated, "memory": "1Gi"}}
    ]
    if reason:
        made["status"]["conditions"] = [
            {"type": "PodResizePending", "status": "True", "reason": reason}
        ]
    return made


def cpus(event: Any) -> int:
    assert isinstance(event, PodObserved)
    return event.pod.containers[0].requests["cpu"]


@pytest.mark.parametrize(("asked", "allocated", "running", "reason", "counts"), COUNTED)
def test_the_most_of_spec_and_status_counts(
    asked: str, allocated: str, running: str, reason: str, counts: int
) -> None:
    ledger = History().ledger
    assert (
        cpus(
            pods_and_nodes.pod_event(
                ledger, "topolog", resizing(asked, allocated, running, reason), SeenSpecs()
            )
        )
        == counts
    )


def resizing_whole(asked: str, allocated: str, running: str, reason: str = "") -> Json:
    """A bound pod in the middle of a resize of `spec.resources`; its container requests 1 CPU
    throughout.
    """
    made = pod(node="n1", phase="Running", cpu="1")
    made["spec"]["resources"] = {"requests": {"cpu": asked, "memory": "2Gi"}}
    made["status"]["allocatedResources"] = {
        "cpu": allocated,
        "memory": "2Gi",
        "example.com/gpu": "1",
    }
    made["status"]["resources"] = {"requests": {"cpu": running, "memory": "2Gi"}}
    if reason:
        made["status"]["conditions"] = [
            {"type": "PodResizePending", "status": "True", "reason": reason}
        ]
    return made


@pytest.mark.parametrize(("asked", "allocated", "running", "reason", "counts"), COUNTED)
def test_the_pods_own_resources_count_so_too(
    asked: str, allocated: str, running: str, reason: str, counts: int
) -> None:
    event = pods_and_nodes.pod_event(
        History().ledger, "topolog", resizing_whole(asked, allocated, running, reason), SeenSpecs()
    )
    assert isinstance(event, PodObserved)
    assert event.pod.pod_level == {"cpu": counts, "memory": 2 << 30}
    assert cpus(event) == 1000


def test_shrinking_the_pods_own_resources_is_news_when_the_kubelet_has_done_it() -> None:
    history, sightings, events = History(), SeenSpecs(), []
    for asked, allocated, running in (
        ("8", "8", "8"),
        ("4", "8", "8"),
        ("4", "4", "8"),
        ("4", "4", "4"),
    ):
        event = pods_and_nodes.pod_event(
            history.ledger, "topolog", resizing_whole(asked, allocated, running), sightings
        )
        if isinstance(event, PodObserved):
            events.append((event.pod.pod_level or {})["cpu"])
            history.seen(event.pod, "n1", phase="Running")
    assert events == [8000, 4000]


def test_every_step_of_a_resize_is_news_and_a_heartbeat_is_none() -> None:
    history, sightings = History(), SeenSpecs()
    for asked, allocated, running, counts in (
        ("2", "2", "2", 2000),
        ("1", "2", "2", 0),
        ("1", "1", "2", 0),
        ("1", "1", "1", 1000),
    ):
        event = pods_and_nodes.pod_event(
            history.ledger, "topolog", resizing(asked, allocated, running), sightings
        )
        assert (cpus(event) if isinstance(event, PodObserved) else 0) == counts
        if isinstance(event, PodObserved):
            history.seen(event.pod, "n1", phase="Running")
        assert not isinstance(
            pods_and_nodes.pod_event(
                history.ledger, "topolog", resizing(asked, allocated, running), sightings
            ),
            PodObserved,
        )
