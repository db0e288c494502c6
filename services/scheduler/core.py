"""The scheduler's core: events in, proposals out.

Holds the ledger, the columnar cluster and the queue. Decides which pod goes to which node, and
which outcomes and dirty marks are new. Own reservations are assumed in the cluster's columns until
the fold reaches them, because the ledger changes only by events. Must not know the log, Kubernetes
or a clock.

One call of `decide` is one turn:

1. proposals about nodes: exclusions, dirty marks, withdrawals, demand weights, holds;
2. changed nodes are refreshed, and waiting pods that they may help are woken;
3. pods are taken from the queue: each is reserved on a node, or waits;
4. refusals are explained, which costs many times more than the filter itself;
5. if nothing was decided, a search for victims.

A turn ends early if `has_time` returns False, and the next one continues from there.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import count

import msgspec

from services.scheduler.explain.gang_decisions import GangDecisions
from services.scheduler.explain.placing import OtherPlacing, placing_of
from services.scheduler.explain.shadow import Shadow
from services.scheduler.explain.wording import PREEMPTION, preemption
from services.scheduler.extender.bind_requests import BindRequests
from services.scheduler.preempt.nominations import PREEMPTS, Nominations
from services.scheduler.queue.queue import Queue, Waking
from services.scheduler.queue.shard import Shard
from services.scheduler.reserve.dirty_marks import DirtyMarks
from services.scheduler.reserve.exclusions import ExclusionProposals, Rejections
from services.scheduler.reserve.gangs import GangQueue, Unit
from services.scheduler.reserve.holds import HoldProposals
from services.scheduler.reserve.proposals import (
    Proposal,
    demand_weights,
    expired_bookings,
    in_order,
    reservation,
    stamped,
    usable,
    verdict,
    withdrawals,
)
from services.scheduler.reserve.takeover import takeovers
from services.scheduler.score.demand import DemandTracker
from services.scheduler.score.preferences import without_effect
from services.scheduler.snapshot.config import (
    GANG_TIMEOUT_S,
    CycleConfig,
    HoldSettings,
    Provenance,
)
from services.scheduler.snapshot.result import Placed, Unplaceable
from services.scheduler.state import state as scheduler_state
from services.scheduler.state import totals
from services.scheduler.state.state import SchedulerState
from services.scheduler.state.traceparents import Traceparents
from shared.domain.cells import Cells
from shared.domain.pod import Pod
from shared.events import scheduling_events as scheduling
from shared.events import streams
from shared.events import surroundings_events as surroundings
from shared.events.catalog import Event
from shared.events.envelope import Envelope
from shared.ledger.state import LedgerNode, LedgerPod, ZoneAmounts

# Shares of a turn's time after which waking, deciding and explaining pause until the next turn.
WAKING, DECIDING, EXPLAINING = 0.4, 0.8, 1.0
HasTime = Callable[[float], bool]


class CoreConfig(msgspec.Struct, frozen=True):
    """The core's configuration. `upstream` decides instead of the ledger, if given. Decisions name
    `provenance` as their origin. With `shadow` nothing is decided. Pods of the kube-schedulers in
    `asked_by` are reserved on request. Nodes of other `cells` take no pods."""

    scheduler_name: str = "topolog"
    cycle: CycleConfig = CycleConfig()
    dirty_after_rejections: int = 3
    upstream: OtherPlacing | None = None
    provenance: Provenance = Provenance()
    hold: HoldSettings = HoldSettings()
    shadow: bool = False
    asked_by: tuple[str, ...] = ()
    gang_timeout_s: float = GANG_TIMEOUT_S
    cells: Cells | None = None


class Counters(msgspec.Struct):
    """Counts since the start, for metrics; volatile."""

    decided: int = 0
    reserved: int = 0
    refused: int = 0
    repeated_verdicts: int = 0
    conflicts: int = 0


class SchedulerCore:
    """One scheduler's state. `evolve` folds, `decide` proposes, `conflicted` drops a proposal.
    While the log is replayed only the ledger is folded. `begin` makes columns and queue from it at
    once, and from then on they follow each event; with `begun` they do so from the start."""

    def __init__(
        self, config: CoreConfig, folded: SchedulerState | None = None, begun: bool = True
    ) -> None:
        self.config = config
        self.folded = folded if folded is not None else SchedulerState()
        self.ledger, self.versions = self.folded.ledger, self.folded.versions
        self.exclusions = self.folded.exclusions
        self.cluster = placing_of(config.cycle, config.upstream)
        self.cluster.learn(self.exclusions, self.folded.cluster_objects, self.folded.holds)
        columns = self.columns = self.cluster.columns
        by_demand = columns is not None and columns.evaluator.strategy.ranks_by_demand
        self.demand = DemandTracker(columns if by_demand else None)
        self.exclusion_proposals = ExclusionProposals(self.folded)
        self.queue = Queue(self._class_of)
        self.gangs = GangQueue(config, self.folded, self.queue, self._is_ours, lambda: self.shard)
        self.gang_decisions = GangDecisions(
            self.gangs,
            self.cluster,
            lambda entry: _unreadable(entry) or self._select(entry.pod),
            lambda entry: _unreadable(entry) or self._explain(entry.pod),
            self._reservation,
            self._verdict,
            config.cycle.topology_layers,
        )
        self.traceparents, self.counters = Traceparents(), Counters()
        self.undecidable: dict[str, str] = {}
        self.marks = DirtyMarks(config.dirty_after_rejections)
        self.nominations = Nominations(self.folded, columns)
        self.holds = HoldProposals(config.hold, config.scheduler_name)
        self.binds, self.shadow = BindRequests(self.folded), Shadow()
        self.rejections = Rejections(
            () if config.shadow else (config.scheduler_name, *config.asked_by)
        )
        self.shard = Shard()
        self.provenance = config.provenance
        self._quarantined: set[str] = set()
        # Nodes to refresh, and nodes that took own reservations over as assumed.
        self._changed, self._took_over = set[str](), set[str]()
        self._behind: set[str] = set()
        self._waking, self._turn = Waking(), 0
        # Uids of refused pods without an explanation, and the turn in which they were refused.
        self._unexplained: dict[str, int] = {}
        self._begun = False
        if begun or config.shadow or config.upstream is not None:
            self.begin()

    def begin(self) -> None:
        """Make columns, queue and counts from the ledger, once."""
        if self._begun:
            return
        self._begun = True
        self.nominations = Nominations(self.folded, self.columns)
        if self.columns is not None:
            self.columns.rank_by(self.folded.wanted)
        self._changed.update(self.ledger.nodes)
        for uid, entry in self.ledger.pods.items():
            self.cluster.follow(uid, entry)
            self.demand.follow(uid, entry)
            self._enqueue(entry)

    def take_shard(self, shard: Shard) -> None:
        """Decide the pods of this shard only."""
        if shard == self.shard:
            return
        self.shard = shard
        config = self.config.provenance.config + shard.mark()
        self.provenance = msgspec.structs.replace(self.config.provenance, config=config)
        if self.columns is not None:
            self.columns.share(None if shard.alone else shard.has)
        for uid, entry in self.ledger.pods.items():
            if uid not in self.queue or entry.pod.gang is not None:
                self._enqueue(entry)
            elif not shard.has(uid):
                self.queue.remove(uid)

    @property
    def scheduler_name(self) -> str:
        return self.config.scheduler_name

    # -- folding

    def evolve(self, envelope: Envelope, event: Event) -> None:
        """Fold one event; the nodes that it changed are refreshed before the next decision."""
        if not self._begun:
            scheduler_state.evolve(self.folded, envelope, event)
            return
        if self.config.shadow and self.columns is not None:
            self._refresh()
            self.shadow.before(event, self.ledger, self.columns)
        self.rejections.before(event, self.ledger, self.shard)
        uid, gangs = event.about.pod, self.folded.gangs.key_of
        gang = gangs.get(uid, "")
        touched = scheduler_state.evolve(self.folded, envelope, event)
        is_own = len(touched) == 1 and self._changed.isdisjoint(touched) and self._takes_over(event)
        (self._took_over if is_own else self._changed).update(touched)
        if self.config.shadow:
            self.shadow.after(event)
        if isinstance(event, scheduling.PodReserved):
            self.exclusion_proposals.won(uid, event.node)
        elif surroundings.is_surrounding(event):
            self._waking.cluster_changes.note(event)
            self.gangs.note(surroundings.stream_of(event))
        elif isinstance(event, scheduling.HoldEnded):
            self._changed.add(event.node)  # Other pods may use the node again.
        elif isinstance(event, scheduling.DemandWeighed) and self.columns is not None:
            self.columns.rank_by(self.folded.wanted)
        if self.cluster.caches is not None:
            self.cluster.caches.fold(event)
        self.nominations.evolve(event)
        self.traceparents.note(envelope, event)
        if uid:
            self._follow_pod(uid, self.ledger.pods.get(uid), event)
            if (gang or uid in gangs) and not isinstance(event, scheduling.PodVerdictChanged):
                self.gangs.note(gangs.get(uid) or gang)

    def _takes_over(self, event: Event) -> bool:
        return self.columns is not None and self.columns.take_over(event, self.ledger.nodes)

    def pass_over(self, envelope: Envelope) -> None:
        """Pass over an event that is not folded. A skipped event moves its stream's version; on a
        quarantined stream the version stays, so that no proposal is appended to it.
        """
        moves = envelope.stream not in self._quarantined
        scheduler_state.pass_over(self.folded, envelope, moves=moves)

    def set_aside(self, stream: str) -> None:
        """Quarantine a stream: its node takes no pod, its pod is not decided. If it carries safety
        events, nothing is decided."""
        self._quarantined.add(stream)
        if streams.carries_safety(stream):
            self.folded.listings.block(stream)
        kind, _, name = stream.partition("/")
        if kind == "pod":
            self.queue.remove(name)
        elif kind in ("node", "report"):
            self._changed.add(name)

    def _usable_node(self, name: str) -> LedgerNode | None:
        node = usable(self.ledger.nodes.get(name), self.config.cells)
        return None if self._quarantined & {f"node/{name}", f"report/{name}"} else node

    def _follow_pod(self, uid: str, entry: LedgerPod | None, event: Event) -> None:
        self.cluster.follow(uid, entry)
        self.demand.follow(uid, entry)
        if entry is None or not self._may_be_decided(entry):
            self.queue.remove(uid)
        elif not isinstance(event, scheduling.PodVerdictChanged):
            self._enqueue(entry)

    def _enqueue(self, entry: LedgerPod) -> None:
        if entry.pod.gang is not None:
            self.queue.remove(entry.pod.uid)
            self.gangs.note(entry.pod.gang.key)
        elif self._is_ours(entry) and self.shard.has(entry.pod.uid):
            self.queue.add(entry.pod, entry.observed_at)

    def _is_ours(self, entry: LedgerPod) -> bool:
        ours = entry.pod.scheduler_name == self.config.scheduler_name and not self.config.shadow
        return ours and self._may_be_decided(entry)

    def _class_of(self, pod: Pod) -> str:
        key = self.cluster.class_of(pod)
        return key if pod.gang is None else f"{key} {pod.gang.key}"

    def _may_be_decided(self, entry: LedgerPod) -> bool:
        uid = entry.pod.uid
        if f"pod/{uid}" in self._quarantined or uid in self.exclusions.barred:
            return False
        return entry.stage == "pending" and not (entry.terminating or entry.pod.constraints.gates)

    def _refresh(self) -> list[str]:
        """Refresh the columns of changed nodes; returns the names, also of nodes that took over."""
        refreshed, changed = sorted(self._changed), sorted(self._changed | self._took_over)
        self._changed.clear()
        self._took_over.clear()
        for name in refreshed:
            node = self._usable_node(name)
            if node is None:
                self.cluster.drop_node(name)
            else:
                self.cluster.put_node(node)
            # The newest report does not count yet, so only a comparison of fingerprints can help
            # pods that wait for this node.
            if node is not None and node.basis != node.report:
                self._behind.add(name)
            else:
                self._behind.discard(name)
        self._waking.nodes.update(changed)
        if self.columns is not None:
            self._waking.nodes.update(self.columns.opened())
        for uid in (*self.nominations.wake(changed), *self.holds.wake(self.folded, changed)):
            self.queue.wake(uid)
        return changed

    def _wake(self, has_time: HasTime) -> None:
        """Wake one waiting pod of each class that a change may help. Changes that come during a
        round wait for the next one."""
        self._waking.start_round(self.queue)
        while self._waking.classes:
            class_key = self._waking.classes.pop()
            pod = self.queue.first_waiting(class_key)
            if pod is not None and self._may_be_helped(pod):
                self.queue.wake_one(class_key)
            if not has_time(WAKING):
                break

    def _may_be_helped(self, pod: Pod) -> bool:
        waking, unit = self._waking, self.gangs.unit(pod)
        entries = unit.pods if unit is not None else ()
        by_class = {self.cluster.class_of(entry.pod): entry.pod for entry in entries}
        return any(
            waking.round_changes.concerns(member, self.folded.cluster_objects)
            or (waking.round_nodes and self.cluster.waiting_could_fit(member, waking.round_nodes))
            for member in by_class.values() or (pod,)
        )

    # -- deciding

    def decide(
        self,
        limit: int,
        now_s: float = 0.0,
        has_time: HasTime = lambda _share: True,
        now_us: int = 0,
    ) -> list[Proposal]:
        """Decide at most `limit` pods; each proposal is one commit. `now_s` is monotonic, `now_us`
        the time of day, 0 if it is not known: no pod is overdue then. `has_time(share)` is False
        once this share of the turn's time has passed."""
        if self.config.shadow:
            return []
        self.begin()
        self._turn += 1
        self.gang_decisions.assumed.clear()
        proposals = self.exclusion_proposals.proposals()
        proposals += self.exclusion_proposals.retries(now_s)
        proposals += self.marks.proposals(self.ledger, self._changed, self.versions)
        changed = self._refresh()
        proposals += withdrawals(self.ledger, changed, self.versions, self.config.cells)
        proposals += takeovers(self.ledger, changed, self.versions)
        proposals += self._demand_weights()
        holds = self._holds(changed, now_s, now_us)
        proposals += holds
        self.nominations.begin(now_s)
        asked = self._bind_requests()
        proposals += asked
        must_fold = bool(holds) or any(proposal.counts_once_folded for proposal in asked)
        self._wake(has_time)
        orders = count()
        proposals += self.gang_decisions.settle(orders, now_s)
        # A hold counts once it is folded, so that no pod takes the node in the same turn.
        proposals += self._decide_pods(0 if must_fold else limit, orders, has_time)
        proposals += self._explanations(orders, has_time)
        proposals += self._nominate(changed, proposals)
        self._refuse_on_behalf_of_waiting()
        return [stamped(proposal, self.provenance) for proposal in in_order(proposals)]

    def has_work(self) -> bool:
        """Return whether the next turn has work even if no event comes."""
        has_pods = self.queue.ready_count() or self.gangs.changed
        return bool(has_pods or self._waking.classes or self._unexplained)

    def _decide_pods(self, limit: int, orders: count[int], has_time: HasTime) -> list[Proposal]:
        proposals, caches = list[Proposal](), self.cluster.caches is not None
        for number in range(limit):
            popped = self.queue.pop() if number == 0 or has_time(DECIDING) else None
            if popped is None:
                break
            unit = self.gangs.unit(popped[0])
            if unit is not None:
                proposals += self._decide_gang(unit, popped[1], orders)
                continue
            made = self._decide_pod(*popped, next(orders))
            proposals += made
            # These count once folded: also a reservation of a cache, which assumes nothing.
            if any(p.counts_once_folded or (p.node and caches) for p in made):
                break
        return proposals

    def _decide_pod(self, pod: Pod, arrival: int, order: int) -> list[Proposal]:
        self.counters.decided += 1
        entry = self.ledger.pods[pod.uid]
        choice = _unreadable(entry) or self._select(pod)
        if isinstance(choice, Placed):
            return [self._reserve(pod, choice, order)]
        self.counters.refused += 1
        self.queue.park(pod, arrival)
        self.marks.rejected(self.ledger, self.cluster.unconfirmed())
        self._unexplained.pop(pod.uid, None)
        nomination = None if entry.problem else self._nomination(entry)
        if choice is None and nomination is None:
            self._unexplained[pod.uid] = self._turn
            return []
        choice = choice if choice is not None else self._explain(pod, entry.verdict)
        made = self._verdict(entry, choice, order)
        return made if nomination is None else [*made, nomination]

    def _decide_gang(self, unit: Unit, arrival: int, orders: count[int]) -> list[Proposal]:
        self.counters.decided += unit.missing
        proposal = self.gang_decisions.decide(unit, orders)
        if proposal is not None:
            return [proposal]
        self.counters.refused += unit.missing
        self.queue.park(unit.pods[0].pod, arrival)
        self._unexplained[unit.pods[0].pod.uid] = self._turn
        return []

    def _select(self, pod: Pod) -> Placed | Unplaceable | None:
        """Select a node. An error concerns this pod only, which then waits with an outcome that
        names it."""
        try:
            return self.cluster.select(pod)
        except Exception as error:
            return self._internal_error(pod, error)

    def _explain(self, pod: Pod, last_message: str = "") -> Unplaceable:
        try:
            return self.cluster.explain(pod, last_message)
        except Exception as error:
            return self._internal_error(pod, error)

    def _internal_error(self, pod: Pod, error: Exception) -> Unplaceable:
        self.undecidable[pod.uid] = repr(error)
        message = f"internal error while deciding: {error!r}"
        return Unplaceable(message, counts={"internal error": 1}, detail=())

    def _explanations(self, orders: count[int], has_time: HasTime) -> list[Proposal]:
        """Explain refusals; one per turn while pods are ready."""
        proposals = list[Proposal]()
        for uid in list(self._unexplained):
            proposals += self._explanation(uid, self._unexplained.pop(uid), orders)
            if self.queue.ready_count() or not has_time(EXPLAINING):
                break
        return proposals

    def _explanation(self, uid: str, turn: int, orders: count[int]) -> list[Proposal]:
        entry = self.ledger.pods.get(uid)
        if entry is None or not self.queue.is_waiting(uid):
            return []
        unit = self.gangs.unit(entry.pod)
        if unit is not None:
            return self.gang_decisions.explain(unit, orders)
        if turn != self._turn and self._select(entry.pod) is not None:
            self.queue.wake(uid)  # A change has made room since, or concerns this pod otherwise.
            return []
        return self._verdict(entry, self._explain(entry.pod, entry.verdict), next(orders))

    def _verdict(self, entry: LedgerPod, choice: Unplaceable, order: int) -> list[Proposal]:
        choice = self._with_preemption(entry.pod, choice)
        # The claim of a nominated pod itself would look like a new reason to wait.
        claims = bool(entry.verdict) and self.nominations.waits(entry)
        if entry.verdict == choice.message or claims:
            self.counters.repeated_verdicts += 1
            return []
        if not choice.has_detail:  # only the sentence on preemption differs
            choice = msgspec.structs.replace(choice, detail=self._explain(entry.pod).detail)
        version = self._version(streams.pod(entry.pod.uid))
        return [verdict(entry.pod, choice, order, self.ledger.position, version)]

    def _with_preemption(self, pod: Pod, choice: Unplaceable) -> Unplaceable:
        """Add kube-scheduler's sentence on preemption, unless victims may yet be found."""
        if not choice.nodes or (choice.eviction_may_help and self.nominations.may_preempt(pod)):
            return choice
        if pod.preemption_policy != PREEMPTS:
            sentence = f"{PREEMPTION}not eligible due to preemptionPolicy={pod.preemption_policy}."
        else:
            sentence = preemption(choice.nodes, choice.eviction_may_help)
        return msgspec.structs.replace(choice, message=choice.message + sentence)

    def _reserve(self, pod: Pod, placed: Placed, order: int) -> Proposal:
        zones = self.cluster.assume(placed, pod)
        self.gang_decisions.assumed.append((placed, pod))
        return self._reservation(pod, placed, zones, order)

    def _reservation(self, pod: Pod, placed: Placed, zones: ZoneAmounts, order: int) -> Proposal:
        self.counters.reserved += 1
        if placed.allocation is not None:
            zones = placed.allocation.zones
        self.marks.accepted(placed.node)
        self.queue.wake_one(self._class_of(pod))
        entry = self.ledger.pods.get(pod.uid)
        nominated = entry is not None and entry.nominated == placed.node
        narrowed = placed.predicted if self.config.cycle.prediction == "trust" else {}
        node = self.ledger.nodes.get(placed.node)
        ignored = without_effect(pod, node, self.config.cycle.strategy)
        versions = self._version(streams.pod(pod.uid)), self._version(streams.node(placed.node))
        return reservation(
            pod, placed, zones, order, self.ledger.position, *versions, nominated, narrowed, ignored
        )

    def _nomination(self, entry: LedgerPod) -> Proposal | None:
        try:
            return self.nominations.refused(entry.pod)
        except Exception as error:
            self.undecidable[entry.pod.uid] = repr(error)
            return None

    def _nominate(self, changed: list[str], proposals: list[Proposal]) -> list[Proposal]:
        """Search victims for a waiting pod, if nothing else was decided."""
        if any(proposal.uid for proposal in proposals):
            return []
        nomination = self.nominations.waiting(changed, self.shard.has)
        return [nomination] if nomination is not None else []

    def _demand_weights(self) -> list[Proposal]:
        weights = self.demand.new_weights(self.folded.wanted)
        if weights is None:
            return []
        return [demand_weights(weights, self.ledger.position, self._version(streams.DEMAND))]

    def _holds(self, changed: list[str], now_s: float, now_us: int) -> list[Proposal]:
        """Begin and end holds of nodes, and end bookings. The first scheduler does so for all."""
        columns, barred = self.columns, self.exclusions.barred
        if columns is None or not self.shard.leads:
            return []
        ends = expired_bookings(columns.bookings, now_us, self.ledger.position, self.versions)
        return ends + self.holds.proposals(self.folded, columns, barred, changed, now_s, now_us)

    def _bind_requests(self) -> list[Proposal]:
        # Settings allow an extender with the ledger's columns only.
        if not self.binds or self.columns is None:
            return []
        return self.binds.proposals(self.columns, partial(self._reserve, order=0))

    def _refuse_on_behalf_of_waiting(self) -> None:
        """Count a rejection by every node whose report does not count yet, while pods wait.
        Otherwise such a node would never be compared.
        """
        if self._behind and not self.queue.ready_count() and self.queue.waiting_count():
            self.marks.rejected(self.ledger, sorted(self._behind))

    def look(self) -> None:
        """Refresh changed nodes for a request that only reads. A node with assumed reservations
        waits for the next decision, because a refresh would drop them."""
        self.begin()
        if self.columns is None:
            return
        for name in sorted(self._changed):
            node, node_info = self._usable_node(name), self.columns.node(name)
            if node is not None and not (node_info is not None and node_info.assumed):
                self.cluster.put_node(node)

    def tick(self) -> None:
        """Let an upstream cache resync."""
        if self.cluster.caches is not None and self.cluster.caches.tick():
            self.queue.wake_all()

    def _version(self, stream: str) -> int:
        return self.versions.get(stream, 0)

    def stats(self) -> dict[str, int]:
        """Return numbers of the ledger, of the queue, and counters."""
        return {
            **totals.of(self.ledger),
            "queue_ready": self.queue.ready_count(),
            "queue_waiting": self.queue.waiting_count(),
            "nominated": len(self.nominations.open),
            "nodes_set_aside": len(self.exclusions.nodes),
            "pods_barred": len(self.exclusions.barred),
            **msgspec.structs.asdict(self.counters),
        }

    # -- after the append

    def conflicted(self, proposal: Proposal) -> None:
        """Another writer moved a stream first: drop the assumed reservation, and decide the pod
        again once the fold caught up.
        """
        self.counters.conflicts += 1
        for part in proposal.pods:
            if part.node:
                self._changed.add(part.node)
            entry = self.ledger.pods.get(part.uid)
            if part.uid:
                self.cluster.follow(part.uid, entry)
                self.binds.conflicted(part.uid)
            if entry is not None:
                self._enqueue(entry)

    def contested(self, proposal: Proposal) -> None:
        """Count a lost race for a node, which is excluded after too many in a row."""
        entry = self.ledger.pods.get(proposal.uid)
        if entry is not None and proposal.node:
            self.exclusion_proposals.lost(entry.pod, proposal.node)


def _unreadable(entry: LedgerPod) -> Unplaceable | None:
    if not entry.problem:
        return None
    message = f"pod cannot be scheduled: {entry.problem}"
    return Unplaceable(message, counts={"unreadable manifest": 1}, detail=())
