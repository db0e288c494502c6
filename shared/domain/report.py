"""The report of one node at one moment: zones, placements, policy, fingerprint and time.

A report is a value. `Freshness` decides whether it is newer than another; topology-store decides
whether to believe it. This module does not know gRPC, sysfs or NodeResourceTopology objects.
"""

from __future__ import annotations

import msgspec

from shared.domain.cpus import CpuLayout
from shared.domain.policies import NONE
from shared.domain.resources import Amounts

# A report on the bus, as JSON: 1,700 containers that each hold CPUs, memory and a device fit.
MAX_REPORT_BYTES = 512 << 10
# A policy that the exporter could not read. Such a node accepts no pod that needs alignment.
UNKNOWN = "unknown"


# Container name of the entry for what a pod holds beyond its listed containers, and of the one
# entry of a pod in a report that was cut to its size limit.
POD_LEVEL = ""
# The kubelet's feature gate by which its managers serve pods with resources of their own.
POD_LEVEL_GATE = "PodLevelResourceManagers"
# `exporter` of reports that come from koordlet's objects.
KOORDLET = "koordlet"
# `source` of reports that come from NodeResourceTopology objects.
OBJECT = "nrt"


class ZoneResource(msgspec.Struct, frozen=True, gc=False):
    """One resource of one zone, in the unit of `shared.domain.resources`."""

    capacity: int
    allocatable: int
    available: int


