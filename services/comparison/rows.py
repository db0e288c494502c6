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
    """A scheduler with its cache. Times are virtual seconds. `clairvoyant`: it hears at once what
    kubelets do.
    """

    clairvoyant: bool

    def happened(self, node: str) -> None:
        """The kubelet took something in or let go of it; said to the clairvoyant alone."""

    def evolve(self, stream: str, event: Event, now_s: float) -> None:
        """A fact about nodes or pods became known."""

    def reported(self, report: Report, now_s: float) -> None:
        """A node's report became known."""

    def decide(self, now_s: float) -> list[Reservation]:
        """Return the new reservations."""

    def intends(self, pod: Pod, node: str, now_s: float) -> dict[str, str]:
        """The binding is about to be written. Return the annotations that the pod gets by it."""

    def bound(self, pod: Pod, node: str, now_s: float) -> None:
        """The binding is written."""

    def next_s(self, now_s: float) -> float | None:
        """Return when to be asked again without new information; None: not at all."""

    def waiting(self) -> int:
        """Pods that are not placed."""

    def visible_cpu(self, node: str) -> dict[int, int]:
        """Zone -> millicpu that this row takes for free, never negative. Empty when it does not
        know zones.
        """
