"""NodeInfo: one node as a scheduling cycle sees it.

Built from the ledger's node. Own reservations are assumed here (see `assume.py`) until the fold
brings them to the ledger; the ledger's node itself is never changed. Must not know pods that wait,
scores or other nodes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from operator import attrgetter
from typing import Any, NamedTuple, cast

from services.scheduler.snapshot import owned_state as owned_states
from services.scheduler.snapshot import topology_policy as policy
from services.scheduler.snapshot.config import CycleConfig
from services.scheduler.snapshot.owners import Owners, counted_zones, owners_of
from services.scheduler.snapshot.zone_distances import Costs, costs_of, nearest_by_count
from services.scheduler.snapshot.zone_sizes import Capacities, capacities, fits_one_zone
from shared.domain import policies
from shared.domain.demand import most
from shared.domain.device_zones import between_zones
from shared.domain.report import Report
from shared.domain.resources import PODS, Amounts, is_memory, memory_of
from shared.domain.zone_allocation import ZoneAllocation
from shared.events.cluster_events import NodeObserved
from shared.events.surroundings_events import NodeDevicesObserved
from shared.ledger.cards import device_types_of, totals_of_cards
from shared.ledger.charge import apart
from shared.ledger.state import Charge, LedgerNode, LedgerPod, ZoneAmounts
from shared.ledger.unhealthy import offered_by_kubelet
from shared.ledger.unlisted_blocks import zones_in_groups
from shared.ledger.view import subtract, total
from shared.ledger.what_if import Newcomer, what_if

Layout = tuple[tuple[int, tuple[str, ...]], ...]
Bounds = Mapping[int, Amounts]

# What a delta changes in a report. No profile may look at it, except for the layout of the zones.
_CHANGED_BY_DELTAS = {
    "boot_id",
    "boot_time_ms",
    "exporter",
    "fingerprint",
    "zones",
    "placements",
    "checkpoints",
    "hidden",
    "enforced",
}
# The rest of a report. After a delta these are the same objects, so that comparing them is cheap.
_STEADY = attrgetter(*(name for name in Report.__struct_fields__ if name not in _CHANGED_BY_DELTAS))

MAX_ZONES = 64
# Machine types and profiles that are remembered.
REMEMBERED = 4096
NO_ZONES: frozenset[int] = frozenset()
UNLIMITED_PODS = 1 << 30


class Profile(NamedTuple):
    """What nodes share if their zones can be evaluated at once.

    `state` is `report_state`, `tracked` the aligned resources, `layout` the zones with their
    resources. `placeless` resources have devices that lie in no zone, `between` resources devices
    that lie in several. `unkept` are node labels that the kubelet does not keep, each with the
    resource whose exclusive use it concerns. `pod_level_scope` is the report's. `owners` says who
    chooses zones. `counted_zones` is the node's label if it ranks the node by zones in use.
    `device_types` are those that Topolog chooses there, `has_cards` says that a Device object shows
    where the devices are that the kubelet chooses. `unlisted` resources may be pinned.
    """

    state: str
    rule: policy.Rule
    tracked: tuple[str, ...] = ()
    options: tuple[tuple[str, str], ...] = ()
    layout: Layout = ()
    placeless: tuple[str, ...] = ()
    between: tuple[str, ...] = ()
    unkept: tuple[tuple[str, str], ...] = ()
    pod_level_scope: str = ""
    owners: Owners = Owners()
    counted_zones: str = ""
    device_types: tuple[str, ...] = ()
    has_cards: bool = False
    unlisted: tuple[str, ...] = ()


class MachineType(NamedTuple):
    """What a report says about a node and no pod changes; shared by like nodes, read only.

    `sizes` is zone -> the size that scores use: allocatable, or the available amount if a report
    calls that more (`overstated`). `nearest` is the least `nearness` of 1, 2, ... zones.
    """

    sizes: ZoneAmounts
    capacities: Capacities
    max_numa_nodes: int
    overstated: bool = False
    nearest: tuple[int, ...] = (0,)
    costs: Costs = ()


NO_MACHINE = MachineType({}, Capacities({}), 0)


class NodeInfo:
    """One node, mutable.

    `free_min` and `free_max` are zone id -> amounts: guaranteed free and free at most. `totals` is
    the guaranteed free sum of the whole node (only if `unaligned`: a pod may take from several
    zones without a rejection). `assumed` holds own reservations by uid, `pending` the pods without
    a confirmed admission, `unconfirmed` says that some pod's zones are not known. `grouped_zones`
    hold memory of a block over several zones. `version` counts every change, `ledger_version` the
    changes by the ledger.
    """

    __slots__ = (
        "_before",
        "_due",
        "allocatable",
        "allocations",
        "assumed",
        "charged",
        "claims",
        "devices",
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
        "near",
        "observed",
        "owned",
        "owned_before",
        "pending",
        "pending_parts",
        "plainness",
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
        "zone_ids",
    )  # fmt: skip

    def __init__(self, name: str, slot: int) -> None:
        self.name, self.slot, self.version, self.ledger_version = name, slot, 0, 0
        self.ledger: LedgerNode = LedgerNode(name)
        self.observed: NodeObserved | None = None
        self.devices: NodeDevicesObserved | None = None
        self.report: Report | None = None
        self.free_min, self.free_max, self._before = ZoneAmounts(), ZoneAmounts(), ZoneAmounts()
        self._due = list[ZoneAmounts]()
        self.machine, self.sizes = NO_MACHINE, NO_MACHINE.sizes
        self.zone_ids: tuple[int, ...] = ()
        self.requested: Amounts = {}
        self.allocatable: Amounts = {}
        self.claims: dict[str, ZoneAmounts] = {}
        self.assumed: dict[str, Newcomer] = {}
        # Kept by the modules that compute them, until the node changes.
        self.kubelet_searches: Any = None
        self.pending_parts: Any = None
        self.expected_zones: Any = None
        self.plainness: bool | None = None
        self.near: Any = None
        self.views: Any = None
        self.owned: owned_states.OwnedState | None = None
        self.owned_before: owned_states.OwnedState | None = None
        self.allocations: dict[str, ZoneAllocation | None] = {}
        self.rule, self.unaligned = policy.Rule(), True
        self.profile = Profile("missing", self.rule)
        self.profile_id = -1
        self.grouped_zones: frozenset[int] = NO_ZONES
        self.totals: Amounts = {}
        self.unconfirmed = self.expired = False
        # Tuples, because a set of 8 pods takes 728 bytes.
        self.pending: tuple[str, ...] = ()
        self.charged: tuple[str, ...] = ()
        self.ends: object = None

    def __getattr__(self, name: str) -> ZoneAmounts:
        """Subtract what `take` noted, when `free_min` is read: decisions by arrays never do."""
        if name != "free_min":
            raise AttributeError(name)
        self.free_min = self._before
        while self._due:
            subtract(self._before, self._due.pop())
        return self._before

    def take(self, zones: ZoneAmounts) -> None:
        """Subtract these amounts from `free_min` when it is read next."""
        if not self._due:
            self._before = self.free_min
            del self.free_min
        self._due.append(zones)

    def free(self, name: str) -> int:
        """Return what the whole node has left of a resource."""
        if name == PODS and name not in self.allocatable:
            return UNLIMITED_PODS
        return self.allocatable.get(name, 0) - self.requested.get(name, 0)

    def is_current(self, node: LedgerNode) -> bool:
        """Return whether the ledger's node has nothing new, assumed pods included."""
        return (
            self.ledger is node
            and self.observed is node.observed
            and self.devices is node.devices
            and self.report is node.basis
            and self.free_min == node.free_min
            and self.free_max == node.free_max
            and self.requested == node.requested
            and self.claims == node.claims
            and self.allocatable == offered(node)
            and set(self.pending) == set(pending_pods(node))
            and {*self.charged, *self.assumed} == node.charges.keys()
            and self.ends == ends_of(node)
            and self.expired == node.expired
            and (not self.profile.owners.is_owned or self.allocations == allocations_of(node))
        )

    def update_from(self, node: LedgerNode, config: CycleConfig) -> None:
        """Take over the ledger's node; assumed pods that the ledger lacks are forgotten."""
        if self.report is not node.basis:
            self.machine = machine_type_of(node.basis) if node.basis is not None else NO_MACHINE
            self.sizes = self.machine.sizes
        steady = self._is_steady(node)
        self.ledger, self.observed, self.report = node, node.observed, node.basis
        self.expired, self.devices = node.expired, node.devices
        self.free_min, self._due = _copied(node.free_min), []
        self.free_max = node.free_max
        self.zone_ids = tuple(sorted(node.free_min))
        self.requested, self.claims, self.assumed = dict(node.requested), dict(node.claims), {}
        self.allocatable = offered(node)
        self.unconfirmed = any(is_unconfirmed(charge) for charge in node.charges.values())
        self.pending = pending_pods(node) if self.unconfirmed else ()
        self.charged, self.ends = tuple(node.charges), ends_of(node)
        if not steady or self.profile.layout != self._layout(self.profile.owners.is_owned):
            self.profile = self._profile(node, config)
            self.rule = self.profile.rule
            self.unaligned = self.rule.policy in (policies.NONE, policies.BEST_EFFORT)
        self.allocations = allocations_of(node) if self.profile.owners.is_owned else {}
        self.grouped_zones = zones_of_memory_groups(node, self.machine.capacities)
        self._forget_derived()
        self.owned = self.near = None
        self.totals = self.guaranteed_totals() if self.unaligned else {}

    def hypothetical(
        self,
        ended: Collection[str],
        pods: Mapping[str, LedgerPod],
        claimant: str,
        config: CycleConfig,
        newcomers: Collection[Newcomer] = (),
    ) -> NodeInfo:
        """Return the node, assumed pods and newcomers included, as if these pods had ended and the
        claimant's claim were given back.
        """
        node_info = NodeInfo(self.name, self.slot)
        node_info.profile_id, node_info.owned_before = self.profile_id, self.owned_before
        node = what_if(self.ledger, ended, pods, claimant, [*self.assumed.values(), *newcomers])
        node_info.update_from(node, config)
        return node_info

    def confirm(self, node: LedgerNode) -> None:
        """The ledger's node `is_current`: the assumed pods are its charges from now on."""
        self.charged, self.assumed = tuple(node.charges), {}
        self._forget_states()

    def take_over(self, node: LedgerNode, uid: str) -> bool:
        """Make an assumed pod one of the charges. Return False, and change nothing, if the ledger
        has charged it otherwise. The caller knows that nothing else has changed the node.
        """
        assumed, charge = self.assumed.get(uid), node.charges.get(uid)
        if self.ledger is not node or assumed is None or charge is None:
            return False
        if charge.key in (node.listed or ()) or self.ends != ends_of(node):
            return False
        if not _is_as_assumed(charge, assumed.charge):
            return False
        del self.assumed[uid]
        self.charged += (uid,)
        if not self.assumed:
            self.free_min, self._due = _copied(node.free_min), []
        self._forget_states()
        return True

    def _forget_states(self) -> None:
        """The same pods are on the node, and an assumed one is in the ledger."""
        plainness = self.plainness
        self._forget_derived()
        self.plainness = plainness or None

    def owned_state(self) -> owned_states.OwnedState:
        """Return the state of a node whose zones Topolog chooses; kept until the node changes."""
        if self.owned is None:
            made_for, claims = (self.report, self.observed, self.rule), self.claims.values()
            sizes, charges = self.machine.sizes, self.charges()
            self.owned_before = self.owned = owned_states.owned_state(
                self.name, made_for, sizes, charges, claims, self.owned_before
            )
        return self.owned

    def _forget_derived(self) -> None:
        self.kubelet_searches, self.pending_parts, self.expected_zones = None, None, None
        self.plainness = None

    def for_single_zones(self, free: Bounds) -> Bounds:
        """Return the free amounts as far as a single zone can use them: no memory in zones that
        the Memory Manager uses, or may use, in groups.
        """
        if not self.grouped_zones:
            return free
        single: dict[int, Amounts] = {}
        for zone, amounts in free.items():
            single[zone] = amounts
            if zone in self.grouped_zones:
                single[zone] = {
                    name: min(0, amount) if is_memory(name) else amount
                    for name, amount in amounts.items()
                }
        return single

    def guaranteed_totals(self) -> Amounts:
        """Return the guaranteed free amounts of the whole node. An unconfirmed pod holds its demand
        once, wherever that is.
        """
        totals = total(self.free_max.values())
        for charge in self.charges():
            if charge.zones:
                self.take_total(charge, totals)
        for claim in self.claims.values():
            for name, amount in total(claim.values()).items():
                totals[name] = totals.get(name, 0) - amount
        return totals

    def take_total(self, charge: Charge, totals: Amounts) -> None:
        """Subtract what a pod holds, beyond what the report shows of it, from `totals`."""
        for name, amount in held_once(charge, self.report).items():
            totals[name] = totals.get(name, 0) - amount

    def is_plain(self) -> bool:
        """Return whether an amount that is free in a zone is free in that zone alone: no options,
        nothing hidden or unlisted, no groups of zones, no device in several zones or in none.
        """
        report, profile = self.report, self.profile
        if report is None or report.hidden or report.unlisted:
            return False
        if profile.options or profile.between or profile.placeless:
            return False
        return not any(zone.group for zone in report.zones)

    def charges(self) -> Collection[Charge]:
        """Return every charge on the node, assumed pods included."""
        charges = self.ledger.charges
        if not self.assumed:
            return charges.values()
        assumed = [pod.charge for uid, pod in self.assumed.items() if uid not in charges]
        return [*charges.values(), *assumed]

    def _is_steady(self, node: LedgerNode) -> bool:
        """Return whether the profile is unchanged as long as the layout of the zones is: only a
        delta of the report changed.
        """
        earlier, report = self.report, node.basis
        if earlier is None or report is None:
            return False
        if self.observed is not node.observed or self.devices is not node.devices:
            return False
        if self.expired != node.expired or len(earlier.zones) != len(report.zones):
            return False
        return earlier is report or _STEADY(earlier) == _STEADY(report)

    def _profile(self, node: LedgerNode, config: CycleConfig) -> Profile:
        report, state = node.basis, report_state(node)
        if report is None:
            return Profile(state, policy.Rule())
        labels = node.observed.labels if node.observed is not None else {}
        owners, precedence = owners_of(report), config.policy_precedence
        rule = policy.node_rule(report, labels, precedence, config.default_policy, owners.is_owned)
        types = device_types_of(node.devices) if node.devices is not None else ()
        placeless = {group.resource for group in report.devices or () if not group.zones}
        profile = Profile(
            state,
            rule,
            policy.pinned(report, labels, precedence),
            tuple(sorted(report.options.items())),
            self._layout(owners.is_owned),
            tuple(sorted(placeless)),
            tuple(name for name, _ in between_zones(report)),
            () if owners.is_owned else policy.unkept_labels(report, labels),
            report.pod_level_scope,
            owners,
            counted_zones(labels) if owners.is_owned else "",
            types if owners.is_owned else (),
            bool(types) and not owners.is_owned,
            () if owners.is_owned else policy.unlisted(report, node.observed, config.unpinned),
        )
        return cast("Profile", _shared(profile, profile))

    def _layout(self, is_owned: bool) -> Layout:
        owned = owned_states.owned_names(self.report, self.observed) if is_owned else {}
        names = {zone: (*self.free_min[zone], *owned.get(zone, ())) for zone in self.zone_ids}
        return tuple((zone, tuple(dict.fromkeys(listed))) for zone, listed in names.items())


