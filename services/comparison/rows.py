"""The interface of a row of the table: it receives events and reports, and is asked for
reservations.
"""

from __future__ import annotations

from typing import Protocol

from shared.domain.pod import Pod
from shared.domain.report import Report
from shared.events.catalog import Event

# (pod uid, node name).
Reservation = tuple[str, str]


class Row(Protocol):
    """A scheduler with its cache. Times are virtual seconds. A clairvoyant row learns at once what
    kubelets do.
    """

    clairvoyant: bool

    def happened(self, node: str) -> None:
        """Note that the node's kubelet admitted a pod or freed its resources. Only a clairvoyant
        row is called.
        """

    def evolve(self, stream: str, event: Event, now_s: float) -> None:
        """Fold an event about nodes or pods, which has just arrived."""

    def reported(self, report: Report, now_s: float) -> None:
        """Take a node's report, which has just arrived."""

    def decide(self, now_s: float) -> list[Reservation]:
        """Return the new reservations."""

    def intends(self, pod: Pod, node: str, now_s: float) -> dict[str, str]:
        """Return the annotations that the binding gives the pod. The binding is sent after this
        call.
        """

    def bound(self, pod: Pod, node: str, now_s: float) -> None:
        """Note that the binding is written."""

    def next_s(self, now_s: float) -> float | None:
        """Return when to be asked again without new information; None: not at all."""

    def waiting(self) -> int:
        """Return how many pods are not placed."""

    def visible_cpu(self, node: str) -> dict[int, int]:
        """Return the millicpu that this row considers free, by zone; {} if it does not know
        zones.
        """
