"""One node as the cycle sees it: bounds per zone, what is free on the node as a whole, its rule,
and own reservations.

Built from the ledger's node and kept apart from it: own reservations are subtracted here until the
fold brings them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from operator import attrgetter
from typing import Any, NamedTuple, cast

from services.scheduler.snapshot import topology_policy as policy
from services.scheduler.snapshot.config import CycleConfig
from services.scheduler.snapshot.zone_sizes import Capacities, capacities, fits_one_zone
from shared.domain import policies
from shared.domain.demand import most
from shared.domain.device_zones import between_zones
from shared.domain.report import Report
from shared.domain.resources import PODS, Amounts, is_memory, memory_of
from shared.events.cluster_events import NodeObserved
from shared.ledger.charge import apart
from shared.ledger.state import Charge, LedgerNode, LedgerPod, ZoneAmounts
from shared.ledger.unhealthy import offered_by_kubelet
from shared.ledger.view import total
from shared.ledger.what_if import Newcomer, what_if

Layout = tuple[tuple[int, tuple[str, ...]], ...]
Profile = tuple[
    str,
    policy.Rule,
    tuple[str, ...],
    tuple[tuple[str, str], ...],
    Layout,
    tuple[str, ...],
    tuple[str, ...],
]
"""What nodes share when their zones can be judged at once: report state, rule, pinned resources, options, the zones
with their resources, and the resources of which some devices lie in no zone, and of which some lie in several."""

Bounds = Mapping[int, Amounts]

_PASSING = {
    "boot_id",
    "boot_time_ms",
    "exporter",
    "fingerprint",
    "zones",
    "placements",
    "checkpoints",
    "hidden",
}
"""What deltas change. No profile may look at it, but for the layout of zones."""
_STEADY = attrgetter(*(name for name in Report.__struct_fields__ if name not in _PASSING))
"""The rest of a report: the same objects after a delta, so that to compare them costs next to nothing."""

MAX_ZONES = 64
MAKES = 4096
"""Makes of nodes that are remembered."""
NOBODY: frozenset[str] = frozenset()
NOWHERE: frozenset[int] = frozenset()


class NodeInfo:
    """Mutable columns of one node. `free_min` and `free_max` are zone id -> amounts, `sizes` what scores
    take for the whole of a zone (read only); `free` is allocatable minus requested. `unaligned`: a
    pod may take from several zones at once without being refused for it. `version` counts every
    change, `taken_in` those that are the ledger's: no own reservations."""

    __slots__ = (
        "allocatable",
        "assumed",
        "charged",
        "claims",
        "ends",
        "expected_zones",
        "expired",
        "free_max",
        "free_min",
        "grouped_zones",
        "kubelet_searches",
        "ledger",
        "ledger_version",
        "machine",
        "name",
        "observed",
        "pending",
        "profile",
        "profile_id",
        "report",
        "requested",
        "rule",
        "sizes",
        "slot",
        "totals",
        "unaligned",
        "unconfirmed",
        "version",
        "views",
        "waiting",
        "zone_ids",
    )  # fmt: skip

    def __init__(self, name: str, slot: int) -> None:
        self.name, self.slot, self.version, self.ledger_version = name, slot, 0, 0
        self.ledger: LedgerNode = LedgerNode(name)
        self.observed: NodeObserved | None = None
        self.report: Report | None = None
        self.free_min: ZoneAmounts = {}
        self.free_max: ZoneAmounts = {}
        self.machine, self.sizes = NO_MACHINE, NO_MACHINE.sizes
        self.zone_ids: tuple[int, ...] = ()
        self.requested: Amounts = {}
        self.allocatable: Amounts = {}
        self.claims: dict[str, ZoneAmounts] = {}
        self.assumed: dict[str, Newcomer] = {}
        self.kubelet_searches: Any = None
        self.waiting: Any = None
        self.expected_zones: Any = None
        self.views: Any = None
        self.rule, self.unaligned = policy.Rule(), True
        self.profile: Profile = ("missing", self.rule, (), (), (), (), ())
        self.profile_id = -1
        self.grouped_zones: frozenset[int] = frozenset()
        self.totals: Amounts = {}
        self.unconfirmed = self.expired = False
        self.pending: frozenset[str] = frozenset()
        self.charged: frozenset[str] = frozenset()
        self.ends: object = None

    def free(self, name: str) -> int:
        """What the node as a whole has left of a resource. A node that states no pod limit has
        none.
        """
        if name == PODS and name not in self.allocatable:
            return 1 << 30
        return self.allocatable.get(name, 0) - self.requested.get(name, 0)

    def left(self) -> Amounts:
        """`free` of each resource that the node states, and of pods."""
        return {name: self.free(name) for name in (PODS, *self.allocatable)}

    def is_current(self, node: LedgerNode) -> bool:
        """True when the ledger's node says what these facts, own reservations included, say
        already.
        """
        return (
            self.observed is node.observed
            and self.report is node.basis
            and self.free_min == node.free_min
            and self.free_max == node.free_max
            and self.requested == node.requested
            and self.claims == node.claims
            and self.allocatable == offered(node)
            and self.pending == arriving(node)
            and self.charged | self.assumed.keys() == node.charges.keys()
            and self.ends == ends_of(node)
            and self.expired == node.expired
        )

    def update_from(self, node: LedgerNode, config: CycleConfig) -> None:
        """Take over everything that the ledger says; own reservations that it lacks are forgotten."""
        if self.report is not node.basis:
            self.machine = machine_type_of(node.basis) if node.basis is not None else NO_MACHINE
            self.sizes = self.machine.sizes
        steady = self._is_steady(node)
        self.ledger, self.observed, self.report, self.expired = (
            node,
            node.observed,
            node.basis,
            node.expired,
        )
        self.free_min = {zone: dict(amounts) for zone, amounts in node.free_min.items()}
        self.free_max = node.free_max
        self.zone_ids = tuple(sorted(node.free_min))
        self.requested, self.claims, self.assumed = dict(node.requested), dict(node.claims), {}
        self.allocatable = offered(node)
        self.unconfirmed = any(is_unconfirmed(charge) for charge in node.charges.values())
        self.pending = arriving(node) if self.unconfirmed else NOBODY
        self.charged, self.ends = frozenset(node.charges), ends_of(node)
        if not steady or self.profile[4] != self._layout():
            self.profile = self._profile(node, config)
            self.rule = self.profile[1]
            self.unaligned = self.rule.policy in (policies.NONE, policies.BEST_EFFORT)
        self.grouped_zones = zones_of_memory_groups(node, node.charges.values())
        self.kubelet_searches, self.waiting, self.expected_zones = None, None, None
        self.totals = self.guaranteed_totals() if self.unaligned else {}

    def hypothetical(
        self,
        gone: Collection[str],
        pods: Mapping[str, LedgerPod],
        claimant: str,
        config: CycleConfig,
    ) -> NodeInfo:
        """The node, own reservations included, once these have ended and the claimant's claim is
        given back.
        """
        found = NodeInfo(self.name, self.slot)
        found.profile_id = self.profile_id
        found.update_from(what_if(self.ledger, gone, pods, claimant, self.assumed.values()), config)
        return found

    def confirm(self, node: LedgerNode) -> None:
        """The ledger's node `is_current`: own reservations are its charges from now on."""
        self.charged, self.assumed = frozenset(node.charges), {}
        self.kubelet_searches, self.waiting, self.expected_zones = None, None, None

    def for_single_zones(self, free_min: Bounds) -> Bounds:
        """`free_min` as far as single zones go: no memory in zones that the Memory Manager uses, or
        may use, in groups.
        """
        if not self.grouped_zones:
            return free_min
        return {
            zone: {name: min(0, a) if is_memory(name) else a for name, a in held.items()}
            if zone in self.grouped_zones
            else held
            for zone, held in free_min.items()
        }

    def guaranteed_totals(self) -> Amounts:
        """What is surely free on the node as a whole: an unproven pod holds its demand once,
        wherever that is.
        """
        totals = total(self.free_max.values())
        for charge in self.charges():
            if charge.zones:
                self.take_total(charge, totals)
        for claim in self.claims.values():
            for name, amount in total(claim.values()).items():
                totals[name] = totals.get(name, 0) - amount
        return totals

    def _is_steady(self, node: LedgerNode) -> bool:
        """True where the profile is what it was if the zones have the layout that they had: nothing
        else came of the node than what a delta of its report tells."""
        before, report = self.report, node.basis
        if (
            before is None
            or report is None
            or self.observed is not node.observed
            or self.expired != node.expired
        ):
            return False
        return len(before.zones) == len(report.zones) and (
            before is report or _STEADY(before) == _STEADY(report)
        )

    def _profile(self, node: LedgerNode, config: CycleConfig) -> Profile:
        report, state = node.basis, report_state(node)
        if report is None:
            return (state, policy.Rule(), (), (), (), (), ())
        labels = node.observed.labels if node.observed is not None else {}
        rule = policy.node_rule(report, labels, config.policy_precedence)
        tracked = policy.pinned(report, labels, config.policy_precedence)
        placeless = tuple(
            sorted({group.resource for group in report.devices or () if not group.zones})
        )
        between = tuple(name for name, _ in between_zones(report))
        profile = (
            state,
            rule,
            tracked,
            tuple(sorted(report.options.items())),
            self._layout(),
            placeless,
            between,
        )
        return cast("Profile", _shared(profile, profile))

    def take_total(self, charge: Charge, totals: Amounts) -> None:
        """Take what a pod holds, beside what the report shows of it, out of `totals`."""
        held = held_once(charge, self.report)
        for name, amount in held.items():
            totals[name] = totals.get(name, 0) - amount

    def _layout(self) -> Layout:
        return tuple((zone, tuple(self.free_min[zone])) for zone in self.zone_ids)

    def charges(self) -> Collection[Charge]:
        """Every charge on the node, own reservations included."""
        charges = self.ledger.charges
        if not self.assumed:
            return charges.values()
        return [
            *charges.values(),
            *[own.charge for uid, own in self.assumed.items() if uid not in charges],
        ]


