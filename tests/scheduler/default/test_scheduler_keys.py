"""Keys of other schedulers, from a manifest as the observer reads it to the pod's node, event or
condition."""

from __future__ import annotations

from typing import Any

import pytest

from services.binder.announcements import ignored_preferences
from services.scheduler.watch import pods_and_nodes
from services.scheduler.watch.seen_specs import SeenSpecs
from shared.domain.refusal import Reason
from shared.domain.scheduler_keys import (
    KEYS,
    NO_EFFECT,
    PREFERS_EXCLUSIVE,
    TREATMENTS,
    Ask,
    SchedulerKey,
)
from shared.events import streams
from shared.events.cluster_events import PodObserved
from shared.events.scheduling_events import PodReserved
from tests.scheduler.cycle_worlds import amounts, zone
from tests.scheduler.default.story import ROOMY, Story

GANG = "gang.scheduling.koordinator.sh"
LIGHT = "pod-group.scheduling.sigs.k8s.io"
SPEC = "scheduling.koordinator.sh/resource-spec"
STATIC = ("cpu", "memory")


def seen(
    name: str = "p",
    annotations: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
    cpu: str = "2",
    limit: str = "",
    more: dict[str, str] | None = None,
) -> PodObserved:
    """Return the event of a pod with one container. Without a separate `limit` it is Guaranteed."""
    requests = {"cpu": cpu, "memory": "1Gi", **(more or {})}
    limits = {**requests, "cpu": limit or cpu}
    container = {"name": "c", "resources": {"requests": requests, "limits": limits}}
    metadata = {
        "name": name,
        "namespace": "ns",
        "uid": f"uid-{name}",
        "resourceVersion": "5",
        "labels": labels or {},
        "annotations": annotations or {},
    }
    event = pods_and_nodes.pod_event(
        Story().cores[0].ledger,
        "topolog",
        {
            "metadata": metadata,
            "spec": {"schedulerName": "topolog", "containers": [container]},
            "status": {"phase": "Pending"},
        },
        SeenSpecs(),
    )
    assert isinstance(event, PodObserved)
    assert not event.problem, event.problem
    return event


async def world(
    policy: str = "none",
    tracked: tuple[str, ...] = STATIC,
    labels: dict[str, str] | None = None,
    options: dict[str, str] | None = None,
    strategy: str = "KeepRoom",
) -> Story:
    """One node with two zones of 8 CPUs."""
    story = Story(strategy=strategy)
    allocatable = {**ROOMY, "koordinator.sh/gpu-core": 800, "nvidia.com/gpu": 8}
    await story.node("n1", labels=labels or {}, allocatable=allocatable)
    zones = zone(0, amounts(8, 8)), zone(1, amounts(8, 8))
    await story.report(*zones, node="n1", policy=policy, tracked=tracked, options=options or {})
    return story


async def placed(story: Story, event: PodObserved) -> str:
    """Return the pod's node, or the message of its event."""
    await story.tell(streams.pod(event.pod.uid), event)
    node_name = (await story.decide()).get(event.pod.uid)
    return node_name or (await story.verdicts(event.pod))[-1]


async def test_a_gang_that_cannot_be_read_waits_and_its_event_names_the_keys() -> None:
    story = await world()
    gang = seen(annotations={f"{GANG}/name": "train", f"{GANG}/min-available": "four"})
    assert await placed(story, gang) == (
        f"0/1 nodes are available: 1 node(s) could not keep pod annotation {GANG}/min-available, "
        f"{GANG}/name (Koordinator): name the gang and its minimum of pods by the keys of one "
        "scheduler, or by a PodGroup object."
    )
    columns = story.cores[0].cluster.columns
    assert columns is not None
    refusal = columns.verdict(gang.pod, "n1")
    assert refusal is not None
    assert refusal.reason == Reason.KEY_NOT_KEPT


