"""The exporter's decisions: what a node's report says, and when it is worth publishing.

Pure. A report is made from one scan (podresources answers, machine, kubelet configuration,
checkpoint, freshness); it is published when its content changed, when the last one is an interval
old, or when asked (a reconnected bus may have lost it). Must not know sockets, files, clocks or the
bus.
"""

from __future__ import annotations

import msgspec

from services.exporter import confined, globs, inventory
from services.exporter.accounting import count_zones, tracked
from services.exporter.answers import Allocatable, ListedContainer, ListedPod
from services.exporter.checkpoints import NOTHING_READ, Checkpoints
from services.exporter.kubelet_config import KubeletFacts
from services.exporter.placements import agree, place
from services.exporter.sysfs import Machine
from shared.domain.dynamic import resource_name
from shared.domain.report import DynamicGroup, Freshness, Report
from shared.kubelet.fingerprint import ALL, EXCLUSIVE, fingerprint

METHODS = (EXCLUSIVE, ALL)


class PodPattern(msgspec.Struct, frozen=True):
    """Shell patterns (`globs`) for namespace and name; both must match
    (resource-topology-exporter's podExclude).
    """

    namespace: str
    name: str

    def matches(self, pod: ListedPod) -> bool:
        """True when the pod is excluded by this pattern."""
        return globs.matches(self.namespace, pod.namespace) and globs.matches(self.name, pod.name)


class Rules(msgspec.Struct, frozen=True):
    """What a node's report leaves out, and the fingerprint's method (empty: none is made). Excluded
    pods leave accounting and fingerprint, those of other namespaces than `namespace` accounting
    alone."""

    fingerprint_method: str = EXCLUSIVE
    excluded_resources: frozenset[str] = frozenset()
    excluded_pods: tuple[PodPattern, ...] = ()
    namespace: str = ""


class Scan(msgspec.Struct, frozen=True):
    """Everything read about one node at one moment; `freshness` was taken before all of it."""

    freshness: Freshness
    machine: Machine
    allocatable: Allocatable
    pods: tuple[ListedPod, ...]
    kubelet: KubeletFacts = KubeletFacts()
    checkpoints: Checkpoints = NOTHING_READ
    kubelet_version: str = ""
    dynamic: tuple[DynamicGroup, ...] | None = None


class Published(msgspec.Struct, frozen=True):
    """What was last handed to the bus for a node, and when (monotonic milliseconds)."""

    report: Report | None = None
    at_ms: int = 0


_CONTENT = tuple(name for name in Scan.__struct_fields__ if name != "freshness")


def report(node: str, exporter: str, scan: Scan, rules: Rules) -> Report:
    """The report of one scan. The fingerprint speaks of what is listed, zones that the machine
    lacks included, as RTE's does.
    """
    signed = fingerprint(fingerprinted(scan, rules)) if rules.fingerprint_method else ""
    scan = _confined(scan)
    counted = {
        (pod.namespace, pod.name)
        for pod in _pods(scan, rules)
        if rules.namespace in ("", pod.namespace)
    }
    placed = place(scan.pods, scan.machine.zone_of_cpu, scan.checkpoints)
    placements = tuple(each for each in placed.placements if (each.namespace, each.pod) in counted)
    return Report(
        node=node,
        boot_id=scan.freshness.boot_id,
        boot_time_ms=scan.freshness.boot_time_ms,
        exporter=exporter,
        policy=scan.kubelet.policy,
        scope=scan.kubelet.scope,
        options=scan.kubelet.options,
        max_numa_nodes=scan.kubelet.max_numa_nodes,
        tracked=tracked(scan.machine, scan.allocatable, rules.excluded_resources),
        zones=count_zones(
            scan.machine,
            scan.allocatable,
            placements,
            rules.excluded_resources,
            scan.checkpoints.free,
            scan.checkpoints.groups,
        ),
        placements=placements,
        fingerprint=signed,
        fingerprint_method=rules.fingerprint_method,
        kubelet_version=scan.kubelet_version,
        cpu_policy=inventory.cpu_policy(scan.allocatable, scan.kubelet),
        memory_policy=inventory.memory_policy(scan.allocatable, scan.kubelet),
        reserved_cpus=inventory.reserved_cpus(scan.machine, scan.allocatable),
        cpus=scan.machine.cpus,
        devices=inventory.devices(
            scan.allocatable, [each for pod in scan.pods for each in pod.containers]
        ),
        checkpoints=scan.checkpoints.read,
        hidden=placed.hidden,
        dynamic=_dynamic(scan.dynamic, rules.excluded_resources),
    )


