"""The scheduler's folded state, and all that a snapshot keeps: the ledger, the versions of streams
that it writes to, exclusions, holds, gangs, cluster objects, demand weights, and whether the
cluster was listed since the log was restored.

The key of a snapshot comes from this module's imports and the registered hint providers, so that
nothing else may change this state.
Must not know deciding.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, get_args

import msgspec

from services.scheduler.state.cluster_objects import ClusterObjects, LedgerDevices
from services.scheduler.state.exclusions import FOLDED, POD_BEFORE, Exclusions, PodBefore, UidOf
from services.scheduler.state.gangs import Gangs, Members
from services.scheduler.state.holds import Holds
from shared.domain.gang import Gang
from shared.domain.pod import Pod
from shared.eventlog.checkpoints import Form
from shared.eventlog.snapshots import fingerprint
from shared.events import streams
from shared.events.binding_events import BindRefused, EvictRefused, PodBound, PodEvicted
from shared.events.catalog import CATALOG, Event
from shared.events.cluster_events import ClusterListed, PodEnded, PodObserved, PodRunning
from shared.events.envelope import Envelope
from shared.events.log_events import LogOpened
from shared.events.report_events import ReportEvent
from shared.events.scheduling_events import (
    DemandWeighed,
    GangRolledBack,
    HoldBegun,
    HoldEnded,
    PodReserved,
    Wanted,
)
from shared.events.surroundings_events import Surrounding, SurroundingEvent
from shared.hints import registry
from shared.ledger import fold
from shared.ledger.alike import share_ledger
from shared.ledger.listings import Listings
from shared.ledger.state import Ledger

# The name under which the log keeps snapshots of this state.
PROJECTION = "scheduler"
# The form of the state that checkpoints keep.
FORM = Form()


def snapshot_key() -> str:
    """Return the key under which the scheduler saves snapshots, and replay finds them."""
    return fingerprint(__name__, PROJECTION, registry.PROVIDERS)


class SchedulerState(msgspec.Struct):
    """`versions` is stream -> version; streams of ended pods and nodes are forgotten. `wanted` are
    the demand weights. `let_go` is uid -> hops of pods that this cell gives to the next one, until
    the API shows these hops."""

    ledger: Ledger = msgspec.field(default_factory=Ledger)
    versions: dict[str, int] = {}
    exclusions: Exclusions = msgspec.field(default_factory=Exclusions)
    wanted: tuple[Wanted, ...] = ()
    cluster_objects: ClusterObjects = msgspec.field(default_factory=ClusterObjects)
    listings: Listings = msgspec.field(default_factory=Listings)
    holds: Holds = msgspec.field(default_factory=Holds)
    gangs: Gangs = msgspec.field(default_factory=Gangs)
    let_go: dict[str, int] = {}

    def of_kind(self, kind: Surrounding) -> Mapping[str, Any]:
        """Return the cluster objects of one kind, by name."""
        if kind == "devices":
            return LedgerDevices(self.ledger)
        return self.cluster_objects.of_kind(kind)

    def is_alone(self, pod: Pod) -> bool:
        """Return whether the pod is placed by itself: without a gang, or because the minimum of its
        gang was bound."""
        if pod.gang is None:
            return True
        gang = self.cluster_objects.complete(pod.gang)
        members = self.gangs.members.get(pod.gang.key, Members())
        if isinstance(gang, str):
            return False
        return gang.minimum <= 1 or members.counted(gang.rules.match_policy) >= gang.minimum


_packed = msgspec.msgpack.Decoder(SchedulerState)
_written = msgspec.json.Decoder(SchedulerState)


def evolve(folded: SchedulerState, envelope: Envelope, event: Event) -> fold.Touched:
    """Fold one event; returns the nodes that it changed."""
    ledger, way = folded.ledger, _WAYS[type(event)]
    pod = None
    if way.pod_before is not None:
        pod = _pod_before(folded, way.pod_before(folded.exclusions, event))
    touched = fold.evolve(ledger, envelope, event)
    if way.has_exclusions:
        touched += folded.exclusions.evolve(envelope.position, event, ledger, pod)
    if way.versioned:
        folded.versions[envelope.stream] = envelope.version
    if way.others is not None:
        way.others(folded, event, envelope.time_us)
    for name in touched:
        if name not in ledger.nodes:
            folded.versions.pop(streams.node(name), None)
    return touched


def _pod_before(folded: SchedulerState, uid: str) -> PodBefore | None:
    entry = folded.ledger.pods.get(uid) if uid else None
    return PodBefore(entry.pod, entry.node) if entry is not None else None


def _weighed(folded: SchedulerState, event: DemandWeighed, _time_us: int) -> None:
    folded.wanted = event.wanted


def _seen(folded: SchedulerState, event: PodObserved, time_us: int) -> None:
    folded.let_go.pop(event.pod.uid, None)
    folded.cluster_objects.fold_pod(event)
    folded.holds.fold_pod(event, time_us)
    if event.pod.gang is not None or folded.gangs.key_of:
        _in_gang(folded, event)


def _of_pod(folded: SchedulerState, event: PodBound | PodRunning, _time_us: int) -> None:
    folded.cluster_objects.fold_pod(event)
    folded.holds.forget_pod(event.uid)
    if folded.gangs.key_of:
        _in_gang(folded, event)


def _in_gang(folded: SchedulerState, event: PodObserved | PodBound | PodRunning) -> None:
    folded.gangs.fold_pod(event)
    members, entry = folded.gangs.of_pod(event.about.pod), folded.ledger.pods.get(event.about.pod)
    if members is None or entry is None or entry.pod.gang is None:
        return
    gang = folded.cluster_objects.complete(entry.pod.gang)
    stay = members.bound - len(members.yielding)
    members.was_whole |= isinstance(gang, Gang) and stay >= gang.minimum


def _rolled_back(
    folded: SchedulerState, event: GangRolledBack | PodEvicted | EvictRefused, _time_us: int
) -> None:
    folded.gangs.fold_roll_back(event)


def _held(folded: SchedulerState, event: HoldBegun | HoldEnded, _time_us: int) -> None:
    folded.holds.fold_hold(event)
    if event.uid not in folded.ledger.pods and not folded.holds.node_of(event.uid):
        # The pod has ended, and no node is held for it any more. A hold that began as the pod ended
        # still has to end, after this version.
        folded.versions.pop(streams.hold(event.uid), None)


def _ended(folded: SchedulerState, event: PodEnded, _time_us: int) -> None:
    # Nothing more is decided about a pod that ended.
    if event.hops:
        folded.let_go[event.uid] = event.hops
    else:
        folded.let_go.pop(event.uid, None)
    folded.cluster_objects.fold_pod(event)
    folded.versions.pop(streams.pod(event.uid), None)
    folded.holds.forget_pod(event.uid)
    folded.gangs.forget_pod(event.uid)


def _refused(folded: SchedulerState, event: BindRefused, _time_us: int) -> None:
    if event.uid not in folded.ledger.pods:
        folded.gangs.forget_pod(event.uid)


def _surrounding(folded: SchedulerState, event: SurroundingEvent, _time_us: int) -> None:
    folded.cluster_objects.fold(event)


def _opened(folded: SchedulerState, event: LogOpened, _time_us: int) -> None:
    folded.listings.opened(event)


def _listed(folded: SchedulerState, event: ClusterListed, _time_us: int) -> None:
    folded.listings.listed(event)


def _reserved(folded: SchedulerState, event: PodReserved, _time_us: int) -> None:
    folded.listings.decided()
    folded.cluster_objects.fold_pod(event)


# What events change apart from ledger and exclusions; with the time of the event's writer.
_OTHERS: dict[type[Event], Callable[[SchedulerState, Any, int], None]] = {
    DemandWeighed: _weighed,
    PodObserved: _seen,
    HoldBegun: _held,
    HoldEnded: _held,
    PodBound: _of_pod,
    PodRunning: _of_pod,
    PodEnded: _ended,
    BindRefused: _refused,
    PodReserved: _reserved,
    GangRolledBack: _rolled_back,
    PodEvicted: _rolled_back,
    EvictRefused: _rolled_back,
    LogOpened: _opened,
    ClusterListed: _listed,
    **dict.fromkeys(get_args(SurroundingEvent), _surrounding),
}

# The scheduler appends nothing to the streams of these, at least not any more.
_UNVERSIONED = {PodEnded, ClusterListed, *get_args(ReportEvent), *get_args(SurroundingEvent)}


class _Way(NamedTuple):
    """The changes of one type of event, in this order, with the ledger's fold after `pod_before`;
    None for no change.
    """

    pod_before: UidOf | None
    has_exclusions: bool
    others: Callable[[SchedulerState, Any, int], None] | None
    versioned: bool


# One look-up by type: most events concern the ledger alone.
_WAYS = {
    kind: _Way(POD_BEFORE.get(kind), kind in FOLDED, _OTHERS.get(kind), kind not in _UNVERSIONED)
    for kind in (entry.struct for entry in CATALOG.values())
}


def pass_over(folded: SchedulerState, envelope: Envelope, moves: bool) -> None:
    """Pass over an event that is not folded; `moves` says whether its stream's version moves."""
    fold.pass_over(folded.ledger, envelope)
    if moves and not envelope.stream.startswith("report/"):
        folded.versions[envelope.stream] = envelope.version


def dump(folded: SchedulerState) -> bytes:
    """Return the state for a snapshot: packed, which is a third smaller, or as JSON, which begins
    otherwise, if an amount has more than 64 bits."""
    try:
        return msgspec.msgpack.encode(folded)
    except OverflowError:
        return msgspec.json.encode(folded)


def load(data: bytes) -> SchedulerState:
    """Return the state of a snapshot. Raises msgspec.MsgspecError on anything else."""
    folded = (_written if data.startswith(b"{") else _packed).decode(data)
    share_ledger(folded.ledger)
    return folded
