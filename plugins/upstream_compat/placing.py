"""Places pods by the upstream plugin's caches: node-level predicates first, then the plugin's
filter and score.

For `cache: overreserve | discardreserved | passthrough` and `compat: upstream`. A reservation
counts after its event was folded, as upstream's Reserve hook runs before the next pod. Must not
know a clock: the caller calls `tick`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

import msgspec

from plugins.upstream_compat.arguments import Arguments
from plugins.upstream_compat.driver import Driver
from plugins.upstream_compat.foreign import Profiles
from services.scheduler.explain import explain
from services.scheduler.explain.wording import available, headline
from services.scheduler.filter.constraints.constraint import ClusterView
from services.scheduler.filter.constraints.placed_pods import PlacedPods
from services.scheduler.filter.constraints.predicates import constraint_refusal, resource_refusal
from services.scheduler.filter.constraints.registry import PodChecks, checks_for
from services.scheduler.select.select_node import salt_of
from services.scheduler.snapshot.assume import assume
from services.scheduler.snapshot.config import CycleConfig
from services.scheduler.snapshot.node_info import NodeInfo
from services.scheduler.snapshot.pod_class import PodClass, key_of
from services.scheduler.snapshot.result import Placed, Unplaceable
from services.scheduler.state.cluster_objects import ClusterObjects
from services.scheduler.state.exclusions import Exclusions
from services.scheduler.state.holds import Holds
from shared.domain.pod import Pod
from shared.events.catalog import Event
from shared.ledger.state import LedgerNode, LedgerPod, ZoneAmounts

MOST_TEXTS = 8


class UpstreamConfig(msgspec.Struct, frozen=True):
    """The plugin's arguments, its profile (scheduler name), the schedulers whose pods are not
    foreign (`profiles`), and whether the original's defects R4, R8 and R9 are kept (`faithful`).
    """

    arguments: Arguments = Arguments()
    profile: str = "topolog"
    profiles: tuple[str, ...] = ("topolog",)
    faithful: bool = False

    def placing(self, cycle: CycleConfig) -> UpstreamPlacing:
        """Return a plugin that was just started."""
        return UpstreamPlacing(self, cycle)


class UpstreamPlacing:
    """The plugin on the events of the log. It learns its topology at the first decision, as the
    original does at its start.
    """

    columns = None

    def __init__(self, config: UpstreamConfig, cycle: CycleConfig) -> None:
        self._cycle = cycle
        profiles = Profiles(config.profiles, config.arguments.foreign_pods_detect)
        self.driver = Driver(config.profile, config.arguments, profiles, mended=not config.faithful)
        self._nodes: dict[str, NodeInfo] = {}
        self._ranks: dict[str, int] = {}
        self._around = ClusterView(self._nodes, PlacedPods(), Exclusions(), ClusterObjects())
        self._started = False

    @property
    def caches(self) -> UpstreamPlacing:
        return self

    def fold(self, event: Event) -> None:
        """Apply an event to the plugin's cache of the API."""
        self.driver.evolve(event)

    def follow(self, uid: str, entry: LedgerPod | None) -> None:
        """Take the pod's node from the ledger; None removes the pod."""
        if entry is not None and entry.node:
            self._around.placed_pods.put(entry.pod, entry.node, entry.terminating)
        else:
            self._around.placed_pods.remove(uid)

    def learn(self, exclusions: Exclusions, cluster_objects: ClusterObjects, holds: Holds) -> None:
        """Update the objects that constraints use."""
        self._around = self._around._replace(
            exclusions=exclusions, cluster_objects=cluster_objects, holds=holds
        )

    def put_node(self, node: LedgerNode) -> None:
        """Insert or update what the node-level predicates need."""
        node_info = self._nodes.get(node.name)
        if node_info is None:
            node_info = self._nodes[node.name] = NodeInfo(node.name, len(self._nodes))
            self._ranks[node.name] = salt_of(node.name)
        node_info.update_from(node, self._cycle)

    def drop_node(self, name: str) -> None:
        """Remove a node."""
        self._nodes.pop(name, None)
        self._ranks.pop(name, None)

    def select(self, pod: Pod) -> Placed | Unplaceable:
        """Return the node with the highest score among those that pass; the pod's own order breaks
        ties.
        """
        self._start()
        pod_class = PodClass(self.class_of(pod), pod, 0)
        if pod_class.problem or pod.constraints.unsupported:
            return explain.refused_everywhere(pod_class, pod)
        barred = checks_for(pod, self._around)
        refused = {
            name: _node_refusal(pod_class, barred, node_info)
            for name, node_info in sorted(self._nodes.items())
        }
        open_nodes = [name for name, text in refused.items() if not text]
        passing = self.driver.passing(pod, open_nodes)
        if not passing:
            return self._unplaceable(pod, refused)
        best, salt = passing[0][0], salt_of(pod.uid)
        node = min(
            (name for score, name in passing if score == best),
            key=lambda name: self._ranks[name] ^ salt,
        )
        return Placed(node, best, len(passing), self._nodes[node].ledger.report_version)

    def explain(self, pod: Pod, last_message: str = "") -> Unplaceable:
        """Never called: `select` explains at once."""
        raise NotImplementedError

    def _unplaceable(self, pod: Pod, refused: dict[str, str]) -> Unplaceable:
        texts = {
            name: text or self.driver.verdict(pod, name).message for name, text in refused.items()
        }
        counts = Counter(texts.values())
        ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        listed = [f"{number} {text}" for text, number in ordered[:MOST_TEXTS]]
        rest = sum(number for _, number in ordered[MOST_TEXTS:])
        listed += [f"{rest} for other reasons"] if rest else []
        message = available(len(texts), ", ".join(listed) or "the cluster has no nodes")
        return Unplaceable(message, dict(counts))

    def assume(self, placed: Placed, pod: Pod) -> ZoneAmounts:
        """Return the charge as the ledger's fold will compute it. The plugin learns of the
        reservation by its event.
        """
        return assume(self._nodes[placed.node], pod, PodClass(self.class_of(pod), pod, 0)).zones

    def waiting_could_fit(self, pod: Pod, nodes: Collection[str]) -> bool:
        """Return whether one of the changed nodes passes now. Before the start every change may
        help.
        """
        if not self._started:
            return True
        pod_class = PodClass(self.class_of(pod), pod, 0)
        return any(
            self._passes(pod_class, pod, name) for name in sorted(nodes) if name in self._nodes
        )

    def _passes(self, pod_class: PodClass, pod: Pod, name: str) -> bool:
        return not _node_refusal(
            pod_class, checks_for(pod, self._around), self._nodes[name]
        ) and self.driver.would_pass(pod, name)

    def class_of(self, pod: Pod) -> str:
        """Return the pod class."""
        return key_of(pod)

    def unconfirmed(self) -> list[str]:
        """Return the number of nodes with charges of unknown zones."""
        return sorted(name for name, node_info in self._nodes.items() if node_info.unconfirmed)

    def tick(self) -> bool:
        """Run one resync of the plugin's cache. What it flushes may help waiting pods."""
        self._start()
        generation = self._generation()
        self.driver.tick()
        return self._generation() != generation

    def _generation(self) -> int:
        """How often the cache has flushed; only OverReserve does."""
        return int(getattr(self.driver.plugin.cache, "generation", 0))

    def _start(self) -> None:
        if not self._started:
            self._started = True
            self.driver.start()


def _node_refusal(pod_class: PodClass, barred: PodChecks, node_info: NodeInfo) -> str:
    """Return why the node as a whole cannot take the pod, "" if it can."""
    refusal = constraint_refusal(
        pod_class.pod.constraints, node_info.observed, node_info.name
    ) or barred.refusal(node_info)
    refusal = refusal or resource_refusal(pod_class.request, node_info)
    return headline(refusal) if refusal is not None else ""
