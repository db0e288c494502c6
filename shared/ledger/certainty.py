"""Does the prediction of a reservation still count as certain?

1. `PodReserved.certain` says that every kubelet state that log and report allowed at the decision
   puts the pod into the predicted zones, in every order of the other pods and ends. Each container
   then takes the lowest zone that holds all it requests.

2. The decision cannot know what happens on the node later. A pod that is charged there may arrive
   first: the prediction stays certain while the predicted zones surely have room for both. A pod
   that ends may make room in a lower zone: it stays certain if no zone is lower.

3. A report may be the first to show such a change, because watches lag: a confirmed pod is listed
   otherwise or no longer, a pod that the log does not know is listed, or the zones have another
   size. Then no prediction of the node is certain that this report may confirm.

4. Once a report has confirmed the pod, `LedgerPod.certain` is final.

Under other policies than single-numa-node a pod may lie over several zones, so any change ends the
certainty. A certain prediction that misses means that kubelet and model differ. Not seen are pods
of other schedulers that come and go before any watch or report shows them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from shared.domain.policies import SINGLE_NUMA_NODE
from shared.domain.report import Placement, Report
from shared.domain.resources import Amounts
from shared.ledger.state import Charge, Ledger, LedgerNode, LedgerPod, ZoneAmounts

Listing = Mapping[str, tuple[Placement, ...]]


def check_after_charge(ledger: Ledger, node: LedgerNode, new: Charge) -> None:
    """Keep the certainty of unconfirmed pods that surely have room next to this new charge."""
    if new.demand:
        for entry, charge in _certain(ledger, node):
            entry.certain = charge is new or _surely_has_room(node, entry, charge)


def check_after_end(ledger: Ledger, node: LedgerNode, ended: Charge) -> None:
    """Keep the certainty of unconfirmed pods for which no lower zone can have become free."""
    if ended.demand:
        for entry, charge in _certain(ledger, node):
            entry.certain = _is_lowest(node, entry) and _surely_has_room(node, entry, charge)


def check_before_report(
    ledger: Ledger, node: LedgerNode, report: Report, listed: Listing | None, has_moved: bool
) -> None:
    """End every certainty if the report shows a change of which the log does not know."""
    certain = _certain(ledger, node)
    if not certain or node.report is None:
        return
    is_comparable = not has_moved and listed is not None and node.listed is not None
    if not is_comparable or _sizes(node.report) != _sizes(report) or _surprises(node, listed or {}):
        for entry, _ in certain:
            entry.certain = False


def check_after_report(ledger: Ledger, node: LedgerNode) -> None:
    """Other pods may be in more zones than before the report."""
    for entry, charge in _certain(ledger, node):
        entry.certain = _surely_has_room(node, entry, charge)


def _certain(ledger: Ledger, node: LedgerNode) -> list[tuple[LedgerPod, Charge]]:
    """Return the unconfirmed pods with a certain prediction. A comprehension, because this runs for
    every charge and takes half as long as a generator."""
    pods = ledger.pods
    return [
        (pods[charge.uid], charge)
        for charge in node.charges.values()
        if not charge.confirmed and pods[charge.uid].certain
    ]


def _surely_has_room(node: LedgerNode, entry: LedgerPod, charge: Charge) -> bool:
    """Return whether the predicted zones hold the pod wherever all other pods are."""
    if node.basis is None or node.basis.policy != SINGLE_NUMA_NODE:
        return False
    for zone, needed in _needed(entry, charge).items():
        free, charged = node.free_min.get(zone, {}), charge.zones.get(zone, {})
        if any(
            free.get(name, 0) + charged.get(name, 0) < amount for name, amount in needed.items()
        ):
            return False
    return True


def _needed(entry: LedgerPod, charge: Charge) -> ZoneAmounts:
    needed: ZoneAmounts = {}
    for part in charge.demand:
        for zone in entry.predicted.get(part.name, ()):
            amounts: Amounts = needed.setdefault(zone, {})
            for name, amount in part.amounts.items():
                amounts[name] = amounts.get(name, 0) + amount
    return needed


def _is_lowest(node: LedgerNode, entry: LedgerPod) -> bool:
    lowest = min(node.free_max, default=-1)
    return all(zones == (lowest,) for zones in entry.predicted.values())


def _sizes(report: Report) -> list[tuple[int, list[tuple[str, int, int]]]]:
    return [
        (zone.id, [(name, r.capacity, r.allocatable) for name, r in zone.resources.items()])
        for zone in report.zones
    ]


def _surprises(node: LedgerNode, listed: Listing) -> bool:
    """Return whether the holdings changed of a confirmed pod, or of a pod that the log does not
    know."""
    earlier = node.listed or {}
    changed = [name for name in {**earlier, **listed} if earlier.get(name) != listed.get(name)]
    confirmed = {charge.key for charge in node.charges.values() if charge.confirmed}
    return any(
        (name in confirmed or (name not in node.name_counts and name not in node.ended))
        and _holds((*earlier.get(name, ()), *listed.get(name, ())))
        for name in changed
    )


def _holds(placements: Iterable[Placement]) -> bool:
    return any(placement.held for placement in placements)
