"""What an exporter says about one node at one moment: zones, placements, policy, fingerprint, and
when it was true.

A report is a value; whether it is newer than another is decided here (`Freshness`), whether it is
believed is the topology-store's matter. This module must not know gRPC, sysfs or
NodeResourceTopology objects.
"""

from __future__ import annotations

import msgspec

from shared.domain.cpus import CpuLayout
from shared.domain.policies import NONE
from shared.domain.resources import Amounts

MAX_REPORT_BYTES = 512 << 10
"""Of a report on the bus, in JSON: 1,700 containers that each hold CPUs, memory and a device."""
UNKNOWN = "unknown"
"""A policy that nobody told the exporter: such a node takes no pod that needs alignment."""


class ZoneResource(msgspec.Struct, frozen=True, gc=False):
    """One resource of one zone; integers in the unit of `shared.domain.resources`."""

    capacity: int
    allocatable: int
    available: int


class Zone(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A NUMA zone: `id` is the kernel's node id (ids may be sparse), `costs` the SLIT distance by
    zone id (10 = local).

    `bounds` is what the zone has at most of resources that no manager pins to zones (CPUs without
    the static CPU Manager, memory and hugepages without the Static Memory Manager): from /sys, not
    accounted by anybody. `free` is the Memory Manager's own figure by resource, where its
    checkpoint was read: what ended pods and init containers hold counts as taken (`Report.hidden`),
    a block over several zones as it was split. `available` counts such a block in full in each of
    its zones. `group` are the zones that it shares memory blocks with by that checkpoint, itself
    among them; empty where it shares none.
    """

    id: int
    resources: dict[str, ZoneResource] = {}
    costs: dict[int, int] = {}
    bounds: dict[str, int] = {}
    free: dict[str, int] = {}
    group: tuple[int, ...] = ()


class ZonedAmount(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """An amount held in a set of zones. CPUs and devices come one entry a set of zones; a memory
    block may span several zones without saying how it is split (podresources has no split). `ids`
    names the CPUs (a Linux list) or devices (`shared.domain.idlist`); empty for memory and in
    reports of older exporters."""

    resource: str
    zones: tuple[int, ...]
    amount: int
    ids: str = ""


class ClaimedDevice(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A device that a container has by a claim (dynamic resource allocation). `claim` is
    `namespace/name`; `device` is empty for a claim of which nothing is listed. `cdi` are the names
    by which the runtime puts it into the container; `share` is set where the device is one of
    several shares."""

    claim: str
    driver: str = ""
    pool: str = ""
    device: str = ""
    share: str = ""
    cdi: tuple[str, ...] = ()


class Placement(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What one listed container holds. `held` is empty for a container that holds nothing exclusive
    *or is not admitted yet* (kubelet 1.36: pods are listed before and during their admission).
    `pod_uid` is known only from checkpoints.

    An ordinary init container is never listed by podresources; its placement comes from the
    checkpoints and holds what no other container of the pod holds too, so an empty one says that
    all of it was taken over by later containers."""

    namespace: str
    pod: str
    container: str
    held: tuple[ZonedAmount, ...] = ()
    pod_uid: str = ""
    claims: tuple[ClaimedDevice, ...] = ()


class DeviceGroup(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Devices of one resource that lie in the same zones; none where the plugin names no zone.
    `ids` are those that may be handed out, `unhealthy` those that a container holds although they
    may not be handed out any more (`shared.domain.idlist`)."""

    resource: str
    zones: tuple[int, ...] = ()
    ids: str = ""
    unhealthy: str = ""


class DynamicGroup(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Devices that a driver publishes for claims (ResourceSlice), of one pool, in the same zone;
    none where nobody names one. `ids` may be given away whole, `withheld` are tainted; `shared` are
    given away in parts, which nobody can count as devices (`shared.domain.idlist`)."""

    driver: str
    pool: str
    zones: tuple[int, ...] = ()
    ids: str = ""
    withheld: str = ""
    shared: str = ""


class Freshness(msgspec.Struct, frozen=True, order=True):
    """When a report was true: monotonic milliseconds since boot, taken before List. Comparable
    within one boot only.
    """

    boot_id: str
    boot_time_ms: int


class Report(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The state of one node. `placements` is None when the source gives none (an RTE or NFD
    object).

    `tracked` names the resources that this node's managers pin (cpu with the static CPU Manager,
    memory and hugepages with the Static Memory Manager, device resources with topology): only those
    can be proven by a placement. `fingerprint_method` is `all` or `with-exclusive-resources`;
    `fingerprint` is empty when the source computes none.

    `policy` is `unknown` where nobody told the exporter; `options` are those of the Topology and
    the CPU Manager (disjoint names). `cpu_policy` (none, static) and `memory_policy` (None, Static)
    are `unknown` in reports of older exporters. `reserved_cpus` are those that the static CPU
    Manager never gives away, as a Linux list. `kubelet_version` is empty where it is not known,
    `cpus` and `devices` are None then. `checkpoints` names the managers whose checkpoint was read
    together with the list (`cpu`, `memory`, `devices`): without it, what podresources hides is not
    known. `hidden` is what those checkpoints say beyond the placements, and is not counted in
    `available`: memory of init containers (freed when a later container starts), and all that a
    `pod_uid` holds that matches no listed pod (then without namespace and name: that pod ended, was
    rejected, or holds nothing by which it could be told from others). `dynamic` are the devices of
    drivers for claims; None where nobody asked for them. What of them is held stands in
    `Placement.claims`; `shared.domain.dynamic` counts both by zone. `source` is `bus` (the node's
    own exporter) or `nrt` (a NodeResourceTopology object of another exporter).
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

    @property
    def freshness(self) -> Freshness:
        """When this report was true."""
        return Freshness(self.boot_id, self.boot_time_ms)


def available(zone: Zone) -> Amounts:
    """The zone's available amounts by resource name, sorted."""
    return {name: zone.resources[name].available for name in sorted(zone.resources)}
