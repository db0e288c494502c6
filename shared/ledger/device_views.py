"""As what the kubelet of a node may see devices: which resources are in doubt, and its states in
every way to see them.

Unhealthy devices that nobody lists count for what it prefers under restricted and best-effort; over
which zones hints run, which differs between versions, for those alone that are not preferred, and
so under best-effort. Must not know bounds or proofs.
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
    """Devices whose hints may be others than the report lets one think, under this policy of the
    Topology Manager.
    """
    if policy not in (RESTRICTED, BEST_EFFORT):
        return frozenset()
    return doubted(node) | (_of_another_version(node) if policy == BEST_EFFORT else frozenset())


def _of_another_version(node: LedgerNode) -> frozenset[str]:
    if node.report is None or not is_another(node):
        return frozenset()
    return frozenset(
        name for zone in node.report.zones for name in zone.resources if is_device(name)
    )


def is_another(node: LedgerNode) -> bool:
    """Whether the kubelet is of a version that nothing was recorded of."""
    return node.observed is not None and not is_proven(node.observed.kubelet_version)


class Seen(NamedTuple):
    """Every base in every way to see devices, None for too many; whether unhealthy ones make a
    difference.
    """

    bases: tuple[NodeState, ...] | None
    unhealthy: bool


def as_seen(
    node: LedgerNode, report: Report, policy: str, managers: Sequence[ResourceManager], bases: tuple[NodeState, ...],
    others: Iterable[HintRequest | None], devices: RequestedAmounts, most: int,
) -> Seen:  # fmt: skip
    """What the newcomer (`devices`) and the others ask for, as the kubelet may see it. Which zones
    bear devices beside those that are listed matters to hints alone that are not preferred, not
    under restricted, and to those for an amount of 0."""
    zones, others = [zone.id for zone in report.zones], list(others)
    doubtful = in_doubt(node, policy)
    hidden = wanted(doubtful & doubted(node), others, devices)
    found = (
        with_hidden(managers, bases, hidden, zones if policy == BEST_EFFORT else (), most)
        if hidden
        else bases
    )
    unhealthy = found is None or len(found) > len(bases)
    anywhere = wanted(_of_another_version(node), others, devices)
    if (
        found is not None
        and anywhere
        and (policy == BEST_EFFORT or any(0 in amounts for amounts in anywhere.values()))
    ):
        found = also_over_every_zone(managers, found, zones)
    return Seen(found if found is not None and len(found) <= most else None, unhealthy)
