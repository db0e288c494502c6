"""Compat mode on the event log: one profile of the plugin, told of every fact, asked for verdicts and scores.

Like the original it learns its topology when it starts (`start`, after the log was read) and forgets all state with
its process. Node predicates other than NUMA alignment are not its business, nor is breaking ties.
"""

from __future__ import annotations

from collections.abc import Iterable

from services.scheduler.compat.arguments import Arguments
from services.scheduler.compat.filter import Verdict
from services.scheduler.compat.foreign import Profiles
from services.scheduler.compat.mirror import Mirror, NrtSeen, PodSeen, Seen
from services.scheduler.compat.plugin import Plugin
from services.scheduler.compat.pod import from_domain
from shared.domain.pod import Pod
from shared.events import binding_facts as binding
from shared.events import scheduling_facts as scheduling
from shared.events.catalog import Fact


class Driver:
    """`evolve` every fact in order; `start` once the log was read; `tick` every `cache_resync_period_s`."""

    def __init__(self, profile: str, arguments: Arguments, profiles: Profiles | None = None) -> None:
        self._profile, self._arguments = profile, arguments
        self._profiles = profiles or Profiles()
        self.mirror = Mirror()
        self.plugin = Plugin(profile, arguments, [], self._profiles)
        self._started = False

    def start(self) -> None:
        """List the objects once, and start with nothing reserved and nothing dirty (what upstream loses at a restart)."""
        self.plugin = Plugin(self._profile, self._arguments, self.mirror.nrts(), self._profiles)
        self._started = True

    def evolve(self, fact: Fact) -> None:
        """Fold the fact; once started, the cache hears of it as its informers, watch and hooks would tell it."""
        seen = self.mirror.evolve(fact)
        if self._started:
            self._tell(seen)
            self._hook(fact)

    def tick(self) -> None:
        """The background resync."""
        self.plugin.cache.resync(self.mirror.live, self.mirror.lister())

    def verdict(self, pod: Pod, node: str) -> Verdict:
        """Filter for one node; marks it where upstream does."""
        return self.plugin.filter(from_domain(pod), node, self.mirror.offered(node), self.mirror.live)

    def passing(self, pod: Pod, nodes: Iterable[str]) -> list[tuple[int, str]]:
        """(score, node) of the nodes that pass, best first, then by name."""
        tested = from_domain(pod)
        passing = [node for node in nodes if self.verdict(pod, node).passes]
        scored = [(self.plugin.score(tested, node, self.mirror.live), node) for node in passing]
        return sorted(scored, key=lambda each: (-each[0], each[1]))

    def _tell(self, seen: Seen) -> None:
        match seen:
            case NrtSeen():
                self.plugin.cache.nrt_event(seen.event, seen.nrt)
            case PodSeen():
                self.plugin.cache.pod_event(seen.pod)

    def _hook(self, fact: Fact) -> None:
        """Reserve, Unreserve and PostBind, told by the facts that they leave."""
        match fact:
            case scheduling.PodReserved(uid=uid, node=node) if (pod := self.mirror.pod(uid)) is not None:
                self.plugin.reserve(pod, node)
            case scheduling.ReservationWithdrawn(uid=uid, node=node) | binding.BindRefused(uid=uid, node=node):
                if (pod := self.mirror.pod(uid)) is not None:
                    self.plugin.unreserve(pod, node)
            case binding.PodBound(uid=uid, node=node) if (pod := self.mirror.pod(uid)) is not None:
                self.plugin.post_bind(pod, node)
