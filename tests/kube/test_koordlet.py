"""What koordlet writes in addition to the zones of its objects: CPUs, the kubelet's CPU Manager,
and the exclusive CPUs of pods, as its source defines them (koordinator a7a1b76b).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest

from services.scheduler.snapshot.owners import TOPOLOG, owners_of
from shared.domain.report import UNKNOWN, Placement, ZonedAmount, ZoneResource
from shared.kube.koordlet import (
    CPU_MANAGER_POLICY,
    CPU_TOPOLOGY,
    POD_CPU_ALLOCS,
    RESERVATION,
    SYSTEM_QOS,
    MemoryPolicy,
)
from shared.kube.nrt import NrtError, from_nrt

GIB = 1 << 30


def koordlets(
    policy: dict[str, Any],
    allocs: list[dict[str, Any]] | None = None,
    annotations: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, Any]:
    """Return the object of a machine with 2 zones of 2 cores; CPUs 2k and 2k+1 are threads of a
    core.
    """
    cpus = [{"id": i, "core": i // 2 % 2, "socket": i // 4, "node": i // 4} for i in range(8)]
    written = {
        CPU_TOPOLOGY: json.dumps({"detail": cpus}),
        CPU_MANAGER_POLICY: json.dumps(policy),
        POD_CPU_ALLOCS: json.dumps(allocs),
        **annotations,
    }
    amounts = {"cpu": "4", "memory": "64Gi", "hugepages-1Gi": "0"}
    resources = [
        {"name": name, "capacity": text, "allocatable": text, "available": text}
        for name, text in amounts.items()
    ]
    return {
        "metadata": {"name": "n1", "annotations": written},
        "topologyPolicies": ["SingleNUMANodePodLevel"],
        "zones": [
            {"name": f"node-{zone}", "type": "Node", "resources": resources} for zone in (0, 1)
        ],
    }


STATIC = {"policy": "static", "options": {"full-pcpus-only": "true"}, "reservedCPUs": "0,4"}
TWO_PODS = [
    {"namespace": "ns", "name": "a", "uid": "u-a", "cpuset": "2-3", "managedByKubelet": True},
    {"uid": "u-gone", "cpuset": "1,5", "managedByKubelet": True},
    {"namespace": "ns", "name": "theirs", "uid": "u-t", "cpuset": "6", "managedByKubelet": False},
]


def test_a_static_cpu_manager_lists_its_pods_and_never_memory() -> None:
    report = from_nrt(koordlets(STATIC, TWO_PODS), "b", 7)
    assert [zone.resources["cpu"] for zone in report.zones] == [
        ZoneResource(4000, 3000, 0),
        ZoneResource(4000, 3000, 2000),
    ]
    assert report.placements == (
        Placement("ns", "a", "", (ZonedAmount("cpu", (0,), 2000, "2-3"),), "u-a"),
        Placement(
            "unnamed",
            "u-gone",
            "",
            (ZonedAmount("cpu", (0,), 1000, "1"), ZonedAmount("cpu", (1,), 1000, "5")),
            "u-gone",
        ),
    )
    assert (report.tracked, report.unlisted) == (("cpu", "memory"), ("memory",))
    assert (report.cpu_policy, report.memory_policy) == ("static", UNKNOWN)
    assert (report.options, report.reserved_cpus) == ({"full-pcpus-only": "true"}, "0,4")
    assert report.cpus is not None
    assert (report.cpus.ids, report.cpus.zones) == ("0-7", "0x4,1x4")
    assert report.cpus.cores == "0x2,2x2,4x2,6x2"


@pytest.mark.parametrize(
    ("memory", "policy"),
    [("None", STATIC), ("auto", {"policy": "none"}), ("None", {"policy": "none"})],
)
def test_memory_that_no_manager_pins_is_a_bound(
    memory: MemoryPolicy, policy: dict[str, Any]
) -> None:
    report = from_nrt(koordlets(policy), "b", 7, memory)
    assert report.unlisted == ()
    assert report.memory_policy == "None"
    assert report.zones[0].bounds["memory"] == 64 * GIB
    assert report.tracked == (("cpu",) if policy is STATIC else ())
    assert report.placements == ()


@pytest.mark.parametrize(("exclusive", "reserved"), [("true", "1-2,7"), ("false", "1-2")])
def test_cpus_that_koordlet_keeps_are_reserved_where_no_kubelet_allocates_cpus(
    exclusive: str, reserved: str
) -> None:
    kept = {
        RESERVATION: '{"reservedCPUs":"1-2","applyPolicy":"ReservedCPUsOnly"}',
        SYSTEM_QOS: f'{{"cpuset":"7","cpusetExclusive":{exclusive}}}',
    }
    assert from_nrt(koordlets({"policy": "none"}, None, kept), "b", 7).reserved_cpus == reserved
    assert from_nrt(koordlets(STATIC, None, kept), "b", 7).reserved_cpus == "0,4"


def test_a_node_whose_kubelet_pins_nothing_offers_its_zones_to_topolog() -> None:
    kept = {RESERVATION: '{"reservedCPUs":"1-2"}'}
    topology = koordlets({"policy": "none"}, None, kept) | {"topologyPolicies": ["None"]}
    report = from_nrt(topology, "b", 7)
    assert [(zone.offered["cpu"], zone.offered["memory"]) for zone in report.zones] == [
        (2000, 64 * GIB),
        (4000, 64 * GIB),
    ]
    assert owners_of(report) == TOPOLOG
    listed = from_nrt({**koordlets({"policy": "none"}, TWO_PODS)}, "b", 7).enforced
    assert [(entry.pod_uid, entry.held[0].ids) for entry in listed or ()] == [
        ("u-a", "2-3"),
        ("u-t", "6"),
        ("u-gone", "1"),
    ]
    static = from_nrt(koordlets(STATIC) | {"topologyPolicies": ["None"]}, "b", 7)
    assert owners_of(static).text.startswith("cpu: kubelet")


def test_a_kubelet_that_koordlet_does_not_ask_has_an_unknown_policy() -> None:
    report = from_nrt(koordlets({}), "b", 7)
    assert (report.policy, report.placements) == (UNKNOWN, None)


def test_objects_with_a_fingerprint_are_another_exporters() -> None:
    fingerprint = {"topology.node.k8s.io/fingerprint": "pfp0v001" + "0" * 16}
    report = from_nrt(koordlets(STATIC, TWO_PODS, fingerprint), "b", 7)
    assert (report.placements, report.exporter) == (None, "")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (CPU_TOPOLOGY, "[]"),
        (CPU_MANAGER_POLICY, "{"),
        (CPU_MANAGER_POLICY, '{"policy":"static","reservedCPUs":"7-3"}'),
        (POD_CPU_ALLOCS, '[{"cpuset":"x","managedByKubelet":true}]'),
    ],
)
def test_an_annotation_that_cannot_be_read_names_its_key(key: str, value: str) -> None:
    with pytest.raises(NrtError, match=f"NodeResourceTopology n1: annotation {key}: "):
        from_nrt(koordlets(STATIC, None, {key: value}), "b", 7)