class Zone(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A NUMA zone. `id` is the kernel's node id (ids may be sparse). `costs` is the SLIT distance
    by zone id (10 = local).

    `bounds` is the most that the zone has of resources that no manager pins to zones: CPUs without
    the static CPU Manager, memory and hugepages without the Static Memory Manager. It comes from
    /sys and no manager accounts for it. `offered` is the part of `bounds` that pods may have, as
    the kubelet's configuration reserves the rest; empty if that is unknown.

    `free` is the Memory Manager's own figure by resource, if its checkpoint was read. Holdings of
    ended pods and init containers count as taken (`Report.hidden`), and a block over several zones
    counts as it was split. `available` counts such a block in full in each of its zones.

    `group` are the zones, itself included, that share memory blocks with this one by that
    checkpoint; empty if there are none.
    """

    id: int
    resources: dict[str, ZoneResource] = {}
    costs: dict[int, int] = {}
    bounds: dict[str, int] = {}
    offered: dict[str, int] = {}
    free: dict[str, int] = {}
    group: tuple[int, ...] = ()


class ZonedAmount(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """An amount held in a set of zones. CPUs and devices have one entry per set of zones.

    A memory block may span several zones; podresources does not report the split. `ids` names the
    CPUs (a Linux list) or devices (`shared.domain.idlist`). It is empty for memory and in reports
    of older exporters.
    """

    resource: str
    zones: tuple[int, ...]
    amount: int
    ids: str = ""


class ClaimedDevice(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A device that a container has through a claim (dynamic resource allocation).

    `claim` is `namespace/name`. `device` is empty for a claim without listed devices. `cdi` are the
    names that the runtime uses for it. `share` is set if the device is one of several shares.
    """

    claim: str
    driver: str = ""
    pool: str = ""
    device: str = ""
    share: str = ""
    cdi: tuple[str, ...] = ()


class Placement(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The holdings of one listed container.

    `held` is empty for a container that holds nothing exclusive *or is not admitted yet* (kubelet
    1.36 lists pods before and during their admission). `pod_uid` is known only from checkpoints.

    podresources never lists an ordinary init container. Its placement comes from the checkpoints
    and has only the amounts that no other container of the pod holds, so an empty one means that
    later containers took all of it over. Other containers that hold nothing have no entry, except
    the first one of a pod that holds nothing at all. A report that would exceed its size limit has
    one entry for each of its largest pods (`POD_LEVEL`), or no placements at all.
    """

    namespace: str
    pod: str
    container: str
    held: tuple[ZonedAmount, ...] = ()
    pod_uid: str = ""
    claims: tuple[ClaimedDevice, ...] = ()


class DeviceGroup(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Devices of one resource in the same zones. `zones` is empty if the plugin names no zone.

    `ids` are the devices that may be allocated. `unhealthy` are devices that a container holds
    although they may not be allocated any more (`shared.domain.idlist`).
    """

    resource: str
    zones: tuple[int, ...] = ()
    ids: str = ""
    unhealthy: str = ""


class DynamicGroup(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Devices of one pool that a driver publishes for claims (ResourceSlice), in the same zones.

    `zones` is empty if no source names one. `ids` may be allocated whole, `withheld` are tainted,
    `shared` are allocated in parts and cannot be counted as devices (`shared.domain.idlist`).
    """

    driver: str
    pool: str
    zones: tuple[int, ...] = ()
    ids: str = ""
    withheld: str = ""
    shared: str = ""


class Freshness(msgspec.Struct, frozen=True, order=True):
    """When a report was true: monotonic milliseconds since boot, taken before List. Comparable only
    within one boot.
    """

    boot_id: str
    boot_time_ms: int


class Report(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The state of one node. `placements` is None if the source gives none (an RTE or NFD object).

    `tracked` names the resources that this node's managers pin: cpu with the static CPU Manager,
    memory and hugepages with the Static Memory Manager, device resources with topology. Only these
    can be confirmed by a placement.

    `fingerprint_method` is `all` or `with-exclusive-resources`. `fingerprint` is empty if the
    source computes none.

    `policy` is `unknown` if the exporter could not read it. `options` are those of the Topology
    Manager and the CPU Manager (disjoint names), and the feature gate PodLevelResourceManagers if
    it is on. `cpu_policy` (none, static) and `memory_policy`
    (None, Static) are `unknown` in reports of older exporters. `reserved_cpus` are the CPUs that
    no container gets for itself, as a Linux list: by the static CPU Manager, or without it by
    reservedSystemCPUs. If the kubelet version is unknown,
    `kubelet_version` is empty and `cpus` and `devices` are None.

    `checkpoints` names the managers whose checkpoint was read together with the list (`cpu`,
    `memory`, `devices`). Without it, holdings that podresources hides are unknown. `hidden` are the
    holdings in those checkpoints beyond the placements, which `available` does not include: memory
    of init containers (freed when a later container starts), and the holdings of a `pod_uid` that
    matches no listed pod. Such an entry has no namespace and name: the pod ended, was rejected, or
    holds nothing that distinguishes it.

    `dynamic` are the devices of drivers for claims; None if the exporter does not read them.
    `Placement.claims` has the allocated ones; `shared.domain.dynamic` counts both by zone.

    `container_zones` has the zone of each container that holds something exclusive, in the order of
    the containers' hashes (`shared.kubelet.fingerprint`). Its reader must know the same containers.
    None if the source gives no such list.

    `unlisted` are tracked resources of which neither `placements` nor `available` show what pods
    hold, because the source does not say so. It is not known either whether a manager pins them.

    `source` is `bus` (the node's own exporter) or `nrt` (a NodeResourceTopology object of another
    exporter). `counts_blocks_in_full` is False if `available` may count a memory block over several
    zones otherwise than in full in each of them (NFD, or an unknown exporter).

    `enforcer` is what keeps containers in the zones that a scheduler chooses (`topolog`,
    `koordlet`), empty for nothing, and `unknown` in reports of older exporters. `enforced` is what
    it says that containers have: CPUs by id and memory by zones, without amounts of memory. None
    without such a statement.
    """

    node: str
    boot_id: str
    boot_time_ms: int
    exporter: str = ""
    policy: str = NONE
    scope: str = "container"
    options: dict[str, str] = {}
    max_numa_nodes: int = 8
    tracked: tuple[str, ...] = ()
    zones: tuple[Zone, ...] = ()
    placements: tuple[Placement, ...] | None = None
    fingerprint: str = ""
    fingerprint_method: str = ""
    kubelet_version: str = ""
    cpu_policy: str = UNKNOWN
    memory_policy: str = UNKNOWN
    reserved_cpus: str = ""
    cpus: CpuLayout | None = None
    devices: tuple[DeviceGroup, ...] | None = None
    checkpoints: tuple[str, ...] = ()
    hidden: tuple[Placement, ...] = ()
    dynamic: tuple[DynamicGroup, ...] | None = None
    source: str = "bus"
    counts_blocks_in_full: bool = True
    container_zones: tuple[int, ...] | None = None
    unlisted: tuple[str, ...] = ()
    enforcer: str = UNKNOWN
    enforced: tuple[Placement, ...] | None = None

    @property
    def freshness(self) -> Freshness:
        """The time at which this report was true."""
        return Freshness(self.boot_id, self.boot_time_ms)

    @property
    def pod_level_scope(self) -> str:
        """How the managers serve pods with resources of their own: in scope `pod`, in scope
        `container`, or not at all ("")."""
        if self.options.get(POD_LEVEL_GATE) != "true":
            return ""
        return "pod" if self.scope == "pod" and self.policy != NONE else "container"


def available(zone: Zone) -> Amounts:
    """Return the zone's available amounts by resource name, sorted."""
    return {name: zone.resources[name].available for name in sorted(zone.resources)}
