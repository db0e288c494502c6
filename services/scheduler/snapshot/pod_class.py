"""A pod's shape: everything about it that a verdict depends on. Pods of one shape share their
verdicts.

A shape has one plan for each profile of nodes: the demand that such nodes pin, split into parts
that are aligned together.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import xxhash

from services.scheduler.snapshot import topology_policy as policy
from services.scheduler.snapshot.node_arrays import ReservationArrays
from services.scheduler.snapshot.node_info import Profile
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
from shared.domain.resources import CPU, PODS, Amounts
from shared.events.cluster_events import NodeObserved
from shared.hints.registry import beyond_amounts
from shared.ledger.alike import kind_of
from shared.ledger.state import ZoneAmounts

ABSURD = 1 << 61
"""Amounts from here on are refused before they meet 64-bit columns."""

Items = tuple[tuple[str, int], ...]

WHOLE_CORES = ("full-pcpus-only", "true")
"""The CPU Manager's option as a report carries it."""
BY_SOCKET = ("align-by-socket", "true")
"""With it a set of zones within a socket may be preferred, and CPUs come from all of it."""

_ENCODER = msgspec.msgpack.Encoder()


class Part(msgspec.Struct, frozen=True, gc=False):
    """What goes into one zone (or zone set) together. `name` is the container, "" for the whole
    pod.
    """

    name: str
    kind: ContainerKind
    amounts: Amounts


class Plan(msgspec.Struct, frozen=True):
    """A shape on a profile. `mode`: `free` (nothing pinned), `aligned` (each part in one zone set),
    `unaligned` (policy none or best-effort: totals, and memory by zone). `parts` are in the
    kubelet's order, `kinds` their distinct amounts with how many parts ask for each. `together` is
    what all parts hold at once, empty where one zone with that much would not be enough to be sure
    (init containers, whole cores, memory outside the pod's hint). `inits` says that the pod has
    init containers with a demand, `names` which containers have one, `demand` container by
    container. `placeless`: some devices of these lie in no zone, and serve whoever may take from
    anywhere. `one_by_one`: no bound decides, as some provider looks at more than amounts, devices
    that are asked for lie in several zones at once, devices are named and not asked for, memory is
    outside the pod's hint, CPUs are aligned by socket, or the pod `may_be_split`: where no zone
    holds its containers together each may take one of its own, so that no bound refuses it, while
    one that admits it holds. `running` parts hold what they ask for at the same time, and each of
    them asks for at least `least`, which is empty where there are no two such parts."""

    mode: str
    rule: policy.Rule
    parts: tuple[Part, ...] = ()
    whole_cores: bool = False
    kinds: tuple[tuple[Items, int], ...] = ()
    together: Amounts = {}
    inits: bool = False
    names: tuple[str, ...] = ()
    demand: tuple[ContainerDemand, ...] = ()
    placeless: frozenset[str] = frozenset()
    one_by_one: bool = False
    may_be_split: bool = False
    running: int = 0
    least: Amounts = {}


class PlanOnNodes:
    """One plan of a shape, on the nodes of all profiles where it is the same, whose layouts have at
    most so many zones. `barred`: they are, whatever they have free. `sweep` is what looks at many
    of them at once, `made_for` columns of that make."""

    __slots__ = ("barred", "made_for", "plan", "sweep", "zones")

    def __init__(self, plan: Plan, barred: bool) -> None:
        self.plan, self.barred, self.zones = plan, barred, 0
        self.sweep: Any = None
        self.made_for: object = None

    def widen(self, zones: int) -> None:
        """Nodes of so many zones are among them."""
        self.zones = max(self.zones, zones)


class PodClass:
    """The shape, its node-level request and its plans so far. `row` is its row on the table of
    verdicts. `evenly` names the resources that it could ask of zones, where all its containers ask
    for the same."""

    __slots__ = (
        "asked", "deltas", "evenly", "key", "kind", "planned", "plans", "pod", "problem", "refusals", "request", "requested",
        "row", "swept", "undecided", "unplaceable", "untold", "wanted", "zonal",
    )  # fmt: skip

    def __init__(self, key: str, pod: Pod, row: int) -> None:
        self.key, self.pod, self.row = key, pod, row
        own = policy.pod_policy(pod)
        self.wanted = own.policy
        self.kind = kind_of(pod)
        self.request = {name: held for name, held in self.kind.request.items() if held > 0} | {
            PODS: 1
        }
        self.problem = _absurd(pod) or own.problem
        self.plans: dict[Profile, Plan] = {}
        every = {
            name
            for container in pod.containers
            for name in (*container.requests, *container.limits)
        }
        parts = [part.amounts for part in zonal_demand(pod, every)]
        self.zonal = bool(parts)
        self.evenly = tuple(parts[0]) if parts and all(part == parts[0] for part in parts) else ()
        self.asked = {name: held for name, held in self.request.items() if name != PODS}
        self.requested = {**self.kind.request, PODS: 1}
        self.deltas: dict[int, tuple[ZoneAmounts, tuple[int, int, int], ReservationArrays]] = {}
        self.planned: dict[int, PlanOnNodes] = {}
        self.swept = False
        self.undecided: dict[int, int] = {}
        self.unplaceable: tuple[int, Unplaceable] | None = None
        self.untold: dict[int, int] = {}
        self.refusals: dict[str, tuple[tuple[int, int], NodeObserved | None, Refusal]] = {}

    def plan(self, profile: Profile) -> Plan:
        """The shape's plan on nodes of this profile."""
        found = self.plans.get(profile)
        if found is None:
            rule = policy.combined(profile[1], self.wanted)
            found = self.plans[profile] = _plan(self.kind.demand(profile[2]), rule, profile)
        return found

    def demand(self, tracked: tuple[str, ...]) -> tuple[ContainerDemand, ...]:
        """What the ledger will charge on a node that tracks these resources."""
        return self.kind.demand(tracked)


