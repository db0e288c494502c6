"""Refusals of many nodes at once if amounts alone explain them: too little on the whole node, or no
zone with enough of the scarcest resource.

This is the array form of `_refusal_of` in `explain.py`, and of `_zone_shortage` in
`alignment_refusal.py` under single-numa-node. All other nodes are left to these functions, which
also give the refusals in full. Must not search: an answer that a decision needed is known already.
"""

from __future__ import annotations

import numpy as np

from services.scheduler.explain.refusal_table import Kind, RefusalTable
from services.scheduler.filter.constraints.predicates import INSUFFICIENT, TOO_MANY_PODS
from services.scheduler.filter.topology.bounds import NOWHERE
from services.scheduler.filter.topology.fit import REFUSED
from services.scheduler.filter.topology.kubelet_search import known_answer
from services.scheduler.select.bulk import PlanEvaluation, Selected
from services.scheduler.select.cluster import Cluster
from services.scheduler.snapshot.node_arrays import Bools, Ints, NodeArrays, Slots, slots_of
from services.scheduler.snapshot.pod_class import AlignedPart, Plan, PodClass
from shared.domain.policies import SINGLE_NUMA_NODE
from shared.domain.refusal import Reason, Refusal
from shared.domain.resources import PODS
from shared.hints import registry

# Below it, quotients of amounts are the same in arrays and in Python.
EXACT = 1 << 53
# Less than any amount: what a node without the zone has free there.
NO_AMOUNT = -(1 << 63)


def put_shortages(cluster: Cluster, pod_class: PodClass, table: RefusalTable, slots: Slots) -> None:
    """Enter the refusals of those of these nodes that amounts alone explain."""
    if not registry.amounts_are_all():
        return
    for selected, evaluation in cluster.evaluator.evaluations(pod_class, np.sort(slots)):
        _Shortages(cluster, pod_class, selected, evaluation).put(table)


