"""The plugin of one profile: the cache that its arguments choose, and the hooks in the order in
which a scheduler calls them.

No I/O: if upstream fetches, the caller passes `live` and the lister's pods. The caller also passes
what upstream shares by accident between two profiles of one process (`Profiles`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from plugins.upstream_compat.arguments import Arguments, new_cache
from plugins.upstream_compat.cache import Live
from plugins.upstream_compat.filter import Verdict, filter_node
from plugins.upstream_compat.foreign import Profiles
from plugins.upstream_compat.nrt import Nrt
from plugins.upstream_compat.pod import Pod
from plugins.upstream_compat.score import score_node


class Plugin:
    """One profile. Foreign pods, NRT events and resync ticks go to `cache` directly."""

    def __init__(
        self,
        name: str,
        arguments: Arguments,
        nrts: Iterable[Nrt],
        profiles: Profiles,
        mended: bool = False,
    ) -> None:
        profiles.register([name], arguments.foreign_pods_detect)
        self.arguments = arguments
        self.cache = new_cache(arguments, nrts, profiles, mended)

    def filter(self, pod: Pod, node: str, offered: Collection[str] | None, live: Live) -> Verdict:
        """Return the filter result of one node; a refusal marks it as maybe over-reserved if
        upstream does.
        """
        verdict = filter_node(pod, offered, self.cache.view(node, live))
        if verdict.marks:
            self.cache.node_maybe_overreserved(node)
        return verdict

    def score(self, pod: Pod, node: str, live: Live) -> int:
        """Return 0 to 100 by the configured strategy."""
        return score_node(
            pod, self.cache.view(node, live), self.arguments.strategy, self.arguments.weights
        )

    def reserve(self, pod: Pod, node: str) -> None:
        """The pod was given the node."""
        self.cache.reserve(node, pod)

    def unreserve(self, pod: Pod, node: str) -> None:
        """The reservation failed."""
        self.cache.unreserve(node, pod)

    def post_bind(self, pod: Pod, node: str) -> None:
        """The pod is bound."""
        self.cache.post_bind(node, pod)
