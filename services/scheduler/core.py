"""The scheduler's core: facts in, proposals out.

Holds the ledger, the columnar cluster and the queue; decides which pod goes where and which
verdicts and marks are news. Own reservations stand as an overlay in the cluster's columns until the
fold reaches them: the ledger itself changes only by facts. This module must not know the log,
Kubernetes or a clock.
"""

from __future__ import annotations

from functools import partial
from typing import Protocol

import msgspec

from services.scheduler.extender.bind_requests import BindRequests
from services.scheduler.placing import ColumnarPlacing, Placing
from services.scheduler.preempt.nominations import NO_PREEMPTION, Nominations, Searching
from services.scheduler.queue.queue import Queue
from services.scheduler.queue.queueing_hints import ClusterChanges
from services.scheduler.queue.shard import Shard
from services.scheduler.reserve.dirty_marks import DirtyMarks
from services.scheduler.reserve.exclusions import ExclusionProposals
from services.scheduler.reserve.proposals import (
    Proposal,
    demand_weights,
    in_order,
    reservation,
    stamped,
    verdict,
)
from services.scheduler.reserve.rejections import Rejections
from services.scheduler.reserve.withdrawals import withdrawals
from services.scheduler.score.demand import DemandTracker
from services.scheduler.shadow import Shadow
from services.scheduler.snapshot.config import CycleConfig, Provenance
from services.scheduler.snapshot.result import Placed, Unplaceable
from services.scheduler.state import state as scheduler_state
from services.scheduler.state import totals as tallies
from services.scheduler.state.state import SchedulerState
from services.scheduler.state.traceparents import Traceparents
from shared.domain.pod import Pod
from shared.events import scheduling_events as scheduling
from shared.events import streams
from shared.events.catalog import Event
from shared.events.envelope import Envelope
from shared.events.surroundings_events import is_surrounding
from shared.ledger.state import LedgerNode, LedgerPod


class OtherPlacing(Protocol):
    """The configuration of a plugin that chooses nodes instead of the ledger's columns."""

    def placing(self, cycle: CycleConfig) -> Placing:
        """A fresh one."""


class CoreConfig(msgspec.Struct, frozen=True):
    """What the core must be told: its name as a scheduler, the cycle's settings, the rejections
    that make a node dirty, the upstream plugin's arguments where its caches decide instead of the
    ledger, and what its decisions name as what made them. `asked_by` are the schedulers whose pods
    it reserves when they ask."""

    scheduler_name: str = "topolog"
    cycle: CycleConfig = CycleConfig()
    dirty_after_rejections: int = 3
    upstream: OtherPlacing | None = None
    provenance: Provenance = Provenance()
    shadow: bool = False
    asked_by: tuple[str, ...] = ()


class Counters(msgspec.Struct):
    """What happened since the start, for metrics; volatile."""

    decided: int = 0
    reserved: int = 0
    refused: int = 0
    repeated_verdicts: int = 0
    conflicts: int = 0


