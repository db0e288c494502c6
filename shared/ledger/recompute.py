"""Compare every charge of a node with its current report, and compute the bounds again.

Runs if the report, the ended pods or the confirmed position changed. Confirmed is a relation
between a pod and the current report, not a state that a pod enters: a report that no longer
confirms a live pod charges it again. If only some listings changed, or none, pods that other
listings confirm are skipped: most of a node's pods, for most events of a log.
"""

from __future__ import annotations

from collections.abc import Container, Mapping

from shared.domain.report import Placement, Report
from shared.ledger.alike import NOTHING, kind_of, shared_zones
from shared.ledger.charge import charge_zones, narrow, pending_zones, possible_zones, widen
from shared.ledger.confirmation import (
    alias_stays,
    held_zones,
    is_confirmed,
    is_confirmed_by_match,
    residual,
)
from shared.ledger.nodes import count
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
    node: LedgerNode, changed: Container[str] | None = None, hidden_changed: bool = False
) -> None:
    """Confirm or charge each pod of the node by its current report, then rebuild both bounds.

    `changed` has the names with another listing than before, if neither the boot nor the shape of
    the report changed; None if they may have. `hidden_changed`: so did what checkpoints show beyond
    the listing."""
    charges = list(node.charges.values())
    if changed is not None:
        charges = [
            charge
            for charge in charges
            if charge.key in changed or not _stays_confirmed(charge, hidden_changed)
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


def _stays_confirmed(charge: Charge, hidden_changed: bool) -> bool:
    if not charge.confirmed or charge.alias is not None:
        return False
    return not (hidden_changed and any(part.kind == "init" for part in charge.demand))


def _recompute_charge(node: LedgerNode, charge: Charge) -> None:
    basis = node.basis
    if basis is None or not charge.demand:
        charge.confirmed, charge.zones = not charge.demand, NOTHING
        return
    listed = listed_of(node, charge.key)
    charge.confirmed = _is_confirmed(node, charge)
    if charge.confirmed:
        if listed:
            charge.confirmed_zones = held_zones(listed)
        charge.zones = residual(charge, listed, basis) or NOTHING
        return
    widen_possible(node, charge)
    charge.zones = pending_zones(charge, basis)


def _recompute_alias(node: LedgerNode, charge: Charge) -> None:
    """Only a report that came after the charge can distinguish the pod from an earlier namesake."""
    if charge.alias is None or node.listed is None or node.basis is None:
        return
    is_newer = node.report_position > charge.charged_at
    if is_newer and not alias_stays(charge, listed_of(node, charge.key), node.basis):
        charge.alias = None


def _is_confirmed(node: LedgerNode, charge: Charge) -> bool:
    if node.listed is None:
        return is_confirmed_by_match(node, charge)
    return node.basis is not None and is_confirmed(charge, listed_of(node, charge.key), node.basis)


def widen_possible(node: LedgerNode, charge: Charge) -> None:
    """Add the zones that could hold the pod by `free_max`. What a partial listing already shows of
    it is added back first."""
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
    possible = widen(charge.possible, possible_zones(charge.demand, node.basis, bound))
    charge.possible = shared_zones(possible)


def _as_predicted(charge: Charge, listed: tuple[Placement, ...]) -> bool:
    """Return True while the listing shows nothing of the pod outside its predicted zones."""
    expected = {zone for zones in charge.possible.values() for zone in zones}
    return charge.alias is not None or set(held_zones(listed)) <= expected


def narrow_charge(node: LedgerNode, charge: Charge, trusted: Mapping[str, tuple[int, ...]]) -> None:
    """Limit a new charge to the zones of a trusted prediction."""
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
    """After a new boot, or a change of policy, shape or managers, every pod may be anywhere that
    could ever hold it."""
    if node.basis is None:
        return
    everything = allocatable(node.basis)
    for ended in node.ended.values():
        if ended.lives:  # () stays: no pod of the name came.
            ended.lives = None
    for charge in node.charges.values():
        charge.confirmed_zones, charge.narrowed = NOTHING, False
        charge.sent_at = charge.runs_at = charge.started_s = 0
        possible = possible_zones(charge.demand, node.basis, everything)
        charge.possible = shared_zones(widen(charge.possible, possible))


def allocatable(report: Report) -> ZoneAmounts:
    return {
        zone.id: {name: amounts.allocatable for name, amounts in zone.resources.items()}
        for zone in report.zones
    }


def redemand(node: LedgerNode, charge: Charge, pod: LedgerPod) -> None:
    """Compute the demand again, because the tracked resources or the pod's spec changed."""
    charge.demand = kind_of(pod.pod).demand_on(node.basis)


def could_have_freed(node: LedgerNode, charge: Charge) -> ZoneAmounts:
    """Return by zone the most that the end of this pod may give back."""
    if node.basis is None:
        return {}
    return charge_zones(charge.demand, charge.possible, list(node.free_max), node.basis)
