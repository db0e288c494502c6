"""Pod classes: pods that every node treats alike share their filter results and scores.

A pod class has one plan for each profile of nodes. The plan says what such nodes align, split into
the parts that are aligned together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec
import xxhash

from services.scheduler.snapshot import topology_policy as policy
from services.scheduler.snapshot.node_arrays import ReservationArrays, Shape
from services.scheduler.snapshot.node_info import Profile
from services.scheduler.snapshot.owned_request import KEYS, key_values, owned_request, problem_of
from services.scheduler.snapshot.result import Unplaceable
from shared.domain import policies
from shared.domain.demand import (
    ContainerDemand,
    draws_by_zeros,
    may_be_split,
    outside_pod_hint,
    peak,
    zonal_demand,
)
from shared.domain.pod import ContainerKind, Pod
from shared.domain.refusal import Refusal
from shared.domain.resources import CPU, PODS, Amounts, is_device
from shared.domain.zone_allocation import DeviceType
from shared.events.cluster_events import NodeObserved
from shared.hints.registry import amounts_are_all, beyond_amounts
from shared.hints.request import HintRequest, promised, request_of
from shared.ledger.alike import kind_of
from shared.ledger.charge import Landing
from shared.owned.device_request import TYPES, device_request, of_types
from shared.owned.devices import DeviceRequest
from shared.owned.request import PodSpecError
from shared.owned.values import OwnedRequest

# Amounts from here on are refused before they reach 64-bit arrays.
ABSURD = 1 << 61

Items = tuple[tuple[str, int], ...]

# Options of the CPU Manager as a report carries them.
FULL_PCPUS_ONLY = ("full-pcpus-only", "true")
# A set of zones within a socket may be preferred, and CPUs come from all of it.
ALIGN_BY_SOCKET = ("align-by-socket", "true")

_ENCODER = msgspec.msgpack.Encoder()


# Modes of plans under which the kubelet chooses zones for the pod.
BY_KUBELET = ("aligned", "unaligned")


class AlignedPart(msgspec.Struct, frozen=True, gc=False):
    """Amounts that go into one zone, or one set of zones, together. `name` is the container, "" for
    the whole pod.
    """

    name: str
    kind: ContainerKind
    amounts: Amounts


class Plan(msgspec.Struct, frozen=True):
    """How a profile of nodes aligns a pod class.

    `mode`: `free` (nothing is aligned), `aligned` (each part in one set of zones), `unaligned`
    (policy none or best-effort: totals, and memory by zone) or `owned` (Topolog chooses the zones
    for `owned_request`, and the `devices`).
    `parts` are in the kubelet's order; `part_kinds` are their distinct amounts, each with the
    number of parts that request it.
    `is_plain`: each part takes the lowest zone that holds it, if its node is plain.
    `sum_of_parts` is what all parts hold at once. It is empty if a zone with that much would not be
    enough to be sure: init containers, whole cores, memory outside the pod's hint.
    `placeless`: some devices of these resources lie in no zone and serve any container.
    `needs_search`: no bound decides, because a provider looks at more than amounts, requested
    devices lie in several zones, devices are named in an amount of 0, memory is outside the pod's
    hint, CPUs are aligned by socket, the pod must be in one zone although the policy does not
    require it, or the pod `may_be_split`. A bound that admits such a split pod holds; no bound
    refuses it.
    `may_spread`: the policy leaves open how many zones a part gets.
    `counted_zones` is the profile's. `one_zone` is set if Topolog must choose one zone: the amounts
    that the zone must have, and the same with devices, by which it is scored.
    `near` are the parts that request several devices, with those that others of the pod request: if
    a Device object shows where devices are, nodes are ranked by how near they lie.
    `running` parts hold their amounts at the same time. Each of them requests at least `smallest`,
    which is empty for fewer than two such parts.
    """

    mode: str
    rule: policy.Rule
    parts: tuple[AlignedPart, ...] = ()
    full_pcpus_only: bool = False
    part_kinds: tuple[tuple[Items, int], ...] = ()
    sum_of_parts: Amounts = {}
    has_init_demand: bool = False
    is_plain: bool = False
    names: tuple[str, ...] = ()
    demand: tuple[ContainerDemand, ...] = ()
    placeless: frozenset[str] = frozenset()
    needs_search: bool = False
    may_be_split: bool = False
    may_spread: bool = False
    running: int = 0
    smallest: Amounts = {}
    owned_request: OwnedRequest = OwnedRequest({})
    devices: DeviceRequest | None = None
    counted_zones: str = ""
    one_zone: tuple[Items, Items] | None = None
    near: tuple[tuple[AlignedPart, Amounts], ...] = ()

    @property
    def request(self) -> HintRequest:
        """The request that the kubelet search asks about."""
        return promised(request_of(self.demand), self.rule.one_zone)


class PlanOnNodes:
    """One plan of a pod class on the nodes of all profiles that share it.

    `profiles` are their numbers, `zones` is the most zones that one of their layouts has.
    `is_blocked`: no node of these profiles takes the class, whatever is free. `evaluation` is the
    bulk evaluator's prepared state, which is valid as long as `made_for` stays.
    """

    __slots__ = ("evaluation", "is_blocked", "made_for", "plan", "profiles", "zones")

    def __init__(self, plan: Plan, is_blocked: bool) -> None:
        self.plan, self.is_blocked, self.zones = plan, is_blocked, 0
        self.profiles: list[int] = []
        self.evaluation: Any = None
        self.made_for: object = None


class PodClass:
    """A pod class, its node-level request and the results that are kept for it.

    `row` is its row in the score cache, `zonal` says that zones could matter to it, `request` has
    the amounts above zero that a node must have free. `plans_on_nodes` are by number of a profile.
    """

    __slots__ = (
        "asked", "devices", "distinct_plans", "is_evaluated", "key", "kind", "landings",
        "own_policy", "passed_over", "plans", "plans_on_nodes", "pod", "problem", "refusal_table",
        "refusals", "refused_at", "request", "requested", "reservation_arrays", "row", "undecided",
        "unplaceable", "zonal",
    )  # fmt: skip

    def __init__(self, key: str, pod: Pod, row: int) -> None:
        self.key, self.pod, self.row = key, pod, row
        pod_policy = policy.pod_policy(pod)
        self.own_policy = pod_policy
        self.kind = kind_of(pod)
        self.asked = {name: amount for name, amount in self.kind.request.items() if amount > 0}
        self.asked.pop(PODS, None)
        self.request = {**self.asked, PODS: 1}
        self.requested = {**self.kind.request, PODS: 1}
        self.problem = _absurd(pod) or pod_policy.problem
        if not self.problem and pod.annotations.keys() & KEYS:
            self.problem = problem_of(pod)
        self.devices: DeviceRequest | None = None
        if types := {TYPES[name] for name in self.asked.keys() & TYPES.keys()}:
            try:
                self.devices = device_request(self.asked, pod.annotations)
            except PodSpecError as error:
                amounts: dict[DeviceType, Amounts] = {kind: {} for kind in sorted(types)}
                self.devices = DeviceRequest(amounts, problem=str(error))
        self.zonal = bool(zonal_demand(pod, _all_resources(pod)))
        self.plans: dict[Profile, Plan] = {}
        self.plans_on_nodes: dict[int, PlanOnNodes] = {}
        self.distinct_plans: list[PlanOnNodes] = []
        # By profile and first zone.
        self.reservation_arrays: dict[
            tuple[int, int], tuple[tuple[object, ...], Shape, ReservationArrays]
        ] = {}
        # By number of the profile and masks of zones.
        self.landings: dict[tuple[int, tuple[int, ...]], Landing] = {}
        self.is_evaluated = False
        # Slot -> ledger version at which the ordinary step budget did not suffice.
        self.undecided: dict[int, int] = {}
        # The changes of nodes after which the larger budget found no node, either.
        self.refused_at = -1
        # Slot -> version at which the bounds alone did not decide.
        self.passed_over: dict[int, int] = {}
        self.unplaceable: tuple[int, Unplaceable] | None = None
        self.refusal_table: Any = None  # the explanations'
        self.refusals: dict[str, tuple[tuple[int, int], NodeObserved | None, Refusal]] = {}

    def plan(self, profile: Profile) -> Plan:
        """Return the plan on nodes of this profile."""
        plan = self.plans.get(profile)
        if plan is None:
            make_plan = self._owned_plan if profile.owners.is_owned else self._kubelet_plan
            plan = self.plans[profile] = make_plan(profile)
        return plan

    def _kubelet_plan(self, profile: Profile) -> Plan:
        demand = self.kind.demand(profile.tracked, profile.pod_level_scope)
        rule = policy.combined(profile.rule, self.own_policy)
        is_aligned = rule.policy == policies.SINGLE_NUMA_NODE and len(demand) < 2
        if rule.one_zone and (is_aligned or len(profile.layout) < 2):
            rule = policy.without_promise(rule)
        return _plan(demand, rule, profile)

    def _owned_plan(self, profile: Profile) -> Plan:
        request = owned_request(self.pod, self.kind.request, self.own_policy, profile.rule.policy)
        devices = of_types(self.devices, profile.device_types)
        names = tuple(container.name for container in self.pod.containers)
        mode = "owned" if request.amounts or devices is not None else "free"
        applied = request.policy or profile.rule.policy
        may_spread = mode == "owned" and applied in (policies.BEST_EFFORT, policies.RESTRICTED)
        is_one = applied == policies.SINGLE_NUMA_NODE and profile.rule.policy in (
            applied,
            policies.NONE,
        )
        return Plan(
            mode,
            profile.rule,
            names=names,
            owned_request=request,
            devices=devices,
            may_spread=may_spread,
            counted_zones=profile.counted_zones if mode == "owned" else "",
            one_zone=self._one_zone(request, profile) if is_one else None,
        )

    def _one_zone(self, request: OwnedRequest, profile: Profile) -> tuple[Items, Items] | None:
        listed = {name for _, names in profile.layout for name in names}
        amounts = tuple((n, size) for n, size in request.amounts.items() if n in listed)
        scored = tuple((n, size) for n, size in self.asked.items() if n in listed)
        return (amounts, scored) if amounts else None


def without_kept(pod: Pod) -> Pod:
    """Return the pod without what constraints keep of its spec."""
    return msgspec.structs.replace(
        pod, constraints=msgspec.structs.replace(pod.constraints, kept={})
    )


# The ids of containers and constraints -> a pod of these objects without keys of its own, and its
# key. The ledger shares equal objects (`shared.ledger.alike`), so that a key is made once for a
# class. A bounded memo of a pure function.
_keys: dict[tuple[int, int], tuple[Pod, str]] = {}
REMEMBERED = 4096
_OWN_KEYS = frozenset((*KEYS, *policy.POD_ANNOTATIONS))


def key_of(pod: Pod) -> str:
    """Return equal text for pods that every node treats alike."""
    if not (pod.annotations.keys().isdisjoint(_OWN_KEYS) and pod.labels.keys().isdisjoint(KEYS)):
        return _key_of(pod)
    ids = id(pod.containers), id(pod.constraints)
    remembered = _keys.get(ids)
    if remembered is not None:
        like, key = remembered
        if (
            like.containers is pod.containers
            and like.constraints is pod.constraints
            and like.qos == pod.qos
            and like.overhead == pod.overhead
            and like.pod_level == pod.pod_level
        ):
            return key
    key = _key_of(pod)
    if len(_keys) >= REMEMBERED:
        _keys.clear()
    _keys[ids] = pod, key
    return key


def _key_of(pod: Pod) -> str:
    wanted = [pod.annotations.get(name, "") for name in policy.POD_ANNOTATIONS]
    parts: tuple[object, ...] = (
        pod.containers,
        pod.qos,
        pod.overhead,
        pod.pod_level,
        pod.constraints,
        wanted,
        *(key_values(pod) if pod.labels.keys() & KEYS or pod.annotations.keys() & KEYS else ()),
    )
    try:
        encoded = _ENCODER.encode(parts)
    except OverflowError:
        encoded = repr(parts).encode()
    return xxhash.xxh3_128_hexdigest(encoded)


def _all_resources(pod: Pod) -> set[str]:
    names: set[str] = set()
    for container in pod.containers:
        names.update(container.requests, container.limits)
    return names


def _absurd(pod: Pod) -> str:
    amounts = [
        (f"container {container.name}", name, amount)
        for container in pod.containers
        for name, amount in (*container.requests.items(), *container.limits.items())
    ]
    for pod_amounts in (pod.overhead, pod.pod_level or {}):
        amounts += [("pod", name, amount) for name, amount in pod_amounts.items()]
    for where, name, amount in amounts:
        if amount < 0:
            return f"{where} asks for a negative amount of {name}: {amount}"
        if amount >= ABSURD:
            return f"{where} asks for an absurd amount of {name}: {amount}"
    return ""


def _plan(demand: tuple[ContainerDemand, ...], rule: policy.Rule, profile: Profile) -> Plan:
    if not demand:
        return Plan("free", rule)
    aligned = rule.policy in (policies.SINGLE_NUMA_NODE, policies.RESTRICTED)
    full_pcpus_only = FULL_PCPUS_ONLY in profile.options and any(
        CPU in part.amounts for part in demand
    )
    parts = _parts(demand, rule)
    init_forces_zone = len(parts) > 1 and any(part.kind == "init" for part in parts)
    memory_outside_hint = _whole_pod(rule) and outside_pod_hint(demand)
    hints_decide = rule.policy != policies.NONE and (
        ALIGN_BY_SOCKET in profile.options or draws_by_zeros(demand)
    )
    needs_search = memory_outside_hint or hints_decide or _beyond_amounts(demand, profile)
    is_split = (
        not needs_search
        and rule.source == "report"
        and may_be_split(demand, rule.policy, rule.scope)
    )
    has_init_demand = any(part.kind == "init" for part in demand)
    running = [part.amounts for part in parts if part.kind != "init"]
    no_sum = full_pcpus_only or init_forces_zone or memory_outside_hint
    return Plan(
        mode="aligned" if aligned else "unaligned",
        rule=rule,
        parts=parts,
        full_pcpus_only=full_pcpus_only,
        part_kinds=tuple(Counter(tuple(part.amounts.items()) for part in parts).items()),
        sum_of_parts={} if no_sum else _sum(parts),
        has_init_demand=has_init_demand,
        is_plain=not (has_init_demand or full_pcpus_only or any(part.zeros for part in demand)),
        names=tuple(part.name for part in demand),
        demand=demand,
        placeless=frozenset() if aligned else frozenset(profile.placeless),
        needs_search=needs_search or is_split or bool(rule.one_zone),
        may_be_split=is_split,
        may_spread=rule.policy != policies.SINGLE_NUMA_NODE,
        near=_near(parts) if profile.has_cards else (),
        running=len(running),
        smallest=_smallest(running) if len(running) > 1 else {},
    )


def _near(parts: tuple[AlignedPart, ...]) -> tuple[tuple[AlignedPart, Amounts], ...]:
    """Return the parts that request several devices, with what the others request."""
    near = []
    for part in parts:
        devices = [amount for name, amount in part.amounts.items() if is_device(name)]
        if part.kind != "init" and sum(devices) > 1:
            near.append((part, _sum(tuple(other for other in parts if other is not part))))
    return tuple(near)


def _beyond_amounts(demand: tuple[ContainerDemand, ...], profile: Profile) -> bool:
    """Return whether devices lie in several zones, or some provider looks at more than amounts."""
    names = {name for part in demand for name in part.amounts}
    if not names.isdisjoint(profile.between):
        return True
    return not amounts_are_all() and any(beyond_amounts(name) for name in names)


def _whole_pod(rule: policy.Rule) -> bool:
    return rule.scope == "pod" and rule.policy != policies.NONE


def _sum(parts: tuple[AlignedPart, ...]) -> Amounts:
    total: Amounts = {}
    for part in parts:
        for name, amount in part.amounts.items():
            total[name] = total.get(name, 0) + amount
    return total


def _smallest(requests: Sequence[Amounts]) -> Amounts:
    """The least that any of them requests, of the resources that all request."""
    common = set(requests[0]).intersection(*requests)
    return {
        name: min(amounts[name] for amounts in requests) for name in requests[0] if name in common
    }


def _parts(demand: tuple[ContainerDemand, ...], rule: policy.Rule) -> tuple[AlignedPart, ...]:
    if _whole_pod(rule):
        return (AlignedPart("", "app", peak(demand)),)
    return tuple(AlignedPart(part.name, part.kind, part.amounts) for part in demand if part.amounts)
