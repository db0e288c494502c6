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
from shared.hints.admission import KubeletModel, NodeState
from shared.hints.provider import ResourceManager
from shared.kubelet.masks import mask_of
from shared.kubelet.topology_manager import PREFER_CLOSEST, TopologyManager, row_of

UNKNOWN_DISTANCE = 255


class ObservedNode(NamedTuple):
    """`bases` are the states that the report allows, `bounds` what of them is only known within
    bounds, by name.
    """

    model: KubeletModel
    bases: tuple[NodeState, ...]
    bounds: frozenset[str]


def observe(
    report: Report, placements: Sequence[Placement], policy: str, scope: str, fine: bool
) -> ObservedNode | None:
    """The node under this policy and scope; None for one without zones."""
    zones = tuple(sorted(zone.id for zone in report.zones))
    if not zones:
        return None
    seen = [provider.observe(report, placements, policy, fine) for provider in registry.PROVIDERS]
    model = _model(
        policy,
        "pod" if scope == "pod" else "container",
        zones,
        _distances(report),
        tuple([each.manager for each in seen]),
    )
    bases = tuple(product(*[each.states for each in seen]))
    return ObservedNode(model, bases, frozenset().union(*[each.bounds for each in seen]))


@lru_cache(maxsize=1024)
def _model(
    policy: str,
    scope: str,
    zones: tuple[int, ...],
    distances: tuple[tuple[int, ...], ...] | None,
    managers: tuple[ResourceManager, ...],
) -> KubeletModel:
    """Nodes of one kind share their rules, and what these remember."""
    closest = (
        dict(zip(zones, distances, strict=True))
        if distances is not None and policy != NONE
        else None
    )
    manager_scope = "none" if policy == NONE else scope
    topology_manager = TopologyManager(policy, manager_scope, mask_of(zones), closest)  # type: ignore[arg-type]
    return KubeletModel(topology_manager, managers)


def _distances(report: Report) -> tuple[tuple[int, ...], ...] | None:
    """Rows as the kubelet reads them, under prefer-closest-numa-nodes only."""
    if report.options.get(PREFER_CLOSEST) != "true":
        return None
    listed = sorted(report.zones, key=lambda zone: zone.id)
    rows = [[zone.costs.get(other.id, UNKNOWN_DISTANCE) for other in listed] for zone in listed]
    return tuple([row_of(row, listed[-1].id) for row in rows])
