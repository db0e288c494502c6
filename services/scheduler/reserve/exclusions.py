"""Rejections by kubelets of pods that this scheduler reserved, and proposals to exclude a node or
to readmit it: for evidence without an event yet, for reservations that lost too many races, and for
retries.

Counts of lost races and times are volatile: a restart begins with none. This module does not know
the log, metrics, or whether the log is being replayed.
"""

from __future__ import annotations

from collections import deque

import msgspec

from services.scheduler.queue.shard import Shard
from services.scheduler.reserve.proposals import Proposal
from services.scheduler.state.exclusions import REJECTIONS, Exclusions, shape_of
from services.scheduler.state.state import SchedulerState
from shared.domain.pod import Pod
from shared.eventlog.port import Draft
from shared.events import streams
from shared.events.catalog import Event
from shared.events.cluster_events import PodEnded
from shared.events.scheduling_events import NodeReadmitted, NodeSetAside, PodReadmitted
from shared.ledger.state import Ledger

# Races that a pod's reservation on one node may lose in a row.
CONTESTED_AFTER = 5
# Cause -> time until the first retry. Each rejection costs a pod, so those retries are rare.
AGAIN_AFTER_S = {"contested": 5.0, "denied": 60.0, "rejected": 300.0, "barred": 30.0}
LONGEST_S = 3600.0
RACES_LIMIT = 10_000
# A reason that does not concern zones: `OutOfcpu`, `NodeAffinity`, a plugin's own.
OTHER = "other"
REASONS = (*sorted(REJECTIONS), OTHER)
KEPT = 10_000


class ExclusionProposals:
    """Proposals about exclusions. `_races` counts conflicts by pod and node, `_contested` are
    exclusions for them without an event yet, `_since_s` is when the wait for a retry began."""

    def __init__(self, state: SchedulerState) -> None:
        self._exclusions, self._ledger = state.exclusions, state.ledger
        self._versions = state.versions
        self._races: dict[tuple[str, str], int] = {}
        self._contested: dict[tuple[str, str], NodeSetAside] = {}
        self._since_s: dict[tuple[str, str], float] = {}
        self._tries: dict[str, int] = {}

    def lost(self, pod: Pod, node: str) -> None:
        """Count a conflict of the pod's reservation on this node."""
        key = pod.uid, node
        self._races[key] = races = self._races.pop(key, 0) + 1
        if len(self._races) > RACES_LIMIT:
            del self._races[next(iter(self._races))]
        if races >= CONTESTED_AFTER:
            del self._races[key]
            shape = shape_of(pod)
            strikes = self._exclusions.strikes.get(node, {}).get(shape, 0) + 1
            detail = f"{races} proposals in a row lost a race for this node"
            self._contested[node, shape] = NodeSetAside(
                node, shape, "contested", detail, pod.uid, 0, strikes
            )

    def won(self, uid: str, node: str) -> None:
        """Forget the pod's lost races: it was reserved there."""
        self._races.pop((uid, node), None)

    def proposals(self) -> list[Proposal]:
        """Return exclusions for evidence without an event. Their commit ids come from the evidence,
        so that several schedulers append each once.
        """
        events = [event for shapes in self._exclusions.due.values() for event in shapes.values()]
        events += self._contested.values()
        self._contested.clear()
        return [self._exclude(event) for event in events]

    def retries(self, now_s: float) -> list[Proposal]:
        """Readmit nodes and pods that no report has readmitted, each time after twice the pause."""
        waiting = _waiting(self._exclusions)
        self._since_s = {key: self._since_s.get(key, now_s) for key in waiting}
        self._tries = {uid: tries for uid, tries in self._tries.items() if uid in self._ledger.pods}
        proposals = []
        for key, (cause, strikes) in waiting.items():
            name, shape = key
            tries = strikes - 1 if shape else self._tries.get(name, 0)
            pause_s = min(LONGEST_S, AGAIN_AFTER_S[cause] * 2 ** min(tries, 12))
            if now_s - self._since_s[key] < pause_s:
                continue
            if not shape:
                self._tries[name] = tries + 1
            proposals.append(self._readmit(name, shape))
        return proposals

    def _exclude(self, event: NodeSetAside) -> Proposal:
        stream = streams.node(event.node)
        version = self._versions.get(stream, 0)
        draft = Draft(stream, event, version)
        commit_id = f"aside/{event.node}/{event.shape}/{event.evidence or f'v{version}'}"
        cause = event.evidence or self._ledger.position
        return Proposal(commit_id, (draft,), event.node, cause, node=event.node)

    def _readmit(self, name: str, shape: str) -> Proposal:
        """Readmit a node for a pod class, or a pod (by uid) if there is no class."""
        stream = streams.node(name) if shape else streams.pod(name)
        version = self._versions.get(stream, 0)
        event = NodeReadmitted(name, shape) if shape else PodReadmitted(name)
        draft, commit_id = Draft(stream, event, version), f"readmit/{stream}/{shape}/{version}"
        return Proposal(commit_id, (draft,), name, self._ledger.position)


def _waiting(exclusions: Exclusions) -> dict[tuple[str, str], tuple[str, int]]:
    """Return what waits for a retry: (node, pod class) or (uid, "") -> (cause, strikes)."""
    waiting: dict[tuple[str, str], tuple[str, int]] = {
        (uid, ""): ("barred", 1) for uid in exclusions.barred
    }
    for node, shapes in exclusions.nodes.items():
        for shape, exclusion in shapes.items():
            waiting[node, shape] = exclusion.cause, exclusion.strikes
    return waiting


class Rejected(msgspec.Struct, frozen=True):
    """A pod, its node, the kubelet's message, and the reason (of `REASONS`) by which it is
    counted.
    """

    uid: str
    node: str
    said: str
    reason: str


class Rejections:
    """Rejections since the last `take`, of pods that name one of these schedulers.

    They are recognized by what the ledger holds of the pod before its end is folded. Of several
    schedulers of one name each counts the pods of its shard, so that the sum is right.
    """

    def __init__(self, schedulers: tuple[str, ...]) -> None:
        self._schedulers = frozenset(schedulers)
        self._rejected: deque[Rejected] = deque(maxlen=KEPT)

    def before(self, event: Event, ledger: Ledger, share: Shard) -> None:
        """Note an event that the ledger has not folded yet."""
        if not isinstance(event, PodEnded) or event.cause != "rejected":
            return
        entry = ledger.pods.get(event.uid)
        if (
            entry is None
            or not entry.reserved_at
            or entry.pod.scheduler_name not in self._schedulers
        ):
            return
        if event.node in ("", entry.node) and share.has(event.uid):
            reason = event.reason if event.reason in REJECTIONS else OTHER
            said = f"{event.reason}: {event.message}" if event.message else event.reason
            self._rejected.append(Rejected(event.uid, entry.node, said, reason))

    def take(self) -> list[Rejected]:
        """Return and forget the rejections."""
        rejected = list(self._rejected)
        self._rejected.clear()
        return rejected
