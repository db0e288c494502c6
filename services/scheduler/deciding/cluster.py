"""The cluster as the cycle keeps it: facts by node, columns, shapes, and the table of verdicts. All changes come in here.

Single-threaded; a node changes by the ledger (`put_node`, `drop_node`) or by an own reservation (`charge`).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from services.scheduler.deciding.config import CycleConfig
from services.scheduler.deciding.constraints.columns import ConstraintColumns
from services.scheduler.deciding.constraints.constraint import Around
from services.scheduler.deciding.constraints.neighbours import Neighbours
from services.scheduler.deciding.constraints.preferences import Preferences
from services.scheduler.deciding.constraints.registry import Bars, bars
from services.scheduler.deciding.feasibility.outlook import reserved
from services.scheduler.deciding.homes import Homes
from services.scheduler.deciding.judge import UNDECIDED, judge, rank
from services.scheduler.deciding.lowest_zone import note_reserved
from services.scheduler.deciding.node_facts import NodeFacts, Profile
from services.scheduler.deciding.outcome import Placed
from services.scheduler.deciding.policy import RESTRICTED, SINGLE
from services.scheduler.deciding.registered import Registered
from services.scheduler.deciding.reservation import claim_restored, reserve
from services.scheduler.deciding.scores import scorer
from services.scheduler.deciding.shape import Items, Plan, Shape, key_of, without_kept
from services.scheduler.deciding.verdicts.columns import Columns, Delta, Group
from services.scheduler.deciding.verdicts.room import NOWHERE, Room
from services.scheduler.deciding.verdicts.score_bounds import ScoreDrops
from services.scheduler.deciding.verdicts.sweeping import Sweeping
from services.scheduler.deciding.verdicts.table import BARRED, OPTIMISTIC, RULED_OUT, Lifts, VerdictTable
from services.scheduler.scoring.strategy import Want
from services.scheduler.setting_aside.asides import Asides
from services.scheduler.surroundings.surroundings import Surroundings
from shared.domain.pod import Pod
from shared.events.scheduling_facts import Wanted
from shared.ledger.state import LedgerNode, LedgerPod, ZoneAmounts


class Counts(msgspec.Struct):
    """How nodes were judged since the start, for metrics; volatile."""

    over_budget: int = 0


class Cluster:
    """Every node of the ledger, ready to be decided on."""

    def __init__(self, config: CycleConfig) -> None:
        self.config = config
        self.strategy = scorer(config.strategy, config.weights)
        self.verdicts, self.counts = VerdictTable(), Counts()
        self._columns, self._constraints, self._drops = Columns(), ConstraintColumns(config.max_shapes), ScoreDrops()
        self._sweeping = Sweeping(self._columns, self._constraints, config, self.strategy)
        self._by_name: dict[str, NodeFacts] = {}
        self._slots: list[NodeFacts | None] = []
        self.slots: dict[str, int] = {}
        self._vacant: list[int] = []
        self._stale: set[int] = set()
        self._shapes: dict[str, Shape] = {}
        self._claims: dict[str, str] = {}
        nobody = Pod("", "", "")
        self._latest = nobody, Shape("", nobody, -1)
        self._unsettled: set[str] = set()
        self._passed_over: dict[int, int] = {}
        self.around = Around(self._by_name, Neighbours(), Asides(), Surroundings())
        self._preferences = Preferences(config.max_shapes)
        self.homes = Homes()
        self._wanted: tuple[Wanted, ...] = ()

    def __len__(self) -> int:
        return len(self._by_name)

    # -- demand --------------------------------------------------------------------------------------------------

    @property
    def looks_at_wants(self) -> bool:
        """True where the strategy must be told what pods ask for."""
        return isinstance(self.strategy, Registered) and self.strategy.looks_at_wants

    def want(self, wanted: tuple[Wanted, ...]) -> None:
        """Rank nodes by this from now on; cheap while nothing changes."""
        if wanted is self._wanted or wanted == self._wanted:
            return
        self._wanted = wanted
        if isinstance(self.strategy, Registered) and self.strategy.looks_at_wants:
            self.strategy.want([Want(tuple(sorted(each.amounts.items())), each.weight) for each in wanted])
            self.verdicts.reranked()

    def aligning(self) -> Profile | None:
        """What most of the nodes share whose kubelets put what is aligned together into one zone; None without such nodes."""
        found = [(group.size, at, group.profile) for at, group in enumerate(self._aligning())]
        return max(found, key=lambda each: (each[0], -each[1]))[2] if found else None

    def room(self, wants: Sequence[Items]) -> list[int]:
        """How many more of each these nodes' zones would hold, each want for itself; NOWHERE if none would even when empty."""
        self._write_columns()
        rooms = [Room(self._columns, group.selection).of(wants) for group in self._aligning()]
        found = [[held for held in each if held != NOWHERE] for each in zip(*rooms, strict=True)] or [[]] * len(wants)
        return [sum(held) if held else NOWHERE for held in found]

    def _aligning(self) -> list[Group]:
        return [group for group in self._columns.groups(None) if group.profile[1].policy in (SINGLE, RESTRICTED)]

    # -- facts in ------------------------------------------------------------------------------------------------

    def put_node(self, node: LedgerNode) -> None:
        """Insert or refresh one node from the ledger. Own reservations that the ledger lacks are forgotten."""
        facts = self._by_name.get(node.name)
        if facts is None:
            facts = self._enter(node.name)
        elif facts.ledger is node and facts.is_current(node):
            facts.confirm(node)
            self.verdicts.confirmed(facts.slot)
            return
        if facts.observed is not node.observed:
            self._constraints.forget(facts.slot)
            self._preferences.changed(facts.slot, node.observed)
        self._drop_claims(facts)
        facts.take_in(node, self.config)
        self._claims.update(dict.fromkeys(facts.claims, node.name))
        self._note_unsettled(facts)
        self._touch(facts)
        facts.profile_id = self._columns.set_profile(facts.slot, facts.profile)
        self.verdicts.changed(facts.slot)

    def drop_node(self, name: str) -> None:
        """Forget a node; harmless when it is unknown."""
        facts = self._by_name.pop(name, None)
        if facts is None:
            return
        self._drop_claims(facts)
        self._slots[facts.slot] = None
        del self.slots[name]
        self._vacant.append(facts.slot)
        self._stale.discard(facts.slot)
        self._unsettled.discard(name)
        self._columns.set_profile(facts.slot, None)
        self._constraints.forget(facts.slot)
        self._preferences.changed(facts.slot, None)
        self.verdicts.emptied(facts.slot)

    def charge(self, placed: Placed, pod: Pod) -> ZoneAmounts:
        """Stand in for an own reservation until the fold brings it: returns the charge as the fold will compute it."""
        facts = self._by_name[placed.node]
        self.around.neighbours.put(pod, placed.node)
        shape = self.shape(pod)
        trusted = placed.predicted if self.config.prediction == "trust" else {}
        zones = reserve(facts, pod, shape, trusted)
        reserved(facts, facts.overlay[pod.uid])
        note_reserved(facts, facts.overlay[pod.uid])
        self._note_unsettled(facts)
        facts.version += 1
        delta = None
        if facts.spreads or facts.tied:
            self._stale.add(facts.slot)
        elif facts.slot not in self._stale:
            delta = self._delta(facts, shape, zones)
            self._columns.subtract(facts, delta)
        if self.strategy.monotone:
            self.verdicts.lowered(facts.slot, self._drop(facts.slot, delta))
        else:
            self.verdicts.tightened(facts.slot)
        return zones

    def _drop(self, slot: int, delta: Delta | None) -> npt.NDArray[np.int16] | None:
        """How far the score of each shape surely drops on the node; None where nothing is known."""
        if delta is None or delta.least is None or not self.strategy.even:
            return None
        return self._drops.of(delta.least, self._columns.widest[:, slot], self._columns.rows, len(self.verdicts.scores))

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
        self.verdicts.reserve(slot, name)
        self._constraints.forget(slot)
        return facts

    def _touch(self, facts: NodeFacts) -> None:
        facts.version += 1
        facts.taken_in += 1
        self._stale.add(facts.slot)

    def _drop_claims(self, facts: NodeFacts) -> None:
        for uid in facts.claims:
            self._claims.pop(uid, None)

    def _note_unsettled(self, facts: NodeFacts) -> None:
        if facts.unsettled:
            self._unsettled.add(facts.name)
        else:
            self._unsettled.discard(facts.name)

    def follow(self, uid: str, entry: LedgerPod | None) -> None:
        """The pod stands where the ledger has it, or nowhere."""
        if entry is not None and entry.node:
            self.around.neighbours.put(entry.pod, entry.node, entry.terminating)
        else:
            self.around.neighbours.remove(uid)

    # -- answers -------------------------------------------------------------------------------------------------

    def score(self, shape: Shape, facts: NodeFacts) -> int:
        """The node's true score for the shape, or RULED_OUT."""
        at = shape.row, facts.slot
        if not self.verdicts.sure[at]:
            self.judge(shape, facts)
        return int(self.verdicts.scores[at])

    def judge(self, shape: Shape, facts: NodeFacts) -> int:
        """Judge one node within the ordinary budget and note the result; one that was not decided is looked at again when no
        other node takes the pod, also after own reservations, which leave ruled out what is."""
        score = self._judged(shape, facts, self.config.steps_node)
        shape.undecided.pop(facts.slot, None)
        if score == UNDECIDED:
            shape.undecided[facts.slot] = facts.taken_in
            score = RULED_OUT
        self.verdicts.judged(shape.row, facts.slot, score)
        return score

    def pass_over_unless_bounds_tell(self, shape: Shape, facts: NodeFacts) -> None:
        """Judge one node without a search; what bounds do not tell is out of the way until `take_back`."""
        at, bound = facts.slot, int(self.verdicts.scores[shape.row, facts.slot])
        score = UNDECIDED if shape.untold.get(at) == facts.version else self._judged(shape, facts, 0)
        self.verdicts.judged(shape.row, at, max(score, RULED_OUT))
        if score == UNDECIDED:
            shape.untold[at] = facts.version
            self._passed_over[at] = bound

    def take_back(self, shape: Shape) -> None:
        """Nodes that were passed over have the bound of their score again that they had before."""
        if self._passed_over:
            self.verdicts.doubted(shape.row, self._passed_over)
            self._passed_over = {}

    def judge_harder(self, shape: Shape, facts: NodeFacts) -> int:
        """The last resort: the same with a larger budget."""
        score = self._judged(shape, facts, self.config.steps_last_resort)
        self.counts.over_budget += score == UNDECIDED
        return max(score, RULED_OUT)

    def _judged(self, shape: Shape, facts: NodeFacts, steps: int) -> int:
        plan, barred = self.plan(shape, facts)
        ranked = self._ranked(shape, facts)
        return RULED_OUT if barred else judge(shape, plan, facts, self.config, self.strategy, steps, ranked)

    def _ranked(self, shape: Shape, facts: NodeFacts) -> int | None:
        """What the node scores if it takes the pod, where a sweep or a ranking said so since it changed."""
        known = self._sweeping.ranks and self.at(facts.slot) is facts
        score = int(self.verdicts.scores[shape.row, facts.slot]) if known else OPTIMISTIC
        return score if RULED_OUT < score < OPTIMISTIC else None

    def undecided(self, shape: Shape) -> list[NodeFacts]:
        """Nodes on which the ordinary budget was not enough, as they stand, by name."""
        slots = [slot for slot, at in shape.undecided.items() if (facts := self._slots[slot]) and facts.taken_in == at]
        shape.undecided = {slot: shape.undecided[slot] for slot in slots}
        return sorted((self.at(slot) for slot in slots), key=lambda facts: facts.name)

    def bars(self, pod: Pod) -> Bars:
        """The constraints that look beyond the node's own object, as things stand."""
        return bars(pod, self.around)

    def lifts(self, pod: Pod, barred: Bars) -> Lifts | None:
        """What the pod's preferences (or else the scheduler's homes) add to the scores of its shape, and which nodes it is kept
        from; None for neither."""
        lifts = self._preferences.of(pod, self._slots)
        lifts = self.homes.lifts(self._slots) if lifts is None else lifts
        if not barred:
            return lifts
        open_slots = barred.open(self._slots)
        return np.where(open_slots, 0 if lifts is None else lifts, BARRED).astype(np.int32)

    def shape_of(self, pod: Pod) -> str:
        """The name of the pod's shape: pods of one shape share their verdicts."""
        return key_of(pod)

    def unsettled(self) -> list[str]:
        """Nodes that carry charges whose zones are not known."""
        return sorted(self._unsettled)

    # -- for the pipeline ----------------------------------------------------------------------------------------

    def nodes(self) -> list[NodeFacts]:
        """All nodes by name."""
        return [self._by_name[name] for name in sorted(self._by_name)]

    def node(self, name: str) -> NodeFacts | None:
        """One node's facts."""
        return self._by_name.get(name)

    def at(self, slot: int) -> NodeFacts:
        """The node in a slot of the table."""
        facts = self._slots[slot]
        assert facts is not None
        return facts

    def claimed_node(self, uid: str) -> str:
        """The node that the pod is nominated for, "" for none."""
        return self._claims.get(uid, "")

    def claimed_by(self, uid: str) -> NodeFacts | None:
        """The node that the pod is nominated for, as it stands with the pod's own claim given back."""
        facts = self._by_name.get(self._claims.get(uid, ""))
        return claim_restored(facts, uid) if facts is not None else None

    def shape(self, pod: Pod) -> Shape:
        """The pod's shape; the longest unused one makes room for a new one. What constraints keep of a pod bars nodes beside it:
        pods that differ in their claims only share one."""
        if pod is self._latest[0]:
            return self._latest[1]
        key = key_of(judged := without_kept(pod))
        shape = self._shapes.pop(key, None)
        if shape is None:
            row = len(self._shapes)
            if row >= self.config.max_shapes:
                row = self._shapes.pop(next(iter(self._shapes))).row
            shape = Shape(key, judged, row)
            self.verdicts.start(row)
            self._drops.learn(row, shape.evenly, self._columns.rows)
        self._shapes[key], self._latest = shape, (pod, shape)
        return shape

    def sweep_if_new(self, shape: Shape) -> None:
        """Judge every node for a shape that has no verdicts yet."""
        if not shape.swept:
            shape.swept = True
            self._sweep(shape, None)

    def rank_changed(self, shape: Shape) -> None:
        """Score every node that changed since the shape was asked for, as far as that can be told of many. Whether they take the
        pod is asked when they come out on top."""
        many = self._sweeping.ranks_from
        if many is None:
            return
        slots = self.verdicts.news(shape.row)
        if not len(slots):
            self.verdicts.swept(shape.row)
            return
        if len(slots) >= many:
            scores, sure = np.empty(len(slots), dtype=np.int64), np.empty(len(slots), dtype=np.bool_)
            self._write_columns()
            for at, group in self._columns.among(slots):
                scores[at], sure[at] = self._sweeping.run(shape, group, self._slots)
        else:
            scores = np.array([self._rank(shape, self.at(slot)) for slot in slots.tolist()], dtype=np.int64)
            sure = scores == RULED_OUT
        self.verdicts.ranked_all(shape.row, slots, scores, sure)

    def _rank(self, shape: Shape, facts: NodeFacts) -> int:
        plan, barred = self.plan(shape, facts)
        return RULED_OUT if barred else rank(shape, plan, facts, self.strategy)

    def sweep_unsure(self, shape: Shape, score: int) -> bool:
        """Judge at once all nodes that stand at `score` in doubt; False when no more than doubt comes out of it."""
        if score != OPTIMISTIC and self._sweeping.singly:
            return False
        unsure = self.verdicts.unsure_at(shape.row, score)
        self._sweep(shape, unsure)
        return len(unsure) > len(self.verdicts.unsure_at(shape.row, score))

    def plan(self, shape: Shape, facts: NodeFacts) -> tuple[Plan, bool]:
        """The shape's plan on this node, and whether the node is barred whatever it has free."""
        return self._sweeping.plan(shape, facts.profile, facts.profile_id)

    def _write_columns(self) -> None:
        self._columns.write([facts for slot in sorted(self._stale) if (facts := self._slots[slot]) is not None])
        self._stale.clear()

    def _sweep(self, shape: Shape, only: npt.NDArray[np.int64] | None) -> None:
        self._write_columns()
        scores, sure = self.verdicts.row(shape.row)
        if only is None:
            scores[:], sure[:] = RULED_OUT, True
            self.verdicts.exact[shape.row] = False
        for group in self._columns.groups(only):
            scores[group.selection], sure[group.selection] = self._sweeping.run(shape, group, self._slots)
        if only is None:
            self.verdicts.swept(shape.row)
