"""Why a kubelet refused a pod that was sent there for sure: whether an end between decision and
admission explains it.

More room can make a kubelet refuse: it puts one container into another zone than before, and leaves
too little for the next (design, section 4: admission is not monotone). Whoever decided could not
know. The node is judged again as it was decided on, with one end after the other beside it: where
it is not sure of the pod any more, they explain the refusal; where it always is, something is to be
reported. Pure but for reading.
"""

from __future__ import annotations

import msgspec

from services.replay import reading
from services.replay.deciding_state import charge, followed_at, placing_at
from services.replay.recomputing import Deciding, mates
from services.scheduler.extender.verbs import placed_on
from services.scheduler.state import state as scheduler_state
from shared.eventlog.port import EventLog
from shared.events.cluster_events import PodEnded
from shared.events.envelope import Envelope
from shared.events.quarantine import QuarantinedStreams
from shared.events.scheduling_events import PodReserved

HEARD_LATE_FACTS, HEARD_LATE_US = 2_000, 5_000_000
"""How far behind the refusal an end is looked for that came before the admission: it is heard of when somebody sees it."""


class Explained(msgspec.Struct, frozen=True):
    """`ended` are the first pods, by `namespace/name`, whose ends explain the refusal, and `judged`
    what the node says of the pod beside them; both empty where none do. `judged` alone: decided
    again, the pod would not be sent there, whoever ended."""

    ended: tuple[str, ...] = ()
    judged: str = ""


async def explained(
    log: EventLog, made: tuple[Envelope, PodReserved], refused: Envelope, by: Deciding
) -> Explained | None:
    """What was decided by `made` and came to `refused`; None where the log does not hold the pod
    that was decided on.
    """
    at, event = made
    followed, quarantined = await followed_at(log, event.based_on)
    entry = followed.ledger.pods.get(event.uid)
    batch = [mate for mate in await mates(log, at, event) if mate.node == event.node]
    if entry is None:
        return None
    placing = placing_at(followed, by.cycle, quarantined, batch)
    alone = placed_on(placing, entry.pod, event.node)
    if isinstance(alone, str):
        return Explained(judged=alone)
    ended: list[str] = []
    for envelope, end in await _ends(log, event, refused):
        other, node = followed.ledger.pods.get(end.uid), followed.ledger.nodes[event.node]
        if other is None or other.node != event.node:
            continue
        ended.append(other.pod.key)
        scheduler_state.evolve(
            followed, msgspec.structs.replace(envelope, position=followed.ledger.position + 1), end
        )
        placing.put_node(node)
        for mate in batch:
            charge(placing, followed, mate)
        judged = placed_on(placing, entry.pod, event.node)
        if isinstance(judged, str):
            return Explained(tuple(ended), judged)
    return Explained()


def said(found: Explained) -> str:
    """One line."""
    if found.ended:
        return f"explained by what ended between decision and admission ({', '.join(found.ended)}): then {found.judged}"
    return "nothing that ended between decision and admission explains it: report it, with `topolog log export`"


async def _ends(
    log: EventLog, event: PodReserved, refused: Envelope
) -> list[tuple[Envelope, PodEnded]]:
    """Of other pods on the node, heard of since what the decision was based on."""
    found, quarantined = list[tuple[Envelope, PodEnded]](), QuarantinedStreams()
    until = min(await log.head(), refused.position + HEARD_LATE_FACTS)
    async for envelope in reading.envelopes(log, event.based_on, until):
        if envelope.type != PodEnded.__name__ or envelope.time_us > refused.time_us + HEARD_LATE_US:
            continue
        ended = quarantined.event_of(envelope)
        if isinstance(ended, PodEnded) and ended.node == event.node and ended.uid != event.uid:
            found.append((envelope, ended))
    return found
