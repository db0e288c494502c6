"""Putting a pod on a node and taking it off: the only two ways a charge comes and goes."""

from __future__ import annotations

from shared.domain.resources import add
from shared.ledger.alike import kind_of
from shared.ledger.charge import listed_demand
from shared.ledger.landing import landing
from shared.ledger.nodes import count, forget_ended, node_of
from shared.ledger.recompute import could_have_freed, recompute
from shared.ledger.state import (
    AbsentPod,
    Alias,
    Charge,
    Ended,
    Expectation,
    Freed,
    Ledger,
    LedgerNode,
    LedgerPod,
    Life,
    ZoneAmounts,
)
from shared.ledger.view import listed_of, restore, subtract

LIVES_LIMIT = 8
"""Ended pods of one name that are told apart on a node."""
HISTORY_LIMIT = 1024
"""Expectations kept a node for the fingerprint path; older ones are dropped, which only delays a match."""


def put(ledger: Ledger, entry: LedgerPod, name: str, position: int) -> None:
    """Charge the pod to node `name` from `position` on; harmless when it is charged there already."""
    if entry.node == name:
        return
    if entry.node:
        take(ledger, entry, position)
    pod = entry.pod
    node, kind, key = node_of(ledger, name), kind_of(pod), pod.key
    demand = kind.demand(node.basis.tracked if node.basis is not None else ())
    _is_back(node, key, pod.uid)
    charge = Charge(pod.uid, key, position, demand, alias=alias_of(node, key))
    node.charges[pod.uid] = charge
    bears(node, key, 1)
    entry.node, entry.charged_at = name, position
    count(node, kind.request, 1)
    if not _tells_who(node):
        _expect(node, position)
    _first_charge(node, charge)


def _is_back(node: LedgerNode, key: str, uid: str) -> None:
    """A pod that ended by absence is seen again: it never ended, and its listing is its own."""
    ended = node.ended.get(key)
    if ended is None or ended.absent is None or ended.absent.uid != uid:
        return
    if ended.lives is not None and len(ended.lives) == 1:
        forget_ended(node, key)
        return
    stop_counting(node, key)


def stop_counting(node: LedgerNode, key: str) -> None:
    """The pod that ended by absence has ended for certain, or is charged again."""
    ended = node.ended[key]
    if ended.is_counted and ended.absent is not None:
        count(node, ended.absent.request, -1)
    ended.absent, ended.is_counted = None, False


def _tells_who(node: LedgerNode) -> bool:
    """Whether the node's reports carry placements: of others only a fingerprint can tell what they
    knew.
    """
    return node.listed is not None and node.report is not None


def _first_charge(node: LedgerNode, charge: Charge) -> None:
    """A new charge is unproven, so that only its own zones change: no need to recompute the node.
    Nothing was possible for it before, and nothing was proven."""
    basis = node.basis
    if basis is None or not charge.demand:
        charge.confirmed = not charge.demand
        return
    if listed_of(node, charge.key):
        recompute(node, ())
        return
    charge.possible, charge.zones = landing(charge.demand, basis, node.free_max)
    subtract(node.free_min, charge.zones)


def alias_of(node: LedgerNode, key: str) -> Alias | None:
    """What a newcomer of this name must not be taken for, None for nobody."""
    ended = node.ended.get(key)
    if ended is None:
        return Alias() if key in node.name_counts else None
    return Alias((listed_of(node, key) or None) if ended.complete else None)


def take(
    ledger: Ledger,
    entry: LedgerPod,
    position: int,
    came: bool = True,
    finished_s: int = 0,
    absent: bool = False,
) -> None:
    """Release the pod's charge: it ended, was refused, or its reservation was withdrawn. `came`: it
    may have held something, and if so until `finished_s`. `absent`: the only evidence is a list
    that lacks it, so that a report which lists it brings the charge back (`is_contradicted`)."""
    node = ledger.nodes.get(entry.node)
    entry.node, entry.charged_at = "", 0
    charge = node.charges.pop(entry.pod.uid, None) if node is not None else None
    if node is None or charge is None:
        return
    count(node, kind_of(entry.pod).request, -1)
    if not _tells_who(node):
        _note_departed(node, charge)
        _expect(node, position)
    key = charge.key
    bears(node, key, -1)
    if not charge.demand:
        if key in node.ended:
            recompute(
                node, ()
            )  # what a report lists for an ended pod of this name is free again, now that no live one bears it
        return
    before = node.ended.get(key)
    if before is not None:
        stop_counting(node, key)
    node.ended[key] = _ended(before, charge, position, came, finished_s)
    if absent:
        node.ended[key].absent = AbsentPod(entry.pod.uid, kind_of(entry.pod).request)
    if node.listed is None:
        _note_freed(node, charge, position)
        recompute(node, ())
    elif key in node.listed:
        recompute(node, ())
    else:
        restore(node.free_min, charge.zones)


def _ended(
    before: Ended | None, charge: Charge, position: int, came: bool, finished_s: int
) -> Ended:
    """With those of the name that ended before; of too many nobody says anything any more."""
    lives: tuple[Life, ...] | None = () if before is None else before.lives
    if came and lives is not None:
        life = Life(
            charge.demand, charge.sent_at, charge.runs_at, position, charge.started_s, finished_s
        )
        lives = (*lives, life) if len(lives) < LIVES_LIMIT else None
    return ended_of(charge, lives)


def ended_of(charge: Charge, lives: tuple[Life, ...] | None = None) -> Ended:
    """What an end leaves of the pod's name: its listing is complete where it had proven this pod."""
    return Ended(charge.confirmed and charge.alias is None, 0, lives)


def _note_departed(node: LedgerNode, charge: Charge) -> None:
    """What a report that still lists the pod must show of it. Expectations outlive the pods that
    they name.
    """
    node.departed[charge.uid] = listed_demand(charge.demand)
    while len(node.departed) > HISTORY_LIMIT:
        del node.departed[next(iter(node.departed))]


def _note_freed(node: LedgerNode, charge: Charge, position: int) -> None:
    """Remember what an end gave back until a match tells that the report knew of it; beyond the
    limit the oldest two become one, which only keeps them longer."""
    node.freed.append(Freed(position, could_have_freed(node, charge)))
    if len(node.freed) > HISTORY_LIMIT:
        first, second = node.freed[:2]
        node.freed[:2] = [Freed(second.position, _sum(first.zones, second.zones))]


def _sum(left: ZoneAmounts, right: ZoneAmounts) -> ZoneAmounts:
    return {zone: add(left.get(zone, {}), right.get(zone, {})) for zone in sorted({*left, *right})}


def bears(node: LedgerNode, key: str, sign: int) -> None:
    """One pod more (1) or less (-1) that bears this name."""
    left = node.name_counts.get(key, 0) + sign
    if left:
        node.name_counts[key] = left
    else:
        del node.name_counts[key]


def _expect(node: LedgerNode, position: int) -> None:
    """Remember who is expected from here on."""
    pods = tuple(sorted((charge.key, charge.uid) for charge in node.charges.values()))
    node.history.append(Expectation(position, pods))
    del node.history[:-HISTORY_LIMIT]