_values: dict[object, object] = {}


def _shared(key: object, value: object) -> object:
    """Return the first value kept for this key: nodes come in few types. A bounded memo."""
    if len(_values) >= REMEMBERED:
        _values.clear()
    return _values.setdefault(key, value)


def machine_type_of(report: Report) -> MachineType:
    """Return the report's machine type, one object for all nodes of that type."""
    sizes, key, overstated = dict[int, Amounts](), list[object](), False
    for zone in report.zones:
        zone_sizes = sizes[zone.id] = {}
        for name, resource in zone.resources.items():
            size = resource.allocatable
            if resource.available > size:
                size, overstated = resource.available, True
            zone_sizes[name] = size
            key += name, resource.capacity, resource.allocatable, size
        key.append(zone.id)
    costs = costs_of(report)
    key += report.max_numa_nodes, costs
    shared_key = tuple(key)
    machine = _values.get(shared_key)
    if machine is None:
        limit, nearest = report.max_numa_nodes, nearest_by_count(costs)
        machine = MachineType(sizes, capacities(report), limit, overstated, nearest, costs)
    return cast("MachineType", _shared(shared_key, machine))


def offered(node: LedgerNode) -> Amounts:
    """Return what the whole node offers: allocatable, less what nominees claim."""
    if node.observed is None:
        return {}
    allocatable = offered_by_kubelet(node, node.observed.allocatable)
    if node.devices is not None:
        allocatable = totals_of_cards(node.devices) | allocatable
    if not node.claims:
        return allocatable
    claimed = {PODS: len(node.claims)}
    for zones in node.claims.values():
        for name, amount in total(zones.values()).items():
            claimed[name] = claimed.get(name, 0) + amount
    return {name: amount - claimed.get(name, 0) for name, amount in allocatable.items()}


