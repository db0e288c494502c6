"""What the values of other schedulers' keys ask for, and that the table agrees with it."""

from __future__ import annotations

import pytest

from shared.domain.pod import Container, Pod
from shared.domain.scheduler_keys import (
    BY_KEY,
    KEYS,
    LONGEST_VALUE,
    TREATMENTS,
    asked_by,
    asked_by_node,
    keys_of_pod,
)

GANG = "gang.scheduling.koordinator.sh"
SPEC = "scheduling.koordinator.sh"


def asked(
    annotations: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
    *resources: str,
) -> set[tuple[str, str]]:
    """Return the keys of a pod with these annotations and labels, and what they ask for."""
    amounts = dict.fromkeys(resources, 1)
    pod = Pod(
        "uid",
        "ns",
        "p",
        containers=(Container("c", "app", amounts, amounts),),
        annotations=annotations or {},
        labels=labels or {},
    )
    return {(entry.row.key, entry.ask) for entry in asked_by(keys_of_pod(pod))}


# Annotation, value, what it asks for.
ANNOTATIONS = [
    (f"{GANG}/name", "train", {"gang"}),
    (f"{GANG}/min-available", "4", {"gang"}),
    (f"{GANG}/min-available", "1", set()),
    (f"{GANG}/groups", '["ns/a", "ns/b"]', {"scheduler"}),
    (f"{GANG}/groups", '["ns/a"]', set()),
    (f"{GANG}/groups", "ns/a", {"scheduler"}),
    (f"{SPEC}/resource-spec", '{"requiredCPUBindPolicy": "FullPCPUs"}', {"full cores"}),
    (f"{SPEC}/resource-spec", '{"requiredCPUBindPolicy": "SpreadByPCPUs"}', {"scheduler"}),
    (f"{SPEC}/resource-spec", '{"requiredCPUBindPolicy": 7}', {"scheduler"}),
    (f"{SPEC}/resource-spec", '{"preferredCPUBindPolicy": "SpreadByPCPUs"}', {"preference"}),
    (f"{SPEC}/resource-spec", '{"preferredCPUExclusivePolicy": "PCPULevel"}', {"preference"}),
    (f"{SPEC}/resource-spec", '{"preferredCPUBindPolicy": "Default"}', set()),
    (
        f"{SPEC}/resource-spec",
        '{"requiredCPUBindPolicy": "FullPCPUs", "preferredCPUExclusivePolicy": "PCPULevel"}',
        {"full cores", "preference"},
    ),
    (f"{SPEC}/resource-spec", "{", {"scheduler"}),
    (f"{SPEC}/device-allocate-hint", '{"gpu": {"exclusivePolicy": "PCIeLevel"}}', {"device"}),
    (f"{SPEC}/device-allocate-hint", "{}", set()),
    (f"{SPEC}/device-joint-allocate", '{"deviceTypes": ["gpu", "rdma"]}', {"preference"}),
    (
        f"{SPEC}/device-joint-allocate",
        '{"deviceTypes": ["gpu", "rdma"], "requiredScope": "SamePCIe"}',
        {"device"},
    ),
    (f"{SPEC}/gpu-partition-spec", '{"allocatePolicy": "Restricted"}', {"device"}),
    (f"{SPEC}/gpu-partition-spec", '{"allocatePolicy": "BestEffort"}', {"preference"}),
    (f"{SPEC}/reservation-affinity", '{"name": "r"}', {"scheduler"}),
    (
        f"{GANG}/network-topology-spec",
        '{"gatherStrategy": [{"layer": "rack", "strategy": "MustGather"}]}',
        {"gang"},
    ),
    (
        f"{GANG}/network-topology-spec",
        '{"gatherStrategy": [{"layer": "rack", "strategy": "PreferGather"}]}',
        {"preference"},
    ),
    ("scheduling.k8s.io/group-name", "job", {"gang"}),
    ("scheduling.volcano.sh/group-name", "job", {"gang"}),
    ("volcano.sh/network-topology-mode", "hard", {"scheduler"}),
    ("volcano.sh/network-topology-mode", "soft", {"preference"}),
    ("scheduling.volcano.sh/queue-name", "default", {"preference"}),
    ("pod-group-name", "pg", {"scheduler"}),
    ("gpu-fraction", "0.5", {"scheduler"}),
    ("kai.scheduler/topology-required-placement", "rack", {"scheduler"}),
    ("kai.scheduler/topology-preferred-placement", "rack", {"preference"}),
    ("katalyst.kubewharf.io/qos_level", "dedicated_cores", {"exclusive CPUs"}),
    ("katalyst.kubewharf.io/qos_level", "shared_cores", set()),
    ("katalyst.kubewharf.io/memory_enhancement", '{"numa_binding": "true"}', {"scheduler"}),
    ("katalyst.kubewharf.io/memory_enhancement", '{"oom_priority": "3"}', set()),
    ("katalyst.kubewharf.io/cpu_enhancement", '{"numa_share": "false"}', {"scheduler"}),
    ("katalyst.kubewharf.io/cpu_enhancement", '{"numa_share": "true"}', set()),
    (
        "katalyst.kubewharf.io/network_enhancement",
        '{"topology_affinity_restricted": "true"}',
        {"scheduler"},
    ),
    ("topology.crane.io/cpu-policy", "exclusive", {"exclusive CPUs"}),
    ("topology.crane.io/cpu-policy", "none", set()),
    ("kubectl.kubernetes.io/last-applied-configuration", "{}", set()),
]