@pytest.mark.parametrize(
    "words",
    [
        {"annotations": {f"{GANG}/name": "train", f"{GANG}/min-available": "2"}},
        {
            "annotations": {
                "scheduling.volcano.sh/group-name": "train",
                "scheduling.volcano.sh/group-min-member": "2",
            }
        },
        {"labels": {f"{LIGHT}/name": "train", f"{LIGHT}/min-available": "2"}},
    ],
)
async def test_two_pods_of_a_gang_are_placed_together(words: dict[str, Any]) -> None:
    story = await world()
    for event in (seen("p", **words), seen("q", **words)):
        assert await story.events(PodReserved) == []
        await story.tell(streams.pod(event.pod.uid), event)
        await story.decide()
    assert [event.gang for event in await story.events(PodReserved)] == [2, 2]


@pytest.mark.parametrize(
    "pod",
    [
        seen(annotations={f"{GANG}/name": "train", f"{GANG}/min-available": "1"}),
        seen(labels={"koordinator.sh/qosClass": "LS"}),
        seen(labels={"koordinator.sh/qosClass": "BE"}),
        seen(annotations={SPEC: '{"preferredCPUBindPolicy": "Default"}'}),
        seen(annotations={"volcano.sh/numa-topology-policy": "none"}),
        seen(annotations={"katalyst.kubewharf.io/qos_level": "shared_cores"}),
    ],
)
async def test_a_value_that_changes_nothing_passes(pod: PodObserved) -> None:
    story = await world()
    assert await placed(story, pod) == "n1"
    assert [event.without_effect for event in await story.events(PodReserved)] == [()]


@pytest.mark.parametrize(
    "words",
    [
        {"labels": {"koordinator.sh/qosClass": "LSR"}},
        {"annotations": {"katalyst.kubewharf.io/qos_level": "dedicated_cores"}},
    ],
)
async def test_exclusive_cpus_are_kept_where_the_kubelet_gives_them(words: Any) -> None:
    story = await world()
    assert await placed(story, seen(**words)) == "n1"
    assert "give each container whole CPUs" in await placed(
        story, seen("burst", limit="3", **words)
    )
    assert "give each container whole CPUs" in await placed(
        story, seen("part", cpu="1500m", **words)
    )
    story = await world(tracked=("memory",))
    assert "cpuManagerPolicy static" in await placed(story, seen(**words))


async def test_full_cores_are_kept_under_full_pcpus_only() -> None:
    full = {SPEC: '{"requiredCPUBindPolicy": "FullPCPUs"}'}
    spread = {SPEC: '{"requiredCPUBindPolicy": "SpreadByPCPUs"}'}
    options = {"full-pcpus-only": "true"}
    assert await placed(await world(options=options), seen(annotations=full)) == "n1"
    assert f"{SPEC} (Koordinator)" in await placed(await world(), seen(annotations=full))
    assert f"{SPEC} (Koordinator)" in await placed(
        await world(options=options), seen(annotations=spread)
    )


async def test_a_resource_that_only_koordinator_gives_makes_the_pod_wait() -> None:
    pod = seen(more={"koordinator.sh/gpu-core": "100"})
    assert "resource koordinator.sh/gpu-core (Koordinator)" in await placed(await world(), pod)
    story = await world(tracked=("cpu", "koordinator.sh/gpu-core"))
    assert "could not keep" not in await placed(story, pod)


@pytest.mark.parametrize(
    ("label", "value", "tracked", "options", "passes"),
    [
        ("node.koordinator.sh/numa-memory-policy", "static", ("cpu",), {}, False),
        ("node.koordinator.sh/numa-memory-policy", "static", STATIC, {}, True),
        ("node.koordinator.sh/numa-memory-policy", "none", ("cpu",), {}, True),
        ("node.koordinator.sh/cpu-bind-policy", "FullPCPUsOnly", STATIC, {}, False),
        (
            "node.koordinator.sh/cpu-bind-policy",
            "FullPCPUsOnly",
            STATIC,
            {"full-pcpus-only": "true"},
            True,
        ),
        ("node.koordinator.sh/cpu-bind-policy", "SpreadByPCPUs", STATIC, {}, False),
        ("node.koordinator.sh/cpu-bind-policy", "None", STATIC, {}, True),
    ],
)
async def test_a_node_label_that_the_kubelet_does_not_keep_concerns_exclusive_amounts(
    label: str, value: str, tracked: tuple[str, ...], options: dict[str, str], passes: bool
) -> None:
    story = await world(tracked=tracked, options=options, labels={label: value})
    got = await placed(story, seen())
    assert (got == "n1") is passes
    assert passes or f"could not keep node label {label} (Koordinator): " in got
    assert await placed(story, seen("share", limit="4")) == "n1"


