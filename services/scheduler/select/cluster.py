"""The cluster as deciding keeps it: facts by node, what surrounds them, and what pods ask of them.
All changes come in here.

Single-threaded; a node changes by the ledger (`put_node`, `drop_node`) or by an own reservation
(`charge`). What nodes answer is for `judging`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from services.scheduler.filter.constraints.barred_resources import barring
from services.scheduler.filter.constraints.constraint import Bar, ClusterView
from services.scheduler.filter.constraints.placed_pods import PlacedPods
from services.scheduler.filter.constraints.pod_affinity import ANTI_AFFINITY, OpenedDomains
from services.scheduler.filter.constraints.predicates import ConstraintColumns
from services.scheduler.filter.constraints.registry import PodChecks, bars
from services.scheduler.filter.constraints.selectors import likeness
from services.scheduler.filter.topology.kubelet_search import reserved
from services.scheduler.filter.topology.predict import note_reserved
from services.scheduler.score.demand import NOWHERE, places_in
from services.scheduler.score.preferences import Preferences, PreferredNodes
from services.scheduler.score.strategies.strategy import DemandClass
from services.scheduler.select.evaluate import Evaluator
from services.scheduler.snapshot.assume import reserve
from services.scheduler.snapshot.config import CycleConfig
from services.scheduler.snapshot.node_arrays import (
    BARRED,
    Group,
    NodeArrays,
    ReservationArrays,
    ScoreOffsets,
)
from services.scheduler.snapshot.node_info import NodeInfo, Profile
from services.scheduler.snapshot.pod_class import Items, PodClass, key_of
from services.scheduler.snapshot.result import Placed
from services.scheduler.state.cluster_objects import ClusterObjects
from services.scheduler.state.exclusions import Exclusions
from shared.domain.pod import Pod
from shared.domain.policies import RESTRICTED, SINGLE_NUMA_NODE
from shared.events.scheduling_events import Wanted
from shared.ledger.state import LedgerNode, LedgerPod, ZoneAmounts


class Cluster:
    """Every node of the ledger, ready to be decided on."""

    def __init__(self, config: CycleConfig) -> None:
        self.config = config
        self._columns, self._constraints = NodeArrays(), ConstraintColumns(config.max_shapes)
        self._by_name: dict[str, NodeInfo] = {}
        self._slots: list[NodeInfo | None] = []
        self.slots: dict[str, int] = {}
        self._vacant: list[int] = []
        self.evaluator = Evaluator(config, self._columns, self._constraints, self._slots)
        self._claims: dict[str, str] = {}
        self._unconfirmed: set[str] = set()
        self._barred: dict[str, dict[str, Bar]] = {}
        self._barring: dict[str, tuple[str, ...]] = {}
        self.view = ClusterView(
            self._by_name, PlacedPods(), Exclusions(), ClusterObjects(), self._barred
        )
        self._preferences, self._opened_domains = Preferences(config.max_shapes), OpenedDomains()
        self.preferred_nodes = PreferredNodes()
        self._wanted: tuple[Wanted, ...] = ()

    def __len__(self) -> int:
        return len(self._by_name)

    # -- demand
    # --------------------------------------------------------------------------------------------------

    def rank_by(self, wanted: tuple[Wanted, ...]) -> None:
        """Rank nodes by this from now on; cheap while nothing changes."""
        if wanted is self._wanted or wanted == self._wanted:
            return
        self._wanted = wanted
        self.evaluator.rank_by(
            [DemandClass(tuple(sorted(each.amounts.items())), each.weight) for each in wanted]
        )

    def aligning(self) -> Profile | None:
        """What most of the nodes share whose kubelets put what is aligned together into one zone,
        of equally many what the first of them by name has, in whatever order they were entered;
        None without such nodes."""
        groups = self._aligning()
        most = max((group.size for group in groups), default=0)
        largest = [group for group in groups if group.size == most]
        return min(largest, key=self._first_name).profile if largest else None

    def _first_name(self, group: Group) -> str:
        return min(self.evaluator.at(slot).name for slot in group.slots.tolist())

    def places(self, demand_classes: Sequence[Items]) -> list[int]:
        """Return how many more of each class the zones of aligning nodes hold, each class for
        itself; NOWHERE if no zone holds one even when it is empty.
        """
        self._columns.refresh()
        total = [NOWHERE] * len(demand_classes)
        for group in self._aligning():
            counts = places_in(self._columns, group.selection, demand_classes)
            for index, count in enumerate(counts):
                if count != NOWHERE:
                    total[index] = count if total[index] == NOWHERE else total[index] + count
        return total

    def _aligning(self) -> list[Group]:
        return [
            group
            for group in self._columns.groups()
            if group.profile[1].policy in (SINGLE_NUMA_NODE, RESTRICTED)
        ]

    # -- facts in
    # ------------------------------------------------------------------------------------------------

    def put_node(self, node: LedgerNode) -> None:
        """Insert or refresh one node from the ledger. Own reservations that the ledger lacks are
        forgotten.
        """
        node_info = self._by_name.get(node.name)
        self._note_barred(node.name, barring(node))
        if node_info is None:
            node_info = self._enter(node.name)
        elif node_info.ledger is node and node_info.is_current(node):
            node_info.confirm(node)
            self.evaluator.table.confirmed(node_info.slot)
            return
        if node_info.observed is not node.observed:
            self._constraints.forget(node_info.slot)
            self._preferences.changed(node_info.slot, node.observed)
            self._opened_domains.relabelled(self.view.placed_pods, node_info.observed)
        self._drop_claims(node_info)
        profile = node_info.profile
        node_info.update_from(node, self.config)
        self._claims.update(dict.fromkeys(node_info.claims, node.name))
        self._note_unconfirmed(node_info)
        node_info.version, node_info.ledger_version = (
            node_info.version + 1,
            node_info.ledger_version + 1,
        )
        if node_info.profile is not profile or node_info.profile_id < 0:
            node_info.profile_id = self._columns.set_profile(node_info.slot, node_info.profile)
        self._columns.changed(node_info)
        self.evaluator.table.changed(node_info.slot)

    def drop_node(self, name: str) -> None:
        """Forget a node; harmless when it is unknown."""
        node_info = self._by_name.pop(name, None)
        if node_info is None:
            return
        self._drop_claims(node_info)
        self._slots[node_info.slot] = None
        del self.slots[name]
        self._vacant.append(node_info.slot)
        self._unconfirmed.discard(name)
        self._columns.set_profile(node_info.slot, None)
        self._constraints.forget(node_info.slot)
        self._preferences.changed(node_info.slot, None)
        self._opened_domains.relabelled(self.view.placed_pods, node_info.observed)
        self._note_barred(name, {})
        self.evaluator.table.emptied(node_info.slot)

    def charge(self, placed: Placed, pod: Pod) -> ZoneAmounts:
        """Stand in for an own reservation until the fold brings it: returns the charge as the fold
        will compute it.
        """
        node_info = self._by_name[placed.node]
        self.view.placed_pods.put(pod, placed.node)
        pod_class = self.evaluator.pod_class(pod)
        trusted = placed.predicted if self.config.prediction == "trust" else {}
        charge = reserve(node_info, pod, pod_class, trusted)
        reserved(node_info, charge)
        note_reserved(node_info, charge)
        self._note_unconfirmed(node_info)
        node_info.version += 1
        delta = None
        if node_info.unaligned or node_info.grouped_zones:
            self._columns.changed(node_info)
        elif not self._columns.is_stale(node_info.slot):
            delta = self._delta(node_info, pod_class, charge.zones)
            self._columns.subtract(node_info, delta)
        self.evaluator.reserved(node_info, delta)
        return charge.zones

    def _delta(
        self, node_info: NodeInfo, pod_class: PodClass, zones: ZoneAmounts
    ) -> ReservationArrays:
        """Equal reservations on nodes of one profile are equal in columns."""
        known = pod_class.deltas.get(node_info.profile_id)
        if known is None or known[0] is not zones or known[1] != self._columns.shape:
            delta = self._columns.delta(node_info, zones, pod_class.requested)
            known = pod_class.deltas[node_info.profile_id] = zones, self._columns.shape, delta
        return known[2]

    def _enter(self, name: str) -> NodeInfo:
        slot = self._vacant.pop() if self._vacant else len(self._slots)
        node_info = NodeInfo(name, slot)
        if slot == len(self._slots):
            self._slots.append(node_info)
        self._slots[slot], self._by_name[name], self.slots[name] = node_info, node_info, slot
        self._columns.reserve(slot)
        self.preferred_nodes.entered()
        self.evaluator.table.reserve(slot, name)
        self._constraints.forget(slot)
        return node_info

    def _drop_claims(self, node_info: NodeInfo) -> None:
        for uid in node_info.claims:
            self._claims.pop(uid, None)

    def _note_unconfirmed(self, node_info: NodeInfo) -> None:
        if node_info.unconfirmed:
            self._unconfirmed.add(node_info.name)
        else:
            self._unconfirmed.discard(node_info.name)

    def _note_barred(self, node: str, found: Mapping[str, Bar]) -> None:
        """For which resources the node is barred, and why: kept, as few are, and every pod asks."""
        for name in self._barring.pop(node, ()):
            del self._barred[name][node]
            if not self._barred[name]:
                del self._barred[name]
        if found:
            self._barring[node] = tuple(found)
        for name, bar in found.items():
            self._barred.setdefault(name, {})[node] = bar

    def follow(self, uid: str, entry: LedgerPod | None) -> None:
        """The pod stands where the ledger has it, or nowhere."""
        if entry is not None and entry.node:
            gone = self.view.placed_pods.put(entry.pod, entry.node, entry.terminating)
        else:
            gone = self.view.placed_pods.remove(uid)
        if gone is not None and gone.pod.constraints.kept and gone.node in self._by_name:
            self._opened_domains.left(gone.pod.constraints.kept, self._by_name[gone.node].observed)

    def opened(self) -> list[str]:
        """Nodes that a rule of running pods may have opened since the last call, beside those that
        changed themselves.
        """
        return self._opened_domains.take(self._by_name)

    # -- answers
    # -------------------------------------------------------------------------------------------------

    def bars(self, pod: Pod) -> PodChecks:
        """The constraints that look beyond the node's own object, as things stand."""
        return bars(pod, self.view)

    def offsets(self, pod: Pod, barred: PodChecks) -> ScoreOffsets | None:
        """What the pod's preferences (or else the scheduler's homes) add to the scores of its
        shape, and which nodes it is kept from; None for neither."""
        offsets = self._preferences.of(pod, self._slots)
        offsets = self.preferred_nodes.offsets(self._slots) if offsets is None else offsets
        if not barred:
            return offsets
        open_slots = barred.open(self._slots)
        return np.where(open_slots, 0 if offsets is None else offsets, BARRED).astype(np.int32)

    def class_of(self, pod: Pod) -> str:
        """Equal for pods that nodes, and the rules of pods there, judge alike as things stand."""
        ruled = pod.constraints.kept or self.view.placed_pods.keeping(ANTI_AFFINITY)
        return f"{key_of(pod)} {likeness(pod)}" if ruled else key_of(pod)

    def unconfirmed(self) -> list[str]:
        """Nodes that carry charges whose zones are not known."""
        return sorted(self._unconfirmed)

    # -- for the pipeline
    # ----------------------------------------------------------------------------------------

    def nodes(self) -> list[NodeInfo]:
        """All nodes by name."""
        return [self._by_name[name] for name in sorted(self._by_name)]

    def node(self, name: str) -> NodeInfo | None:
        """One node's facts."""
        return self._by_name.get(name)

    def claimed_node(self, uid: str) -> str:
        """The node that the pod is nominated for, "" for none."""
        return self._claims.get(uid, "")

    def claimed_by(self, uid: str) -> NodeInfo | None:
        """The node that the pod is nominated for, as it stands with the pod's own claim given back."""
        node_info = self._by_name.get(self._claims.get(uid, ""))
        return node_info.hypothetical((), {}, uid, self.config) if node_info is not None else None
