"""Recomputes a decision: a reservation, an outcome or a nomination, from the log up to the position
of the decision. Pure but for reading.

The same code with the same configuration and the same events decides the same. If the answer
differs, the cause is the log, the code, or a reservation that lost its race (which the log does not
have), and the answer says which.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import msgspec

from services.replay import reading
from services.replay.deciding_state import followed_at, placing_at
from services.replay.renominating import nominated_again
from services.scheduler.explain.gang_decisions import (
    Trial,
    confined_to,
    domains_of,
    refusal,
    try_in,
)
from services.scheduler.explain.placing import ColumnarPlacing
from services.scheduler.explain.undecided import of_pod
from services.scheduler.explain.wording import within as undecided_text
from services.scheduler.explain.wording import without_notes, without_preemption
from services.scheduler.extender.verbs import placed_on
from services.scheduler.queue.shard import MARK, shard_of
from services.scheduler.reserve.gangs import unit_of, yields
from services.scheduler.snapshot.config import CycleConfig, Provenance
from services.scheduler.snapshot.result import Placed, Unplaceable
from services.scheduler.state.state import SchedulerState
from shared.domain.pod import Pod
from shared.eventlog.port import EventLog
from shared.events.envelope import Envelope
from shared.events.quarantine import QuarantinedStreams
from shared.events.scheduling_events import PodNominated, PodReserved, PodVerdictChanged
from shared.ledger.state import LedgerPod

# Decisions recomputed for one question, the newest ones.
MOST = 20

# The number of positions after a decision that may have the rest of its batch: decisions on one
# node are appended one after another.
BATCH_SPREAD = 2_000

Decision = PodReserved | PodVerdictChanged
Recorded = Decision | PodNominated


class Deciding(msgspec.Struct, frozen=True):
    """The inputs of a recomputation: the current settings, their provenance, and whether something
    other than the ledger decides. Pods of other schedulers had to name their node.
    """

    cycle: CycleConfig
    provenance: Provenance
    instead: bool = False
    scheduler_name: str = "topolog"


class Made(msgspec.Struct, frozen=True):
    """One decision as the log has it, and the earlier reservations of the same batch."""

    at: Envelope
    event: Recorded
    mates: tuple[PodReserved, ...] = ()


async def recomputed(
    log: EventLog, wanted: Sequence[tuple[Envelope, Recorded]], deciding: Deciding
) -> dict[int, str]:
    """Return position -> result of the recomputation, for the newest of these decisions."""
    if deciding.instead:
        return {
            decided_at.position: "not recomputed: an upstream cache decides here"
            for decided_at, _ in wanted
        }
    waiting: dict[int, list[Made]] = {}
    for decided_at, event in wanted[-MOST:]:
        if event.based_on:
            waiting.setdefault(event.based_on, []).append(
                Made(decided_at, event, await mates(log, decided_at, event))
            )
    lines, followed = dict[int, str](), None
    for position in sorted(waiting):
        followed = await followed_at(log, position, followed)
        for made in waiting[position]:
            lines[made.at.position] = _recomputed_text(*followed, made, deciding)
    return lines


async def mates(log: EventLog, decision_at: Envelope, event: Recorded) -> tuple[PodReserved, ...]:
    """Return the reservations of the same writer and batch that were decided before this decision,
    in any order of appending.

    A nomination is the last decision of its batch.
    """
    reservations, quarantined = list[PodReserved](), QuarantinedStreams()
    order = sys.maxsize if isinstance(event, PodNominated) else event.order
    until = min(await log.head(), decision_at.position + BATCH_SPREAD)
    async for where in reading.envelopes(log, event.based_on, until):
        if where.type != "PodReserved" or (where.role, where.epoch) != (
            decision_at.role,
            decision_at.epoch,
        ):
            continue
        decoded = quarantined.event_of(where)
        if (
            isinstance(decoded, PodReserved)
            and decoded.based_on == event.based_on
            and decoded.order < order
        ):
            reservations.append(decoded)
    return tuple(sorted(reservations, key=lambda reservation: reservation.order))


def _recomputed_text(
    followed: SchedulerState, quarantined: QuarantinedStreams, made: Made, deciding: Deciding
) -> str:
    """Return one line on the decision, recomputed on the state of that moment."""
    entry = followed.ledger.pods.get(made.event.uid)
    if entry is None:
        return "not recomputed: the log up to the decision does not hold the pod"
    placing, share = (
        placing_at(followed, deciding.cycle, quarantined, made.mates),
        shard_of(made.event.config, made.at.role),
    )
    placing.share(None if share.alone else share.has)
    within = undecided_text(_within(placing, entry.pod, made.event))
    if isinstance(made.event, PodNominated):
        is_same, note = nominated_again(placing, followed.ledger.pods, made.event)
        said = f"the same on {made.event.node}" if note else "the same"
        texts = "; ".join(filter(None, (said if is_same else "", note)))
        return f"recomputed{_differences(made.event, deciding.provenance)}: {texts}{within}"
    asker = entry.pod.scheduler_name
    if isinstance(made.event, PodReserved) and asker != deciding.scheduler_name:
        outcome = _asked_again(placing, entry.pod, made.event.node)
        text = comparison_text(made.event, outcome, deciding.provenance)
        return f"{text}, on the node that {asker} requested{within}"
    gang = entry.pod.gang if isinstance(made.event, PodVerdictChanged) else None
    if gang and getattr(made.event, "message", "") == yields(gang.name):
        return "not recomputed: a gang is rolled back by the scheduler's clock"
    fresh = partial(placing_at, followed, deciding.cycle, quarantined, made.mates)
    refused = _refused_gang(fresh, followed, entry, deciding.cycle) if gang else None
    outcome = refused or decided(placing, as_decided(entry, made.event))
    return comparison_text(made.event, outcome, deciding.provenance) + within


def _refused_gang(
    fresh: Callable[[], ColumnarPlacing],
    followed: SchedulerState,
    asked: LedgerPod,
    cycle: CycleConfig,
) -> Unplaceable | None:
    """Return why the pod waits with its gang; None if it waits by itself, or the gang fits."""

    def is_waiting(entry: LedgerPod) -> bool:
        barred = entry.pod.uid in followed.exclusions.barred
        has_stopped = barred or entry.terminating or entry.pod.constraints.gates
        ours = entry.pod.scheduler_name == asked.pod.scheduler_name
        return ours and entry.stage == "pending" and not has_stopped

    unit = unit_of(followed, followed.gangs.key_of.get(asked.pod.uid, ""), is_waiting)
    if isinstance(unit, str):
        return Unplaceable(unit)
    unit = unit.with_only(asked.pod.uid) if unit is not None else None
    if unit is None:
        return None
    if unit.on_their_way or len(unit.pods) < unit.missing:
        return Unplaceable(unit.lacks_pods())
    if unit.pods[0] is not asked:
        return Unplaceable(unit.see_first())
    tried = list[tuple[Trial, ColumnarPlacing]]()
    for domain in domains_of(unit, followed.ledger, cycle.topology_layers):
        placing = fresh()
        trial = try_in(domain, placing, unit, partial(decided, placing))
        if trial.short is None:
            return None
        tried.append((trial, placing))
    if not tried:
        return refusal(unit, None, None)
    best, placing = max(tried, key=lambda pair: len(pair[0].assumed))
    assert best.short is not None
    why = decided(placing, best.short)
    return refusal(unit, best, why) if isinstance(why, Unplaceable) else None


def _asked_again(placing: ColumnarPlacing, pod: Pod, node: str) -> Placed | Unplaceable:
    """Filter the node that a kube-scheduler chose, as at its bind request."""
    answer = placed_on(placing, pod, node)
    return Unplaceable(message=answer) if isinstance(answer, str) else answer


def _within(placing: ColumnarPlacing, pod: Pod, event: Recorded) -> tuple[str, ...]:
    """Return the undecided parts of the decision for a node and of its predicted zones. An outcome
    has them for each node.
    """
    return () if isinstance(event, PodVerdictChanged) else of_pod(placing, pod, event.node)


def decided(placing: ColumnarPlacing, entry: LedgerPod) -> Placed | Unplaceable:
    """Return the outcome for the pod on these columns."""
    if entry.problem:
        return Unplaceable(message=f"pod cannot be scheduled: {entry.problem}")
    return placing.place(entry.pod)


def as_decided(entry: LedgerPod, event: Decision) -> LedgerPod:
    """Return the pod confined to the domain in which its gang was placed, if there was one."""
    if isinstance(event, PodVerdictChanged) or not event.gang_domain:
        return entry
    return msgspec.structs.replace(entry, pod=confined_to(event.gang_domain, entry.pod))


def comparison_text(event: Decision, outcome: Placed | Unplaceable, provenance: Provenance) -> str:
    """Return one line: the decision is the same, or the decision here with its differences."""
    differs = _differences(event, provenance)
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
        else (
            " (a reservation of its batch that lost its race is not in the log, or the log "
            "was altered)"
        )
    )
    return f"recomputed{differs}: would be {would}{why}"


def _differences(event: Recorded, provenance: Provenance) -> str:
    if not (event.code and event.config):
        return ", its code and configuration not being known"
    names: Mapping[str, tuple[str, str]] = {
        "code": (event.code, provenance.code),
        "configuration": (event.config.partition(MARK)[0], provenance.config),
    }
    texts = [
        f"{name} {then}, here {current}"
        for name, (then, current) in names.items()
        if then != current
    ]
    return f" by another {' and '.join(texts)}" if texts else ""


def same(event: Decision, outcome: Placed | Unplaceable) -> bool:
    """Return whether this is the recorded result: the same node, score and zones, or the same
    refusal.
    """
    if isinstance(event, PodVerdictChanged):
        return isinstance(outcome, Unplaceable) and without_preemption(event.message) in (
            outcome.message,
            without_notes(outcome.message),
        )
    if isinstance(outcome, Unplaceable):
        return False
    return (outcome.node, outcome.score, outcome.predicted) == (
        event.node,
        event.score,
        event.predicted,
    )
