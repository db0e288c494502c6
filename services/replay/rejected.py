"""Why a kubelet rejected a pod that the decision was certain about: whether a pod's end between
decision and admission explains it. Pure but for reading.

More room can make a kubelet reject a pod: it places one container into another zone than before and
leaves too little for the next (admission is not monotone; design, section 4). The decision could
not know such an end. The node is judged again as of the decision, with one end after the other
applied. If it is no longer certain of the pod, those ends explain the rejection. If it always is,
the rejection must be reported as a defect.
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
"""How far behind the refusal an end is looked for that came before the admission: it is heard of
when somebody sees it.
"""


class Explained(msgspec.Struct, frozen=True):
    """`ended` are the first pods, by `namespace/name`, whose ends explain the rejection, and
    `judged` is the node's refusal with them applied. Both are empty if no end explains it. `judged`
    alone means that the pod would not be sent there again, whichever pods ended.
    """

    ended: tuple[str, ...] = ()
    judged: str = ""


async def explained(
    log: EventLog, made: tuple[Envelope, PodReserved], refused: Envelope, deciding: Deciding
) -> Explained | None:
    """Return why the decision `made` led to `refused`; None if the log does not have the pod of the
    decision.
    """
    decided_at, event = made
    followed, quarantined = await followed_at(log, event.based_on)
    entry = followed.ledger.pods.get(event.uid)
    batch = [mate for mate in await mates(log, decided_at, event) if mate.node == event.node]
    if entry is None:
        return None
    placing = placing_at(followed, deciding.cycle, quarantined, batch)
    alone = placed_on(placing, entry.pod, event.node)
    if isinstance(alone, str):
        return Explained(judged=alone)
    ended: list[str] = []
    for envelope, end in await _ends(log, event, refused):
        ended_pod, node = followed.ledger.pods.get(end.uid), followed.ledger.nodes[event.node]
        if ended_pod is None or ended_pod.node != event.node:
            continue
        ended.append(ended_pod.pod.key)
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


def said(explained_rejection: Explained) -> str:
    """Return the explanation in one line."""
    if explained_rejection.ended:
        return (
            "explained by what ended between decision and admission "
            f"({', '.join(explained_rejection.ended)}): then {explained_rejection.judged}"
        )
    return (
        "nothing that ended between decision and admission explains it: report it, with "
        "`topolog log export`"
    )


async def _ends(
    log: EventLog, event: PodReserved, refused: Envelope
) -> list[tuple[Envelope, PodEnded]]:
    """Return the ends of other pods on the node that were recorded since the decision's state."""
    ends, quarantined = list[tuple[Envelope, PodEnded]](), QuarantinedStreams()
    until = min(await log.head(), refused.position + HEARD_LATE_FACTS)
    async for envelope in reading.envelopes(log, event.based_on, until):
        if envelope.type != PodEnded.__name__ or envelope.time_us > refused.time_us + HEARD_LATE_US:
            continue
        ended = quarantined.event_of(envelope)
        if isinstance(ended, PodEnded) and ended.node == event.node and ended.uid != event.uid:
            ends.append((envelope, ended))
    return ends