_known: dict[object, object] = {}


def _shared(key: object, value: object) -> object:
    """The value that was kept for this key first. Nodes come in few makes: what is equal is kept
    once, read only. A bounded memo; forgetting it changes nothing."""
    if len(_known) >= MAKES:
        _known.clear()
    return _known.setdefault(key, value)


class MachineType(NamedTuple):
    """What a report says of a node that does not change while pods come and go. `sizes`: zone ->
    what scores take for the whole: allocatable, or what is available where a report calls that more
    (`overstated`). Read only."""

    sizes: ZoneAmounts
    capacities: Capacities
    max_numa_nodes: int
    overstated: bool = False


NO_MACHINE = MachineType({}, Capacities({}), 0)


def machine_type_of(report: Report) -> MachineType:
    """Kept once for nodes of one make."""
    sizes, key = dict[int, Amounts](), list[object]()
    for zone in report.zones:
        held = sizes[zone.id] = {}
        for name, each in zone.resources.items():
            held[name] = most = (
                each.allocatable if each.allocatable > each.available else each.available
            )
            key += name, each.capacity, each.allocatable, most
        key.append(zone.id)
    key.append(report.max_numa_nodes)
    shared = tuple(key)
    if (known := _known.get(shared)) is not None:
        return cast("MachineType", known)
    overstated = any(
        each.available > each.allocatable
        for zone in report.zones
        for each in zone.resources.values()
    )
    made = MachineType(sizes, capacities(report), report.max_numa_nodes, overstated)
    return cast("MachineType", _shared(shared, made))


