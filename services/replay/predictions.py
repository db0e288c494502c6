"""Predicted and actual zones of every reservation: the hit rate, and the difference in each miss.
Pure but for reading.

The prediction is in `PodReserved`. The actual zones are in the first report that confirms the pod.
If a miss was undecided (bounded) under the current settings, the miss says so. A prediction that
was certain until its confirmation (`shared/ledger/certainty.py`) does not miss, unless kubelet and
model differ.
"""

from __future__ import annotations

import msgspec

from services.replay import reading
from services.replay.confirmations import actual_zones
from services.replay.filters import FilterError
from services.scheduler.explain.placing import ColumnarPlacing
from services.scheduler.explain.undecided import of_pod
from services.scheduler.snapshot.config import CycleConfig
from shared.domain.policies import BEST_EFFORT
from shared.domain.predicted import is_as_predicted
from shared.domain.quantity import format_amount
from shared.eventlog.port import EventLog
from shared.eventlog.skips import skips
from shared.events.binding_events import BindRefused
from shared.events.quarantine import QuarantinedStreams
from shared.events.scheduling_events import PodReserved, ReservationWithdrawn
from shared.ledger.state import Charge, Ledger, LedgerNode, ZoneAmounts

# The most pods and amounts that one miss names.
NAMED = 5

GROUPINGS = ("policy", "node")

Zones = dict[str, tuple[int, ...]]


class Pending(msgspec.Struct):
    """A reservation whose pod no report has confirmed yet, and the node as the prediction saw it:
    pods by key (True: confirmed), the available amounts by zone in the report, and the undecided
    parts. `met` are the keys of all pods that were on the node since.
    """

    event: PodReserved
    position: int
    beside: dict[str, bool]
    available: ZoneAmounts
    within: tuple[str, ...]
    met: set[str]


class Miss(msgspec.Struct, frozen=True):
    """One wrong prediction. `difference` says what the model could not know, `within` names the
    undecided parts. `certain`: see the head of this module.
    """

    position: int
    pod: str
    node: str
    predicted: Zones
    actual: Zones
    difference: str
    within: tuple[str, ...] = ()
    certain: bool = False


class Group(msgspec.Struct):
    """Counts of one policy or one node."""

    name: str
    predicted: int = 0
    hit: int = 0
    certain: int = 0
    certain_hit: int = 0

    def row(self) -> list[str]:
        """Return the cells for a table."""
        rate = f"{100 * self.hit / self.predicted:.1f} %" if self.predicted else "-"
        counts = [str(number) for number in (self.predicted, self.hit)]
        return [self.name, *counts, rate, str(self.certain), str(self.certain_hit)]


class Predictions(msgspec.Struct):
    """The whole comparison. `unproven` reservations have no confirmation: the pod ended before it,
    or none has come yet.
    """

    groups: list[Group]
    misses: list[Miss]
    unproven: int = 0


async def predictions(
    log: EventLog, group_by: str, miss_limit: int, cycle: CycleConfig
) -> Predictions:
    """Fold the log and compare the prediction of each reservation with its first confirmation.

    `by` is `policy` or `node`. Raises FilterError for anything else.
    """
    if group_by not in GROUPINGS:
        raise FilterError(f"--by {group_by!r}: write one of {', '.join(GROUPINGS)}")
    ledger, groups, misses = Ledger(), dict[str, Group](), list[Miss]()
    pending: dict[str, dict[str, Pending]] = {}
    ended, placing = 0, ColumnarPlacing(cycle)
    quarantined = QuarantinedStreams(await skips(log))
    async for envelope in reading.envelopes(log):
        event, touched = reading.fold_one(ledger, envelope, quarantined)
        if isinstance(event, PodReserved) and event.predicted:
            seen = *_seen(ledger.nodes.get(event.node), event.uid), _within(placing, ledger, event)
            pending.setdefault(event.node, {})[event.uid] = Pending(
                event, envelope.position, *seen, set()
            )
        elif isinstance(event, ReservationWithdrawn | BindRefused):
            pending.get(event.node, {}).pop(event.uid, None)
        for name in touched:
            if name in pending and name in ledger.nodes:
                ended += _ended(ledger, pending[name])
                _note_met(ledger.nodes[name], pending[name])
                _compare(ledger, ledger.nodes[name], pending[name], groups, misses, group_by)
    unconfirmed = sum(len(waiting) for waiting in pending.values())
    return Predictions(
        sorted(groups.values(), key=lambda group: group.name),
        misses[:miss_limit],
        ended + unconfirmed,
    )


def _ended(ledger: Ledger, pending: dict[str, Pending]) -> int:
    """Drop and count the pods that ended before a report confirmed them."""
    gone = [uid for uid in pending if uid not in ledger.pods]
    for uid in gone:
        del pending[uid]
    return len(gone)


