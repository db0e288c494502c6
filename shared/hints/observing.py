"""From a report to a kubelet model and the node states that the report allows, by every provider of
the registry."""

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

# The distance of a pair of zones that the report does not name.
UNKNOWN_DISTANCE = 255


class ObservedNode(NamedTuple):
    """`bases` are the states that the report allows. `bounds` names the reasons if there are
    several."""

    model: KubeletModel
    bases: tuple[NodeState, ...]
    bounds: frozenset[str]


def observe(
    report: Report, placements: Sequence[Placement], policy: str, scope: str, fine: bool
) -> ObservedNode | None:
    """Return the node under this policy and scope, None for one without zones. `fine`: see
    `HintProvider.observe`."""
    zones = tuple(sorted(zone.id for zone in report.zones))
    if not zones:
        return None
    observed = [
        provider.observe(report, placements, policy, fine) for provider in registry.PROVIDERS
    ]
    managers = tuple([answer.manager for answer in observed])
    scope = "pod" if scope == "pod" else "container"
    model = _model(policy, scope, zones, _distances(report), managers)
    bases = tuple(product(*[answer.states for answer in observed]))
    return ObservedNode(model, bases, frozenset().union(*[answer.bounds for answer in observed]))


@lru_cache(maxsize=1024)
def _model(
    policy: str,
    scope: str,
    zones: tuple[int, ...],
    distances: tuple[tuple[int, ...], ...] | None,
    managers: tuple[ResourceManager, ...],
) -> KubeletModel:
    """Nodes of one kind share their model and its remembered answers."""
    closest = None
    if distances is not None and policy != NONE:
        closest = dict(zip(zones, distances, strict=True))
    scope = "none" if policy == NONE else scope
    manager = TopologyManager(policy, scope, mask_of(zones), closest)  # type: ignore[arg-type]
    return KubeletModel(manager, managers)


def _distances(report: Report) -> tuple[tuple[int, ...], ...] | None:
    """The kubelet reads distances only under prefer-closest-numa-nodes."""
    if report.options.get(PREFER_CLOSEST) != "true":
        return None
    zones = sorted(report.zones, key=lambda zone: zone.id)
    rows = [
        [zone.costs.get(neighbour.id, UNKNOWN_DISTANCE) for neighbour in zones] for zone in zones
    ]
    return tuple([row_of(row, zones[-1].id) for row in rows])
