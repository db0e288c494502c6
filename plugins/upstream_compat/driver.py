"""Compat mode on the event log: one profile of the plugin, which receives every event and returns
filter results and scores.

Like the original it learns its topology at the start (`start`, after the log was read), and loses
all state with its process. Node predicates other than NUMA alignment, and ties, are the caller's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from plugins.upstream_compat import pod as compat
from plugins.upstream_compat.arguments import Arguments
from plugins.upstream_compat.filter import Verdict, filter_node
from plugins.upstream_compat.foreign import Profiles
from plugins.upstream_compat.mirror import Mirror, NrtSeen, PodSeen, Seen
from plugins.upstream_compat.nrt import Nrt
from plugins.upstream_compat.plugin import Plugin
from plugins.upstream_compat.pod import from_domain
from shared.domain.pod import Pod
from shared.events import binding_events as binding
from shared.events import cluster_events as cluster
from shared.events import scheduling_events as scheduling
from shared.events.catalog import Event

LIMIT_SHAPES = 256


class Judgement(msgspec.Struct, frozen=True):
    """The answer of one node to one kind of pod, and the view that led to it."""

    nrt: Nrt | None
    fresh: bool
    offered: frozenset[str] | None
    verdict: Verdict
    score: int


class Driver:
    """Call `evolve` with every event in order, `start` after the log was read, and `tick` every
    `cache_resync_period_s`.
    """

    def __init__(
        self,
        profile: str,
        arguments: Arguments,
        profiles: Profiles | None = None,
        mended: bool = False,
    ) -> None:
        self._profile, self._arguments, self._mended = profile, arguments, mended
        self._profiles = profiles or Profiles()
        self.mirror = Mirror()
        self.plugin = Plugin(profile, arguments, [], self._profiles, mended)
        self._started = False
        self._on_their_way: dict[str, tuple[compat.Pod, str]] = {}
        self._judged: dict[bytes, dict[str, Judgement]] = {}

    def start(self) -> None:
        """List the objects once, without reservations, as upstream loses them at a restart. Its
        informer delivers every existing pod as new, so foreign pods close their nodes.
        """
        self.plugin = Plugin(
            self._profile, self._arguments, self.mirror.nrts(), self._profiles, self._mended
        )
        self._started = True
        self._on_their_way.clear()
        for pod in self.mirror.lister():
            self.plugin.cache.pod_event(pod)
        self._judged.clear()

    def evolve(self, event: Event) -> None:
        """Fold the event. After the start, pass it to the cache as upstream's informers, watch and
        hooks would.
        """
        seen = self.mirror.evolve(event)
        if self._started:
            self._tell(seen)
            self._hook(event)

    def tick(self) -> None:
        """Run the background resync."""
        self.plugin.cache.resync(self.mirror.live, self.mirror.lister())

    def would_pass(self, pod: Pod, node: str) -> bool:
        """Return the filter's answer without marking the node."""
        view = self.plugin.cache.view(node, self.mirror.live)
        return filter_node(from_domain(pod), self.mirror.offered(node), view).passes

    def verdict(self, pod: Pod, node: str) -> Verdict:
        """Filter one node, and mark it if upstream does."""
        return self.plugin.filter(
            from_domain(pod), node, self.mirror.offered(node), self.mirror.live
        )

    def passing(self, pod: Pod, nodes: Iterable[str]) -> list[tuple[int, str]]:
        """Return (score, node) of the nodes that pass, best first, then by name. Nodes that refuse
        are marked.
        """
        tested = from_domain(pod)
        judged = self._judged_by_shape(tested)
        judgements = [(node, self._judge(tested, node, judged)) for node in nodes]
        scores = [(each.score, node) for node, each in judgements if each.verdict.passes]
        return sorted(scores, key=lambda each: (-each[0], each[1]))

    def _judge(self, pod: compat.Pod, node: str, judged: dict[str, Judgement]) -> Judgement:
        """Return the node's judgement, computed again only if its view or its resource names
        changed.
        """
        view, names = self.plugin.cache.view(node, self.mirror.live), self.mirror.offered(node)
        kept = judged.get(node)
        if (
            kept is None
            or kept.nrt is not view.nrt
            or kept.fresh != view.fresh
            or kept.offered is not names
        ):
            verdict, score = (
                filter_node(pod, names, view),
                self.plugin.score(pod, node, self.mirror.live),
            )
            kept = judged[node] = Judgement(view.nrt, view.fresh, names, verdict, score)
        if kept.verdict.marks:
            self.plugin.cache.node_maybe_overreserved(node)
        return kept

    def _judged_by_shape(self, pod: compat.Pod) -> dict[str, Judgement]:
        """Return the judgements that are kept for pods with this request; too many kinds of pods
        drop all.
        """
        shape = msgspec.json.encode((pod.containers, pod.overhead, pod.reported_qos))
        if shape not in self._judged and len(self._judged) >= LIMIT_SHAPES:
            self._judged.clear()
        return self._judged.setdefault(shape, {})

    def _tell(self, seen: Seen) -> None:
        match seen:
            case NrtSeen():
                self.plugin.cache.nrt_event(seen.event, seen.nrt)
            case PodSeen():
                self.plugin.cache.pod_event(seen.pod)

    def _hook(self, event: Event) -> None:
        """Call Reserve, Unreserve or PostBind by the events that they cause. The binding of a pod
        that ended before it was bound fails (Unreserve), unless it ended on a node (PostBind);
        there may be no other event of it.
        """
        match event:
            case scheduling.PodReserved(uid=uid, node=node) if (
                pod := self.mirror.pod(uid)
            ) is not None:
                self._on_their_way[uid] = pod, node
                self.plugin.reserve(pod, node)
            case scheduling.ReservationWithdrawn(uid=uid) | binding.BindRefused(uid=uid):
                self._settle(uid, self.plugin.unreserve)
            case binding.PodBound(uid=uid):
                self._settle(uid, self.plugin.post_bind)
            case cluster.PodEnded(uid=uid, node=node):
                self._settle(uid, self.plugin.post_bind if node else self.plugin.unreserve)

    def _settle(self, uid: str, hook: Callable[[compat.Pod, str], None]) -> None:
        """Call the hook once for every reservation since the start; earlier ones are lost, as in
        the original.
        """
        counted = self._on_their_way.pop(uid, None)
        if counted is not None:
            hook(*counted)
