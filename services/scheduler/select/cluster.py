"""The cluster as the scheduler decides on it: NodeInfos, placed pods and demand. All changes come
in here.

Single-threaded. A node changes by the ledger (`put_node`, `drop_node`) or by an assumed pod
(`assume`). What nodes answer for pods is the evaluator's.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from services.scheduler.filter.constraints.constraint import ClusterView, UnusableResource
from services.scheduler.filter.constraints.placed_pods import PlacedPods
from services.scheduler.filter.constraints.pod_affinity import ANTI_AFFINITY, OpenedDomains
from services.scheduler.filter.constraints.predicates import ConstraintColumns
from services.scheduler.filter.constraints.registry import PodChecks, checks_for
from services.scheduler.filter.constraints.selectors import likeness
from services.scheduler.filter.constraints.unusable_resources import unusable_resources
from services.scheduler.filter.topology.kubelet_search import note_assumed_in_searches
from services.scheduler.filter.topology.predict import note_assumed_in_expected_zones
from services.scheduler.score.demand import NOWHERE, places_in_sets, places_in_zones
from services.scheduler.score.preferences import Preferences, PreferredNodes
from services.scheduler.score.strategies.strategy import DemandClass
from services.scheduler.select.evaluate import Evaluator
from services.scheduler.snapshot.assume import assume
from services.scheduler.snapshot.config import CycleConfig
from services.scheduler.snapshot.node_arrays import (
    EXCLUDED,
    NodeArrays,
    ProfileGroup,
    ReservationArrays,
    ScoreOffsets,
    Slots,
    is_pending_admission,
    select,
)
from services.scheduler.snapshot.node_columns import NodeColumns, has_new_values
from services.scheduler.snapshot.node_info import NodeInfo, Profile, held_once
from services.scheduler.snapshot.owned_state import taken_by_zone
from services.scheduler.snapshot.pod_class import Items, PodClass, key_of
from services.scheduler.snapshot.result import Placed
from services.scheduler.state.cluster_objects import ClusterObjects
from services.scheduler.state.exclusions import Exclusions
from services.scheduler.state.holds import Holds
from shared.domain.booking import keys_of
from shared.domain.pod import Pod
from shared.domain.policies import NONE, RESTRICTED, SINGLE_NUMA_NODE
from shared.events.catalog import Event
from shared.events.scheduling_events import NodeCharged, Wanted
from shared.ledger.state import Charge, LedgerNode, LedgerPod, ZoneAmounts

# Policies under which a kubelet refuses pods for their zones.
ALIGNING = SINGLE_NUMA_NODE, RESTRICTED


class Cluster:
    """Every node of the ledger that can take pods."""

    def __init__(self, config: CycleConfig) -> None:
        self.config = config
        self._by_name: dict[str, NodeInfo] = {}
        self._slots: list[NodeInfo | None] = []
        self._arrays, self._columns = NodeArrays(), NodeColumns(self._by_name, self._slots)
        self.slots: dict[str, int] = {}
        self._in_order: Slots | None = None
        self._vacant: list[int] = []
        self._constraints = ConstraintColumns(config.max_shapes, self._columns)
        self.evaluator = Evaluator(config, self._arrays, self._constraints, self._slots)
        # The node that each pod is nominated for, by uid.
        self._claims: dict[str, str] = {}
        self._unconfirmed: set[str] = set()
        # Few nodes have unusable resources, and every pod asks: kept by resource and by node.
        self._unusable: dict[str, dict[str, UnusableResource]] = {}
        self._unusable_on: dict[str, tuple[str, ...]] = {}
        self.view = ClusterView(
            self._by_name,
            PlacedPods(self._columns),
            Exclusions(),
            ClusterObjects(),
            self._unusable,
            holds=Holds(),
        )
        self._preferences, self._opened_domains = Preferences(config.max_shapes), OpenedDomains()
        self.preferred_nodes = PreferredNodes()
        self._wanted: tuple[Wanted, ...] = ()
        # Bookings by uid, the oldest first.
        self.bookings: dict[str, LedgerPod] = {}
        self._bookings_by_key: dict[tuple[str, ...], set[str]] = {}

    def __len__(self) -> int:
        return len(self._by_name)

    # -- demand

    def rank_by(self, wanted: tuple[Wanted, ...]) -> None:
        """Rank nodes by these demand weights from now on; cheap while nothing changes."""
        if wanted is self._wanted or wanted == self._wanted:
            return
        self._wanted = wanted
        self.evaluator.rank_by(
            [DemandClass(tuple(sorted(demand.amounts.items())), demand.weight) for demand in wanted]
        )

    def typical(self) -> Profile | None:
        """Return the profile of most nodes whose kubelets refuse pods for their zones; without any,
        of most nodes with zones; None without those. Of equally many nodes, the first node by name
        decides, whatever the order of arrival.
        """
        groups = [group for group in self._arrays.groups() if group.profile.layout]
        aligning = [group for group in groups if group.profile.rule.policy in ALIGNING]
        groups = aligning or groups
        most = max((group.size for group in groups), default=0)
        largest = [group for group in groups if group.size == most]
        return min(largest, key=self._first_name).profile if largest else None

    def _first_name(self, group: ProfileGroup) -> str:
        return min(self.evaluator.node_at(slot).name for slot in group.slots.tolist())

    def places(self, demand_classes: Sequence[Items], at_best: bool = False) -> list[int]:
        """Return how many more of each class the nodes hold, each class for itself: in zones, under
        `restricted` also in sets of zones, and in whole nodes if their kubelets refuse no pod for
        its zones, or `at_best`. NOWHERE if none holds one even when it is empty.
        """
        arrays, total = self._arrays, [NOWHERE] * len(demand_classes)
        arrays.refresh()
        names = tuple(arrays.rows)
        for group in arrays.groups():
            selection, policy = group.selection, group.profile.rule.policy
            if not group.profile.layout:
                continue
            if at_best or policy not in ALIGNING:
                counts = places_in_zones(
                    tuple(arrays.free_rows),
                    select(arrays.free, selection),
                    select(arrays.offered, selection).astype(np.float64),
                    demand_classes,
                )
                total = _added(total, counts)
                continue
            free, whole = arrays.free_min[:, :, selection], arrays.whole[:, :, selection]
            shape = len(names), -1
            counts = places_in_zones(
                names, free.reshape(shape), whole.reshape(shape), demand_classes
            )
            total = _added(total, counts)
            if policy == RESTRICTED:
                total = _added(total, places_in_sets(names, free, whole, demand_classes))
        return total

    # -- changes

    def put_node(self, node: LedgerNode) -> None:
        """Insert or refresh one node from the ledger. Assumed pods that the ledger lacks are
        forgotten.
        """
        for uid in [uid for uid, entry in self.bookings.items() if entry.terminating]:
            self._drop_booking(uid)  # It ended with its first pod.
        node_info = self._by_name.get(node.name)
        is_current = node_info is not None and node_info.is_current(node)
        if not is_current or node.report is not node.basis:
            self._note_unusable(node.name, unusable_resources(node))
        if node_info is None:
            node_info = self._enter(node.name)
        elif is_current:
            node_info.confirm(node)
            self.evaluator.cache.confirmed(node_info.slot)
            return
        if has_new_values(node_info, node):
            self._columns.changes.note(node_info.slot)
        if node_info.observed is not node.observed:
            self._preferences.changed(node_info.slot, node.observed)
            self._opened_domains.note_labels_gone(self.view.placed_pods, node_info.observed)
        self._drop_claims(node_info)
        profile = node_info.profile
        node_info.update_from(node, self.config)
        self._claims.update(dict.fromkeys(node_info.claims, node.name))
        self._note_unconfirmed(node_info)
        node_info.version += 1
        node_info.ledger_version += 1
        if node_info.profile is not profile or node_info.profile_id < 0:
            node_info.profile_id = self._arrays.set_profile(node_info.slot, node_info.profile)
        self._arrays.changed(node_info)
        self.evaluator.cache.changed(node_info.slot)

    def take_over(self, event: Event, nodes: Mapping[str, LedgerNode]) -> bool:
        """Take an own reservation over if the ledger has charged it as assumed. Return False for
        anything else: then `put_node` is due. Only this event changed its node since `put_node`.
        """
        if not isinstance(event, NodeCharged) or self._is_booked(event.node):
            return False
        node, node_info = nodes.get(event.node), self._by_name.get(event.node)
        if node is None or node.dirty or node_info is None:
            return False
        if not node_info.take_over(node, event.uid):
            return False
        self.evaluator.cache.confirmed(node_info.slot)
        return True

    def _is_booked(self, name: str) -> bool:
        """Return whether the node has, or had, bookings, which change with their pods."""
        return any(entry.node in (name, "") for entry in self.bookings.values())

    def drop_node(self, name: str) -> None:
        """Forget a node; harmless if it is unknown."""
        node_info = self._by_name.pop(name, None)
        if node_info is None:
            return
        self._drop_claims(node_info)
        self._slots[node_info.slot], self._in_order = None, None
        del self.slots[name]
        self._vacant.append(node_info.slot)
        self._unconfirmed.discard(name)
        self._arrays.set_profile(node_info.slot, None)
        self._columns.changes.note(node_info.slot)
        self._preferences.changed(node_info.slot, None)
        self._opened_domains.note_labels_gone(self.view.placed_pods, node_info.observed)
        self._note_unusable(name, {})
        self.evaluator.cache.emptied(node_info.slot)

    def assume(self, placed: Placed, pod: Pod) -> ZoneAmounts:
        """Assume the pod on its node until the fold brings it; return the charge as the fold will
        compute it.
        """
        node_info = self._by_name[placed.node]
        self.view.placed_pods.put(pod, placed.node)
        pod_class = self.evaluator.pod_class(pod)
        self.evaluator.note_landing(pod_class, node_info)
        trusted = placed.predicted if self.config.prediction == "trust" else {}
        charge = assume(node_info, pod, pod_class, trusted, placed.one_zone, placed.allocation)
        note_assumed_in_searches(node_info, charge)
        note_assumed_in_expected_zones(node_info, charge)
        self._note_unconfirmed(node_info)
        node_info.version += 1
        is_owned, taken = node_info.profile.owners.is_owned, charge.zones
        if is_owned and node_info.owned is not None:
            taken = taken_by_zone(charge)
        if node_info.grouped_zones or (is_owned and not node_info.owned):
            self._arrays.changed(node_info)
        elif node_info.slot not in self._arrays.stale:
            reservation = self._reservation(node_info, pod_class, taken, charge)
            self._arrays.subtract(node_info.slot, reservation)
            if node_info.rule.policy == NONE and is_pending_admission(node_info, charge):
                self._arrays.is_open[node_info.slot] = True
        cache = self.evaluator.cache
        is_one = node_info.rule.policy == SINGLE_NUMA_NODE and not node_info.profile.device_types
        if is_owned and not is_one:  # Less room may make another mask preferred.
            cache.changed(node_info.slot)
        else:
            cache.tightened(node_info.slot)
        return charge.zones

    def _reservation(
        self, node_info: NodeInfo, pod_class: PodClass, zones: ZoneAmounts, charge: Charge
    ) -> ReservationArrays:
        """Return the reservation as arrays. Equal reservations on nodes of one profile share them;
        where Topolog chooses zones, those of one class differ by the zone.
        """
        shape, key = self._arrays.shape, (node_info.profile_id, next(iter(zones), 0))
        has_total = node_info.unaligned and node_info.report is not None and bool(charge.demand)
        made_of = (zones, charge.possible, charge.demand) if has_total else (zones,)
        kept = pod_class.reservation_arrays.get(key)
        if kept is None or kept[1] != shape or kept[0] != made_of:
            total = held_once(charge) if has_total else {}
            arrays = self._arrays.reservation(node_info, zones, pod_class.requested, total)
            kept = pod_class.reservation_arrays[key] = made_of, shape, arrays
        return kept[2]

    def _enter(self, name: str) -> NodeInfo:
        slot = self._vacant.pop() if self._vacant else len(self._slots)
        node_info, self._in_order = NodeInfo(name, slot), None
        if slot == len(self._slots):
            self._slots.append(node_info)
        self._slots[slot], self._by_name[name], self.slots[name] = node_info, node_info, slot
        self._arrays.reserve(slot)
        self.preferred_nodes.node_entered()
        self.evaluator.cache.reserve(slot, name)
        self._columns.changes.note(slot)
        return node_info

    def _drop_claims(self, node_info: NodeInfo) -> None:
        for uid in node_info.claims:
            self._claims.pop(uid, None)

    def _note_unconfirmed(self, node_info: NodeInfo) -> None:
        if node_info.unconfirmed:
            self._unconfirmed.add(node_info.name)
        else:
            self._unconfirmed.discard(node_info.name)

    def _note_unusable(self, node: str, unusable: Mapping[str, UnusableResource]) -> None:
        for name in self._unusable_on.pop(node, ()):
            del self._unusable[name][node]
            if not self._unusable[name]:
                del self._unusable[name]
        if unusable:
            self._unusable_on[node] = tuple(unusable)
        for name, resource in unusable.items():
            self._unusable.setdefault(name, {})[node] = resource

    def follow(self, uid: str, entry: LedgerPod | None) -> None:
        """Move the pod to the node that it has in the ledger, if any."""
        if uid in self.bookings:
            self._drop_booking(uid)
        if entry is not None and entry.booking is not None and not entry.terminating:
            self.bookings[uid] = entry
            for owner in entry.booking.terms.owners:
                self._bookings_by_key.setdefault(owner.key, set()).add(uid)
        if entry is not None and entry.node:
            earlier = self.view.placed_pods.put(entry.pod, entry.node, entry.terminating)
        else:
            earlier = self.view.placed_pods.remove(uid)
        if earlier is not None and earlier.pod.constraints.kept and earlier.node in self._by_name:
            observed = self._by_name[earlier.node].observed
            self._opened_domains.note_pod_gone(earlier.pod.constraints.kept, observed)

    def _drop_booking(self, uid: str) -> None:
        booking = self.bookings.pop(uid).booking
        for owner in booking.terms.owners if booking is not None else ():
            uids = self._bookings_by_key.get(owner.key, set())
            uids.discard(uid)
            if not uids:
                self._bookings_by_key.pop(owner.key, None)

    def bookings_of(self, pod: Pod) -> list[LedgerPod]:
        """Return the bookings that the pod may use, the oldest first."""
        if not self.bookings:
            return []
        uids = {uid for key in keys_of(pod) for uid in self._bookings_by_key.get(key, ())}
        entries = [self.bookings[uid] for uid in uids]
        usable = [entry for entry in entries if entry.booking and entry.booking.terms.is_for(pod)]
        return sorted(usable, key=lambda entry: (entry.observed_at, entry.pod.uid))

    def opened(self) -> list[str]:
        """Return the nodes that a rule of running pods may have opened since the last call, other
        than nodes that changed themselves.
        """
        return self._opened_domains.take(self._by_name)

    # -- answers

    def checks(self, pod: Pod) -> PodChecks:
        """Return the checks of constraints that look beyond the node's own object."""
        return checks_for(pod, self.view)

    def offsets(self, pod: Pod, checks: PodChecks) -> ScoreOffsets | None:
        """Return what the pod's preferences, or else the scheduler's preferred nodes, add to the
        scores of its class, and which nodes are excluded for it; None for neither.
        """
        offsets = self._preferences.of(pod, self._slots)
        if offsets is None:
            offsets = self.preferred_nodes.offsets(self._slots)
        passing = checks.passing()
        if passing is None:
            return offsets
        return np.where(passing, np.int32(0) if offsets is None else offsets, np.int32(EXCLUDED))

    def class_of(self, pod: Pod) -> str:
        """Return equal text for pods that nodes, and the rules of pods there, treat alike now."""
        has_rules = pod.constraints.kept or self.view.placed_pods.keeping(ANTI_AFFINITY)
        if not (has_rules or self.bookings):
            return key_of(pod)
        owned = sorted(entry.pod.uid for entry in self.bookings_of(pod))
        return f"{key_of(pod)} {likeness(pod)} {owned}"

    def unconfirmed(self) -> list[str]:
        """Return the nodes that carry charges of unknown zones."""
        return sorted(self._unconfirmed)

    def slots_by_name(self, names: Collection[str] | None = None) -> Slots:
        """Return the slots of these nodes, by default of all, in the order of their names; not to
        be written to.
        """
        if names is not None:
            slots = [self.slots[name] for name in sorted(names) if name in self.slots]
            return np.array(slots, dtype=np.int64)
        if self._in_order is None:
            in_order = [self.slots[name] for name in sorted(self.slots)]
            self._in_order = np.array(in_order, dtype=np.int64)
        return self._in_order

    def nodes(self) -> list[NodeInfo]:
        """Return all nodes by name."""
        return [self.evaluator.node_at(slot) for slot in self.slots_by_name().tolist()]

    def node(self, name: str) -> NodeInfo | None:
        return self._by_name.get(name)

    def claimed_node(self, uid: str) -> str:
        """Return the node that the pod is nominated for, "" for none."""
        return self._claims.get(uid, "")

    def claimed_by(self, uid: str) -> NodeInfo | None:
        """Return the node that the pod is nominated for, with the pod's own claim given back."""
        node_info = self._by_name.get(self._claims.get(uid, ""))
        return node_info.hypothetical((), {}, uid, self.config) if node_info is not None else None


def _added(total: list[int], counts: list[int]) -> list[int]:
    """Return the sums for each class. NOWHERE counts as 0, and remains if both counts are
    NOWHERE.
    """
    return [
        max(one, other) if NOWHERE in (one, other) else one + other
        for one, other in zip(total, counts, strict=True)
    ]
