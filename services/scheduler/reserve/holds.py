"""Proposals of holds: a node takes no other pod until an overdue pod is placed.

1. A pod is overdue if it has waited, refused, for longer than its annotation says, or the setting.
   The oldest overdue pods get a node each, up to a share of all nodes. Preemption goes first: a pod
   for which others are evicted needs no hold.
2. A hold ends when the pod has a node or ended, when the node would not take the pod even without
   the others, or when no bound applies to the pod any more.
3. Of several schedulers, the first one holds for all. Another scheduler that has not read the event
   yet may place one more pod on the node; for a moment two may begin holds.

Waiting is measured by the clocks of the log's writers, in microseconds. Must not know how the
node is chosen.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping
from typing import Protocol

from services.scheduler.reserve.proposals import Proposal
from services.scheduler.snapshot.config import HoldSettings
from services.scheduler.state.holds import Hold
from services.scheduler.state.state import SchedulerState
from shared.domain.hold_after import hold_after_us
from shared.domain.pod import Pod
from shared.eventlog.port import Draft
from shared.events import streams
from shared.events.scheduling_events import HoldBegun, HoldEndCause, HoldEnded
from shared.ledger.state import LedgerPod

SECOND_US = 1_000_000
# Looks for overdue pods, and at nodes that did not change.
LOOK_EVERY_S = 1.0
# Pods for which a node is searched at one look.
MOST_SEARCHES = 2


class HoldCandidate(Protocol):
    """A node to hold, and how many pods there must end at most."""

    @property
    def node(self) -> str: ...
    @property
    def must_end(self) -> int: ...


class NodeChooser(Protocol):
    """What chooses nodes, and answers about them."""

    def __len__(self) -> int: ...

    def node_to_hold(self, pod: Pod, pods: Mapping[str, LedgerPod]) -> HoldCandidate | None:
        """Return the node on which the pod likely waits the shortest time."""

    def hold_may_help(self, pod: Pod, node: str, pods: Mapping[str, LedgerPod]) -> bool:
        """Return whether this node would take the pod once others have ended."""


class HoldProposals:
    """Looks for overdue pods now and then; its memory is volatile."""

    def __init__(self, settings: HoldSettings, scheduler_name: str) -> None:
        self._settings, self._scheduler_name = settings, scheduler_name
        self._look_at_s = 0.0
        # Where the next look begins, so that a pod without a node does not keep others waiting.
        self._searched: set[str] = set()

    def wake(self, folded: SchedulerState, changed: Collection[str]) -> list[str]:
        """Return the pods whose held node changed: each is decided again, whatever its class."""
        by_node = folded.holds.by_node
        return [by_node[name].uid for name in changed if name in by_node] if by_node else []

    def proposals(
        self,
        folded: SchedulerState,
        nodes: NodeChooser,
        barred: Container[str],
        changed: Collection[str],
        now_s: float,
        now_us: int,
    ) -> list[Proposal]:
        """Return the holds that end, and the next one; `barred` pods are not decided."""
        looks = now_s >= self._look_at_s
        if looks:
            self._look_at_s = now_s + LOOK_EVERY_S
        ends = [
            _ended(folded, node, hold.uid, cause)
            for node, hold in folded.holds.by_node.items()
            if (cause := self._end_cause(folded, nodes, node, hold, looks or node in changed))
        ]
        if ends or not looks or not now_us:
            return ends
        return self._begun(folded, nodes, barred, now_us)

    def _end_cause(
        self, folded: SchedulerState, nodes: NodeChooser, node: str, hold: Hold, looks: bool
    ) -> HoldEndCause | None:
        pods = folded.ledger.pods
        entry = pods.get(hold.uid)
        if entry is None or entry.terminating:
            return "ended"
        if entry.stage != "pending":
            return "placed"
        if entry.pod.scheduler_name != self._scheduler_name:
            return None
        if not self._bound_us(entry.pod):
            return "unasked"
        if looks and not nodes.hold_may_help(entry.pod, node, pods):
            return "hopeless"
        return None

    def _begun(
        self, folded: SchedulerState, nodes: NodeChooser, barred: Container[str], now_us: int
    ) -> list[Proposal]:
        free = self._most(len(nodes)) - len(folded.holds.by_node)
        overdue = self._overdue(folded, barred, now_us) if free > 0 else []
        if not overdue:
            self._searched.clear()
            return []
        untried = [entry for _, entry in overdue if entry.pod.uid not in self._searched]
        if not untried:
            self._searched.clear()
        for entry in untried[:MOST_SEARCHES]:
            pod = entry.pod
            self._searched.add(pod.uid)
            node_to_hold = nodes.node_to_hold(pod, folded.ledger.pods)
            if node_to_hold is not None:
                waited_us = now_us - folded.holds.waiting_since_us[pod.uid]
                return [_hold(folded, pod, node_to_hold, self._bound_us(pod), waited_us)]
        return []

    def _most(self, nodes: int) -> int:
        share = self._settings.share
        return max(1, nodes * share // 100) if share and nodes else 0

    def _overdue(
        self, folded: SchedulerState, barred: Container[str], now_us: int
    ) -> list[tuple[int, LedgerPod]]:
        """The overdue pods without a hold, the oldest first."""
        holders = {hold.uid for hold in folded.holds.by_node.values()}
        overdue = []
        for uid, since_us in folded.holds.waiting_since_us.items():
            entry = folded.ledger.pods.get(uid)
            if entry is None or uid in holders or uid in barred or not self._waits(entry):
                continue
            if not folded.is_alone(entry.pod):  # Room for one of its pods is no room for a gang.
                continue
            bound_us = self._bound_us(entry.pod)
            if bound_us and now_us - since_us >= bound_us:
                overdue.append((since_us, entry))
        overdue.sort(key=lambda item: (item[0], item[1].observed_at))
        return overdue

    def _waits(self, entry: LedgerPod) -> bool:
        if entry.pod.scheduler_name != self._scheduler_name or entry.stage != "pending":
            return False
        return bool(entry.verdict) and not (entry.terminating or entry.problem or entry.nominated)

    def _bound_us(self, pod: Pod) -> int:
        """How long the pod may wait, 0 for ever."""
        if not self._settings.share:
            return 0
        own_us = hold_after_us(pod)
        return int(self._settings.after_s * SECOND_US) if own_us is None else own_us


def _hold(
    folded: SchedulerState, pod: Pod, node_to_hold: HoldCandidate, bound_us: int, waited_us: int
) -> Proposal:
    event = HoldBegun(
        pod.uid,
        node_to_hold.node,
        pod.key,
        pod.priority,
        bound_us // SECOND_US,
        waited_us // SECOND_US,
        node_to_hold.must_end,
    )
    return _proposal(folded, event)


def _ended(folded: SchedulerState, node: str, uid: str, cause: HoldEndCause) -> Proposal:
    return _proposal(folded, HoldEnded(uid, node, cause))


def _proposal(folded: SchedulerState, event: HoldBegun | HoldEnded) -> Proposal:
    stream = streams.hold(event.uid)
    version = folded.versions.get(stream, 0)
    draft = Draft(stream, event, version)
    return Proposal(f"{stream}/{version}", (draft,), event.uid, folded.ledger.position)
