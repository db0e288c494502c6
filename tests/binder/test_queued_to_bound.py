"""The latency from queue to binding is measured once, by the leader, by the log's times."""

from __future__ import annotations

import msgspec
import pytest

from services.binder import queued_to_bound as module
from services.binder.queued_to_bound import QueuedToBound
from shared.events.binding_events import PodBound
from shared.events.catalog import Event
from shared.events.cluster_events import PodEnded, PodObserved
from shared.events.codec import encode, type_of
from shared.events.envelope import Envelope
from shared.telemetry import names
from shared.telemetry.declare import Metric
from tests.ledger.given import pod

OWN = msgspec.structs.replace(pod("web", cpus=1), scheduler_name="topolog")
OTHER = msgspec.structs.replace(pod("db", cpus=1), scheduler_name="default-scheduler")


@pytest.fixture
def observed(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    values: list[float] = []

    def observe(metric: Metric, value: float) -> None:
        assert metric is names.QUEUED_TO_BOUND
        values.append(value)

    monkeypatch.setattr(module, "observe", observe)
    return values


def page(*events: tuple[float, Event]) -> list[tuple[Envelope, Event]]:
    return [
        (
            Envelope(
                position,
                f"pod/{position}",
                1,
                type_of(event),
                1,
                encode(event),
                int(time_s * 1e6),
                "t",
                0,
                str(position),
            ),
            event,
        )
        for position, (time_s, event) in enumerate(events, 1)
    ]


def test_the_latency_is_that_from_the_first_event_to_the_binding(observed: list[float]) -> None:
    measure = QueuedToBound("topolog")
    measure.folded(page((10, PodObserved(OWN)), (12, PodObserved(OWN))), leads=True)
    measure.folded(page((13.5, PodBound(OWN.uid, "n1"))), leads=True)
    measure.folded(page((14, PodBound(OWN.uid, "n1"))), leads=True)
    assert observed == [3.5]


def test_other_pods_and_other_processes_are_not_measured(observed: list[float]) -> None:
    measure = QueuedToBound("topolog")
    measure.folded(page((1, PodObserved(OTHER)), (2, PodBound(OTHER.uid, "n1"))), leads=True)
    measure.folded(page((1, PodObserved(OWN)), (2, PodBound(OWN.uid, "n1"))), leads=False)
    placed = PodObserved(msgspec.structs.replace(OWN, uid="static"), node="n1")
    measure.folded(page((1, placed), (2, PodBound("static", "n1"))), leads=True)
    measure.folded(page((1, PodObserved(OWN)), (2, PodEnded(OWN.uid, "deleted"))), leads=True)
    measure.folded(page((3, PodBound(OWN.uid, "n1"))), leads=True)
    assert observed == []
