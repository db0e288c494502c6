"""Decisions of the exporter: the content of a node's report, and when to publish it.

Pure. A report is made from one scan. It is published if its content changed, if the last one is an
interval old, or on request (a reconnected bus may have lost it). Must not know sockets, files,
clocks or the bus.
"""

from __future__ import annotations

import msgspec

from services.exporter import confined, globs, inventory
from services.exporter.accounting import count_zones, tracked
from services.exporter.answers import Allocatable, ListedContainer, ListedPod
from services.exporter.checkpoints import NOTHING_READ, Checkpoints
from services.exporter.kubelet_config import KubeletSettings
from services.exporter.placements import agree, place
from services.exporter.reserved import with_offered
from services.exporter.sysfs import Machine
from shared.domain.dynamic import resource_name
from shared.domain.report import UNKNOWN, DynamicGroup, Freshness, Placement, Report
from shared.domain.statement import Statement
from shared.kubelet.fingerprint import ALL, EXCLUSIVE, fingerprint

METHODS = (EXCLUSIVE, ALL)


class PodPattern(msgspec.Struct, frozen=True):
    """Shell patterns (`globs`) for namespace and name; both must match (RTE's podExclude)."""

    namespace: str
    name: str

    def matches(self, pod: ListedPod) -> bool:
        """Return True if the pattern excludes the pod."""
        return globs.matches(self.namespace, pod.namespace) and globs.matches(self.name, pod.name)


class Rules(msgspec.Struct, frozen=True):
    """Exclusions of a node's report, and its fingerprint method (empty: no fingerprint).

    Excluded pods are left out of accounting and fingerprint. Pods outside of `namespace` are left
    out of accounting alone.
    """

    fingerprint_method: str = EXCLUSIVE
    excluded_resources: frozenset[str] = frozenset()
    excluded_pods: tuple[PodPattern, ...] = ()
    namespace: str = ""


class Scan(msgspec.Struct, frozen=True):
    """All reads of one node at one moment; `freshness` was taken before all of them.

    `statement` is the agent's, with an empty enforcer if none lives, None if none is looked for.
    `unlisted` is True if the list of pods was too large to read, so only the checkpoints count.
    """

    freshness: Freshness
    machine: Machine
    allocatable: Allocatable
    pods: tuple[ListedPod, ...]
    kubelet: KubeletSettings = KubeletSettings()
    checkpoints: Checkpoints = NOTHING_READ
    kubelet_version: str = ""
    dynamic: tuple[DynamicGroup, ...] | None = None
    unlisted: bool = False
    statement: Statement | None = None

    @property
    def notices(self) -> tuple[str, ...]:
        """Return the gaps of the scan: an unknown policy, pods that could not be listed."""
        texts = [self.kubelet.notice]
        if self.unlisted:
            texts.append(
                "pods not listed, because the kubelet's answer is too large; amounts are from its "
                "checkpoints"
            )
        return tuple(text for text in texts if text)


class Published(msgspec.Struct, frozen=True):
    """The report that last went to the bus for a node, and when (monotonic milliseconds)."""

    report: Report | None = None
    at_ms: int = 0


_CONTENT = tuple(name for name in Scan.__struct_fields__ if name != "freshness")


def report(node: str, exporter: str, scan: Scan, rules: Rules) -> Report:
    """Return the report of one scan.

    The fingerprint covers the list as it is, as RTE's does: with zones that the machine lacks.
    """
    signed = fingerprint(fingerprinted(scan, rules)) if rules.fingerprint_method else ""
    scan = _confined(scan)
    counted = {
        (pod.namespace, pod.name)
        for pod in _pods(scan, rules)
        if rules.namespace in ("", pod.namespace)
    }
    placed = place(scan.pods, scan.machine.zone_of_cpu, scan.checkpoints)
    placements = tuple(
        entry for entry in placed.placements if (entry.namespace, entry.pod) in counted
    )
    if scan.unlisted:
        placements = placed.hidden
    containers = [container for pod in scan.pods for container in pod.containers]
    zones = count_zones(
        scan.machine,
        scan.allocatable,
        placements,
        rules.excluded_resources,
        scan.checkpoints.free,
        scan.checkpoints.groups,
    )
    if scan.kubelet.reserved is not None:
        zones = with_offered(zones, scan.machine.zone_of_cpu, scan.kubelet.reserved)
    made = Report(
        node=node,
        boot_id=scan.freshness.boot_id,
        boot_time_ms=scan.freshness.boot_time_ms,
        exporter=exporter,
        policy=scan.kubelet.policy,
        scope=scan.kubelet.scope,
        options=scan.kubelet.options,
        max_numa_nodes=scan.kubelet.max_numa_nodes,
        tracked=tracked(scan.machine, scan.allocatable, rules.excluded_resources),
        zones=zones,
        placements=placements,
        fingerprint=signed,
        fingerprint_method=rules.fingerprint_method,
        kubelet_version=scan.kubelet_version,
        cpu_policy=inventory.cpu_policy(scan.allocatable, scan.kubelet),
        memory_policy=inventory.memory_policy(scan.allocatable, scan.kubelet),
        reserved_cpus=inventory.reserved_cpus(scan.machine, scan.allocatable, scan.kubelet),
        cpus=scan.machine.cpus,
        devices=inventory.devices(scan.allocatable, containers),
        checkpoints=scan.checkpoints.read,
        hidden=placed.hidden,
        dynamic=_dynamic(scan.dynamic, rules.excluded_resources),
        enforcer=UNKNOWN if scan.statement is None else scan.statement.enforcer,
        enforced=_enforced(scan.statement),
    )
    return without_placements(made) if scan.unlisted else made


