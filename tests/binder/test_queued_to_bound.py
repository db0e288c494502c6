"""The latency from queue to binding is measured once per pod, by the log's times."""

from __future__ import annotations

import msgspec

from services.binder.queued_to_bound import QueuedToBound
from shared.events.binding_events import PodBound
from shared.events.catalog import Event
from shared.events.cluster_events import PodEnded, PodObserved
from shared.events.codec import encode, type_of
from shared.events.envelope import Envelope
from tests.ledger.given import pod

OWN = msgspec.structs.replace(pod("web", cpus=1), scheduler_name="topolog")
OTHER = msgspec.structs.replace(pod("db", cpus=1), scheduler_name="default-scheduler")


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


def test_the_latency_is_that_from_the_first_event_to_the_binding() -> None:
    measure = QueuedToBound("topolog")
    assert not list(measure.latencies(page((10, PodObserved(OWN)), (12, PodObserved(OWN)))))
    assert list(measure.latencies(page((13.5, PodBound(OWN.uid, "n1"))))) == [(3.5, "")]
    assert not list(measure.latencies(page((14, PodBound(OWN.uid, "n1")))))


def test_other_pods_are_not_measured() -> None:
    measure = QueuedToBound("topolog")
    placed = PodObserved(msgspec.structs.replace(OWN, uid="static"), node="n1")
    pages = [
        page((1, PodObserved(OTHER)), (2, PodBound(OTHER.uid, "n1"))),
        page((1, placed), (2, PodBound("static", "n1"))),
        page((1, PodObserved(OWN)), (2, PodEnded(OWN.uid, "deleted"))),
        page((3, PodBound(OWN.uid, "n1"))),
    ]
    assert [latency for events in pages for latency in measure.latencies(events)] == []
