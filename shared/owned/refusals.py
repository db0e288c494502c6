"""Refusals of nodes whose zones Topolog chooses. The phrases are Koordinator's, because people
search for them.
"""

from __future__ import annotations

from shared.domain.policies import SINGLE_NUMA_NODE, Policy
from shared.domain.refusal import Reason, Refusal, ZoneState
from shared.domain.resources import CPU
from shared.owned.free import Free
from shared.owned.values import OwnedNode, OwnedRequest

NOT_WHOLE_CPUS = "CPU set of a fraction of a CPU"
NO_CPU_LAYOUT = "layout of CPUs unknown"
BIND_CONFLICT = "CPU bind policy does not match"


def policy_mismatch(node: OwnedNode, request: OwnedRequest) -> Refusal:
    return Refusal(
        node.name,
        Reason.POLICY_MISMATCH,
        subject=f"pod wants {request.policy}, node has {node.policy}",
        policy=node.policy,
        scope="pod",
        remedy="change the pod's annotation, or use nodes of that policy",
        phrase="node(s) NUMA Topology policy not match",
    )


def not_whole_cpus(node: OwnedNode, request: OwnedRequest) -> Refusal:
    remedy = "request whole CPUs, or CPUs that are shared"
    return _of_cpus(node, request, NOT_WHOLE_CPUS, "the requested CPUs must be integer", remedy)


def no_cpu_layout(node: OwnedNode, request: OwnedRequest) -> Refusal:
    remedy = "see why the node's report has no CPU layout, or request CPUs that are shared"
    return _of_cpus(node, request, NO_CPU_LAYOUT, "node(s) invalid CPU Topology", remedy)


def bind_conflict(node: OwnedNode, request: OwnedRequest) -> Refusal:
    phrase = "node(s) cpu bind policy conflicts with pod's required cpu bind policy"
    remedy = "drop requiredCPUBindPolicy of the pod, or use nodes without another cpu-bind-policy"
    return _of_cpus(node, request, BIND_CONFLICT, phrase, remedy)


def no_full_cores(node: OwnedNode, request: OwnedRequest) -> Refusal:
    phrase = "node(s) requested cpus not multiple cpus per core"
    remedy = "request a multiple of the CPUs per core, or another CPU bind policy"
    return _of_cpus(node, request, Reason.SMT_ALIGNMENT, phrase, remedy)


def too_few_cpus(node: OwnedNode, request: OwnedRequest, available: int) -> Refusal:
    """Refuse a CPU set, because too few of the `available` CPUs can be chosen."""
    return Refusal(
        node.name,
        Reason.TOO_LITTLE_FREE,
        resource=CPU,
        asked=request.amounts.get(CPU, 0),
        best=1000 * available.bit_count(),
        phrase="not enough cpus available to satisfy request",
    )


def no_zones(node: OwnedNode, policy: Policy) -> Refusal:
    return Refusal(
        node.name,
        Reason.NO_ZONES,
        policy=policy,
        remedy="see why the exporter finds no NUMA nodes there",
        phrase="node(s) missing NUMA resources",
    )


def insufficient(
    node: OwnedNode, free: Free, request: OwnedRequest, resource: str, policy: Policy, width: int
) -> Refusal:
    """Refuse a pod, because no set of `width` zones has the resource."""
    is_single = policy == SINGLE_NUMA_NODE
    width = 1 if is_single else width
    by_zone = {zone: free.amounts[zone].get(resource, 0) for zone in free.zones}
    best_zone = max(by_zone, key=lambda zone: (by_zone[zone], -zone), default=None)
    return Refusal(
        node.name,
        Reason.NO_SINGLE_ZONE if is_single else Reason.NO_ZONE_SET,
        resource=resource,
        asked=request.amounts.get(resource, 0),
        best=sum(sorted(by_zone.values(), reverse=True)[:width]),
        best_zone=best_zone if is_single else None,
        zones=tuple(
            ZoneState(zone, amount, amount, free.capacity[zone].get(resource, 0))
            for zone, amount in by_zone.items()
            if resource in free.capacity[zone]
        ),
        policy=policy,
        scope="pod",
        phrase=f"Insufficient NUMA {resource}" if resource else "",
    )


def no_devices(node: OwnedNode, phrase: str) -> Refusal:
    return Refusal(
        node.name,
        Reason.NODE_RESOURCE,
        subject="devices",
        phrase=phrase,
        remedy="necessary: pods of the node give back devices, or the pod requests others",
    )


def _of_cpus(
    node: OwnedNode, request: OwnedRequest, reason: str, phrase: str, remedy: str
) -> Refusal:
    asked = request.amounts.get(CPU, 0)
    return Refusal(node.name, reason, resource=CPU, asked=asked, remedy=remedy, phrase=phrase)


def not_apart(node: OwnedNode, free: Free, policy: Policy) -> Refusal:
    """Refuse a pod for which each resource has enough zones, but no set of zones has all of its
    resources and devices and keeps singleNUMANodeExclusive.
    """
    use = ", ".join(f"zone {zone} is {used}" for zone, used in free.use.items())
    subject = f"no zones fit all resources and keep singleNUMANodeExclusive ({use})"
    remedy = "necessary: room for all resources in the same zones, away from pods of the other kind"
    return _not_together(node, policy, subject, remedy)


def not_in_one_zone(node: OwnedNode, devices: str) -> Refusal:
    """Refuse a pod whose devices of a type no single zone has free."""
    subject = f"no zone has the requested {devices} devices free"
    remedy = f"request fewer {devices} devices, or a policy that allows several zones"
    return _not_together(node, SINGLE_NUMA_NODE, subject, remedy)


def _not_together(node: OwnedNode, policy: Policy, subject: str, remedy: str) -> Refusal:
    reason = Reason.NO_SINGLE_ZONE if policy == SINGLE_NUMA_NODE else Reason.NO_ZONE_SET
    return Refusal(node.name, reason, subject, policy=policy, scope="pod", remedy=remedy)
