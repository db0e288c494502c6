"""Recomputing a node: hold every charge against its current report, and make the bounds anew.

Run when the report, the set of ended pods or the settled position changes. Proven is a relation
between a pod and the current report, not a state that a pod enters: a report that no longer proves
a live pod charges it again. Where only some listings changed, or none, pods that others prove need
not be looked at: most of a node's, and most of what a log tells.
"""

from __future__ import annotations

from collections.abc import Container, Mapping

from shared.domain.report import Placement, Report
from shared.ledger.alike import kind_of
from shared.ledger.charge import charge_zones, narrow, pending_zones, possible_zones, widen
from shared.ledger.nodes import count
from shared.ledger.proof import alias_stands, covers, held_zones, is_seen, residual
from shared.ledger.state import Charge, LedgerNode, LedgerPod, ZoneAmounts
from shared.ledger.view import (
    base_bound,
    compute_free_max,
    compute_free_min,
    is_contradicted,
    listed_of,
    restore,
    subtract,
)


def recompute(
    node: LedgerNode, listed_anew: Container[str] | None = None, hidden_anew: bool = False
) -> None:
    """Prove or charge each pod of the node by its current report, then rebuild `free_min` and `free_max`.
    `listed_anew`: names whose listing is another one than when the node was last recomputed, where
    neither boot nor shape of the report is; None where they may be. `hidden_anew`: so may be what
    checkpoints say beyond the listing."""
    charges = list(node.charges.values())
    if listed_anew is not None:
        charges = [
            charge
            for charge in charges
            if charge.key in listed_anew or not _stays_confirmed(charge, hidden_anew)
        ]
    for charge in charges:
        _recompute_alias(node, charge)
    base = base_bound(node)
    node.free_max = compute_free_max(node, base)
    for charge in charges:
        _recompute_charge(node, charge)
    node.free_min = compute_free_min(node, base)
    if node.ended:
        _count_absent_pods(node)


def _count_absent_pods(node: LedgerNode) -> None:
    """Count the requests of pods that ended by absence as long as the report lists them."""
    live = {charge.key for charge in node.charges.values() if charge.alias is None}
    for key, ended in node.ended.items():
        counts = key not in live and is_contradicted(node, key)
        if counts != ended.is_counted and ended.absent is not None:
            count(node, ended.absent.request, 1 if counts else -1)
            ended.is_counted = counts


def _stays_confirmed(charge: Charge, hidden_anew: bool) -> bool:
    """By the same listing as before. What init containers keep depends on what checkpoints say,
    too.
    """
    if not charge.confirmed or charge.alias is not None:
        return False
    return not (hidden_anew and any(part.kind == "init" for part in charge.demand))


def _recompute_charge(node: LedgerNode, charge: Charge) -> None:
    basis = node.basis
    if basis is None or not charge.demand:
        charge.confirmed, charge.zones = not charge.demand, {}
        return
    listed = listed_of(node, charge.key)
    charge.confirmed = _is_confirmed(node, charge)
    if charge.confirmed:
        if listed:
            charge.confirmed_zones, charge.confirmed_boot = held_zones(listed), basis.boot_id
        charge.zones = residual(charge, listed, basis)
        return
    widen_possible(node, charge)
    charge.zones = pending_zones(charge, basis)


def _recompute_alias(node: LedgerNode, charge: Charge) -> None:
    """Only a report that came after the charge can tell the newcomer from its predecessor."""
    if (
        charge.alias is None
        or node.listed is None
        or node.basis is None
        or node.report_position <= charge.charged_at
    ):
        return
    if not alias_stands(charge, listed_of(node, charge.key), node.basis):
        charge.alias = None


def _is_confirmed(node: LedgerNode, charge: Charge) -> bool:
    if node.listed is None:
        return 0 < charge.charged_at <= node.confirmed_to
    listed, basis = node.listed.get(charge.key, ()), node.basis
    if charge.alias is not None or not covers(charge.demand, listed):
        return False
    return charge.is_admitted or basis is None or is_seen(charge, listed, basis)


def widen_possible(node: LedgerNode, charge: Charge) -> None:
    """Add the zones that could hold the pod by the upper bound; what a torn answer already shows as
    its own is added back.
    """
    if node.basis is None:
        return
    bound = node.free_max
    listed = listed_of(node, charge.key)
    if charge.narrowed and _as_predicted(charge, listed):
        return
    charge.narrowed = False
    if listed and charge.alias is None:
        bound = {zone: dict(amounts) for zone, amounts in bound.items()}
        restore(bound, held_zones(listed))
    charge.possible = widen(charge.possible, possible_zones(charge.demand, node.basis, bound))


def _as_predicted(charge: Charge, listed: tuple[Placement, ...]) -> bool:
    """True while the listing shows nothing of the pod outside the zones that were predicted for it."""
    expected = {zone for zones in charge.possible.values() for zone in zones}
    return charge.alias is not None or set(held_zones(listed)) <= expected


def narrow_charge(node: LedgerNode, charge: Charge, trusted: Mapping[str, tuple[int, ...]]) -> None:
    """Hold a new charge to the zones of a trusted prediction."""
    if node.basis is None or charge.confirmed or not trusted:
        return
    possible = narrow(charge.possible, trusted)
    if possible == charge.possible:
        return
    restore(node.free_min, charge.zones)
    charge.possible, charge.narrowed = possible, True
    charge.zones = pending_zones(charge, node.basis)
    subtract(node.free_min, charge.zones)


def forget_places(node: LedgerNode) -> None:
    """After a new boot or a change of policy, shape or managers every pod may stand anywhere that
    could ever hold it.
    """
    if node.basis is None:
        return
    everything = allocatable(node.basis)
    for ended in node.ended.values():
        ended.lives = None
    for charge in node.charges.values():
        charge.confirmed_zones, charge.confirmed_boot, charge.narrowed = {}, "", False
        charge.sent_at = charge.runs_at = charge.started_s = 0
        charge.possible = widen(
            charge.possible, possible_zones(charge.demand, node.basis, everything)
        )


def allocatable(report: Report) -> ZoneAmounts:
    """Zone -> allocatable amounts of the report."""
    return {
        zone.id: {name: r.allocatable for name, r in zone.resources.items()}
        for zone in report.zones
    }


def redemand(node: LedgerNode, charge: Charge, pod: LedgerPod) -> None:
    """The managers or the pod changed: compute again what the pod takes of the zones."""
    tracked = node.basis.tracked if node.basis is not None else ()
    charge.demand = kind_of(pod.pod).demand(tracked)


def could_have_freed(node: LedgerNode, charge: Charge) -> ZoneAmounts:
    """What the end of this pod may have given back, zone by zone (an upper bound)."""
    return (
        charge_zones(charge.demand, charge.possible, list(node.free_max), node.basis)
        if node.basis is not None
        else {}
    )
