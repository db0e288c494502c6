"""The interface of the plugin's caches, and their three answers: topology, no topology, or "not
fresh".

A cache has one owner and does no I/O. If upstream makes a live GET, the caller passes `live`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

import msgspec

from plugins.upstream_compat.nrt import Nrt
from plugins.upstream_compat.pod import Pod

# A GET of one node's object; None when it fails for any reason, as upstream treats a missing object
# and an error alike.
Live = Callable[[str], Nrt | None]


class View(msgspec.Struct, frozen=True):
    """A cache's answer for one node. If it is not fresh, no pod may be placed there now."""

    nrt: Nrt | None = None
    fresh: bool = True


class Cache(Protocol):
    """The hooks that the plugin calls; a cache ignores hooks that it does not need."""

    def view(self, node: str, live: Live) -> View:
        """Return the node's topology minus what this cache reserves."""

    def reserve(self, node: str, pod: Pod) -> None:
        """The pod was given this node, and is not bound yet."""

    def unreserve(self, node: str, pod: Pod) -> None:
        """The reservation failed."""

    def post_bind(self, node: str, pod: Pod) -> None:
        """The pod is bound."""

    def node_maybe_overreserved(self, node: str) -> None:
        """Filter refused the node."""

    def pod_event(self, pod: Pod) -> None:
        """The pod informer delivered this pod (added, updated or deleted alike)."""

    def nrt_event(self, event: str, nrt: Nrt) -> bool:
        """A watch delivered this object (`ADDED`, `MODIFIED`, `DELETED`). Return True if it marked
        the node as reconfigured.
        """

    def resync(self, live: Live, pods: Iterable[Pod]) -> None:
        """Run one tick of the background resync. `pods` is the content of the pod lister."""
