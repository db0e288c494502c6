"""Questions that need a judgement now: what a waiting pod waits for at the head of the log, and why
a kubelet rejected a pod that Topolog did not place. Pure but for reading.

The scheduler's rooms judge; this module only chooses the moment.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from services.replay.deciding_state import followed_at, placing_at
from services.replay.filters import clock
from services.replay.names import Names
from services.replay.near_miss import near_miss
from services.replay.recomputing import Deciding, decided
from services.scheduler.snapshot.result import Placed
from shared.domain.pod import Constraints, Pod
from shared.eventlog.port import EventLog
from shared.events.catalog import Event
from shared.events.cluster_events import PodEnded, PodObserved
from shared.events.envelope import Envelope
from shared.events.scheduling_events import PodReserved

History = Sequence[tuple[Envelope, Event]]


async def outcome_now(log: EventLog, uid: str, deciding: Deciding) -> str:
    """Return the scheduling outcome of a waiting pod on the state at the head, as a clause.

    The last recorded outcome may be old: an outcome is only appended if it changes.
    """
    head = await log.head()
    followed, quarantined = await followed_at(log, head)
    entry = followed.ledger.pods.get(uid)
    if entry is None or entry.problem or entry.pod.scheduler_name != deciding.scheduler_name:
        return ""
    outcome = decided(placing_at(followed, deciding.cycle, quarantined), entry)
    if isinstance(outcome, Placed):
        return f"; at position {head} it fits {outcome.node}: the next decision takes it"
    return f"; at position {head}: {outcome.message}"


async def rejected_elsewhere(
    log: EventLog, history: History, deciding: Deciding, names: Names
) -> dict[int, list[str]]:
    """Return position of a rejection -> zones, shortfall and holders just before the admission.

    Only for pods that another scheduler or `nodeName` placed: for its own decisions Topolog has a
    recomputation. Zones and node amounts are compared, not constraints, because the kubelet
    checks few of those.
    """
    notes: dict[int, list[str]] = {}
    placed: tuple[int, Pod] | None = None
    reserved: set[str] = set()
    for envelope, event in history:
        if isinstance(event, PodReserved):
            reserved.add(event.node)
        elif isinstance(event, PodObserved) and event.node and placed is None:
            placed = envelope.position, event.pod
        elif (
            isinstance(event, PodEnded)
            and event.cause == "rejected"
            and placed is not None
            and event.node not in reserved
        ):
            notes[envelope.position] = await _shortfall(log, *placed, event.node, deciding, names)
    return notes


async def _shortfall(
    log: EventLog, position: int, pod: Pod, node: str, deciding: Deciding, names: Names
) -> list[str]:
    followed, quarantined = await followed_at(log, position - 1)
    placing = placing_at(followed, deciding.cycle, quarantined)
    refusal = placing.verdict(msgspec.structs.replace(pod, constraints=Constraints()), node)
    time = clock((await log.read(position - 1, 1))[0].time_us)
    moment = f"as of position {position - 1} ({time}), before it reached {node}"
    if refusal is None:
        return [f"{moment}: the reports show room for it, so the kubelet's own state differed"]
    await names.find([uid for zone in refusal.zones for uid in zone.holders])
    return [f"{moment}:", *near_miss(msgspec.to_builtins(refusal), names.known)]
