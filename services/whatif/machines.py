"""Simulated nodes from recorded reports: the machine, the kubelet's configuration and the devices.

A report of an older exporter, or of a NodeResourceTopology object, only has amounts by zone. CPUs
and devices are then numbered arbitrarily, which the answer says. This module does not know pods.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

from services.simulator.cluster import SimulatedNode
from shared.domain.cpus import CpuLayout, format_runs
from shared.domain.policies import NONE
from shared.domain.report import DeviceGroup, Report
from shared.domain.resources import CPU, Amounts, is_memory
from shared.events.cluster_events import NodeObserved
from shared.kubelet.machine import KubeletState
from shared.kubelet.observed import empty_kubelet


class RecordedNode(SimulatedNode, frozen=True):
    """A node with the allocatable amounts of its Node object (`offered`)."""

    offered: Amounts = {}

    def allocatable(self) -> Amounts:
        """Return the recorded allocatable amounts."""
        return self.offered


class Machines(msgspec.Struct, frozen=True):
    """The machines of a history, and those from which further nodes are cloned. `guessed` are nodes
    whose CPUs or devices no report numbers. `left_out` are nodes on which no kubelet would start,
    with its error.
    """

    nodes: tuple[RecordedNode, ...]
    guessed: tuple[str, ...]
    left_out: dict[str, str]


def machines(
    reports: Mapping[str, Report],
    objects: Mapping[str, NodeObserved],
    policy: str = "",
    scope: str = "",
) -> Machines:
    """Return the machines of these reports, with another policy or scope than recorded if one is
    given.
    """
    nodes, guessed, left_out = [], [], {}
    for name in sorted(reports):
        report, whole = _whole(reports[name])
        changes = {key: value for key, value in (("policy", policy), ("scope", scope)) if value}
        kubelet = empty_kubelet(msgspec.structs.replace(report, **changes))
        if not isinstance(kubelet, KubeletState):
            left_out[name] = ", ".join(kubelet.reasons)
            continue
        guessed += [] if whole else [name]
        offered = objects[name].allocatable if name in objects else {}
        nodes.append(_node(name, kubelet, offered))
    return Machines(tuple(nodes), tuple(guessed), left_out)


def _node(name: str, state: KubeletState, offered: Amounts) -> RecordedNode:
    devices = {resource: dict(listed) for resource, listed in state.devices.registered.items()}
    return RecordedNode(name, state.kubelet.machine, state.kubelet.config, devices, offered=offered)


def clones(nodes: Iterable[RecordedNode], count: int) -> list[tuple[str, RecordedNode]]:
    """Return (the copied node, the copy) pairs of the most frequent machine, under new names."""
    listed = list(nodes)
    kinds = Counter(_kind(node) for node in listed)
    model = max(listed, key=lambda node: (kinds[_kind(node)], node.name))
    return [
        (model.name, msgspec.structs.replace(model, name=f"whatif-{number}"))
        for number in range(1, count + 1)
    ]


def _kind(node: RecordedNode) -> bytes:
    return msgspec.json.encode((node.machine, node.kubelet, sorted(node.offered.items())))


def _whole(report: Report) -> tuple[Report, bool]:
    """Return the report with every CPU and device numbered; False if the numbers are arbitrary."""
    if (
        report.cpus is not None
        and report.devices is not None
        and "unknown" not in (report.cpu_policy, report.memory_policy)
    ):
        return report, True
    memory = any(
        is_memory(name) and name in report.tracked
        for zone in report.zones
        for name in zone.resources
    )
    fields: dict[str, object] = {
        "policy": NONE if report.policy == "unknown" else report.policy,
        "cpu_policy": "static" if CPU in report.tracked else "none",
        "memory_policy": "Static" if memory else "None",
    }
    if report.cpus is None:
        fields |= _cpus(report)
    if report.devices is None:
        fields["devices"] = _devices(report)
    return msgspec.structs.replace(report, **fields), False


def _cpus(report: Report) -> dict[str, object]:
    """Number CPUs zone after zone, two to a core, one socket and cache per zone. The CPUs that a
    zone does not allocate come first.
    """
    zones, reserved, start = list[int](), list[str](), 0
    for zone in report.zones:
        cpu = zone.resources.get(CPU)
        count = (cpu.capacity if cpu is not None else zone.bounds.get(CPU, 0)) // 1000
        zones += [zone.id] * count
        kept = count - cpu.allocatable // 1000 if cpu is not None else 0
        reserved += map(str, range(start, start + kept))
        start += count
    column = format_runs(zones)
    cores = format_runs([number - number % 2 for number in range(len(zones))])
    layout = CpuLayout(f"0-{len(zones) - 1}" if zones else "", column, column, cores, column)
    return {"cpus": layout, "reserved_cpus": ",".join(reserved)}


def _devices(report: Report) -> tuple[DeviceGroup, ...]:
    return tuple(
        DeviceGroup(
            name,
            (zone.id,),
            ",".join(
                f"{name.rpartition('/')[2]}-{zone.id}-{number}"
                for number in range(amounts.capacity)
            ),
        )
        for zone in report.zones
        for name, amounts in zone.resources.items()
        if "/" in name and amounts.capacity
    )
