"""Charging a pod to a node and releasing it: the only two ways in which a charge comes and goes."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

import msgspec

from shared.domain.booking import amounts_less, less
from shared.domain.pod import Pod
from shared.domain.resources import CPU, Amounts, add
from shared.domain.zone_allocation import DeviceHolding, ZoneAllocation
from shared.kubelet.cpuset import cpus_of, each_cpu, format_cpus, parse_cpus
from shared.ledger.alike import NOTHING, kind_of
from shared.ledger.certainty import check_after_charge, check_after_end
from shared.ledger.charge import landing, listed_demand
from shared.ledger.container_zones import lists_placements
from shared.ledger.nodes import count, forget_ended, node_of, stop_counting
from shared.ledger.recompute import could_have_freed, recompute
from shared.ledger.since_empty import note_end
from shared.ledger.state import (
    AbsentPod,
    Alias,
    Booking,
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

# The most ended pods of one name that a node remembers one by one.
LIVES_LIMIT = 8

# The most expectations and departed pods that a node keeps for fingerprints. Older ones are
# dropped, which only delays a match.
HISTORY_LIMIT = 1024


def charge_pod(ledger: Ledger, entry: LedgerPod, name: str, position: int) -> None:
    """Charge the pod to node `name` from `position` on. Does nothing if it is charged there."""
    if entry.node == name:
        return
    if entry.node:
        release_charge(ledger, entry, position)
        entry.drawn_from = ""
    pod = entry.pod
    node, kind, key = node_of(ledger, name), kind_of(pod), pod.key
    demand = kind.demand_on(node.basis)
    _forget_absence(node, key, pod.uid)
    charge = Charge(
        pod.uid,
        key,
        position,
        demand,
        possible=NOTHING,
        confirmed_zones=NOTHING,
        zones=NOTHING,
        alias=alias_of(node, key),
        one_zone=entry.one_zone,
        request=kind.request,
        allocation=entry.allocation,
        booked=entry.booking is not None,
    )
    node.charges[pod.uid] = charge
    count_name(node, key, 1)
    entry.node, entry.charged_at = name, position
    count(node, kind.request, 1)
    if not (charge.booked or lists_placements(node)):
        _expect(node, position)
    _first_charge(node, charge)
    if not charge.booked:
        check_after_charge(ledger, node, charge)
    if entry.drawn_from:
        recharge(ledger, entry.drawn_from)


def recharge(ledger: Ledger, uid: str) -> None:
    """Charge a booking with what the pods that drew from it leave: they came or went."""
    entry = ledger.pods.get(uid)
    if entry is None or entry.booking is None or not entry.node:
        return
    node = ledger.nodes[entry.node]
    owners = [node.charges[owner] for owner in drawn(ledger, node, uid)]
    charged_at, sent_at = entry.charged_at, node.charges[uid].sent_at
    release_charge(ledger, entry, ledger.position)
    entry.pod, entry.allocation = rest_of(entry.booking, owners)
    charge_pod(ledger, entry, node.name, charged_at)
    node.charges[uid].sent_at = sent_at


def rest_of(booking: Booking, owners: Iterable[Charge]) -> tuple[Pod, ZoneAllocation | None]:
    """Return what these pods leave of a booking."""
    requests, taken = Amounts(), list[ZoneAllocation]()
    for owner in owners:
        requests = add(requests, owner.request)
        taken += [owner.allocation] if owner.allocation is not None else []
    rest = less(booking.pod, requests)
    if booking.allocation is None:
        return rest, None
    return rest, _allocation_less(booking.allocation, taken)


def _allocation_less(booked: ZoneAllocation, taken: list[ZoneAllocation]) -> ZoneAllocation:
    """Return what owners leave of a booking: amounts by zone, of its CPUs as many as these amounts
    have, and its cards, of which nothing may be left. Owners that share CPUs, or took others,
    leave more ids than amounts.
    """
    zones, cpus = dict[int, Amounts](), parse_cpus(booked.cpus)
    for allocation in taken:
        zones = _sum(zones, allocation.zones)
        cpus &= ~parse_cpus(allocation.cpus)
    rest = {zone: amounts_less(has, zones.get(zone, {})) for zone, has in booked.zones.items()}
    count = sum(amounts.get(CPU, 0) for amounts in rest.values()) // 1000
    cards = [card for allocation in taken for card in allocation.devices]
    devices = tuple([_card_less(card, cards) for card in booked.devices])
    return ZoneAllocation(
        rest, format_cpus(cpus_of(islice(each_cpu(cpus), count))), devices=devices
    )


def _card_less(booked: DeviceHolding, taken: list[DeviceHolding]) -> DeviceHolding:
    rest, functions = dict(booked.resources), dict(booked.functions)
    for card in taken:
        if (card.type, card.minor) == (booked.type, booked.minor):
            rest = {name: max(0, a - card.resources.get(name, 0)) for name, a in rest.items()}
            for bus_id in card.functions:
                functions.pop(bus_id, None)
    return msgspec.structs.replace(booked, resources=rest, functions=functions)


def drawn(ledger: Ledger, node: LedgerNode, uid: str) -> list[str]:
    """Return the pods of the node that drew from this booking."""
    return [owner for owner in node.charges if ledger.pods[owner].drawn_from == uid]


def _forget_absence(node: LedgerNode, key: str, uid: str) -> None:
    """Forget the end of a pod that was only absent from a list and is seen again: listed amounts of
    its name are its own."""
    ended = node.ended.get(key)
    if ended is None or ended.absent is None or ended.absent.uid != uid:
        return
    if ended.lives is not None and len(ended.lives) == 1:
        forget_ended(node, key)
    else:
        stop_counting(node, key)


def _first_charge(node: LedgerNode, charge: Charge) -> None:
    """A new charge changes only its own zones, so the node need not be recomputed."""
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
    """Return the mark for a new charge of this name, None if no other pod had the name here."""
    ended = node.ended.get(key)
    if ended is None:
        return Alias() if key in node.name_counts else None
    return Alias((listed_of(node, key) or None) if ended.complete else None)


def release_charge(
    ledger: Ledger,
    entry: LedgerPod,
    position: int,
    came: bool = True,
    finished_s: int = 0,
    absent: bool = False,
) -> None:
    """Release the pod's charge: it ended, was rejected, or its reservation was withdrawn.

    `came` says that the pod may have held something, at most until `finished_s`. `absent` says that
    the only evidence is a list that lacks it, so a report that lists it brings the charge back
    (`is_contradicted`)."""
    node = ledger.nodes.get(entry.node)
    entry.node, entry.charged_at = "", 0
    charge = node.charges.pop(entry.pod.uid, None) if node is not None else None
    if node is None or charge is None:
        return
    _release(ledger, entry, node, charge, position, came, finished_s, absent)
    if entry.drawn_from:
        recharge(ledger, entry.drawn_from)


def _release(
    ledger: Ledger,
    entry: LedgerPod,
    node: LedgerNode,
    charge: Charge,
    position: int,
    came: bool,
    finished_s: int,
    absent: bool,
) -> None:
    request, key = kind_of(entry.pod).request, charge.key
    count(node, request, -1)
    if charge.booked:
        count_name(node, key, -1)
        recompute(node, ())
        return
    if not lists_placements(node):  # only a fingerprint can show which pods reports include
        _note_departed(node, charge)
        _expect(node, position)
    count_name(node, key, -1)
    if not charge.demand:
        if key in node.ended:
            # No live pod has the name now, so listed amounts of ended pods are free.
            recompute(node, ())
        return
    earlier = node.ended.get(key)
    if earlier is not None:
        stop_counting(node, key)
    life = Life(
        charge.demand, charge.sent_at, charge.runs_at, position, charge.started_s, finished_s
    )
    ended = node.ended[key] = _ended(earlier, charge, life if came else None)
    if came:
        note_end(node, charge, None if absent else life)
    if absent:
        ended.absent = AbsentPod(entry.pod.uid, request)
    if node.listed is None:
        _note_freed(node, charge, position)
        recompute(node, ())
    elif key in node.listed:
        recompute(node, ())
    else:
        restore(node.free_min, charge.zones)
    check_after_end(ledger, node, charge)


def _ended(earlier: Ended | None, charge: Charge, life: Life | None) -> Ended:
    lives: tuple[Life, ...] | None = () if earlier is None else earlier.lives
    if life is not None and lives is not None:
        lives = (*lives, life) if len(lives) < LIVES_LIMIT else None
    return ended_of(charge, lives)


def ended_of(charge: Charge, lives: tuple[Life, ...] | None = None) -> Ended:
    """Return the name's entry after an end. A listing that confirmed the pod is complete."""
    return Ended(charge.confirmed and charge.alias is None, 0, lives)


