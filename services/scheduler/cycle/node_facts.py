"""One node as the cycle sees it: bounds per zone, what is free on the node as a whole, its rule, and own reservations.

Built from the ledger's node and kept apart from it: own reservations are subtracted here until the fold brings them.
"""

from __future__ import annotations

from collections.abc import Iterable

from services.scheduler.cycle import policy
from services.scheduler.cycle.config import CycleConfig
from shared.domain.report import Report
from shared.domain.resources import PODS, Amounts
from shared.events.cluster_facts import NodeObserved
from shared.ledger.state import Charge, LedgerNode, ZoneAmounts

Layout = tuple[tuple[int, tuple[str, ...]], ...]
Profile = tuple[str, policy.Rule, tuple[str, ...], tuple[tuple[str, str], ...], Layout]
"""What nodes share when their zones can be judged at once: report state, rule, pinned resources, options, and the zones
with their resources."""

MAX_ZONES = 64


class NodeFacts:
    """Mutable columns of one node. `lower` and `upper` are zone id -> amounts; `free` is allocatable minus requested."""

    __slots__ = (
        "allocatable", "claims", "ledger", "lower", "name", "observed", "overlay", "profile", "profile_id", "report", "requested",
        "rule", "slot", "unsettled", "upper", "version", "zone_ids",
    )  # fmt: skip

    def __init__(self, name: str, slot: int) -> None:
        self.name, self.slot, self.version = name, slot, 0
        self.ledger: LedgerNode = LedgerNode(name)
        self.observed: NodeObserved | None = None
        self.report: Report | None = None
        self.lower: ZoneAmounts = {}
        self.upper: ZoneAmounts = {}
        self.zone_ids: tuple[int, ...] = ()
        self.requested: Amounts = {}
        self.allocatable: Amounts = {}
        self.claims: dict[str, ZoneAmounts] = {}
        self.overlay: dict[str, Charge] = {}
        self.rule = policy.Rule()
        self.profile: Profile = ("missing", self.rule, (), (), ())
        self.profile_id = -1
        self.unsettled = False

    def free(self, name: str) -> int:
        """What the node as a whole has left of a resource. A node that states no pod limit has none."""
        if name == PODS and name not in self.allocatable:
            return 1 << 30
        return self.allocatable.get(name, 0) - self.requested.get(name, 0)

    def stands(self, node: LedgerNode) -> bool:
        """True when the ledger's node says what these facts, own reservations included, say already."""
        return (
            self.observed is node.observed
            and self.report is node.basis
            and self.lower == node.lower
            and self.upper == node.upper
            and self.requested == node.requested
            and self.claims == node.claims
            and all(uid in node.charges for uid in self.overlay)
            and self.profile[0] == report_state(node)
        )

    def take_in(self, node: LedgerNode, config: CycleConfig) -> None:
        """Take over everything that the ledger says; own reservations that it lacks are forgotten."""
        self.ledger, self.observed, self.report = node, node.observed, node.basis
        self.lower = {zone: dict(amounts) for zone, amounts in node.lower.items()}
        self.upper = {zone: dict(amounts) for zone, amounts in node.upper.items()}
        self.zone_ids = tuple(sorted(node.lower))
        self.requested, self.claims, self.overlay = dict(node.requested), dict(node.claims), {}
        self.allocatable = node.observed.allocatable if node.observed is not None else {}
        self.unsettled = any(is_unsettled(charge) for charge in node.charges.values())
        self.profile = self._profile(node, config)
        self.rule = self.profile[1]

    def _profile(self, node: LedgerNode, config: CycleConfig) -> Profile:
        report, state = node.basis, report_state(node)
        if report is None:
            return (state, policy.Rule(), (), (), ())
        labels = node.observed.labels if node.observed is not None else {}
        rule = policy.node_rule(report, labels, config.policy_precedence)
        tracked = policy.pinned(report, labels, config.policy_precedence)
        return (state, rule, tracked, tuple(sorted(report.options.items())), self._layout())

    def _layout(self) -> Layout:
        return tuple((zone, tuple(self.lower[zone])) for zone in self.zone_ids)

    def charges(self) -> Iterable[Charge]:
        """Every charge on the node, own reservations included."""
        yield from self.ledger.charges.values()
        yield from (charge for uid, charge in self.overlay.items() if uid not in self.ledger.charges)


def is_unsettled(charge: Charge) -> bool:
    """True for a pod whose zones are not known: several are charged in its place."""
    return bool(charge.zones) and not charge.proven and not charge.held


def report_state(node: LedgerNode) -> str:
    """`` when the report may be relied on, else `missing`, `expired` or what is wrong with it."""
    report = node.basis
    if report is None:
        return "missing"
    if node.expired:
        return "expired"
    return _malformed(report)


def _malformed(report: Report) -> str:
    ids = [zone.id for zone in report.zones]
    if len(set(ids)) != len(ids):
        return f"zone {next(i for i in ids if ids.count(i) > 1)} is reported twice"
    if any(zone < 0 for zone in ids):
        return f"zone {min(ids)} has a negative id"
    if len(ids) > MAX_ZONES:
        return f"{len(ids)} zones, more than {MAX_ZONES}"
    return ""
