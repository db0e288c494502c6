"""Measure how long pods wait from their first event in the log to their binding, by the log's
times. Pure.

The measure is not part of the binder's state: a process measures only the pods whose first event it
folds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from shared.events import binding_events as binding
from shared.events import cluster_events as cluster
from shared.events.catalog import Event
from shared.events.envelope import Envelope


class QueuedToBound:
    """Keeps the time of the first event of each unbound pod."""

    def __init__(self, scheduler_name: str) -> None:
        self._scheduler_name = scheduler_name
        self._queued_us: dict[str, int] = {}

    def latencies(self, page: Iterable[tuple[Envelope, Event]]) -> Iterator[tuple[float, str]]:
        """Yield the latency in seconds, and the trace, of each pod that is bound on a page of
        events.
        """
        for envelope, event in page:
            if isinstance(event, cluster.PodObserved):
                if not event.node and event.pod.scheduler_name == self._scheduler_name:
                    self._queued_us.setdefault(event.pod.uid, envelope.time_us)
            elif isinstance(event, binding.PodBound | cluster.PodEnded):
                queued_us = self._queued_us.pop(event.uid, None)
                if queued_us is not None and isinstance(event, binding.PodBound):
                    yield max(envelope.time_us - queued_us, 0) / 1e6, envelope.trace