def report_again(before: Scan, told: Report, scan: Scan) -> Report | None:
    """The report of a scan that found what the one before it had found, of which `told` is the
    report; None where something else was found. Who reads keeps what did not change, so that
    looking for the same objects is enough."""
    same = all(getattr(before, name) is getattr(scan, name) for name in _CONTENT)
    moment = scan.freshness
    return (
        msgspec.structs.replace(told, boot_id=moment.boot_id, boot_time_ms=moment.boot_time_ms)
        if same
        else None
    )


def as_listed(told: Report, scan: Scan) -> Report:
    """The report with the placements of podresources alone, for objects: their readers compare how
    many containers hold something with the pods' specs, where init containers, known from the
    checkpoints, do not count."""
    listed = {(pod.namespace, pod.name, each.name) for pod in scan.pods for each in pod.containers}
    kept = (
        one for one in told.placements or () if (one.namespace, one.pod, one.container) in listed
    )
    return msgspec.structs.replace(told, placements=tuple(kept))


def _dynamic(
    groups: tuple[DynamicGroup, ...] | None, excluded: frozenset[str]
) -> tuple[DynamicGroup, ...] | None:
    return (
        None
        if groups is None
        else tuple(group for group in groups if resource_name(group.driver) not in excluded)
    )


def _confined(scan: Scan) -> Scan:
    known = frozenset(node.id for node in scan.machine.nodes)
    return msgspec.structs.replace(
        scan,
        allocatable=confined.allocatable(scan.allocatable, known),
        pods=confined.pods(scan.pods, known),
        checkpoints=confined.checkpoints(scan.checkpoints, known),
    )


def fingerprinted(scan: Scan, rules: Rules) -> list[tuple[str, str]]:
    """(namespace, name) of the pods in the fingerprint: all that are listed, or those that hold
    something exclusive.
    """
    every = rules.fingerprint_method == ALL
    return [
        (pod.namespace, pod.name)
        for pod in _pods(scan, rules)
        if every or any(map(_exclusive, pod.containers))
    ]


def _pods(scan: Scan, rules: Rules) -> list[ListedPod]:
    return [
        pod for pod in scan.pods if not any(pattern.matches(pod) for pattern in rules.excluded_pods)
    ]


def _exclusive(container: ListedContainer) -> bool:
    """podfingerprint's filter: CPUs, or a memory block or device with a NUMA node (pod-level sets
    do not count).
    """
    return bool(
        container.cpus
        or any(block.zones for block in container.memory)
        or any(group.ids and group.zones for group in container.devices)
    )


def should_publish(
    last: Published, new: Report, now_ms: int, interval_ms: int, asked: bool
) -> bool:
    """On change of content, when an interval has passed, or when asked."""
    return (
        asked
        or last.report is None
        or now_ms - last.at_ms >= interval_ms
        or not same_content(last.report, new)
    )


def is_steady(scan: Scan) -> bool:
    """True where nothing is about to follow what made the kubelet write its files. Devices of
    claims are listed once their driver has prepared them, which no checkpoint tells."""
    return (
        bool(scan.checkpoints.read) and scan.dynamic is None and agree(scan.pods, scan.checkpoints)
    )


def same_content(left: Report, right: Report) -> bool:
    """Equal but for the moment it was read."""
    return msgspec.structs.replace(left, boot_time_ms=right.boot_time_ms) == right
