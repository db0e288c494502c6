"""What a pod asks of a node whose zones Topolog chooses.

`shared.owned.request` reads Koordinator's keys. In addition, a pod without a priority class counts
as prod unless its priority is one of koord-mid, koord-batch or koord-free, and a Guaranteed pod
with whole CPUs gets a set only where a policy is in force.
"""

from __future__ import annotations

import msgspec

from services.scheduler.snapshot.owners import is_owned_resource
from services.scheduler.snapshot.topology_policy import PodPolicy
from shared.domain.pod import Pod
from shared.domain.policies import NONE
from shared.domain.resources import Amounts
from shared.domain.zone_allocation import RESOURCE_SPEC
from shared.owned.device_request import ALLOCATE_HINT, JOINT_ALLOCATE, PARTITION_SPEC
from shared.owned.request import (
    PRIORITY_LABEL,
    QOS_LABEL,
    PodSpecError,
    request_of,
    resource_spec,
)
from shared.owned.values import OwnedRequest

# Priorities of koord-mid, koord-batch and koord-free pods.
NOT_PROD = range(3000, 8000)
# Keys about zones and CPUs, about devices, and all. Most pods have none of them, so that callers
# ask for them first.
ZONE_KEYS = {QOS_LABEL, RESOURCE_SPEC}
DEVICE_KEYS = ALLOCATE_HINT, JOINT_ALLOCATE, PARTITION_SPEC
KEYS = {*ZONE_KEYS, *DEVICE_KEYS}


def key_values(pod: Pod) -> tuple[str, ...]:
    """Return the values that distinguish the requests of pods with equal containers if a pod has
    one of `KEYS`.
    """
    spec, labels = pod.annotations.get(RESOURCE_SPEC, ""), _labels(pod)
    of_devices = [f"{key}={pod.annotations[key]}" for key in DEVICE_KEYS if key in pod.annotations]
    return spec, labels.get(QOS_LABEL, ""), labels.get(PRIORITY_LABEL, ""), *of_devices


def problem_of(pod: Pod) -> str:
    """Return the error in the pod's annotation on CPUs, "" for nothing."""
    try:
        resource_spec(pod.annotations)
    except PodSpecError as error:
        return f"annotation {error}"
    return ""


def owned_request(pod: Pod, amounts: Amounts, wanted: PodPolicy, node_policy: str) -> OwnedRequest:
    """Return the request of a pod whose node has this policy; `amounts` are the whole pod's.
    `problem_of` must have found nothing."""
    owned = {name: size for name, size in amounts.items() if size > 0 and is_owned_resource(name)}
    is_in_force = (wanted.policy or node_policy) != NONE
    is_guaranteed = pod.qos == "Guaranteed" and is_in_force
    request = request_of(owned, _labels(pod), pod.annotations, is_guaranteed=is_guaranteed)
    if wanted.policy and request.policy is None:  # Volcano's annotation
        request = msgspec.structs.replace(request, policy=wanted.policy)
    return request


def _labels(pod: Pod) -> dict[str, str]:
    if pod.priority in NOT_PROD and PRIORITY_LABEL not in pod.labels:
        return {**pod.labels, PRIORITY_LABEL: "koord-mid"}
    return pod.labels
