"""A pod's request, read from its labels and annotations.

1. Koordinator's QoS classes LSE and LSR get a CPU set if the priority class is koord-prod, which is
   their default. Every other class has a share. Without a class, a Guaranteed pod whose CPU request
   is a whole number gets a set if the caller asks for it (`sets_for_guaranteed`).

2. The required bind policy comes first, then the preferred one; `Default` and an absent one are the
   configured default.

Source: Koordinator a7a1b76b, apis/extension and plugins/nodenumaresource (PreFilter).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar, cast

import msgspec

from shared.domain.policies import NONE, Policy, parse
from shared.domain.resources import CPU, Amounts
from shared.domain.zone_allocation import RESOURCE_SPEC
from shared.owned.values import (
    FULL_PCPUS,
    NUMA_NODE_LEVEL,
    PCPU_LEVEL,
    REQUIRED,
    SPREAD_BY_PCPUS,
    BindPolicy,
    CpuExclusive,
    OwnedRequest,
    ZoneExclusive,
)

QOS_LABEL = "koordinator.sh/qosClass"
PRIORITY_LABEL = "koordinator.sh/priority-class"
NUMA_TOPOLOGY_SPEC = "scheduling.koordinator.sh/numa-topology-spec"

_SET_CLASSES = ("LSE", "LSR")
_KNOWN_CLASSES = (*_SET_CLASSES, "LS", "BE", "SYSTEM")
_PROD = "koord-prod"
_Spec = TypeVar("_Spec", bound=msgspec.Struct)
_BINDS = (FULL_PCPUS, SPREAD_BY_PCPUS)


class ResourceSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """The annotation `resource-spec`, fields in the order in which Koordinator writes them."""

    required: str = msgspec.field(default="", name="requiredCPUBindPolicy")
    preferred: str = msgspec.field(default="", name="preferredCPUBindPolicy")
    exclusive: str = msgspec.field(default="", name="preferredCPUExclusivePolicy")


class TopologySpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """The annotation `numa-topology-spec`."""

    policy: str = msgspec.field(default="", name="numaTopologyPolicy")
    exclusive: str = msgspec.field(default="", name="singleNUMANodeExclusive")


class PodSpecError(ValueError):
    """An annotation of the pod that cannot be read or kept. The message names it."""


def request_of(
    amounts: Amounts,
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
    default_bind: BindPolicy = FULL_PCPUS,
    is_guaranteed: bool = False,
) -> OwnedRequest:
    """Return the request of a pod. Raises PodSpecError.

    `is_guaranteed` gives a pod without a QoS class of Koordinator a CPU set if its CPU request is a
    whole number.
    """
    spec = resource_spec(annotations)
    topology = decoded(annotations, NUMA_TOPOLOGY_SPEC, TopologySpec)
    parsed = parse(topology.policy)
    if parsed is None:
        raise PodSpecError(f"{NUMA_TOPOLOGY_SPEC}: unknown numaTopologyPolicy {topology.policy!r}")
    if topology.exclusive not in ("", "Preferred", REQUIRED):
        problem = f"unknown singleNUMANodeExclusive {topology.exclusive!r}"
        raise PodSpecError(f"{NUMA_TOPOLOGY_SPEC}: {problem}")
    qos, priority = labels.get(QOS_LABEL, ""), labels.get(PRIORITY_LABEL, "")
    if qos not in _KNOWN_CLASSES and is_guaranteed and not amounts.get(CPU, 0) % 1000:
        qos, priority = "LSR", _PROD
    takes_set, bind, is_required = cpu_binding(
        qos, priority, spec.required, spec.preferred, default_bind
    )
    return OwnedRequest(
        amounts,
        policy=None if parsed[0] == NONE else cast(Policy, parsed[0]),
        zone_exclusive=cast(ZoneExclusive, topology.exclusive),
        takes_cpu_set=takes_set,
        bind=bind,
        bind_is_required=is_required,
        cpu_exclusive=exclusive_policy(spec) if takes_set else "",
    )


def cpu_binding(
    qos: str, priority_class: str, required: str, preferred: str, default: BindPolicy
) -> tuple[bool, BindPolicy, bool]:
    """Return whether the pod takes a CPU set, by which bind policy, and whether it is required."""
    if qos not in _SET_CLASSES or priority_class not in ("", _PROD):
        return False, "", False
    bind = default if preferred in ("", "Default") else preferred
    if required:
        bind = default if required == "Default" else required
    if bind not in _BINDS:
        return False, "", False
    return True, cast(BindPolicy, bind), bool(required)


def resource_spec(annotations: Mapping[str, str]) -> ResourceSpec:
    """Return the annotation `resource-spec`. Raises PodSpecError."""
    return decoded(annotations, RESOURCE_SPEC, ResourceSpec)


def exclusive_policy(spec: ResourceSpec) -> CpuExclusive:
    """Return the exclusive policy; an unknown one has no effect, as in Koordinator."""
    is_known = spec.exclusive in ("None", PCPU_LEVEL, NUMA_NODE_LEVEL)
    return cast(CpuExclusive, spec.exclusive) if is_known else ""


def decoded(annotations: Mapping[str, str], key: str, kind: type[_Spec]) -> _Spec:
    """Return the JSON value of an annotation. Raises PodSpecError."""
    text = annotations.get(key, "")
    try:
        return msgspec.json.decode(text, type=kind) if text else kind()
    except (msgspec.MsgspecError, RecursionError) as error:
        raise PodSpecError(f"{key}: {error}") from error
