"""The deciding loop: wait for the fold, decide, append, note the outcomes.

It decides only under a lease, and only once the fold has every event that this process appended and
every event that it lost a race to. So an own reservation counts exactly once, and no race is lost
twice to one event. Must not know Kubernetes or how the log is stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from services.scheduler.core import CoreConfig, SchedulerCore
from services.scheduler.explain.empty_nodes import EmptyNodes
from services.scheduler.queue.queue import UnschedulableFlush
from services.scheduler.queue.shard import Shard
from services.scheduler.reserve.exclusions import REASONS
from services.scheduler.reserve.proposals import Proposal, together
from services.scheduler.state import state as scheduler_state
from services.scheduler.state import totals
from services.scheduler.state.state import FORM, snapshot_key
from shared.eventlog.errors import LogUnavailable
from shared.eventlog.port import (
    Appended,
    Commit,
    Conflict,
    Duplicate,
    EventLog,
    Fenced,
    Lease,
    Outcome,
    Place,
)
from shared.events import streams
from shared.events.scheduling_events import (
    GangRolledBack,
    HoldBegun,
    HoldEnded,
    NodeReadmitted,
    NodeSetAside,
    PodReadmitted,
    ReservationWithdrawn,
)
from shared.ledger.promises import promises, weight
from shared.runtime.acknowledged import Acknowledged
from shared.runtime.appending import append_until_answered
from shared.runtime.clock import Clock
from shared.runtime.crash import crash_point
from shared.runtime.lent_lease import LentLease
from shared.runtime.marks import Promises
from shared.runtime.projector import Fold, Folded, Projector
from shared.runtime.waiting import set_within
from shared.telemetry import logs, names
from shared.telemetry.declare import Metric
from shared.telemetry.instruments import count, observe, set_gauge, timed, worked
from shared.telemetry.propagation import trace_of

ROLE = "scheduler"
BATCH_PODS = 200
# The time of one turn. Nothing else in this process runs meanwhile, not even the renewal of leases.
TURN_S = 0.25
# The pause after a long turn, in which the loop serves everything that has waited. One pass of the
# event loop is not enough, because the renewal of a lease exchanges several messages with Postgres.
LONG_TURN_S, PAUSE_S = 0.05, 0.01
REACH_TIMEOUT_S = 30.0
IDLE_S = 1.0
FILL_EVERY_S = 10.0


def fold_of(config: CoreConfig) -> Fold[SchedulerCore]:
    """Return the scheduler's fold as the projector runs it.

    Volatile state (queue order, counts of rejections, traces) is built again from what a snapshot
    keeps. The upstream plugin's caches learn from every event, so they replay the whole log and use
    no snapshot."""
    if config.upstream is not None:
        return Fold(
            initial=lambda: SchedulerCore(config),
            evolve=SchedulerCore.evolve,
            pass_over=SchedulerCore.pass_over,
            set_aside=SchedulerCore.set_aside,
        )
    return Fold(
        initial=lambda: SchedulerCore(config, begun=False),
        evolve=SchedulerCore.evolve,
        pass_over=SchedulerCore.pass_over,
        set_aside=SchedulerCore.set_aside,
        fingerprint=snapshot_key(),
        dump=dump,
        load=lambda data: load(config, data),
        promises=Promises(lambda core: promises(core.ledger), lambda core: weight(core.ledger)),
        form=FORM,
        weight=lambda core: len(core.ledger.pods) + len(core.ledger.nodes),
    )


def dump(core: SchedulerCore) -> bytes:
    """Return what a snapshot keeps."""
    return scheduler_state.dump(core.folded)


def load(config: CoreConfig, data: bytes) -> SchedulerCore:
    """Return a core at the snapshot's position. Raises msgspec.MsgspecError on anything else."""
    return SchedulerCore(config, scheduler_state.load(data), begun=False)


