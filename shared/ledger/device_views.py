"""How the kubelet of a node may see its devices: which resources are in doubt, and its states in
every way to see them.

1. Unhealthy devices that no report lists change what the kubelet prefers, under restricted and
   best-effort.

2. Kubelet versions differ in the zones over which hints run. That changes only hints that are not
   preferred, so it matters under best-effort alone.

Must not know bounds or confirmations.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from shared.domain.policies import BEST_EFFORT, RESTRICTED
from shared.domain.report import Report
from shared.domain.resources import is_device
from shared.hints.admission import NodeState
from shared.hints.hidden_devices import also_over_every_zone, wanted, with_hidden
from shared.hints.provider import RequestedAmounts, ResourceManager
from shared.hints.request import HintRequest
from shared.kubelet.versions import is_proven
from shared.ledger.state import LedgerNode
from shared.ledger.unhealthy import doubted


def in_doubt(node: LedgerNode, policy: str) -> frozenset[str]:
    """Return the device resources that may have other hints than the report suggests, under this
    policy of the Topology Manager."""
    if policy not in (RESTRICTED, BEST_EFFORT):
        return frozenset()
    return doubted(node) | (_of_another_version(node) if policy == BEST_EFFORT else frozenset())


def _of_another_version(node: LedgerNode) -> frozenset[str]:
    if node.report is None or not is_other_version(node):
        return frozenset()
    return frozenset(
        name for zone in node.report.zones for name in zone.resources if is_device(name)
    )


def is_other_version(node: LedgerNode) -> bool:
    """Return True if the kubelet has a version of which no decisions were recorded."""
    return node.observed is not None and not is_proven(node.observed.kubelet_version)


class DeviceViews(NamedTuple):
    """Every base in every way to see devices, None for too many. `unhealthy`: unhealthy devices
    make a difference."""

    bases: tuple[NodeState, ...] | None
    unhealthy: bool


def with_device_views(
    node: LedgerNode,
    report: Report,
    policy: str,
    managers: Sequence[ResourceManager],
    bases: tuple[NodeState, ...],
    others: Iterable[HintRequest | None],
    devices: RequestedAmounts,
    most: int,
) -> DeviceViews:
    """Return the bases as the kubelet may see them, as far as it matters to what the new pod
    (`devices`) and the others request.

    In which zones unlisted devices are matters only to hints that are not preferred, and so not
    under restricted, and to hints for an amount of 0."""
    zones, others = [zone.id for zone in report.zones], list(others)
    doubtful = in_doubt(node, policy)
    hidden = wanted(doubtful & doubted(node), others, devices)
    views: tuple[NodeState, ...] | None = bases
    if hidden:
        hidden_zones = zones if policy == BEST_EFFORT else ()
        views = with_hidden(managers, bases, hidden, hidden_zones, most)
    unhealthy = views is None or len(views) > len(bases)
    anywhere = wanted(_of_another_version(node), others, devices)
    matters = policy == BEST_EFFORT or any(0 in amounts for amounts in anywhere.values())
    if views is not None and anywhere and matters:
        views = also_over_every_zone(managers, views, zones)
    return DeviceViews(views if views is not None and len(views) <= most else None, unhealthy)