async def test_a_preference_without_effect_is_stored_with_the_reservation() -> None:
    label = {"node.koordinator.sh/numa-allocate-strategy": "LeastAllocated"}
    queue = seen(labels={"kai.scheduler/queue": "q"})
    story = await world(labels=label)
    assert await placed(story, queue) == "n1"
    (reserved,) = await story.events(PodReserved)
    assert reserved.without_effect == (
        "kai.scheduler/queue",
        "node.koordinator.sh/numa-allocate-strategy",
    )
    story = await world(labels=label, strategy="KoordinatorMostAllocated")
    assert await placed(story, seen()) == "n1"
    assert [event.without_effect for event in await story.events(PodReserved)] == [()]


async def test_keys_that_are_added_while_the_pod_waits_are_observed() -> None:
    """The pod's second event differs from its first in nothing but the key."""
    plain, gang = seen(), seen(annotations={f"{GANG}/name": "train"})
    assert plain.pod != gang.pod
    assert gang.pod.annotations == {}
    story = await world()
    await story.tell(streams.pod(plain.pod.uid), plain)
    assert "could not keep" in await placed(story, gang)


@pytest.mark.parametrize("wishes", [True, False])
async def test_a_pod_that_must_be_in_one_zone_keeps_it_from_later_pods_by_the_log(
    wishes: bool,
) -> None:
    """Two zones of 5 CPUs. If both pods of 3 CPUs came first, each zone would have 2 left, and the
    pod of 4 would be split."""
    story = Story()
    await story.node("n1", allocatable=ROOMY)
    zones = zone(0, amounts(5)), zone(1, amounts(5))
    await story.report(*zones, node="n1", policy="best-effort", tracked=("cpu",))
    single = {"volcano.sh/numa-topology-policy": "single-numa-node"} if wishes else {}
    assert await placed(story, seen("one", single, cpu="4")) == "n1"
    charge = story.ledger_node("n1").charges["uid-one"]
    assert charge.one_zone == ("container" if wishes else "")
    assert await placed(story, seen("two", cpu="3")) == "n1"
    third = await placed(story, seen("three", cpu="3"))
    assert (third == "n1") is not wishes
    assert not wishes or "might reject the pod while other pods are unconfirmed" in third


@pytest.mark.parametrize(("policy", "has_effect"), [("none", False), ("best-effort", True)])
async def test_best_effort_has_no_effect_under_policy_none(policy: str, has_effect: bool) -> None:
    story = await world(policy)
    key = "volcano.sh/numa-topology-policy"
    assert await placed(story, seen(annotations={key: "best-effort"})) == "n1"
    (reserved,) = await story.events(PodReserved)
    assert reserved.without_effect == (() if has_effect else (key,))


@pytest.mark.parametrize(
    ("policy", "has_effect"), [("best-effort", False), ("single-numa-node", True)]
)
async def test_preferring_exclusive_zones_has_no_effect_where_pods_are_over_several(
    policy: str, has_effect: bool
) -> None:
    story = await world(policy)
    spec = '{"singleNUMANodeExclusive":"Preferred"}'
    wanted = {"scheduling.koordinator.sh/numa-topology-spec": spec}
    assert await placed(story, seen(annotations=wanted)) == "n1"
    (reserved,) = await story.events(PodReserved)
    assert reserved.without_effect == (() if has_effect else (PREFERS_EXCLUSIVE,))
    message = ignored_preferences(reserved.without_effect)
    assert ("the kubelet chooses zones without regard to it" in message) is not has_effect


async def test_a_value_that_is_nested_too_deeply_counts_as_not_kept() -> None:
    assert seen(annotations={SPEC: '{"other":' + "[" * 9000}).pod.constraints.kept


