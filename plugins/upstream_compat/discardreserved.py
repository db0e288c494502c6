"""The DiscardReserved cache: a node with a pending reservation is not fresh, so pods are placed on
it one at a time.

From PostBind until the next published object it behaves like Passthrough, a gap that upstream's
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
        """Return not fresh while a reservation is pending, else the live object."""
        return View(None, fresh=False) if self._in_flight.get(node) else View(live(node))

    def reserve(self, node: str, pod: Pod) -> None:
        """Close the node."""
        self._in_flight.setdefault(node, set()).add(pod.uid)

    def unreserve(self, node: str, pod: Pod) -> None:
        """Open the node again if this was its last reservation."""
        self._in_flight.get(node, set()).discard(pod.uid)

    def post_bind(self, node: str, pod: Pod) -> None:
        """Treat the bound pod as done, although no report shows it yet."""
        self.unreserve(node, pod)

    def node_maybe_overreserved(self, node: str) -> None:
        """Do nothing: there is no cached state."""

    def pod_event(self, pod: Pod) -> None:
        """Do nothing: foreign pods are not tracked."""

    def nrt_event(self, event: str, nrt: Nrt) -> bool:
        """Return False: there is no cached configuration."""
        return False

    def resync(self, live: Live, pods: Iterable[Pod]) -> None:
        """Do nothing: there is no cached state."""
