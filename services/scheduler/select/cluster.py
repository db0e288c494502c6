"""The cluster as deciding keeps it: facts by node, what surrounds them, and what pods ask of them.
All changes come in here.

Single-threaded; a node changes by the ledger (`put_node`, `drop_node`) or by an own reservation
(`charge`). What nodes answer is for `judging`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from services.scheduler.filter.constraints.barred_resources import barring
from services.scheduler.filter.constraints.columns import ConstraintColumns
from services.scheduler.filter.constraints.constraint import Around, Bar
from services.scheduler.filter.constraints.lifted import Lifted
from services.scheduler.filter.constraints.neighbours import Neighbours, likeness
from services.scheduler.filter.constraints.pod_affinity import ANTI_AFFINITY
from services.scheduler.filter.constraints.preferences import Preferences
from services.scheduler.filter.constraints.registry import Bars, bars
from services.scheduler.filter.topology.kubelet_search import reserved
from services.scheduler.filter.topology.lowest_zone import note_reserved
from services.scheduler.score.strategies.strategy import Want
from services.scheduler.select.judging import Judging
from services.scheduler.select.preferred_nodes import Homes
from services.scheduler.select.room import NOWHERE, Room
from services.scheduler.snapshot.assume import reserve
from services.scheduler.snapshot.columnar import BARRED, Delta, Lifts
from services.scheduler.snapshot.config import CycleConfig
from services.scheduler.snapshot.node_arrays import Columns, Group
from services.scheduler.snapshot.node_info import NodeFacts, Profile
from services.scheduler.snapshot.pod_class import Items, Shape, key_of
from services.scheduler.snapshot.result import Placed
from services.scheduler.state.cluster_objects import Surroundings
from services.scheduler.state.exclusions import Asides
from shared.domain.pod import Pod
from shared.domain.policies import RESTRICTED, SINGLE_NUMA_NODE
from shared.events.scheduling_events import Wanted
from shared.ledger.state import LedgerNode, LedgerPod, ZoneAmounts


class Cluster:
    """Every node of the ledger, ready to be decided on."""

    def __init__(self, config: CycleConfig) -> None:
        self.config = config
        self._columns, self._constraints = Columns(), ConstraintColumns(config.max_shapes)
        self._by_name: dict[str, NodeFacts] = {}
        self._slots: list[NodeFacts | None] = []
        self.slots: dict[str, int] = {}
        self._vacant: list[int] = []
        self.judging = Judging(config, self._columns, self._constraints, self._slots)
        self._claims: dict[str, str] = {}
        self._unsettled: set[str] = set()
        self._barred: dict[str, dict[str, Bar]] = {}
        self._barring: dict[str, tuple[str, ...]] = {}
        self.around = Around(self._by_name, Neighbours(), Asides(), Surroundings(), self._barred)
        self._preferences, self._lifted = Preferences(config.max_shapes), Lifted()
        self.homes = Homes()
        self._wanted: tuple[Wanted, ...] = ()

    def __len__(self) -> int:
        return len(self._by_name)

    # -- demand
    # --------------------------------------------------------------------------------------------------

    def want(self, wanted: tuple[Wanted, ...]) -> None:
        """Rank nodes by this from now on; cheap while nothing changes."""
        if wanted is self._wanted or wanted == self._wanted:
            return
        self._wanted = wanted
        self.judging.want(
            [Want(tuple(sorted(each.amounts.items())), each.weight) for each in wanted]
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
        return min(self.judging.at(slot).name for slot in group.slots.tolist())

    def room(self, wants: Sequence[Items]) -> list[int]:
        """How many more of each these nodes' zones would hold, each want for itself; NOWHERE if
        none would even when empty.
        """
        self._columns.refresh()
        rooms = [Room(self._columns, group.selection).of(wants) for group in self._aligning()]
        found = [
            [held for held in each if held != NOWHERE] for each in zip(*rooms, strict=True)
        ] or [[]] * len(wants)
        return [sum(held) if held else NOWHERE for held in found]

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
        facts = self._by_name.get(node.name)
        self._note_barred(node.name, barring(node))
        if facts is None:
            facts = self._enter(node.name)
        elif facts.ledger is node and facts.is_current(node):
            facts.confirm(node)
            self.judging.table.confirmed(facts.slot)
            return
        if facts.observed is not node.observed:
            self._constraints.forget(facts.slot)
            self._preferences.changed(facts.slot, node.observed)
            self._lifted.relabelled(self.around.neighbours, facts.observed)
        self._drop_claims(facts)
        profile = facts.profile
        facts.take_in(node, self.config)
        self._claims.update(dict.fromkeys(facts.claims, node.name))
        self._note_unsettled(facts)
        facts.version, facts.taken_in = facts.version + 1, facts.taken_in + 1
        if facts.profile is not profile or facts.profile_id < 0:
            facts.profile_id = self._columns.set_profile(facts.slot, facts.profile)
        self._columns.changed(facts)
        self.judging.table.changed(facts.slot)

    def drop_node(self, name: str) -> None:
        """Forget a node; harmless when it is unknown."""
        facts = self._by_name.pop(name, None)
        if facts is None:
            return
        self._drop_claims(facts)
        self._slots[facts.slot] = None
        del self.slots[name]
        self._vacant.append(facts.slot)
        self._unsettled.discard(name)
        self._columns.set_profile(facts.slot, None)
        self._constraints.forget(facts.slot)
        self._preferences.changed(facts.slot, None)
        self._lifted.relabelled(self.around.neighbours, facts.observed)
        self._note_barred(name, {})
        self.judging.table.emptied(facts.slot)

    def charge(self, placed: Placed, pod: Pod) -> ZoneAmounts:
        """Stand in for an own reservation until the fold brings it: returns the charge as the fold
        will compute it.
        """
        facts = self._by_name[placed.node]
        self.around.neighbours.put(pod, placed.node)
        shape = self.judging.shape(pod)
        trusted = placed.predicted if self.config.prediction == "trust" else {}
        charge = reserve(facts, pod, shape, trusted)
        reserved(facts, charge)
        note_reserved(facts, charge)
        self._note_unsettled(facts)
        facts.version += 1
        delta = None
        if facts.unaligned or facts.tied:
            self._columns.changed(facts)
        elif not self._columns.is_stale(facts.slot):
            delta = self._delta(facts, shape, charge.zones)
            self._columns.subtract(facts, delta)
        self.judging.reserved(facts, delta)
        return charge.zones

    def _delta(self, facts: NodeFacts, shape: Shape, zones: ZoneAmounts) -> Delta:
        """Equal reservations on nodes of one profile are equal in columns."""
        known = shape.deltas.get(facts.profile_id)
        if known is None or known[0] is not zones or known[1] != self._columns.shape:
            delta = self._columns.delta(facts, zones, shape.requested)
            known = shape.deltas[facts.profile_id] = zones, self._columns.shape, delta
        return known[2]

    def _enter(self, name: str) -> NodeFacts:
        slot = self._vacant.pop() if self._vacant else len(self._slots)
        facts = NodeFacts(name, slot)
        if slot == len(self._slots):
            self._slots.append(facts)
        self._slots[slot], self._by_name[name], self.slots[name] = facts, facts, slot
        self._columns.reserve(slot)
        self.homes.entered()
        self.judging.table.reserve(slot, name)
        self._constraints.forget(slot)
        return facts

    def _drop_claims(self, facts: NodeFacts) -> None:
        for uid in facts.claims:
            self._claims.pop(uid, None)

    def _note_unsettled(self, facts: NodeFacts) -> None:
        if facts.unsettled:
            self._unsettled.add(facts.name)
        else:
            self._unsettled.discard(facts.name)

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
            gone = self.around.neighbours.put(entry.pod, entry.node, entry.terminating)
        else:
            gone = self.around.neighbours.remove(uid)
        if gone is not None and gone.pod.constraints.kept and gone.node in self._by_name:
            self._lifted.left(gone.pod.constraints.kept, self._by_name[gone.node].observed)

    def opened(self) -> list[str]:
        """Nodes that a rule of running pods may have opened since the last call, beside those that
        changed themselves.
        """
        return self._lifted.take(self._by_name)

    # -- answers
    # -------------------------------------------------------------------------------------------------

    def bars(self, pod: Pod) -> Bars:
        """The constraints that look beyond the node's own object, as things stand."""
        return bars(pod, self.around)

    def lifts(self, pod: Pod, barred: Bars) -> Lifts | None:
        """What the pod's preferences (or else the scheduler's homes) add to the scores of its
        shape, and which nodes it is kept from; None for neither."""
        lifts = self._preferences.of(pod, self._slots)
        lifts = self.homes.lifts(self._slots) if lifts is None else lifts
        if not barred:
            return lifts
        open_slots = barred.open(self._slots)
        return np.where(open_slots, 0 if lifts is None else lifts, BARRED).astype(np.int32)

    def shape_of(self, pod: Pod) -> str:
        """Equal for pods that nodes, and the rules of pods there, judge alike as things stand."""
        ruled = pod.constraints.kept or self.around.neighbours.keeping(ANTI_AFFINITY)
        return f"{key_of(pod)} {likeness(pod)}" if ruled else key_of(pod)

    def unsettled(self) -> list[str]:
        """Nodes that carry charges whose zones are not known."""
        return sorted(self._unsettled)

    # -- for the pipeline
    # ----------------------------------------------------------------------------------------

    def nodes(self) -> list[NodeFacts]:
        """All nodes by name."""
        return [self._by_name[name] for name in sorted(self._by_name)]

    def node(self, name: str) -> NodeFacts | None:
        """One node's facts."""
        return self._by_name.get(name)

    def claimed_node(self, uid: str) -> str:
        """The node that the pod is nominated for, "" for none."""
        return self._claims.get(uid, "")

    def claimed_by(self, uid: str) -> NodeFacts | None:
        """The node that the pod is nominated for, as it stands with the pod's own claim given back."""
        facts = self._by_name.get(self._claims.get(uid, ""))
        return facts.imagined((), {}, uid, self.config) if facts is not None else None
