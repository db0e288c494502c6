"""From a report to a node's rules and the states that it allows: every provider of the registry is
asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import product
from typing import NamedTuple

from shared.domain.policies import NONE
from shared.domain.report import Placement, Report
from shared.hints import registry
from shared.hints.admission import Rules, States
from shared.hints.provider import Book
from shared.kubelet.masks import mask_of
from shared.kubelet.topology_manager import PREFER_CLOSEST, TopologyManager, row_of

UNKNOWN_DISTANCE = 255


class Node(NamedTuple):
    """`bases` are the states that the report allows, `bounds` what of them is only known within
    bounds, by name.
    """

    rules: Rules
    bases: tuple[States, ...]
    bounds: frozenset[str]


def observe(
    report: Report, placements: Sequence[Placement], policy: str, scope: str, fine: bool
) -> Node | None:
    """The node under this policy and scope; None for one without zones."""
    zones = tuple(sorted(zone.id for zone in report.zones))
    if not zones:
        return None
    seen = [provider.observe(report, placements, policy, fine) for provider in registry.PROVIDERS]
    rules = _rules(
        policy,
        "pod" if scope == "pod" else "container",
        zones,
        _distances(report),
        tuple([each.book for each in seen]),
    )
    bases = tuple(product(*[each.states for each in seen]))
    return Node(rules, bases, frozenset().union(*[each.bounds for each in seen]))


@lru_cache(maxsize=1024)
def _rules(
    policy: str,
    scope: str,
    zones: tuple[int, ...],
    distances: tuple[tuple[int, ...], ...] | None,
    books: tuple[Book, ...],
) -> Rules:
    """Nodes of one kind share their rules, and what these remember."""
    closest = (
        dict(zip(zones, distances, strict=True))
        if distances is not None and policy != NONE
        else None
    )
    manager = TopologyManager(policy, "none" if policy == NONE else scope, mask_of(zones), closest)  # type: ignore[arg-type]
    return Rules(manager, books)


def _distances(report: Report) -> tuple[tuple[int, ...], ...] | None:
    """Rows as the kubelet reads them, under prefer-closest-numa-nodes only."""
    if report.options.get(PREFER_CLOSEST) != "true":
        return None
    listed = sorted(report.zones, key=lambda zone: zone.id)
    rows = [[zone.costs.get(other.id, UNKNOWN_DISTANCE) for other in listed] for zone in listed]
    return tuple([row_of(row, listed[-1].id) for row in rows])