def without_kept(pod: Pod) -> Pod:
    """The pod without what constraints keep of it."""
    if not pod.constraints.kept:
        return pod
    return msgspec.structs.replace(
        pod, constraints=msgspec.structs.replace(pod.constraints, kept={})
    )


def key_of(pod: Pod) -> str:
    """Equal text for pods that every node judges alike."""
    wanted = pod.annotations.get(policy.POD_ANNOTATION, "")
    parts = (pod.containers, pod.qos, pod.overhead, pod.pod_level, pod.constraints, wanted)
    try:
        encoded = _ENCODER.encode(parts)
    except OverflowError:
        encoded = repr(parts).encode()
    return xxhash.xxh3_128_hexdigest(encoded)


def _absurd(pod: Pod) -> str:
    named = [
        (f"container {c.name}", kind, held)
        for c in pod.containers
        for kind, held in _amounts_of(c.requests, c.limits)
    ]
    named += [("pod", kind, held) for kind, held in _amounts_of(pod.overhead, pod.pod_level or {})]
    for where, name, held in named:
        if held < 0:
            return f"{where} asks for a negative amount of {name}: {held}"
        if held >= ABSURD:
            return f"{where} asks for an absurd amount of {name}: {held}"
    return ""


def _amounts_of(*many: Amounts) -> list[tuple[str, int]]:
    return [(name, held) for amounts in many for name, held in amounts.items()]


def _plan(demand: tuple[ContainerDemand, ...], rule: policy.Rule, profile: Profile) -> Plan:
    """How the demand is aligned on nodes of this profile."""
    options = profile[3]
    if not demand:
        return Plan("free", rule)
    whole_cores = WHOLE_CORES in options and any(CPU in part.amounts for part in demand)
    mode = (
        "aligned"
        if rule.policy in (policies.SINGLE_NUMA_NODE, policies.RESTRICTED)
        else "unaligned"
    )
    parts = _parts(demand, rule)
    kinds = tuple(Counter(tuple(part.amounts.items()) for part in parts).items())
    forcing, beyond = (
        len(parts) > 1 and any(part.kind == "init" for part in parts),
        _whole_pod(rule) and outside_pod_hint(demand),
    )
    together = {} if whole_cores or forcing or beyond else _sum(parts)
    inits, names = any(part.kind == "init" for part in demand), tuple(part.name for part in demand)
    placeless = frozenset(profile[5]) if mode == "unaligned" else frozenset[str]()
    by_hints = rule.policy != policies.NONE and (BY_SOCKET in options or draws_by_zeros(demand))
    one_by_one = (
        beyond
        or by_hints
        or any(
            name in profile[6] or beyond_amounts(name) for part in demand for name in part.amounts
        )
    )
    split = (
        not one_by_one and rule.source == "report" and may_be_split(demand, rule.policy, rule.scope)
    )
    running = [part.amounts for part in parts if part.kind != "init"]
    least = _least(running) if len(running) > 1 else {}
    return Plan(
        mode, rule, parts, whole_cores, kinds, together, inits, names, demand, placeless, one_by_one or split, split,
        len(running), least,
    )  # fmt: skip


def _whole_pod(rule: policy.Rule) -> bool:
    return rule.scope == "pod" and rule.policy != policies.NONE


def _sum(parts: tuple[Part, ...]) -> Amounts:
    total: Amounts = {}
    for part in parts:
        for name, amount in part.amounts.items():
            total[name] = total.get(name, 0) + amount
    return total


def _least(many: list[Amounts]) -> Amounts:
    """Of what all ask for."""
    return {
        name: min(each[name] for each in many)
        for name in many[0]
        if all(name in each for each in many)
    }


def _parts(demand: tuple[ContainerDemand, ...], rule: policy.Rule) -> tuple[Part, ...]:
    if _whole_pod(rule):
        return (Part("", "app", peak(demand)),)
    return tuple(Part(d.name, d.kind, d.amounts) for d in demand if d.amounts)