class Decider:
    """Runs `SchedulerCore.decide` against the log, under the lease that `held` lends. `looked` is
    set once it has decided the queue and the log has its decisions."""

    def __init__(
        self,
        log: EventLog,
        held: LentLease,
        clock: Clock,
        batch_pods: int = BATCH_PODS,
        resync_period_s: float = 0.0,
    ) -> None:
        self._log = log
        self._held = held
        self._clock = clock
        self._measure_fill_s = 0.0
        self._labelled: dict[str, dict[tuple[str, ...], int]] = {}
        self._empty_nodes: EmptyNodes | None = None
        self._batch_pods = batch_pods
        self._resync_period_s = resync_period_s
        self._resync_at_s = 0.0
        self._flush = UnschedulableFlush()
        self._woken = asyncio.Event()
        self.after_turn: Callable[[SchedulerCore], None] | None = None
        self.looked = asyncio.Event()
        self._must_reach = 0
        self._place = Place()
        self._acknowledged = Acknowledged()
        self._shard = Shard()
        self._live: Callable[[], bool] = lambda: False
        self._unlisted_logged = ""
        self._out = logs.get("decider")

    def wake(self) -> None:
        """Let the loop run: a request came in."""
        self._woken.set()

    def share_out(self, members: tuple[str, ...], own_name: str) -> None:
        """Take the members of the role; without members this process decides nothing."""
        if members:
            self._shard = Shard(members, own_name)
            self._woken.set()

    def folded(self, core: SchedulerCore, folded: Folded) -> None:
        """Note the fold's progress. Raises Refold if an own reservation was lost with its
        history.
        """
        self._log_rejections(core)
        if folded:
            self._place = Place(folded[-1][0].position, folded[-1][0].chain)
            self._woken.set()
            self._acknowledged.check(folded)

    def reset(self, _core: SchedulerCore) -> None:
        """Forget the appended positions: the log, its timeline or its history is another one."""
        self._must_reach, self._place = 0, Place()
        self._acknowledged.clear()
        self._woken.set()

    async def run(self, projector: Projector[SchedulerCore]) -> None:
        """Decide until cancelled. A shadow appends nothing and needs no lease."""
        self._live = lambda: projector.live
        for reason in REASONS:
            count(names.REJECTED, 0, reason=reason)  # So that rate() sees the first one.
        while True:
            await projector.wait_live()
            lease = None if projector.state.config.shadow else await self._held.lease()
            hurry = projector.state.queue.ready_count() > 0
            if not await projector.wait_for(self._must_reach, REACH_TIMEOUT_S, hurry=hurry):
                continue
            self._woken.clear()
            self._tick(projector.state)
            began_s = self._clock.monotonic_s()
            has_more = await self._decide(projector.state, lease)
            self.looked.set()
            if has_more:
                took_s = self._clock.monotonic_s() - began_s
                await asyncio.sleep(PAUSE_S if took_s > LONG_TURN_S else 0)
            else:
                await set_within(self._woken, IDLE_S)

    def _tick(self, core: SchedulerCore) -> None:
        now_s = self._clock.monotonic_s()
        self._flush.turn(core.queue, now_s)
        # Upstream's caches resync at a period; a period of 0 is none.
        if self._resync_period_s and now_s >= self._resync_at_s:
            self._resync_at_s = now_s + self._resync_period_s
            core.tick()

    async def _decide(self, core: SchedulerCore, lease: Lease | None) -> bool:
        """Decide one turn and append; returns whether there is more to decide."""
        if self._is_unlisted(core):
            return False
        seen = self._place
        core.take_shard(self._shard)
        began_s = self._clock.monotonic_s()

        def has_time(share: float) -> bool:
            return self._clock.monotonic_s() - began_s < share * TURN_S

        with timed(names.DECIDE_LATENCY), worked(names.DECIDE_CPU):
            proposals = core.decide(self._batch_pods, began_s, has_time, self._clock.now_us())
        self._log_turn(core)
        if self.after_turn is not None:
            self.after_turn(core)
        if not proposals or lease is None:
            return core.has_work()
        observe(names.DECIDE_BATCH, len(proposals))
        while proposals:
            proposals = await self._send(core, proposals, seen, lease)
        return True

    def _log_turn(self, core: SchedulerCore) -> None:
        for uid, problem in core.undecidable.items():
            self._out.error(names.UNDECIDABLE, pod=uid, problem=problem)
        core.undecidable.clear()
        over_budget = core.columns.take_over_budget() if core.columns is not None else 0
        if over_budget:
            count(names.OVER_BUDGET, over_budget)
        for case in core.shadow.take():
            count(names.SHADOW_CASES, outcome=case.outcome)
            if case.outcome != "agreed":
                self._out.info(
                    names.SHADOW_DIFFERS,
                    pod=case.judged.pod,
                    outcome=case.outcome,
                    node=case.judged.node,
                    refused=case.judged.refused,
                    instead=case.judged.instead,
                    reason=case.reason,
                )
        set_gauge(names.NODES_DIRTY, len(core.marks.dirty))
        for result, times in core.marks.comparisons.items():
            count(names.COMPARISONS, times, result=result)
        core.marks.comparisons.clear()
        set_gauge(names.QUEUE_READY, core.queue.ready_count())
        set_gauge(names.QUEUE_WAITING, core.queue.waiting_count())
        set_gauge(names.GANGS_WAITING, len(core.gangs.waiting))
        set_gauge(names.NODES_HELD, len(core.folded.holds.by_node))
        set_gauge(names.NODES_EXCLUDED, len(core.exclusions.nodes))
        set_gauge(names.PODS_BARRED, len(core.exclusions.barred))
        self._measure_fill(core)

    def _measure_fill(self, core: SchedulerCore) -> None:
        """Measure the zone fill, rarely, because it looks at all nodes."""
        now_s = self._clock.monotonic_s()
        if now_s < self._measure_fill_s:
            return
        self._measure_fill_s = now_s + FILL_EVERY_S
        for resource, share in totals.zone_fill(core.ledger).items():
            set_gauge(names.ZONE_FILL, share, resource=resource)
        if self._empty_nodes is None:
            self._empty_nodes = EmptyNodes(core.config.cycle)
        waits = self._empty_nodes.zone_waits(core.ledger)
        self._set_all(names.ZONE_WAITS, waits, "resource", "request", "node_type")
        unschedulable = totals.unschedulable(core.ledger)
        self._set_all(names.UNSCHEDULABLE, unschedulable, "namespace", "waits_for")
        if core.columns is not None:
            places = totals.places(core.folded.wanted, core.columns.places)
            self._set_all(names.PLACES, places, "request", "bound")

    def _set_all(self, gauge: Metric, values: Mapping[tuple[str, ...], int], *labels: str) -> None:
        """Set a gauge for each value of its labels, and to 0 for earlier values."""
        earlier = self._labelled.get(gauge.name, {})
        for key in earlier.keys() | values.keys():
            set_gauge(gauge, values.get(key, 0), **dict(zip(labels, key, strict=True)))
        self._labelled[gauge.name] = dict(values)

    def _is_unlisted(self, core: SchedulerCore) -> bool:
        """Return whether the log was restored and the cluster was not listed since; logged once."""
        problem = core.folded.listings.problem()
        if problem and problem != self._unlisted_logged:
            self._out.warning(names.KUBE_UNLISTED, problem=problem)
        self._unlisted_logged = problem
        return bool(problem)

    async def _send(
        self, core: SchedulerCore, proposals: Sequence[Proposal], seen: Place, lease: Lease
    ) -> list[Proposal]:
        """Append the proposals. Return the rest, which is yet to be appended.

        The next reservation on a node expects the version that the one before it makes, and was
        decided with it in mind; so does a node's first reservation after its dirty mark or
        exclusion, and a pod's nomination after its verdict. Events of others may make the same
        version; therefore a commit names its predecessor.
        """
        sent, later = together(proposals)
        commits = [self._commit(core, proposal, seen, lease, follows) for proposal, follows in sent]
        # Reservations stay assumed until the log has answered.
        outcomes = await append_until_answered(self._log, self._clock, self._out, commits)
        crash_point("scheduler.after_reserve")
        if any(isinstance(outcome, Fenced) for outcome in outcomes):
            self._held.refused(lease)
        lost = set[str]()
        for (proposal, _), commit, outcome in zip(sent, commits, outcomes, strict=True):
            self._acknowledged.keep(commit, outcome, self._place.position)
            if isinstance(outcome, Conflict) and proposal.chained & lost:
                core.conflicted(proposal)
            else:
                self._note_outcome(core, proposal, outcome)
            if not isinstance(outcome, Appended):
                lost |= proposal.chained
        for proposal in later:
            if proposal.chained & lost:
                core.conflicted(proposal)
        if any(isinstance(outcome, Conflict) for outcome in outcomes):
            # If it were decided again on the same fold, a proposal would lose to the same event
            # once more.
            with suppress(LogUnavailable):
                self._must_reach = max(self._must_reach, await self._log.head())
        return [proposal for proposal in later if not proposal.chained & lost]

    def _commit(
        self, core: SchedulerCore, proposal: Proposal, seen: Place, lease: Lease, follows: str
    ) -> Commit:
        return Commit(
            commit_id=proposal.commit_id,
            role=lease.role,
            epoch=lease.epoch,
            time_us=self._clock.now_us(),
            drafts=proposal.drafts,
            causation=proposal.causation,
            trace=self._trace(core, proposal),
            seen=seen,
            follows=follows,
        )

    def _trace(self, core: SchedulerCore, proposal: Proposal) -> str:
        report = core.traceparents.of_report(proposal.node)
        parent = core.traceparents.of(proposal.uid)
        return trace_of(
            names.SPAN_DECIDE, parent, pod=proposal.uid, node=proposal.node, report=report
        )

    def _note_outcome(self, core: SchedulerCore, proposal: Proposal, outcome: Outcome) -> None:
        if isinstance(outcome, Appended | Duplicate):
            self._must_reach = max(self._must_reach, outcome.last)
            for part in proposal.pods if proposal.node and proposal.uid else ():
                count(names.RESERVED)
                self._out.debug(
                    names.POD_RESERVED, pod=part.uid, node=part.node, position=outcome.last
                )
        if isinstance(outcome, Appended):
            self._log_gang(core, proposal)
            self._log_exclusions(proposal)
            self._log_holds(proposal)
        if isinstance(outcome, Conflict) and outcome.stream == streams.node(proposal.node):
            core.contested(proposal)
        if isinstance(outcome, Conflict | Fenced | Duplicate):
            count(names.DECIDE_CONFLICTS)
            core.conflicted(proposal)

    def _log_rejections(self, core: SchedulerCore) -> None:
        """Log rejections. A replay logs nothing, because they were logged when they happened."""
        rejected = core.rejections.take()
        for rejection in rejected if self._live() else ():
            count(names.REJECTED, reason=rejection.reason)
            self._out.warning(
                names.POD_REJECTED, pod=rejection.uid, node=rejection.node, problem=rejection.said
            )

    def _log_exclusions(self, proposal: Proposal) -> None:
        for event in (draft.event for draft in proposal.drafts):
            if isinstance(event, NodeSetAside):
                count(names.EXCLUSIONS, cause=event.cause)
                self._out.warning(
                    names.NODE_EXCLUDED,
                    node=event.node,
                    shape=event.shape,
                    cause=event.cause,
                    strikes=event.strikes,
                    pod=event.uid,
                    problem=event.detail,
                )
            elif isinstance(event, NodeReadmitted | PodReadmitted):
                count(names.READMITTED, cause=event.cause)

    def _log_gang(self, core: SchedulerCore, proposal: Proposal) -> None:
        if proposal.members:
            key, size = core.folded.gangs.key_of.get(proposal.uid, ""), len(proposal.members)
            since_us = core.gangs.waiting_since_us(key)
            waited_s = max(self._clock.now_us() - since_us, 0) / 1e6 if since_us else 0.0
            count(names.GANGS_PLACED)
            observe(names.GANG_WAIT, waited_s)
            name = key.partition("/")[2]
            self._out.info(names.GANG_PLACED, gang=name, pods=size, waited_s=round(waited_s, 3))
        for event in (draft.event for draft in proposal.drafts):
            if isinstance(event, ReservationWithdrawn) and event.cause == "gang":
                self._out.warning(names.GANG_WITHDRAWN, pod=event.uid, node=event.node)
            elif isinstance(event, GangRolledBack):
                count(names.GANGS_ROLLED_BACK)
                self._out.warning(
                    names.GANG_ROLLED_BACK,
                    gang=event.gang.partition("/")[2],
                    pods=len(event.uids),
                    minimum=event.minimum,
                    waited_s=event.waited_s,
                )

    def _log_holds(self, proposal: Proposal) -> None:
        for event in (draft.event for draft in proposal.drafts):
            if isinstance(event, HoldBegun):
                self._out.info(
                    names.HOLD_BEGUN, pod=event.uid, node=event.node, waited_s=event.waited_s
                )
            elif isinstance(event, HoldEnded):
                self._out.info(names.HOLD_ENDED, pod=event.uid, node=event.node, cause=event.cause)