def _enforced(statement: Statement | None) -> tuple[Placement, ...] | None:
    return statement.containers if statement is not None and statement.enforcer else None


def without_placements(report: Report) -> Report:
    """Return the report with its zones alone: no pod can be confirmed by it."""
    return msgspec.structs.replace(
        report, placements=None, hidden=(), checkpoints=(), fingerprint=""
    )


def report_again(before: Scan, made: Report, scan: Scan) -> Report | None:
    """Return the report of a scan that read the same as `before`, whose report is `made`.

    Returns None if something differs. The reader keeps unchanged values, so a comparison of
    identities is enough.
    """
    if any(getattr(before, name) is not getattr(scan, name) for name in _CONTENT):
        return None
    moment = scan.freshness
    return msgspec.structs.replace(made, boot_id=moment.boot_id, boot_time_ms=moment.boot_time_ms)


def as_listed(made: Report, scan: Scan) -> Report:
    """Return the report with the placements of podresources alone, for objects.

    Readers of objects compare the number of placed containers with the pods' specs, and init
    containers (known from the checkpoints) do not count there.
    """
    if made.placements is None:
        return made
    listed = {
        (pod.namespace, pod.name, container.name)
        for pod in scan.pods
        for container in pod.containers
    }
    placements = tuple(
        entry
        for entry in made.placements
        if (entry.namespace, entry.pod, entry.container) in listed
    )
    return msgspec.structs.replace(made, placements=placements)


def _dynamic(
    groups: tuple[DynamicGroup, ...] | None, excluded: frozenset[str]
) -> tuple[DynamicGroup, ...] | None:
    if groups is None:
        return None
    return tuple(group for group in groups if resource_name(group.driver) not in excluded)


def _confined(scan: Scan) -> Scan:
    zones = frozenset(node.id for node in scan.machine.nodes)
    return msgspec.structs.replace(
        scan,
        allocatable=confined.allocatable(scan.allocatable, zones),
        pods=confined.pods(scan.pods, zones),
        checkpoints=confined.checkpoints(scan.checkpoints, zones),
    )


def fingerprinted(scan: Scan, rules: Rules) -> list[tuple[str, str]]:
    """Return (namespace, name) of the pods in the fingerprint.

    These are all listed pods, or those with exclusive resources, by the method.
    """
    every = rules.fingerprint_method == ALL
    return [
        (pod.namespace, pod.name)
        for pod in _pods(scan, rules)
        if every or any(map(_exclusive, pod.containers))
    ]


def _pods(scan: Scan, rules: Rules) -> list[ListedPod]:
    if not rules.excluded_pods:
        return list(scan.pods)
    return [
        pod for pod in scan.pods if not any(pattern.matches(pod) for pattern in rules.excluded_pods)
    ]


def _exclusive(container: ListedContainer) -> bool:
    """Return podfingerprint's filter: CPUs, or a memory block or device with a NUMA node.

    Pod-level sets do not count there.
    """
    return bool(
        container.cpus
        or any(block.zones for block in container.memory)
        or any(group.ids and group.zones for group in container.devices)
    )


def should_publish(
    last: Published, new: Report, now_ms: int, interval_ms: int, requested: bool
) -> bool:
    """Return True on a change of content, after an interval, or on request."""
    return (
        requested
        or last.report is None
        or now_ms - last.at_ms >= interval_ms
        or not same_content(last.report, new)
    )


def is_steady(scan: Scan) -> bool:
    """Return True if podresources already shows what the kubelet wrote to its checkpoints.

    Devices of claims are listed after their driver prepared them, which no checkpoint shows.
    """
    return (
        bool(scan.checkpoints.read) and scan.dynamic is None and agree(scan.pods, scan.checkpoints)
    )


def same_content(left: Report, right: Report) -> bool:
    """Return True if the reports are equal except for the moment of reading."""
    return msgspec.structs.replace(left, boot_time_ms=right.boot_time_ms) == right
