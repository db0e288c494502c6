"""What an exporter says about one node at one moment: zones, placements, policy, fingerprint, and when it was true.

A report is a value; whether it is newer than another is decided here (`Freshness`), whether it is believed is the
topology-store's matter. This module must not know gRPC, sysfs or NodeResourceTopology objects.
"""

from __future__ import annotations

import msgspec

from shared.domain.resources import Amounts


class ZoneResource(msgspec.Struct, frozen=True, gc=False):
    """One resource of one zone; integers in the unit of `shared.domain.resources`."""

    capacity: int
    allocatable: int
    available: int


class Zone(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A NUMA zone: `id` is the kernel's node id (ids may be sparse), `costs` the SLIT distance by zone id (10 = local)."""

    id: int
    resources: dict[str, ZoneResource] = {}
    costs: dict[int, int] = {}


class ZonedAmount(msgspec.Struct, frozen=True, gc=False):
    """An amount held in a set of zones. CPUs and devices come one entry a zone; a memory block may span several
    zones without saying how it is split (podresources has no split)."""

    resource: str
    zones: tuple[int, ...]
    amount: int


class Placement(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What one listed container holds. `held` is empty for a container that holds nothing exclusive *or is not admitted
    yet* (kubelet 1.36: pods are listed before and during their admission). `pod_uid` is known only from checkpoints."""

    namespace: str
    pod: str
    container: str
    held: tuple[ZonedAmount, ...] = ()
    pod_uid: str = ""


class Freshness(msgspec.Struct, frozen=True, order=True):
    """When a report was true: monotonic milliseconds since boot, taken before List. Comparable within one boot only."""

    boot_id: str
    boot_time_ms: int


class Report(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The state of one node. `placements` is None when the source gives none (an RTE or NFD object).

    `tracked` names the resources that this node's managers pin (cpu with the static CPU Manager, memory and hugepages
    with the Static Memory Manager, device resources with topology): only those can be proven by a placement.
    `fingerprint_method` is `all` or `with-exclusive-resources`; `fingerprint` is empty when the source computes none.
    """

    node: str
    boot_id: str
    boot_time_ms: int
    exporter: str = ""
    policy: str = "none"
    scope: str = "container"
    options: dict[str, str] = {}
    max_numa_nodes: int = 8
    tracked: tuple[str, ...] = ()
    zones: tuple[Zone, ...] = ()
    placements: tuple[Placement, ...] | None = None
    fingerprint: str = ""
    fingerprint_method: str = ""

    @property
    def freshness(self) -> Freshness:
        """When this report was true."""
        return Freshness(self.boot_id, self.boot_time_ms)


def available(zone: Zone) -> Amounts:
    """The zone's available amounts by resource name, sorted."""
    return {name: zone.resources[name].available for name in sorted(zone.resources)}