def offered(node: LedgerNode) -> Amounts:
    """What the node as a whole offers: allocatable, less what nominees claim of it."""
    allocatable = (
        offered_by_kubelet(node, node.observed.allocatable) if node.observed is not None else {}
    )
    if not node.claims:
        return allocatable
    taken = {PODS: len(node.claims)}
    for zones in node.claims.values():
        for name, amount in total(zones.values()).items():
            taken[name] = taken.get(name, 0) + amount
    return {name: amount - taken.get(name, 0) for name, amount in allocatable.items()}


def held_once(charge: Charge, report: Report | None = None) -> Amounts:
    """The most that a pod holds on the node as a whole. What init containers of a proven pod keep
    is charged in each zone where it may be, but is held once; what a checkpoint tells of by uid
    lies where it is charged."""
    if not charge.confirmed:
        return (
            total(charge.zones.values())
            if charge.confirmed_zones
            else most(charge.demand, apart(charge.possible))
        )
    hidden = report.hidden if report is not None else ()
    told = {
        item.resource
        for each in hidden
        if each.pod_uid == charge.uid and not each.pod
        for item in each.held
    }
    largest: Amounts = {}
    for amounts in charge.zones.values():
        for name, amount in amounts.items():
            largest[name] = max(amount, largest.get(name, 0))
    sums = total(charge.zones.values())
    return {name: sums[name] if name in told else largest[name] for name in sorted(largest)}


def zones_of_memory_groups(node: LedgerNode, charges: Iterable[Charge]) -> frozenset[int]:
    """Zones that hold, or may hold, memory of a block over several zones: the Memory Manager then
    refuses them alone (kubelet 1.36). Pods too large for one zone make such blocks; where the
    report lists no pod, nobody knows where."""
    report = node.basis
    if report is None or len(report.zones) < 2:
        return frozenset()
    several = report.policy != policies.SINGLE_NUMA_NODE
    if several and any(
        (node.listed is None or not charge.confirmed) and _is_wide(charge, report)
        for charge in charges
    ):
        return frozenset(zone.id for zone in report.zones)
    tied: set[int] = set()
    for placements in (node.listed or {}).values():
        for placement in placements:
            for item in placement.held:
                if len(item.zones) > 1 and is_memory(item.resource):
                    tied.update(item.zones)
    return frozenset(tied) or NOWHERE


def _is_wide(charge: Charge, report: Report) -> bool:
    """Does the pod ask for more memory at once than any zone has when empty?"""
    parts = (
        [most(charge.demand)] if report.scope == "pod" else [part.amounts for part in charge.demand]
    )
    return not fits_one_zone([memory_of(part) for part in parts], capacities(report))


def arriving(node: LedgerNode) -> frozenset[str]:
    """Pods that are on their way to the node: charged, and not known to be admitted. Who was proven
    in this boot was.
    """
    coming = (
        charge.uid
        for charge in node.charges.values()
        if is_unconfirmed(charge) and not charge.is_admitted
    )
    return frozenset(coming) or NOBODY


def ends_of(node: LedgerNode) -> object:
    """What differs once another end is known, or one is forgotten: who else it leaves room for is
    for a search to tell.
    """
    return [
        (key, len(ended.lives or ()), ended.complete) for key, ended in node.ended.items()
    ], len(node.freed)


def is_unconfirmed(charge: Charge) -> bool:
    """True for a pod whose zones are not known: several are charged in its place."""
    return bool(charge.zones) and not charge.confirmed and not charge.confirmed_zones


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
