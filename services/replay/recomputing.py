"""Deciding again: a reservation or a verdict recomputed from the log up to the position that it was decided at.

The same code under the same configuration, on the same facts, decides the same: where it does not, the log, the code or a
reservation that lost its race (which the log does not hold) is the reason, and the answer says which. Pure but for reading.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from services.replay import reading
from services.scheduler.deciding.config import CycleConfig, Provenance
from services.scheduler.deciding.outcome import Placed, Unplaceable
from services.scheduler.deciding.placing import ColumnarPlacing
from services.scheduler.sharing import MARK, Share, share_of
from shared.eventlog.port import EventLog
from shared.eventlog.skips import skips
from shared.events.envelope import Envelope
from shared.events.scheduling_facts import PodReserved, PodVerdictChanged
from shared.events.setting_aside import Aside
from shared.ledger.state import Ledger, LedgerPod

MOST = 20
"""Decisions recomputed for one question, the newest ones."""

BATCH_SPREAD = 2_000
"""Positions behind a decision in which the rest of its batch is looked for: those on one node are appended one after another."""

Decision = PodReserved | PodVerdictChanged


class Deciding(msgspec.Struct, frozen=True):
    """What recomputes: the settings as they are here, their provenance, and whether something else than the ledger decides."""

    cycle: CycleConfig
    provenance: Provenance
    instead: bool = False


class Made(msgspec.Struct, frozen=True):
    """One decision as the log holds it, and the reservations of the same batch that came before it."""

    at: Envelope
    fact: Decision
    mates: tuple[PodReserved, ...] = ()


async def recomputed(log: EventLog, wanted: Sequence[tuple[Envelope, Decision]], by: Deciding) -> dict[int, str]:
    """Position -> what deciding again says, for the newest of these decisions."""
    if by.instead:
        return {at.position: "not recomputed: an upstream cache decides here" for at, _ in wanted}
    waiting: dict[int, list[Made]] = {}
    for at, fact in wanted[-MOST:]:
        waiting.setdefault(fact.based_on, []).append(Made(at, fact, await mates(log, at, fact)))
    told, ledger, aside = dict[int, str](), Ledger(), Aside()
    aside.skipped = await skips(log)
    async for envelope in reading.envelopes(log, 0, max(waiting, default=0)):
        reading.fold_one(ledger, envelope, aside)
        for each in waiting.get(envelope.position, ()):
            told[each.at.position] = tell(
                each.fact, again(ledger, each, by.cycle, share_of(each.fact.config, each.at.role)), by.provenance
            )
    return told


async def mates(log: EventLog, at: Envelope, fact: Decision) -> tuple[PodReserved, ...]:
    """Reservations of the same writer and batch that were decided before this decision, wherever they were appended."""
    found, aside = list[PodReserved](), Aside()
    until = min(await log.head(), at.position + BATCH_SPREAD)
    async for where in reading.envelopes(log, fact.based_on, until):
        if where.type != "PodReserved" or (where.role, where.epoch) != (at.role, at.epoch):
            continue
        other = aside.fact_of(where)
        if isinstance(other, PodReserved) and other.based_on == fact.based_on and other.order < fact.order:
            found.append(other)
    return tuple(sorted(found, key=lambda each: each.order))


def again(ledger: Ledger, made: Made, cycle: CycleConfig, share: Share) -> Placed | Unplaceable | None:
    """Decide the pod on the ledger as it stood; None where the ledger does not know the pod (a log that was cut)."""
    placing = ColumnarPlacing(cycle)
    placing.share(None if share.alone else share.has)
    for name in sorted(ledger.nodes):
        placing.put_node(ledger.nodes[name])
    for mate in made.mates:
        entry = ledger.pods.get(mate.uid)
        if entry is not None and placing.node(mate.node) is not None:
            placing.charge(Placed(mate.node, mate.score, mate.candidates, mate.report_version, mate.predicted), entry.pod)
    entry = ledger.pods.get(made.fact.uid)
    if entry is None:
        return None
    return decided(placing, entry)


def decided(placing: ColumnarPlacing, entry: LedgerPod) -> Placed | Unplaceable:
    """The pod decided on these columns."""
    if entry.problem:
        return Unplaceable(message=f"pod cannot be scheduled: {entry.problem}")
    return placing.place(entry.pod)


def tell(fact: Decision, outcome: Placed | Unplaceable | None, here: Provenance) -> str:
    """One line: the same, or what would be decided here, and what is different."""
    if outcome is None:
        return "not recomputed: the log up to the decision does not hold the pod"
    differs = _differences(fact, here)
    if same(fact, outcome):
        return f"recomputed{differs}: the same"
    would = f"reserved on {outcome.node}, score {outcome.score}" if isinstance(outcome, Placed) else outcome.message
    why = "" if differs else " (a reservation of its batch that lost its race is not in the log, or the log was altered)"
    return f"recomputed{differs}: would be {would}{why}"


def _differences(fact: Decision, here: Provenance) -> str:
    if not (fact.code and fact.config):
        return ", its code and configuration not being known"
    names: Mapping[str, tuple[str, str]] = {
        "code": (fact.code, here.code),
        "configuration": (fact.config.partition(MARK)[0], here.config),
    }
    found = [f"{name} {then}, here {now}" for name, (then, now) in names.items() if then != now]
    return f" by another {' and '.join(found)}" if found else ""


def same(fact: Decision, outcome: Placed | Unplaceable) -> bool:
    """Whether this is what was recorded: the same node, score and zones, or the same refusal."""
    if isinstance(fact, PodVerdictChanged):
        return isinstance(outcome, Unplaceable) and outcome.message == fact.message
    if isinstance(outcome, Unplaceable):
        return False
    return (outcome.node, outcome.score, outcome.predicted) == (fact.node, fact.score, fact.predicted)