def held_once(charge: Charge, report: Report | None = None) -> Amounts:
    """Return the most that a pod holds on the whole node.

    The share that init containers of a confirmed pod keep is charged in each zone where it may be,
    but is held once. The amounts that a checkpoint lists by uid lie where they are charged.
    """
    if not charge.confirmed:
        if charge.confirmed_zones:
            return total(charge.zones.values())
        return most(charge.demand, apart(charge.possible))
    by_zone: set[str] = set()
    for hidden in report.hidden if report is not None else ():
        if hidden.pod_uid == charge.uid and not hidden.pod:
            by_zone.update(item.resource for item in hidden.held)
    largest: Amounts = {}
    for amounts in charge.zones.values():
        for name, amount in amounts.items():
            largest[name] = max(amount, largest.get(name, 0))
    sums = total(charge.zones.values())
    return {name: sums[name] if name in by_zone else largest[name] for name in sorted(largest)}


def zones_of_memory_groups(node: LedgerNode, sizes: Capacities) -> frozenset[int]:
    """Return the zones that hold, or may hold, memory of a block over several zones: the Memory
    Manager then refuses a pod that wants one of them alone (kubelet 1.36).

    Pods too large for one zone make such blocks, and under best-effort and none any pod may. If the
    report lists no pod, its amounts decide. If it never lists memory, each pod is charged in full
    in every zone, so that the groups of other pods leave what the bounds say.
    """
    report = node.basis
    if report is None or len(report.zones) < 2:
        return NO_ZONES
    unlisted = zones_in_groups(node) if node.listed is None else NO_ZONES
    if report.policy != policies.SINGLE_NUMA_NODE:
        for charge in node.charges.values():
            if not charge.confirmed and is_wide(charge, report.scope, sizes):
                return frozenset(zone.id for zone in report.zones)
    grouped = set(unlisted)
    for placements in (node.listed or {}).values():
        for placement in placements:
            for item in placement.held:
                if len(item.zones) > 1 and is_memory(item.resource):
                    grouped.update(item.zones)
    return frozenset(grouped) or NO_ZONES


