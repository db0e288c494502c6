"""Recomputes the recorded decisions, each on the state of its moment: how many are the same, and
why others are not.

Same code, same configuration, same events: the same decision. Every difference is counted under its
cause. This module does not know the simulation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice

import msgspec

from services.replay import reading
from services.replay.deciding_state import charge, follow, followed_at, placing_at, usable
from services.replay.recomputing import Decision, as_decided, decided, same
from services.scheduler.core import CoreConfig
from services.scheduler.explain.placing import ColumnarPlacing
from services.scheduler.queue.shard import MARK, Shard, shard_of
from services.scheduler.snapshot.result import Placed, Unplaceable
from services.scheduler.state.state import SchedulerState
from shared.eventlog.port import EventLog
from shared.events import streams
from shared.events.cluster_events import PodObserved
from shared.events.codec import UndecodableEvent, decode
from shared.events.envelope import Envelope
from shared.events.quarantine import QuarantinedStreams
from shared.events.scheduling_events import PodReserved, PodVerdictChanged

NAMES_LOOKED_AT = 200
# Differences that the result names one by one.
NAMED = 20

CODE = "decided by another code"
CONFIGURATION = "decided under another configuration"
UNKNOWN = "decided by code and configuration that the event does not name"
NO_POD = "the history does not hold the pod"
UNRECORDED = (
    "decided with something that the log does not hold (a reservation that lost its race, "
    "a search that was shorter under load)"
)


class Differing(msgspec.Struct, frozen=True):
    """One decision that differs from the recorded one."""

    position: int
    pod: str
    recorded: str
    here: str
    why: str


class Reproduced(msgspec.Struct, frozen=True):
    """The decisions of a history, computed again. `others` are not computed again: decisions
    of kube-scheduler, which asked Topolog's extender, and refusals of gangs.
    """

    decisions: int
    same: int
    differs: int
    why: dict[str, int]
    differing: list[Differing]
    others: int = 0


class _Made(msgspec.Struct, frozen=True):
    position: int
    writer: tuple[str, int]
    event: Decision


async def reproduce(log: EventLog, core: CoreConfig, first: int, last: int) -> Reproduced:
    """Recompute the decisions from position `first` to `last`."""
    batches = await _batches(log, first, last)
    decided_pods = (
        made.event.uid for writers in batches.values() for batch in writers for made in batch
    )
    core = msgspec.structs.replace(
        core, scheduler_name=await scheduler_name(log, decided_pods, core.scheduler_name)
    )
    begin = max(0, min(batches, default=last) - 1)
    (followed, quarantined), result = await followed_at(log, begin), _Tally(core)
    placing, changed = placing_at(followed, core.cycle, quarantined), set[str]()
    async for envelope in reading.envelopes(log, begin, last):
        _, touched = follow(followed, envelope, quarantined)
        changed.update(touched)
        if envelope.stream.startswith("pod/"):
            uid = envelope.stream.removeprefix("pod/")
            placing.follow(uid, followed.ledger.pods.get(uid))
        for batch in batches.pop(envelope.position, ()):
            _refresh(placing, followed, quarantined, changed)
            changed.update(result.decide(placing, followed, batch))
    return result.reproduced()


async def scheduler_name(log: EventLog, uids: Iterable[str], configured: str) -> str:
    """Return the scheduler of these pods: the one with this name or, if no pod used it, the most
    frequent one.
    """
    names: Counter[str] = Counter()
    for uid in islice(dict.fromkeys(uids), NAMES_LOOKED_AT):
        for envelope in await log.read_stream(streams.pod(uid), 0, 1):
            try:
                event = decode(envelope)
            except UndecodableEvent:
                continue
            if isinstance(event, PodObserved):
                names[event.pod.scheduler_name] += 1
    return configured if configured in names or not names else names.most_common(1)[0][0]


async def _batches(log: EventLog, first: int, last: int) -> dict[int, list[list[_Made]]]:
    """Return the batches by the position on which their decisions were based, each in the order of
    its decisions.
    """
    batches: dict[int, dict[tuple[str, int], list[_Made]]] = {}
    async for envelope in reading.envelopes(log, first - 1, last):
        made = _made(envelope)
        if made is not None:
            batches.setdefault(made.event.based_on, {}).setdefault(made.writer, []).append(made)
    return {
        based_on: [
            sorted(batch, key=lambda decision: (decision.event.order, decision.position))
            for batch in writers.values()
        ]
        for based_on, writers in batches.items()
    }


def _made(envelope: Envelope) -> _Made | None:
    if envelope.type not in (PodReserved.__name__, PodVerdictChanged.__name__):
        return None
    try:
        event = decode(envelope)
    except UndecodableEvent:
        return None
    return (
        _Made(envelope.position, (envelope.role, envelope.epoch), event)
        if isinstance(event, Decision)
        else None
    )


def _refresh(
    placing: ColumnarPlacing,
    followed: SchedulerState,
    quarantined: QuarantinedStreams,
    changed: set[str],
) -> None:
    placing.rank_by(followed.wanted)
    for name in sorted(changed):
        if usable(followed, name, quarantined):
            placing.put_node(followed.ledger.nodes[name])
        else:
            placing.drop_node(name)
    changed.clear()


class _Tally:
    """Counts the results."""

    def __init__(self, core: CoreConfig) -> None:
        self._core = core
        self._share = Shard()
        self._same = self._others = 0
        self._why: Counter[str] = Counter()
        self._differing: list[Differing] = []

    def decide(
        self, placing: ColumnarPlacing, followed: SchedulerState, batch: Sequence[_Made]
    ) -> set[str]:
        """Decide a batch with reservations as recorded. Returns the nodes whose columns no longer
        equal the ledger.
        """
        charged = set()
        for made in batch:
            self._decide(placing, followed, made)
            if isinstance(made.event, PodReserved) and charge(placing, followed, made.event):
                charged.add(made.event.node)
        for made in batch:
            placing.follow(made.event.uid, followed.ledger.pods.get(made.event.uid))
        return charged

    def _decide(self, placing: ColumnarPlacing, followed: SchedulerState, made: _Made) -> None:
        entry, event = followed.ledger.pods.get(made.event.uid), made.event
        if entry is not None and entry.pod.scheduler_name != self._core.scheduler_name:
            self._others += 1
            return
        if isinstance(event, PodVerdictChanged) and entry is not None and entry.pod.gang:
            self._others += 1
            return
        self._take_share(placing, shard_of(event.config, made.writer[0]))
        outcome = decided(placing, as_decided(entry, event)) if entry is not None else None
        if outcome is not None and same(event, outcome):
            self._same += 1
            return
        why = NO_POD if entry is None else self._cause(event)
        self._why[why] += 1
        if len(self._differing) < NAMED:
            key = entry.pod.key if entry is not None else event.uid
            self._differing.append(
                Differing(made.position, key, recorded_text(event), outcome_text(outcome), why)
            )

    def _take_share(self, placing: ColumnarPlacing, share: Shard) -> None:
        """Restore the scheduler's share of the nodes, which it tried first because several
        schedulers ran.
        """
        if share != self._share:
            placing.share(None if share.alone else share.has)
            self._share = share

    def _cause(self, event: Decision) -> str:
        provenance = self._core.provenance
        if not (event.code and event.config):
            return UNKNOWN
        if event.code != provenance.code:
            return CODE
        return CONFIGURATION if event.config.partition(MARK)[0] != provenance.config else UNRECORDED

    def reproduced(self) -> Reproduced:
        """Return the counts."""
        differs = sum(self._why.values())
        return Reproduced(
            self._same + differs,
            self._same,
            differs,
            dict(self._why.most_common()),
            self._differing,
            self._others,
        )


def recorded_text(event: Decision) -> str:
    """Return the decision in the log as text."""
    return (
        event.message
        if isinstance(event, PodVerdictChanged)
        else f"reserved on {event.node}, score {event.score}"
    )


def outcome_text(outcome: Placed | Unplaceable | None) -> str:
    """Return the decision that was computed again as text."""
    if outcome is None:
        return "not decided"
    return (
        outcome.message
        if isinstance(outcome, Unplaceable)
        else f"reserved on {outcome.node}, score {outcome.score}"
    )
