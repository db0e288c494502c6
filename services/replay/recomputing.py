"""Deciding again: a reservation, a verdict or a nomination recomputed from the log up to the
position that it was decided at.

The same code under the same configuration, on the same facts, decides the same: where it does not,
the log, the code or a reservation that lost its race (which the log does not hold) is the reason,
and the answer says which. Pure but for reading.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

import msgspec

from services.replay import reading
from services.replay.deciding_state import follow, placing_at
from services.replay.renominating import nominated_again
from services.scheduler.explain.undecided import of_pod
from services.scheduler.explain.wording import within as told_within
from services.scheduler.explain.wording import without_bounds
from services.scheduler.extender.verbs import placed_on
from services.scheduler.placing import ColumnarPlacing
from services.scheduler.queue.shard import MARK, shard_of
from services.scheduler.snapshot.config import CycleConfig, Provenance
from services.scheduler.snapshot.result import Placed, Unplaceable
from services.scheduler.state.state import SchedulerState
from shared.domain.pod import Pod
from shared.eventlog.port import EventLog
from shared.eventlog.skips import skips
from shared.events.envelope import Envelope
from shared.events.quarantine import QuarantinedStreams
from shared.events.scheduling_events import PodNominated, PodReserved, PodVerdictChanged
from shared.ledger.state import LedgerPod

MOST = 20
"""Decisions recomputed for one question, the newest ones."""

BATCH_SPREAD = 2_000
"""Positions behind a decision in which the rest of its batch is looked for: those on one node are appended one after another."""

Decision = PodReserved | PodVerdictChanged
Recorded = Decision | PodNominated


class Deciding(msgspec.Struct, frozen=True):
    """What recomputes: the settings as they are here, their provenance, and whether something else
    than the ledger decides. Pods of other schedulers than this were asked for with a node."""

    cycle: CycleConfig
    provenance: Provenance
    instead: bool = False
    scheduler_name: str = "topolog"


class Made(msgspec.Struct, frozen=True):
    """One decision as the log holds it, and the reservations of the same batch that came before it."""

    at: Envelope
    event: Recorded
    mates: tuple[PodReserved, ...] = ()


async def recomputed(
    log: EventLog, wanted: Sequence[tuple[Envelope, Recorded]], by: Deciding
) -> dict[int, str]:
    """Position -> what deciding again says, for the newest of these decisions."""
    if by.instead:
        return {at.position: "not recomputed: an upstream cache decides here" for at, _ in wanted}
    waiting: dict[int, list[Made]] = {}
    for at, event in wanted[-MOST:]:
        waiting.setdefault(event.based_on, []).append(Made(at, event, await mates(log, at, event)))
    told, followed, quarantined = (
        dict[int, str](),
        SchedulerState(),
        QuarantinedStreams(await skips(log)),
    )
    async for envelope in reading.envelopes(log, 0, max(waiting, default=0)):
        follow(followed, envelope, quarantined)
        for each in waiting.get(envelope.position, ()):
            told[each.at.position] = _told(followed, quarantined, each, by)
    return told


async def mates(log: EventLog, at: Envelope, event: Recorded) -> tuple[PodReserved, ...]:
    """Reservations of the same writer and batch that were decided before this decision, wherever
    they were appended. A nomination is the last of its batch."""
    found, quarantined = list[PodReserved](), QuarantinedStreams()
    order = sys.maxsize if isinstance(event, PodNominated) else event.order
    until = min(await log.head(), at.position + BATCH_SPREAD)
    async for where in reading.envelopes(log, event.based_on, until):
        if where.type != "PodReserved" or (where.role, where.epoch) != (at.role, at.epoch):
            continue
        other = quarantined.event_of(where)
        if (
            isinstance(other, PodReserved)
            and other.based_on == event.based_on
            and other.order < order
        ):
            found.append(other)
    return tuple(sorted(found, key=lambda each: each.order))


def _told(
    followed: SchedulerState, quarantined: QuarantinedStreams, made: Made, by: Deciding
) -> str:
    """One line on the decision, made again on the state as it stood."""
    entry = followed.ledger.pods.get(made.event.uid)
    if entry is None:
        return "not recomputed: the log up to the decision does not hold the pod"
    placing, share = (
        placing_at(followed, by.cycle, quarantined, made.mates),
        shard_of(made.event.config, made.at.role),
    )
    placing.share(None if share.alone else share.has)
    within = told_within(_within(placing, entry.pod, made.event))
    if isinstance(made.event, PodNominated):
        is_same, beside = nominated_again(placing, followed.ledger.pods, made.event)
        said = f"the same on {made.event.node}" if beside else "the same"
        texts = "; ".join(filter(None, (said if is_same else "", beside)))
        return f"recomputed{_differences(made.event, by.provenance)}: {texts}{within}"
    asker = entry.pod.scheduler_name
    if isinstance(made.event, PodReserved) and asker != by.scheduler_name:
        outcome = _asked_again(placing, entry.pod, made.event.node)
        return f"{tell(made.event, outcome, by.provenance)}, on the node that {asker} asked for{within}"
    return tell(made.event, decided(placing, entry), by.provenance) + within


def _asked_again(placing: ColumnarPlacing, pod: Pod, node: str) -> Placed | Unplaceable:
    """The node that a kube-scheduler chose, judged as it was when its binding was asked for."""
    found = placed_on(placing, pod, node)
    return Unplaceable(message=found) if isinstance(found, str) else found


def _within(placing: ColumnarPlacing, pod: Pod, event: Recorded) -> tuple[str, ...]:
    """What the decision for a node, and the zones predicted there, knew within bounds only; a
    verdict says it node by node.
    """
    return () if isinstance(event, PodVerdictChanged) else of_pod(placing, pod, event.node)


def decided(placing: ColumnarPlacing, entry: LedgerPod) -> Placed | Unplaceable:
    """The pod decided on these columns."""
    if entry.problem:
        return Unplaceable(message=f"pod cannot be scheduled: {entry.problem}")
    return placing.place(entry.pod)


def tell(event: Decision, outcome: Placed | Unplaceable, here: Provenance) -> str:
    """One line: the same, or what would be decided here, and what is different."""
    differs = _differences(event, here)
    if same(event, outcome):
        return f"recomputed{differs}: the same"
    would = (
        f"reserved on {outcome.node}, score {outcome.score}"
        if isinstance(outcome, Placed)
        else outcome.message
    )
    why = (
        ""
        if differs
        else " (a reservation of its batch that lost its race is not in the log, or the log was altered)"
    )
    return f"recomputed{differs}: would be {would}{why}"


def _differences(event: Recorded, here: Provenance) -> str:
    if not (event.code and event.config):
        return ", its code and configuration not being known"
    names: Mapping[str, tuple[str, str]] = {
        "code": (event.code, here.code),
        "configuration": (event.config.partition(MARK)[0], here.config),
    }
    found = [f"{name} {then}, here {now}" for name, (then, now) in names.items() if then != now]
    return f" by another {' and '.join(found)}" if found else ""


def same(event: Decision, outcome: Placed | Unplaceable) -> bool:
    """Whether this is what was recorded: the same node, score and zones, or the same refusal."""
    if isinstance(event, PodVerdictChanged):
        return isinstance(outcome, Unplaceable) and event.message in (
            outcome.message,
            without_bounds(outcome.message),
        )
    if isinstance(outcome, Unplaceable):
        return False
    return (outcome.node, outcome.score, outcome.predicted) == (
        event.node,
        event.score,
        event.predicted,
    )