def _note_departed(node: LedgerNode, charge: Charge) -> None:
    """Remember what a report lists of a pod that has ended. Expectations outlive the pods that they
    name."""
    node.departed[charge.uid] = listed_demand(charge.demand)
    while len(node.departed) > HISTORY_LIMIT:
        del node.departed[next(iter(node.departed))]


def _note_freed(node: LedgerNode, charge: Charge, position: int) -> None:
    """Remember what an end gave back until a match shows that the report includes it. Beyond the
    limit the two oldest entries are merged, which only keeps them longer."""
    node.freed.append(Freed(position, could_have_freed(node, charge)))
    if len(node.freed) > HISTORY_LIMIT:
        first, second = node.freed[:2]
        node.freed[:2] = [Freed(second.position, _sum(first.zones, second.zones))]


def _sum(first: ZoneAmounts, second: ZoneAmounts) -> ZoneAmounts:
    zones = sorted({*first, *second})
    return {zone: add(first.get(zone, {}), second.get(zone, {})) for zone in zones}


def count_name(node: LedgerNode, key: str, sign: int) -> None:
    """Add (1) or remove (-1) one charged pod of this name."""
    number = node.name_counts.get(key, 0) + sign
    if number:
        node.name_counts[key] = number
    else:
        del node.name_counts[key]


def _expect(node: LedgerNode, position: int) -> None:
    """Remember which pods are expected from `position` on."""
    charges = [charge for charge in node.charges.values() if not charge.booked]
    pods = tuple(sorted((charge.key, charge.uid) for charge in charges))
    node.history.append(Expectation(position, pods))
    del node.history[:-HISTORY_LIMIT]
