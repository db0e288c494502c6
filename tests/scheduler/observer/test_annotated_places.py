"""Annotations that say where a pod is become events on nodes whose reports list no pods."""

from __future__ import annotations

from typing import Any

import pytest

from services.scheduler.watch.pods_and_nodes import pod_event
from services.scheduler.watch.seen_specs import SeenSpecs
from shared.domain.report import ZonedAmount
from shared.events import streams
from shared.events.cluster_events import PodObserved
from shared.kube.kai import PLACEMENT
from tests.ledger.given import History, zone
from tests.scheduler.observer.test_news import pod

ONE_CPU = '[{"zone":"node-1","amount":{"cpu":"1"}}]'


def annotated(text: str) -> dict[str, Any]:
    obj = pod("a", node="n1")
    obj["metadata"]["annotations"] = {PLACEMENT: text} if text else {}
    return obj


@pytest.mark.parametrize("source", ["nrt", "bus"])
def test_one_event_when_it_comes_and_one_when_it_goes(source: str) -> None:
    history, specs = History(), SeenSpecs()
    placements = None if source == "nrt" else ()
    history.report(zone(0, 8), zone(1, 8), source=source, placements=placements)
    seen = []
    for text in ("", ONE_CPU, ONE_CPU, ""):
        event = pod_event(history.ledger, ("topolog",), annotated(text), specs)
        if isinstance(event, PodObserved):
            seen.append(event.placement)
            history.tell(streams.pod(event.pod.uid), event)
    expected: list[tuple[ZonedAmount, ...]] = [()]
    if source == "nrt":
        expected += [(ZonedAmount("cpu", (1,), 1000),), ()]
    assert seen == expected
