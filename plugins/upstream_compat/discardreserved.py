"""The DiscardReserved cache: a node with a reservation in flight is not fresh, so one pod at a time
is placed on it.

From PostBind until the next published object it behaves like Passthrough: the gap that its own
documentation admits.
"""

from __future__ import annotations

from collections.abc import Iterable

from plugins.upstream_compat.cache import Live, View
from plugins.upstream_compat.nrt import Nrt
from plugins.upstream_compat.pod import Pod


class DiscardReserved:
    """Node -> uids of pods between Reserve and PostBind (or Unreserve)."""

    def __init__(self) -> None:
        self._in_flight: dict[str, set[str]] = {}

    def view(self, node: str, live: Live) -> View:
        """Not fresh while anything is in flight, else the live object."""
        return View(None, fresh=False) if self._in_flight.get(node) else View(live(node))

    def reserve(self, node: str, pod: Pod) -> None:
        """Close the node."""
        self._in_flight.setdefault(node, set()).add(pod.uid)

    def unreserve(self, node: str, pod: Pod) -> None:
        """Open the node again when this was the last one."""
        self._in_flight.get(node, set()).discard(pod.uid)

    def post_bind(self, node: str, pod: Pod) -> None:
        """Bound counts as done, although no report shows the pod yet."""
        self.unreserve(node, pod)

    def node_maybe_overreserved(self, node: str) -> None:
        """There is no cached state to doubt."""

    def pod_event(self, pod: Pod) -> None:
        """Foreign pods are not tracked."""

    def nrt_event(self, event: str, nrt: Nrt) -> bool:
        """There is no cached configuration to compare with."""
        return False

    def resync(self, live: Live, pods: Iterable[Pod]) -> None:
        """There is nothing to resync."""