def _note_met(node: LedgerNode, pending: dict[str, Pending]) -> None:
    keys = {charge.key for charge in node.charges.values() if charge.demand} if pending else set()
    for waiting in pending.values():
        waiting.met |= keys


def _compare(
    ledger: Ledger,
    node: LedgerNode,
    pending: dict[str, Pending],
    groups: dict[str, Group],
    misses: list[Miss],
    group_by: str,
) -> None:
    for uid in list(pending):
        charge = node.charges.get(uid)
        if charge is None or not charge.confirmed or not charge.demand:
            continue
        waiting = pending.pop(uid)
        actual = actual_zones(node, charge.key)
        predicted = {name: tuple(zones) for name, zones in waiting.event.predicted.items()}
        policy = node.report.policy if node.report is not None else "unknown"
        group = groups.setdefault(
            node.name if group_by == "node" else policy,
            Group(node.name if group_by == "node" else policy),
        )
        is_hit = is_as_predicted(predicted, actual)
        certain = ledger.pods[uid].certain
        group.predicted, group.hit = group.predicted + 1, group.hit + is_hit
        group.certain += certain
        group.certain_hit += certain and is_hit
        if not is_hit:
            difference = _difference(waiting, node, charge)
            misses.append(
                Miss(
                    waiting.position,
                    charge.key,
                    node.name,
                    predicted,
                    actual,
                    difference,
                    waiting.within,
                    certain,
                )
            )


def _seen(node: LedgerNode | None, uid: str) -> tuple[dict[str, bool], ZoneAmounts]:
    if node is None or node.report is None:
        return {}, {}
    neighbours = {
        charge.key: charge.confirmed
        for charge in node.charges.values()
        if charge.uid != uid and charge.demand
    }
    return neighbours, _available(node)


def _within(placing: ColumnarPlacing, ledger: Ledger, event: PodReserved) -> tuple[str, ...]:
    """Return the undecided parts for the pod on its node, which is not charged yet."""
    node, entry = ledger.nodes.get(event.node), ledger.pods.get(event.uid)
    if node is None or entry is None:
        return ()
    placing.put_node(node)
    return of_pod(placing, entry.pod, event.node)


def _available(node: LedgerNode) -> ZoneAmounts:
    zones = node.report.zones if node.report is not None else ()
    return {
        zone.id: {name: amounts.available for name, amounts in zone.resources.items()}
        for zone in zones
    }


def _difference(waiting: Pending, node: LedgerNode, own_charge: Charge) -> str:
    """Return what the prediction's state lacked, compared with the report that confirmed the
    pod.
    """
    seen_before = waiting.beside
    reported = {
        charge.key
        for charge in node.charges.values()
        if charge.uid != own_charge.uid and charge.demand
    }
    passing = waiting.met - reported - seen_before.keys() - {own_charge.key}
    changes = [
        _named("ended in between", [key for key in seen_before if key not in reported]),
        _named("started in between", [key for key in reported if key not in seen_before]),
        _named("came and went in between", list(passing)),
        _named(
            "on the way when it was predicted",
            [key for key, confirmed in seen_before.items() if key in reported and not confirmed],
        ),
    ]
    texts = [text for text in changes if text]
    return (
        "; ".join(texts)
        or _amounts(waiting.available, _available(node), own_charge)
        or _otherwise(node)
    )


def _named(what: str, keys: list[str]) -> str:
    if not keys:
        return ""
    shown = ", ".join(sorted(keys)[:NAMED])
    return f"{what}: {shown}" + (f" and {len(keys) - NAMED} more" if len(keys) > NAMED else "")


def _amounts(seen_before: ZoneAmounts, reported: ZoneAmounts, charge: Charge) -> str:
    """Return the difference for the same pods and other amounts: devices or memory that changed on
    their own.
    """
    changed = []
    for zone, amounts in sorted(seen_before.items()):
        for name, amount in sorted(amounts.items()):
            mine = charge.confirmed_zones.get(zone, {}).get(name, 0)
            later = reported.get(zone, {}).get(name, 0) + mine
            if later != amount:
                changed.append(
                    f"zone {zone} {name} {format_amount(name, amount)} -> "
                    f"{format_amount(name, later)}"
                )
    return "available apart from the pod itself: " + ", ".join(changed[:NAMED]) if changed else ""


def _otherwise(node: LedgerNode) -> str:
    """Explain a miss under best-effort: the prediction is the merged hint, and the managers need
    not keep to it.
    """
    if node.basis is not None and node.basis.policy == BEST_EFFORT:
        return (
            "nothing that reports show: under best-effort the merged hint is a wish, and "
            "managers take from other zones too"
        )
    return "nothing that reports show: the kubelet chose otherwise than the model"
