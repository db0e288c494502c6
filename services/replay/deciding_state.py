"""The state that a decision uses, as of a position: the scheduler's folded state, and the columns
built from it.
"""

from __future__ import annotations

from collections.abc import Iterable

from services.replay import reading
from services.replay.nearest import nearest_state
from services.scheduler.explain.placing import ColumnarPlacing
from services.scheduler.snapshot.config import CycleConfig
from services.scheduler.snapshot.result import Placed
from services.scheduler.state import state as scheduler_state
from services.scheduler.state.state import SchedulerState
from shared.eventlog.port import EventLog
from shared.eventlog.skips import skips
from shared.events.catalog import Event
from shared.events.envelope import Envelope
from shared.events.quarantine import UNFOLDABLE, QuarantinedStreams
from shared.events.scheduling_events import PodReserved
from shared.ledger.fold import Touched

# Events that are folded on from an earlier state, instead of beginning at a snapshot.
NEAR = 20_000
Followed = tuple[SchedulerState, QuarantinedStreams]


async def followed_at(log: EventLog, position: int, earlier: Followed | None = None) -> Followed:
    """Return the scheduler's state folded up to a position, and the quarantined streams. The fold
    continues `earlier`, which it changes, if that is near.
    """
    reached = earlier[0].ledger.position if earlier is not None else 0
    if earlier is not None and 0 < reached <= position <= reached + NEAR:
        followed, quarantined = earlier
    else:
        quarantined = QuarantinedStreams(await skips(log))
        followed = await nearest_state(log, position, quarantined)
    async for envelope in reading.envelopes(log, followed.ledger.position, position):
        follow(followed, envelope, quarantined)
    return followed, quarantined


def follow(
    followed: SchedulerState, envelope: Envelope, quarantined: QuarantinedStreams
) -> tuple[Event | None, Touched]:
    """Fold one event as the scheduler does. Returns the event (None: passed over) and the nodes
    that it changed.
    """
    event = quarantined.event_of(envelope)
    if event is not None:
        try:
            return event, scheduler_state.evolve(followed, envelope, event)
        except UNFOLDABLE as error:
            quarantined.quarantine(envelope, error)
    scheduler_state.pass_over(followed, envelope, moves=envelope.stream not in quarantined.streams)
    return None, ()


def usable(followed: SchedulerState, name: str, quarantined: QuarantinedStreams) -> bool:
    """Return whether the scheduler considers the node: its object was seen, and none of its streams
    is quarantined.
    """
    node = followed.ledger.nodes.get(name)
    return (
        node is not None
        and node.observed is not None
        and not {f"node/{name}", f"report/{name}"} & quarantined.streams.keys()
    )


def placing_at(
    followed: SchedulerState,
    cycle: CycleConfig,
    quarantined: QuarantinedStreams | None = None,
    mates: Iterable[PodReserved] = (),
) -> ColumnarPlacing:
    """Return columns built from the state, with the earlier reservations of the same batch
    applied.
    """
    placing, quarantined = (
        ColumnarPlacing(cycle),
        QuarantinedStreams() if quarantined is None else quarantined,
    )
    placing.learn(followed.exclusions, followed.cluster_objects, followed.holds)
    placing.rank_by(followed.wanted)
    for name in sorted(followed.ledger.nodes):
        if usable(followed, name, quarantined):
            placing.put_node(followed.ledger.nodes[name])
    for uid, entry in followed.ledger.pods.items():
        placing.follow(uid, entry)
    for mate in mates:
        charge(placing, followed, mate)
    return placing


def charge(placing: ColumnarPlacing, followed: SchedulerState, mate: PodReserved) -> bool:
    """Apply a recorded reservation until the fold has it. Returns False if the pod or the node is
    unknown.
    """
    entry = followed.ledger.pods.get(mate.uid)
    if entry is None or placing.node(mate.node) is None:
        return False
    placing.assume(
        Placed(
            mate.node,
            mate.score,
            mate.candidates,
            mate.report_version,
            mate.predicted,
            mate.certain,
            mate.one_zone,
            mate.allocation,
        ),
        entry.pod,
    )
    return True
