"""The Passthrough cache: no state at all; every look is a live one.

Upstream's default when `cacheResyncPeriodSeconds` is unset. A failed GET is "no topology, fresh",
so Filter passes blindly (R12).
"""

from __future__ import annotations

from collections.abc import Iterable

from plugins.upstream_compat.cache import Live, View
from plugins.upstream_compat.nrt import Nrt
from plugins.upstream_compat.pod import Pod


class Passthrough:
    """Answers with whatever the API holds now."""

    def view(self, node: str, live: Live) -> View:
        """The live object, always fresh."""
        return View(live(node))

    def reserve(self, node: str, pod: Pod) -> None:
        """Nothing is held back."""

    def unreserve(self, node: str, pod: Pod) -> None:
        """Nothing was held back."""

    def post_bind(self, node: str, pod: Pod) -> None:
        """Nothing was held back."""

    def node_maybe_overreserved(self, node: str) -> None:
        """There is no cached state to doubt."""

    def pod_event(self, pod: Pod) -> None:
        """Foreign pods are not tracked."""

    def nrt_event(self, event: str, nrt: Nrt) -> bool:
        """There is no cached configuration to compare with."""
        return False

    def resync(self, live: Live, pods: Iterable[Pod]) -> None:
        """There is nothing to resync."""