def is_wide(charge: Charge, scope: str, sizes: Capacities) -> bool:
    """Return whether the pod requests more memory at once than any empty zone has."""
    if scope == "pod":
        parts = [most(charge.demand)]
    else:
        parts = [part.amounts for part in charge.demand]
    return not fits_one_zone([memory_of(part) for part in parts], sizes)


def pending_pods(node: LedgerNode) -> tuple[str, ...]:
    """Return the charged pods without a confirmed admission."""
    pending = [
        charge.uid
        for charge in node.charges.values()
        if is_unconfirmed(charge) and not charge.is_admitted
    ]
    return tuple(pending)


def allocations_of(node: LedgerNode) -> dict[str, ZoneAllocation | None]:
    """Return the known zones that Topolog, or another scheduler, chose for pods."""
    return {uid: charge.allocation for uid, charge in node.charges.items()}


def ends_of(node: LedgerNode) -> object:
    """Return a value that changes with the known ends: only the kubelet search can say which pods
    an end leaves room for."""
    ends = [(key, len(ended.lives or ()), ended.complete) for key, ended in node.ended.items()]
    return ends, len(node.freed)


def _copied(amounts_by_zone: ZoneAmounts) -> ZoneAmounts:
    return {zone: amounts.copy() for zone, amounts in amounts_by_zone.items()}


