"""What a pod holds on a node whose zones Topolog chooses, as events and annotations carry it.

The annotations are Koordinator's, so that koordlet enforces what Topolog chose. Source: Koordinator
a7a1b76b, apis/extension/resource.go.
"""

from __future__ import annotations

import msgspec

from shared.domain.quantity import format_amount
from shared.domain.resources import Amounts

RESOURCE_STATUS = "scheduling.koordinator.sh/resource-status"
MEMORY_POLICY = "node.koordinator.sh/numa-memory-policy"
RESOURCE_SPEC = "scheduling.koordinator.sh/resource-spec"


class ZoneAllocation(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Amounts by zone, and the pod's own CPUs.

    `cpus` is a Linux list; empty for a pod that shares the CPUs of its zones. The CPUs are counted
    in `zones`, too. `cpu_exclusive` keeps other sets with the same policy away from their cores or
    zones. `resource_spec` is the value of Koordinator's annotation resource-spec for the pod, if it
    left open how its CPUs are bound. `memory_policy` is `bind` if its memory may come from `zones`
    only.
    """

    zones: dict[int, Amounts] = {}
    cpus: str = ""
    cpu_exclusive: str = ""
    resource_spec: str = ""
    memory_policy: str = ""


class _Zone(msgspec.Struct, frozen=True):
    node: int
    resources: dict[str, str] = {}


class _Status(msgspec.Struct, frozen=True, omit_defaults=True):
    cpuset: str = ""
    zones: tuple[_Zone, ...] = msgspec.field(default=(), name="numaNodeResources")


def annotations_of(allocation: ZoneAllocation) -> dict[str, str]:
    """Return the pod's annotations for this allocation."""
    zones = tuple(
        _Zone(zone, {name: format_amount(name, size) for name, size in sorted(amounts.items())})
        for zone, amounts in sorted(allocation.zones.items())
    )
    status = msgspec.json.encode(_Status(allocation.cpus, zones)).decode()
    made = {RESOURCE_STATUS: status}
    if allocation.resource_spec:
        made[RESOURCE_SPEC] = allocation.resource_spec
    if allocation.memory_policy:
        made[MEMORY_POLICY] = allocation.memory_policy
    return made