# Per key and what it asks for: a value that asks for exactly that. `x` serves the other keys.
EXAMPLES: dict[tuple[str, Ask], str] = {
    ("scheduling.koordinator.sh/numa-topology-spec", "zones"):
        '{"numaTopologyPolicy": "SingleNUMANode"}',
    ("scheduling.koordinator.sh/numa-topology-spec", "preference"):
        '{"numaTopologyPolicy": "BestEffort"}',
    (PREFERS_EXCLUSIVE, "preference"): '{"singleNUMANodeExclusive": "Preferred"}',
    ("volcano.sh/numa-topology-policy", "zones"): "single-numa-node",
    ("volcano.sh/numa-topology-policy", "preference"): "best-effort",
    ("node.koordinator.sh/numa-topology-policy", "zones"): "SingleNUMANode",
    ("node.koordinator.sh/numa-memory-policy", "memory zones"): "static",
    ("node.koordinator.sh/cpu-bind-policy", "full cores"): "FullPCPUsOnly",
    ("koordinator.sh/qosClass", "exclusive CPUs"): "LSR",
    (SPEC, "full cores"): '{"requiredCPUBindPolicy": "FullPCPUs"}',
    (SPEC, "scheduler"): '{"requiredCPUBindPolicy": "SpreadByPCPUs"}',
    (SPEC, "preference"): '{"preferredCPUBindPolicy": "SpreadByPCPUs"}',
    ("katalyst.kubewharf.io/qos_level", "exclusive CPUs"): "dedicated_cores",
    ("topology.crane.io/cpu-policy", "exclusive CPUs"): "exclusive",
    ("topology.crane.io/cpu-policy", "scheduler"): "numa",
    ("scheduling.koordinator.sh/device-joint-allocate", "preference"):
        '{"deviceTypes": ["gpu", "rdma"]}',
    ("scheduling.koordinator.sh/device-joint-allocate", "device"):
        '{"deviceTypes": ["gpu", "rdma"], "requiredScope": "SamePCIe"}',
    ("scheduling.koordinator.sh/device-allocate-hint", "device"):
        '{"gpu": {"exclusivePolicy": "PCIeLevel"}}',
    ("scheduling.koordinator.sh/gpu-partition-spec", "device"): '{"allocatePolicy": "Restricted"}',
    ("scheduling.koordinator.sh/gpu-partition-spec", "preference"): "{}",
    ("gang.scheduling.koordinator.sh/network-topology-spec", "gang"):
        '{"gatherStrategy": [{"layer": "rack", "strategy": "MustGather"}]}',
    ("gang.scheduling.koordinator.sh/network-topology-spec", "preference"):
        '{"gatherStrategy": [{"layer": "rack", "strategy": "PreferGather"}]}',
    ("volcano.sh/network-topology-mode", "preference"): "soft",
}  # fmt: skip


@pytest.mark.parametrize(
    ("row", "ask"),
    [pytest.param(row, ask, id=f"{row.key}, {ask}") for row in KEYS for ask in row.treated],
)
async def test_the_table_says_what_happens_to_a_key_that_the_kubelet_does_not_keep(
    row: SchedulerKey, ask: Ask
) -> None:
    """The node's kubelet aligns nothing. A requirement makes the pod wait with an event that names
    the key; a preference is named in the condition of the bound pod."""
    key = row.key.partition(":")[0].replace("*", "core")
    words = {key: EXAMPLES.get((row.key, ask), "x")}
    labels = words if row.place == "node label" else {}
    story = await world(tracked=("memory",) if ask == "exclusive CPUs" else ("cpu",), labels=labels)
    pod = seen(
        annotations=words if row.place == "pod annotation" else {},
        labels=words if row.place == "pod label" else {},
        more={key if row.place == "resource" else "nvidia.com/gpu": "1"},
    )
    answer = await placed(story, pod)
    if TREATMENTS[ask] == NO_EFFECT:
        assert answer == "n1"
        (reserved,) = await story.events(PodReserved)
        assert row.key in reserved.without_effect
        assert key in ignored_preferences(reserved.without_effect)
    else:
        assert key in answer or "gang ns/x waits: its PodGroup ns/x" in answer