def _is_as_assumed(charge: Charge, assumed: Charge) -> bool:
    """Return whether the fold has made the charge that was assumed."""
    return (
        charge.demand is assumed.demand
        and charge.alias is None
        # A landing is kept, so that both nearly always share its values.
        and (charge.zones is assumed.zones or charge.zones == assumed.zones)
        and (charge.possible is assumed.possible or charge.possible == assumed.possible)
        and charge.narrowed == assumed.narrowed
        and charge.one_zone == assumed.one_zone
        and charge.allocation == assumed.allocation
    )


def is_unconfirmed(charge: Charge) -> bool:
    """Return whether the zones of the pod are unknown: several are charged for it."""
    return bool(charge.zones) and not charge.confirmed and not charge.confirmed_zones


def report_state(node: LedgerNode) -> str:
    """Return "" if the report may be used, else `missing`, `expired` or the problem."""
    report = node.basis
    if report is None:
        return "missing"
    if node.expired:
        return "expired"
    return _malformed(report)


def _malformed(report: Report) -> str:
    ids = [zone.id for zone in report.zones]
    if len(set(ids)) != len(ids):
        return f"zone {next(zone for zone in ids if ids.count(zone) > 1)} is reported twice"
    if any(zone < 0 for zone in ids):
        return f"zone {min(ids)} has a negative id"
    if len(ids) > MAX_ZONES:
        return f"{len(ids)} zones, more than {MAX_ZONES}"
    return ""