class _Shortages:
    """The nodes on which the class has one plan."""

    def __init__(
        self,
        cluster: Cluster,
        pod_class: PodClass,
        selected: Selected,
        evaluation: PlanEvaluation,
    ) -> None:
        self._arrays: NodeArrays = cluster.evaluator.arrays
        self._plan: Plan = selected.on_nodes.plan
        self._cluster = cluster
        self._pod_class, self._selected, self._evaluation = pod_class, selected, evaluation
        self._slots = slots_of(selected.selection)
        self._open = evaluation.allowed(selected.selection) & self._is_plain()

    def _is_plain(self) -> Bools:
        """Return which nodes have zones 0 to n, whose arrays say what their ledgers say."""
        arrays, node_at = self._arrays, self._cluster.evaluator.node_at
        plain = np.array([not node_at(slot).grouped_zones for slot in self._slots.tolist()])
        plain &= ~arrays.overstated[self._slots]
        for number in self._selected.on_nodes.profiles:
            layout = arrays.profiles[number].layout
            if not layout or [zone for zone, _ in layout] != list(range(len(layout))):
                plain &= arrays.profile[self._slots] != number
        return plain & (arrays.zone_counts[self._slots] > 0)

    def put(self, table: RefusalTable) -> None:
        """Enter what the whole node lacks, then what zones lack."""
        rows = self._arrays.free_rows
        names = sorted(self._pod_class.request)
        if not all(name in rows for name in names):
            return
        plan = self._plan
        in_one_zone = plan.mode == "aligned" and plan.rule.policy == SINGLE_NUMA_NODE
        if in_one_zone and not plan.may_be_split:
            # Other reasons come first for a part that is larger than every empty zone.
            self._open &= self._fits_empty_zones()
        for name in names:
            self._put_node_shortage(table, name)
        if in_one_zone and not (plan.needs_search or plan.full_pcpus_only):
            self._put_zone_shortages(table)

    def _fits_empty_zones(self) -> Bools:
        """Return on which nodes each resource of each part fits some empty zone."""
        fits = np.ones(len(self._slots), dtype=np.bool_)
        for part in self._plan.parts:
            for name, asked in part.amounts.items():
                row = self._arrays.rows.get(name)
                if row is None:
                    return np.zeros(len(self._slots), dtype=np.bool_)
                fits &= self._arrays.whole[row][:, self._slots].max(axis=0) >= asked
        return fits

    def _put_node_shortage(self, table: RefusalTable, name: str) -> None:
        asked = self._pod_class.request[name]
        free = self._arrays.free[self._arrays.free_rows[name]][self._slots]
        short = self._open & (free < asked)
        reason = TOO_MANY_PODS if name == PODS else INSUFFICIENT
        if short.any():
            kind = Kind.of(reason.refusal("", resource=name))
            self._enter(table, kind, asked, short, free)

    def _put_zone_shortages(self, table: RefusalTable) -> None:
        bounds = self._evaluation.zone_bounds(self._selected.selection, self._selected.size)
        self._open &= ~bounds.candidates | self._known_to_be_refused(bounds.candidates)
        numbers = {items: kind for kind, items in enumerate(self._evaluation.part_kinds)}
        for part in self._plan.parts:
            kind = numbers.get(tuple(part.amounts.items()))
            if kind is None:
                return
            short = self._open & (bounds.landing[kind] == NOWHERE)
            if short.any():
                self._put_zone_shortage(table, part, short)
            self._open &= ~short

    def _known_to_be_refused(self, candidates: Bools) -> Bools:
        """Return which of the candidates the kubelet search has refused."""
        refused = np.zeros(len(self._slots), dtype=np.bool_)
        plan, config = self._plan, self._cluster.config
        for index in np.flatnonzero(candidates & self._open).tolist():
            node_info = self._cluster.evaluator.node_at(int(self._slots[index]))
            refused[index] = known_answer(node_info, plan, config.steps_node) == REFUSED
        return refused

    def _put_zone_shortage(self, table: RefusalTable, part: AlignedPart, short: Bools) -> None:
        """Enter the resource of which the best zone covers the smallest share, for nodes on which
        that zone has too little of it. On others, no zone has enough of all resources.
        """
        names, arrays = sorted(part.amounts), self._arrays
        rows, asked = [arrays.rows[name] for name in names], [part.amounts[name] for name in names]
        slots = self._slots[short]
        free = arrays.free_min[rows][:, :, slots]
        missing = np.arange(free.shape[1])[:, None] >= arrays.zone_counts[slots]
        free = np.where(missing, NO_AMOUNT, free)
        zones, most = free.argmax(axis=1), free.max(axis=1)
        scarcest = (np.maximum(most, 0) / np.array(asked)[:, None]).argmin(axis=0)
        for number, name in enumerate(names):
            is_short_of_it = (scarcest == number) & (most[number] < asked[number])
            concerned = np.zeros(len(self._slots), dtype=np.bool_)
            concerned[np.flatnonzero(short)[is_short_of_it]] = True
            if concerned.any():
                refusal = Refusal("", Reason.NO_SINGLE_ZONE, "", name, asked=asked[number])
                best, zone = np.zeros_like(self._slots), np.zeros_like(self._slots)
                best[short], zone[short] = np.maximum(most[number], 0), zones[number]
                self._enter(table, Kind.of(refusal), asked[number], concerned, best, zone)

    def _enter(
        self,
        table: RefusalTable,
        kind: Kind,
        asked: int,
        nodes: Bools,
        best: Ints,
        zones: Ints | None = None,
    ) -> None:
        if asked < EXACT:
            exact = nodes & (np.abs(best) < EXACT)
            entered = self._slots[exact]
            if zones is None:
                table.put_all(entered, kind, asked, best[exact])
            else:
                table.put_all(entered, kind, asked, best[exact], zones[exact])
        self._open &= ~nodes
