"""The ways in which the kubelet of a node may see its devices: which resources are in doubt, and
the states for each way.

1. Unhealthy devices that no report lists change what the kubelet prefers, under restricted and
   best-effort.

2. Kubelet versions differ in the zones over which hints run (`shared.kubelet.versions`). That
   changes only hints that are not preferred, so it matters under best-effort alone.

Must not know bounds or confirmations.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from shared.domain.policies import BEST_EFFORT, RESTRICTED
from shared.domain.report import Report
from shared.domain.resources import is_device, is_memory
from shared.hints.admission import NodeState
from shared.hints.by_version import under_rules
from shared.hints.hidden_devices import wanted, with_hidden
from shared.hints.provider import RequestedAmounts, ResourceManager
from shared.hints.request import HintRequest
from shared.ledger.kubelet_rules import PossibleRules, possible_rules
from shared.ledger.state import LedgerNode
from shared.ledger.unhealthy import doubted


def in_doubt(node: LedgerNode, policy: str) -> frozenset[str]:
    """Return the device resources for which the kubelet may have other hints than the report
    suggests, under this policy of the Topology Manager."""
    if policy not in (RESTRICTED, BEST_EFFORT):
        return frozenset()
    return doubted(node) | (_over_all_zones(node) if policy == BEST_EFFORT else frozenset())


def is_decided(node: LedgerNode, policy: str, resources: Collection[str]) -> bool:
    """Return True if report and version leave nothing open about hints of these resources."""
    if policy in (RESTRICTED, BEST_EFFORT) and not doubted(node).isdisjoint(resources):
        return False
    return (
        policy != BEST_EFFORT
        or len(possible_rules(node).hint_zones) == 1
        or not any(map(is_device, resources))
    )


def _over_all_zones(node: LedgerNode) -> frozenset[str]:
    if node.report is None or "all" not in possible_rules(node).hint_zones:
        return frozenset()
    return frozenset(
        name for zone in node.report.zones for name in zone.resources if is_device(name)
    )


ONLY_BEARING: frozenset[str] = frozenset({"bearing"})
ALWAYS_CHECKED = frozenset({True})


class DeviceViews(NamedTuple):
    """`bases` are all bases in every way to see devices, None if there are too many. `unhealthy`
    says that unhealthy devices make a difference."""

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
    """Return the bases as the kubelet may see them under its rules, as far as it matters to what
    the new pod (`devices`) and the others request.

    In which zones unlisted devices are matters only to hints that are not preferred, and so not
    under restricted, and to hints for an amount of 0."""
    rules = possible_rules(node)
    group_checks = _group_checks(rules, report, policy)
    zones, others = [zone.id for zone in report.zones], list(others)
    doubtful = in_doubt(node, policy)
    hidden = wanted(doubtful & doubted(node), others, devices)
    views: tuple[NodeState, ...] | None = bases
    if hidden:
        hidden_zones = zones if policy == BEST_EFFORT else ()
        views = with_hidden(managers, bases, hidden, hidden_zones, most)
    unhealthy = views is None or len(views) > len(bases)
    hint_zones = ONLY_BEARING
    anywhere = wanted(_over_all_zones(node), others, devices)
    matters = policy == BEST_EFFORT or any(0 in amounts for amounts in anywhere.values())
    if views is not None and anywhere and matters:
        hint_zones = rules.hint_zones
    if views is not None and (hint_zones != ONLY_BEARING or group_checks != ALWAYS_CHECKED):
        views = under_rules(managers, views, zones, hint_zones, group_checks)
    return DeviceViews(views if views is not None and len(views) <= most else None, unhealthy)


def _group_checks(rules: PossibleRules, report: Report, policy: str) -> frozenset[bool]:
    """Return whether the Memory Manager checks groups of zones, by every rule set that is possible.

    It matters only under policies that give memory of several zones. A kubelet without the check
    may join zones that are used alone, after which only its checkpoint shows the free amounts by
    zone: without that, no pod may depend on it."""
    checks = rules.group_checks
    if False not in checks or policy not in (BEST_EFFORT, RESTRICTED):
        return ALWAYS_CHECKED
    if not any(map(is_memory, report.tracked)):
        return ALWAYS_CHECKED
    return checks if "memory" in report.checkpoints else checks | ALWAYS_CHECKED
