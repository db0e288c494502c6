"""The trace contexts (W3C traceparent) that decisions go on with: a pod's from when it was seen, a
node's from its newest report.

Volatile: who replays a log has them again. Must not know spans.
"""

from __future__ import annotations

from shared.events.catalog import Event
from shared.events.cluster_events import PodEnded, PodObserved
from shared.events.envelope import Envelope
from shared.events.report_events import NodeReportExpired

_REPORT = "report/"


class Traceparents:
    """By uid of pods, and by name of nodes."""

    def __init__(self) -> None:
        self._pods: dict[str, str] = {}
        self._reports: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._pods) + len(self._reports)

    def of(self, uid: str) -> str:
        """That of a pod, "" for none."""
        return self._pods.get(uid, "")

    def of_report(self, node: str) -> str:
        """That of a node's newest report, "" for none."""
        return self._reports.get(node, "")

    def hear(self, envelope: Envelope, event: Event) -> None:
        """A fact was folded."""
        if isinstance(event, PodObserved):
            self._pods[event.pod.uid] = envelope.trace
        elif isinstance(event, PodEnded):
            self._pods.pop(event.uid, None)
        elif isinstance(event, NodeReportExpired):
            self._reports.pop(event.node, None)
        elif envelope.stream.startswith(_REPORT):
            self._reports[envelope.stream.removeprefix(_REPORT)] = envelope.trace
