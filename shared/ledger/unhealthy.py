"""Devices that became unhealthy in somebody's hands: they stay with their pod, and with its end nobody gets them.

So the end of a listed pod gives back all that it holds but these, and what is asked for by pods that hold them is not taken from
the healthy ones. Must not know bounds or proofs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

import msgspec

from shared.domain.idlist import format_ids, parse_ids
from shared.domain.report import Placement, Report, ZonedAmount
from shared.domain.resources import Amounts
from shared.ledger.state import LedgerNode

Ids = Mapping[str, frozenset[str]]
"""By resource."""


def given_back(listed: Sequence[Placement], report: Report | None) -> tuple[Placement, ...]:
    """The placements as far as others can have what they hold; all of it where the report names no device by id."""
    unhealthy = _unhealthy(report)
    if not unhealthy:
        return tuple(listed)
    return tuple([msgspec.structs.replace(each, held=_left(each.held, unhealthy)) for each in listed])


def offered_by_kubelet(node: LedgerNode, allocatable: Amounts) -> Amounts:
    """What pods may ask for on the node as a whole, those included that hold an unhealthy device: the kubelet offers healthy ones
    only, of which these hold none. By the report, where it says less than the node's object yet does."""
    report = node.report if node.report is node.basis else None
    unhealthy = _unhealthy(report)
    if not unhealthy or report is None:
        return allocatable
    live = {charge.key for charge in node.charges.values() if charge.alias is None}
    kept = [item for key in live for each in (node.listed or {}).get(key, ()) for item in each.held if item.resource in unhealthy]
    found = dict(allocatable)
    for name, ids in unhealthy.items():
        held = frozenset[str]().union(*[_ids(item.ids) for item in kept if item.resource == name]) & ids
        healthy = sum(len(_ids(group.ids)) for group in report.devices or () if group.resource == name)
        if name in found:
            found[name] = min(found[name], healthy) + len(held)
    return found


def _unhealthy(report: Report | None) -> Ids:
    """Nearly always nothing."""
    found: dict[str, frozenset[str]] = {}
    for group in (report.devices or ()) if report is not None else ():
        if group.unhealthy:
            found[group.resource] = found.get(group.resource, frozenset()) | _ids(group.unhealthy)
    return found


def _left(held: Sequence[ZonedAmount], unhealthy: Ids) -> tuple[ZonedAmount, ...]:
    found = []
    for item in held:
        lost = unhealthy[item.resource] & _ids(item.ids) if item.resource in unhealthy else frozenset()
        ids = format_ids(_ids(item.ids) - lost) if lost else item.ids
        if ids or not lost:
            found.append(msgspec.structs.replace(item, amount=item.amount - len(lost), ids=ids) if lost else item)
    return tuple(found)


@lru_cache(maxsize=4096)
def _ids(text: str) -> frozenset[str]:
    return frozenset(parse_ids(text))