@pytest.mark.parametrize(("key", "value", "asks"), ANNOTATIONS)
def test_what_an_annotation_asks_for(key: str, value: str, asks: set[str]) -> None:
    assert asked({key: value}) == {(key, ask) for ask in asks}
    if key in BY_KEY:
        assert asks <= set(BY_KEY[key].treated)
        assert asked({key: ""}) == set()


@pytest.mark.parametrize(
    ("key", "value", "asks"),
    [
        ("koordinator.sh/qosClass", "LSE", {"exclusive CPUs"}),
        ("koordinator.sh/qosClass", "LSR", {"exclusive CPUs"}),
        ("koordinator.sh/qosClass", "LS", set()),
        ("koordinator.sh/qosClass", "BE", set()),
        ("pod-group.scheduling.sigs.k8s.io", "pg", {"gang"}),
        ("pod-group.scheduling.sigs.k8s.io/min-available", "2", {"gang"}),
        ("scheduling.x-k8s.io/pod-group", "pg", {"gang"}),
        ("kai.scheduler/queue", "q", {"preference"}),
        ("app", "web", set()),
    ],
)
def test_what_a_label_asks_for(key: str, value: str, asks: set[str]) -> None:
    assert asked(labels={key: value}) == {(key, ask) for ask in asks}


@pytest.mark.parametrize(
    ("name", "minimum"),
    [
        (f"{GANG}/name", f"{GANG}/min-available"),
        ("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-min-member"),
    ],
)
def test_a_gang_of_one_asks_for_nothing(name: str, minimum: str) -> None:
    assert asked({name: "g", minimum: "1"}) == set()
    assert asked({name: "g", minimum: "2"}) == {(name, "gang"), (minimum, "gang")}


def test_resources_are_known_by_prefix() -> None:
    assert asked(None, None, "koordinator.sh/gpu-core", "volcano.sh/vgpu-number", "cpu") == {
        ("koordinator.sh/gpu-core", "device"),
        ("volcano.sh/vgpu-number", "scheduler"),
    }
    assert asked(None, None, "nvidia.com/gpu", "kubernetes.io/batch-cpu") == set()


@pytest.mark.parametrize(
    ("key", "value", "asks"),
    [
        ("node.koordinator.sh/numa-topology-policy", "SingleNUMANode", {"zones"}),
        ("node.koordinator.sh/numa-topology-policy", "None", set()),
        ("node.koordinator.sh/numa-memory-policy", "static", {"memory zones"}),
        ("node.koordinator.sh/numa-memory-policy", "none", set()),
        ("node.koordinator.sh/cpu-bind-policy", "FullPCPUsOnly", {"full cores"}),
        ("node.koordinator.sh/cpu-bind-policy", "SpreadByPCPUs", {"scheduler"}),
        ("node.koordinator.sh/cpu-bind-policy", "None", set()),
        ("node.koordinator.sh/numa-allocate-strategy", "LeastAllocated", {"preference"}),
    ],
)
def test_what_a_node_label_asks_for(key: str, value: str, asks: set[str]) -> None:
    assert {entry.ask for entry in asked_by_node({key: value})} == asks <= set(BY_KEY[key].treated)


def test_a_long_value_is_not_stored_and_counts_as_unreadable() -> None:
    key = f"{SPEC}/device-allocate-hint"
    value = '{"gpu": "' + "x" * LONGEST_VALUE + '"}'
    pod = Pod("uid", "ns", "p", annotations={key: value})
    kept = keys_of_pod(pod)
    assert len(kept["pod annotation"][key]) < 100
    assert [entry.ask for entry in asked_by(kept)] == ["scheduler"]


def test_every_row_has_a_remedy_and_a_treatment_and_no_key_has_two_rows() -> None:
    assert len(BY_KEY) == len(KEYS)
    for row in KEYS:
        assert row.remedy, row.key
        assert row.treated, row.key
        assert set(row.treated) <= TREATMENTS.keys(), row.key
