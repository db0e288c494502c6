"""The Passthrough cache: it has no state, and reads the live object every time.

Upstream's default if `cacheResyncPeriodSeconds` is unset. A failed GET is "no topology, fresh", so
Filter passes every pod (R12).
"""

from __future__ import annotations

from collections.abc import Iterable

from plugins.upstream_compat.cache import Live, View
from plugins.upstream_compat.nrt import Nrt
from plugins.upstream_compat.pod import Pod


class Passthrough:
    """Returns what the API has now."""

    def view(self, node: str, live: Live) -> View:
        """The live object, always fresh."""
        return View(live(node))

    def reserve(self, node: str, pod: Pod) -> None:
        """Do nothing: nothing is reserved."""

    def unreserve(self, node: str, pod: Pod) -> None:
        """Do nothing: nothing is reserved."""

    def post_bind(self, node: str, pod: Pod) -> None:
        """Do nothing: nothing is reserved."""

    def node_maybe_overreserved(self, node: str) -> None:
        """Do nothing: there is no cached state."""

    def pod_event(self, pod: Pod) -> None:
        """Do nothing: foreign pods are not tracked."""

    def nrt_event(self, event: str, nrt: Nrt) -> bool:
        """Return False: there is no cached configuration."""
        return False

    def resync(self, live: Live, pods: Iterable[Pod]) -> None:
        """Do nothing: there is no cached state."""
