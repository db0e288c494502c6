"""The trace contexts (W3C traceparent) that decisions continue: a pod's from its observation, a
node's from its newest report.

Volatile: a replay of the log has them again. Must not know spans.
"""

from __future__ import annotations

from shared.events.catalog import Event
from shared.events.cluster_events import PodEnded, PodObserved
from shared.events.envelope import Envelope
from shared.events.report_events import NodeReportExpired

_REPORT = "report/"


class Traceparents:
    """Trace contexts by pod uid and by node name."""

    def __init__(self) -> None:
        self._pods: dict[str, str] = {}
        self._reports: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._pods) + len(self._reports)

    def of(self, uid: str) -> str:
        """Return a pod's context, "" for none."""
        return self._pods.get(uid, "")

    def of_report(self, node: str) -> str:
        """Return the context of a node's newest report, "" for none."""
        return self._reports.get(node, "")

    def note(self, envelope: Envelope, event: Event) -> None:
        """Note a folded event."""
        if isinstance(event, PodObserved):
            self._pods[event.pod.uid] = envelope.trace
        elif isinstance(event, PodEnded):
            self._pods.pop(event.uid, None)
        elif isinstance(event, NodeReportExpired):
            self._reports.pop(event.node, None)
        elif envelope.stream.startswith(_REPORT):
            self._reports[envelope.stream.removeprefix(_REPORT)] = envelope.trace