class SchedulerCore:
    """One scheduler's state. `evolve` folds; `decide` proposes; `conflicted` hears what became of
    the proposals.

    What is made of the ledger (columns, queue, counts) follows each fact once somebody has looked:
    until then, while the log is replayed, the ledger alone is folded, and `begin` makes the rest of
    it at once. `begun` makes it follow from the start."""

    def __init__(
        self, config: CoreConfig, folded: SchedulerState | None = None, begun: bool = True
    ) -> None:
        self.config = config
        self.folded = folded if folded is not None else SchedulerState()
        self.ledger, self.versions = self.folded.ledger, self.folded.versions
        self.exclusions = self.folded.exclusions
        self.cluster = _placing(config)
        self.cluster.learn(self.exclusions, self.folded.cluster_objects)
        columns = self.columns = self.cluster.columns
        by_demand = columns is not None and columns.evaluator.strategy.ranks_by_demand
        self._searching: Searching = NO_PREEMPTION if columns is None else columns
        self.demand = DemandTracker(columns if by_demand else None)
        self.exclusion_proposals = ExclusionProposals()
        self.queue = Queue(self.cluster.class_of)
        self.traceparents = Traceparents()
        self.undecidable: dict[str, str] = {}
        self.counters = Counters()
        self.marks = DirtyMarks(config.dirty_after_rejections)
        self.nominations = Nominations(self.ledger)
        self.binds, self.shadow = BindRequests(), Shadow()
        self.rejections = Rejections(
            () if config.shadow else (config.scheduler_name, *config.asked_by)
        )
        self.share = Shard()
        self.provenance = config.provenance
        self._aside: set[str] = set()
        self._changed: set[str] = set()
        self._behind: set[str] = set()
        self._stirred = ClusterChanges()
        self._begun = False
        if begun or config.shadow or config.upstream is not None:
            self.begin()

    def begin(self) -> None:
        """Make of the ledger what deciding needs, once; from here on it follows every fact."""
        if self._begun:
            return
        self._begun = True
        self.nominations = Nominations(self.ledger)
        if self.columns is not None:
            self.columns.rank_by(self.folded.wanted)
        self._changed.update(self.ledger.nodes)
        for uid, entry in self.ledger.pods.items():
            self.cluster.follow(uid, entry)
            self.demand.follow(uid, entry)
            self._enqueue(entry)

    def take_shard(self, share: Shard) -> None:
        """Decide these pods from now on, and no others; cheap while nothing changes."""
        if share == self.share:
            return
        self.share = share
        self.provenance = msgspec.structs.replace(
            self.config.provenance, config=self.config.provenance.config + share.mark()
        )
        if self.columns is not None:
            self.columns.share(None if share.alone else share.has)
        for uid, entry in self.ledger.pods.items():
            if uid in self.queue and not share.has(uid):
                self.queue.remove(uid)
            elif uid not in self.queue:
                self._enqueue(entry)

    @property
    def scheduler_name(self) -> str:
        return self.config.scheduler_name

    # -- folding
    # -------------------------------------------------------------------------------------------------

    def evolve(self, envelope: Envelope, event: Event) -> None:
        """Fold one fact; the nodes it touched are refreshed before the next decision."""
        if not self._begun:
            scheduler_state.evolve(self.folded, envelope, event)
            return
        if self.config.shadow and self.columns is not None:
            self._refresh()
            self.shadow.before(event, self.ledger, self.columns)
        self.rejections.before(event, self.ledger, self.share)
        self._changed.update(scheduler_state.evolve(self.folded, envelope, event))
        if self.config.shadow:
            self.shadow.after(event)
        uid = event.about.pod
        if isinstance(event, scheduling.PodReserved):
            self.exclusion_proposals.won(uid, event.node)
        elif is_surrounding(event):
            self._stirred.hear(event)
        elif isinstance(event, scheduling.DemandWeighed) and self.columns is not None:
            self.columns.rank_by(self.folded.wanted)
        if self.cluster.caches is not None:
            self.cluster.caches.hear(event)
        self.nominations.hear(event, self.ledger)
        self.traceparents.hear(envelope, event)
        if uid:
            self._follow_pod(uid, self.ledger.pods.get(uid), event)

    def pass_over(self, envelope: Envelope) -> None:
        """A fact that is not folded. A skipped one moves its stream's version all the same; on a
        stream that is set aside the version stays, so that nothing decided here is appended to it.
        """
        scheduler_state.pass_over(self.folded, envelope, moves=envelope.stream not in self._aside)

    def set_aside(self, stream: str) -> None:
        """What a stream says cannot be known from here on: its node takes no pod, its pod is not
        decided.
        """
        self._aside.add(stream)
        kind, _, name = stream.partition("/")
        if kind == "pod":
            self.queue.remove(name)
        elif kind in ("node", "report"):
            self._changed.add(name)

    def _usable(self, name: str) -> LedgerNode | None:
        """The node, unless one of its streams is set aside, or only reports name it: those take no
        column, and no pod, since anybody may publish under a name."""
        node = self.ledger.nodes.get(name)
        aside = self._aside & {f"node/{name}", f"report/{name}"}
        return None if aside or node is None or node.observed is None else node

    def _follow_pod(self, uid: str, entry: LedgerPod | None, event: Event) -> None:
        self.cluster.follow(uid, entry)
        self.demand.follow(uid, entry)
        if entry is None or not self._waits(entry):
            self.queue.remove(uid)
        elif not isinstance(event, scheduling.PodVerdictChanged):
            self._enqueue(entry)

    def _enqueue(self, entry: LedgerPod) -> None:
        ours = entry.pod.scheduler_name == self.config.scheduler_name and not self.config.shadow
        if ours and self._waits(entry) and self.share.has(entry.pod.uid):
            self.queue.add(entry.pod, entry.observed_at)

    def _waits(self, entry: LedgerPod) -> bool:
        uid = entry.pod.uid
        held_back = (
            f"pod/{uid}" in self._aside
            or entry.pod.constraints.gates
            or uid in self.exclusions.barred
        )
        return entry.stage == "pending" and not entry.terminating and not held_back

    def _refresh(self) -> list[str]:
        """Bring the touched nodes' columns up to date and wake who may be helped; returns the nodes
        that changed.
        """
        changed = sorted(self._changed)
        self._changed.clear()
        for name in changed:
            node = self._usable(name)
            if node is None:
                self.cluster.drop_node(name)
            else:
                self.cluster.put_node(node)
            self._note_behind(name, node)
        opened = self.columns.opened() if self.columns is not None else ()
        self._wake(sorted({*changed, *opened}))
        return changed

    def _wake(self, changed: list[str]) -> None:
        """One waiting pod of each shape that one of these nodes may help, or what changed around
        it, and every nominee of one of them."""
        for shape, pod in self.queue.waiting_shapes() if changed or self._stirred else ():
            stirred = self._stirred and self._stirred.concerns(pod, self.folded.cluster_objects)
            if stirred or (changed and self.cluster.waiting_could_fit(pod, changed)):
                self.queue.wake_one(shape)
        self._stirred.clear()
        for uid in self.nominations.wake(changed):
            self.queue.wake(uid)

    def _note_behind(self, name: str, node: LedgerNode | None) -> None:
        """Nodes whose newest report does not count yet: only a comparison of fingerprints can help
        who waits for them.
        """
        if node is not None and node.basis != node.report:
            self._behind.add(name)
        else:
            self._behind.discard(name)

    # -- deciding
    # ------------------------------------------------------------------------------------------------

    def decide(self, limit: int, now_s: float = 0.0) -> list[Proposal]:
        """Decide at most `limit` pods; each proposal is one commit. Also proposes dirty marks,
        reconciliations, nodes to set aside or to try again (by `now_s`, monotonic), and what to
        take back from nodes that ended."""
        if self.config.shadow:
            return []
        self.begin()
        proposals = self.exclusion_proposals.proposals(
            self.exclusions, self.ledger.position, self.versions
        )
        proposals += self.exclusion_proposals.again(
            self.exclusions, self.ledger, now_s, self.versions
        )
        proposals += self.marks.proposals(self.ledger, self._changed, self.versions)
        changed = self._refresh()
        proposals += withdrawals(self.ledger, changed, self.versions)
        proposals += self._demand_weights()
        self.nominations.begin(now_s)
        proposals += self._asked_binds()
        for order in range(limit):
            popped = self.queue.pop()
            if popped is None:
                break
            pod, arrival = popped
            made = self._decide_one(pod, arrival, order)
            proposals += made
            if self._must_be_folded(made):
                break
        proposals += self._nominate(changed, proposals)
        self._refuse_silently()
        return [stamped(proposal, self.provenance) for proposal in in_order(proposals)]

    def _demand_weights(self) -> list[Proposal]:
        weights = self.demand.new_weights(self.folded.wanted)
        if weights is None:
            return []
        return [demand_weights(weights, self.ledger.position, self._version(streams.DEMAND))]

    def _asked_binds(self) -> list[Proposal]:
        """What kube-schedulers asked for by the extender; settings allow it with the ledger's
        columns only.
        """
        if not self.binds or self.columns is None:
            return []
        reserve = partial(self._reserve, order=0)
        return self.binds.proposals(self.columns, self.ledger, self.versions, reserve)

    def look(self) -> None:
        """Bring the columns of touched nodes up to date for somebody who only asks; a node with own
        reservations under way waits for the next decision, as its overlay must not be lost."""
        self.begin()
        if self.columns is None:
            return
        for name in sorted(self._changed):
            node, events = self._usable(name), self.columns.node(name)
            if node is not None and not (events is not None and events.assumed):
                self.cluster.put_node(node)

    def _must_be_folded(self, made: list[Proposal]) -> bool:
        """True for what counts only once it stands in the log: the batch ends there."""
        caches = self.cluster.caches is not None
        return any(each.nominates or (each.node and caches) for each in made)

    def _nominate(self, changed: list[str], proposals: list[Proposal]) -> list[Proposal]:
        """Nothing else was decided: may a waiting pod have room by eviction?"""
        if any(each.uid for each in proposals):
            return []
        found = self.nominations.waiting(
            changed, self._searching, self.ledger, self.versions, self.share.has
        )
        return [found] if found is not None else []

    def tick(self) -> None:
        """The resync period of an upstream cache went by."""
        if self.cluster.caches is not None and self.cluster.caches.tick():
            self.queue.wake_all()

    def _refuse_silently(self) -> None:
        """Pods that wait on are refused once more by every node that is behind: without it nobody
        would ask to compare it.
        """
        if self._behind and not self.queue.ready_count() and self.queue.waiting_count():
            self.marks.rejected(self.ledger, sorted(self._behind))

    def _decide_one(self, pod: Pod, arrival: int, order: int) -> list[Proposal]:
        self.counters.decided += 1
        entry = self.ledger.pods[pod.uid]
        unready = self._unready(entry)
        choice = unready or self._place(pod)
        if isinstance(choice, Placed):
            return [self._reserve(pod, choice, order)]
        self.counters.refused += 1
        self.queue.park(pod, arrival)
        self.marks.rejected(self.ledger, self.cluster.unconfirmed())
        made = self._verdict(entry, choice, order)
        nomination = None if unready else self._nomination(entry)
        return [*made, nomination] if nomination is not None else made

    def _verdict(self, entry: LedgerPod, choice: Unplaceable, order: int) -> list[Proposal]:
        if entry.verdict == choice.message or (entry.verdict and self.nominations.waits(entry)):
            self.counters.repeated_verdicts += 1
            return []
        return [
            verdict(
                entry.pod,
                choice,
                order,
                self.ledger.position,
                self._version(f"pod/{entry.pod.uid}"),
            )
        ]

    def _nomination(self, entry: LedgerPod) -> Proposal | None:
        version = self._version(f"pod/{entry.pod.uid}")
        try:
            return self.nominations.refused(
                entry, self._searching, self.ledger, version, self.versions
            )
        except Exception as error:
            self.undecidable[entry.pod.uid] = repr(error)
            return None

    def _place(self, pod: Pod) -> Placed | Unplaceable:
        """An error inside the cycle concerns this pod only: it waits with a verdict that says so,
        and the others go on.
        """
        try:
            return self.cluster.place(pod)
        except Exception as error:
            self.undecidable[pod.uid] = repr(error)
            return Unplaceable(
                message=f"internal error while deciding: {error!r}",
                counts={"internal error": 1},
                detail=(),
            )

    def _unready(self, entry: LedgerPod) -> Unplaceable | None:
        if not entry.problem:
            return None
        return Unplaceable(
            message=f"pod cannot be scheduled: {entry.problem}",
            counts={"unreadable manifest": 1},
            detail=(),
        )

    def _reserve(self, pod: Pod, placed: Placed, order: int) -> Proposal:
        self.counters.reserved += 1
        zones = self.cluster.assume(placed, pod)
        self.marks.accepted(placed.node)
        shape = self.cluster.class_of(pod)
        self.queue.wake_one(shape)
        entry = self.ledger.pods.get(pod.uid)
        nominated = entry is not None and entry.nominated == placed.node
        narrowed = placed.predicted if self.config.cycle.prediction == "trust" else {}
        versions = self._version(f"pod/{pod.uid}"), self._version(f"node/{placed.node}")
        return reservation(
            pod, placed, zones, order, self.ledger.position, *versions, nominated, narrowed
        )

    def _version(self, stream: str) -> int:
        return self.versions.get(stream, 0)

    def stats(self) -> dict[str, int]:
        """Numbers for people: those of the ledger, of the queue, and counters."""
        return {
            **tallies.of(self.ledger),
            "queue_ready": self.queue.ready_count(),
            "queue_waiting": self.queue.waiting_count(),
            "nominated": len(self.nominations.open),
            "nodes_set_aside": len(self.exclusions.nodes),
            "pods_barred": len(self.exclusions.barred),
            **msgspec.structs.asdict(self.counters),
        }

    # -- after the append
    # ------------------------------------------------------------------------------------------

    def conflicted(self, proposal: Proposal) -> None:
        """Somebody else moved a stream first: drop the overlay and decide the pod again after the
        fold caught up.
        """
        self.counters.conflicts += 1
        if proposal.node:
            self._changed.add(proposal.node)
        entry = self.ledger.pods.get(proposal.uid)
        if proposal.uid:
            self.cluster.follow(proposal.uid, entry)
            self.binds.conflicted(proposal.uid)
        if entry is not None:
            self._enqueue(entry)

    def contested(self, proposal: Proposal) -> None:
        """A reservation lost a race for its node, which is set aside after too many in a row."""
        entry = self.ledger.pods.get(proposal.uid)
        if entry is not None and proposal.node:
            self.exclusion_proposals.lost(entry.pod, proposal.node, self.exclusions)


def _placing(config: CoreConfig) -> Placing:
    return (
        ColumnarPlacing(config.cycle)
        if config.upstream is None
        else config.upstream.placing(config.cycle)
    )
