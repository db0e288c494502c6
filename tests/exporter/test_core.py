"""Accounting, placements and fingerprint sets of the exporter's core, against worked examples and a
plain reference.
"""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.exporter import core
from services.exporter.answers import (
    Allocatable,
    DeviceGroup,
    ListedContainer,
    ListedPod,
    MemoryBlock,
)
from services.exporter.checkpoints import NOTHING_READ, Checkpoints
from services.exporter.sysfs import Machine, NumaNode
from shared.domain.report import DeviceGroup as DeviceGroupOut
from shared.domain.report import (
    DynamicGroup,
    Freshness,
    Placement,
    Report,
    Zone,
    ZonedAmount,
    ZoneResource,
)
from shared.kubelet.fingerprint import fingerprint

GPU, NET = "vendor/gpu", "vendor/net"
EVEN_ODD = Machine(
    (
        NumaNode(0, tuple(range(0, 24, 2)), distances={0: 10, 1: 20}),
        NumaNode(1, tuple(range(1, 24, 2)), distances={0: 20, 1: 10}),
    )
)


def report(machine: Machine, allocatable: Allocatable, *pods: ListedPod, **extra: object) -> Report:
    rules = extra.pop("rules", core.Rules())
    scan = core.Scan(Freshness("boot", 5), machine, allocatable, pods, **extra)  # type: ignore[arg-type]
    return core.report("n1", "exporter-1", scan, rules)  # type: ignore[arg-type]


def pod(name: str, *containers: ListedContainer, **level: object) -> ListedPod:
    return ListedPod("default", name, containers, **level)  # type: ignore[arg-type]


def test_worked_example_of_resource_topology_exporter() -> None:
    devices = (
        DeviceGroup(GPU, ("gpuA",), (1,)),
        DeviceGroup(NET, ("netA",), (0,)),
        DeviceGroup(NET, ("netB",), (1,)),
    )
    used = ListedContainer("c", (5, 7), (), (DeviceGroup(NET, ("netB",), (1,)),))
    node_report = report(
        EVEN_ODD, Allocatable(tuple(range(2, 24)), (), devices), pod("test-pod-0", used)
    )
    assert node_report.zones[0].resources == {
        "cpu": ZoneResource(12000, 11000, 11000),
        NET: ZoneResource(1, 1, 1),
    }
    assert node_report.zones[1].resources == {
        "cpu": ZoneResource(12000, 11000, 9000),
        NET: ZoneResource(1, 1, 0),
        GPU: ZoneResource(1, 1, 1),
    }
    assert node_report.zones[0].costs == {0: 10, 1: 20}
    assert node_report.fingerprint == "pfp0v001fe53c4dbd2c5f4a0"
    assert node_report.tracked == ("cpu", GPU, NET)


def test_a_held_reserved_cpu_reduces_no_available_cpu() -> None:
    """If cores differ in threads, the kubelet takes whole cores with their reserved threads. CPUs
    0, 3 and 5 are held, and only two of them can be handed out."""
    machine = Machine((NumaNode(0, tuple(range(6))),))
    node_report = report(
        machine, Allocatable((1, 2, 3, 4, 5)), pod("p", ListedContainer("c", (0, 3, 5)))
    )
    assert node_report.zones[0].resources == {"cpu": ZoneResource(6000, 5000, 3000)}
    assert node_report.placements is not None
    assert node_report.placements[0].held == (ZonedAmount("cpu", (0,), 3000, "0,3,5"),)


def test_sparse_and_memory_only_nodes_keep_the_kernels_ids() -> None:
    machine = Machine((NumaNode(0, (0, 1), 100), NumaNode(4, (), 500, {"hugepages-2Mi": 64})))
    node_report = report(machine, Allocatable((1,), (MemoryBlock("memory", (4,), 400),)))
    assert node_report.zones == (
        Zone(0, {"cpu": ZoneResource(2000, 1000, 1000)}),
        Zone(4, {"memory": ZoneResource(500, 400, 400)}, bounds={"hugepages-2Mi": 64}),
    )


def test_zone_without_anything_allocatable_shows_its_cpus() -> None:
    node_report = report(EVEN_ODD, Allocatable())
    assert node_report.zones[0].resources == {"cpu": ZoneResource(12000, 0, 0)}
    assert node_report.tracked == ()


def test_capacity_is_raised_to_what_the_kubelet_offers() -> None:
    node_report = report(
        Machine((NumaNode(0, (0,), 10),)), Allocatable((), (MemoryBlock("memory", (0,), 99),))
    )
    assert node_report.zones[0].resources["memory"] == ZoneResource(99, 99, 99)


def test_block_over_two_zones_counts_in_full_in_both_and_available_never_goes_below_zero() -> None:
    blocks = (MemoryBlock("memory", (0,), 100), MemoryBlock("memory", (1,), 50))
    wide = ListedContainer("c", (), (MemoryBlock("memory", (0, 1), 80),))
    node_report = report(EVEN_ODD, Allocatable((), blocks), pod("p", wide))
    assert [zone.resources["memory"].available for zone in node_report.zones] == [20, 0]
    assert node_report.placements == (
        Placement("default", "p", "c", (ZonedAmount("memory", (0, 1), 80),)),
    )


def test_torn_answer_keeps_cpus_without_memory() -> None:
    node_report = report(EVEN_ODD, Allocatable((2, 3)), pod("p", ListedContainer("c", (2,))))
    assert node_report.placements == (
        Placement("default", "p", "c", (ZonedAmount("cpu", (0,), 1000, "2"),)),
    )


def test_pod_listed_before_admission_has_one_empty_placement() -> None:
    node_report = report(
        EVEN_ODD, Allocatable((2, 3)), pod("p", ListedContainer("c1"), ListedContainer("c2"))
    )
    assert node_report.placements == (Placement("default", "p", "c1"),)
    assert node_report.fingerprint == fingerprint([])


def test_device_on_two_nodes_is_one_device_in_two_zones() -> None:
    groups = (DeviceGroup(GPU, ("g",), (0,)), DeviceGroup(GPU, ("g",), (1,)))
    node_report = report(
        EVEN_ODD, Allocatable((), (), groups), pod("p", ListedContainer("c", (), (), groups))
    )
    assert node_report.placements is not None
    assert node_report.placements[0].held == (ZonedAmount(GPU, (0, 1), 1, "g"),)
    assert [zone.resources[GPU] for zone in node_report.zones] == [ZoneResource(1, 1, 0)] * 2


def test_device_without_affinity_is_in_no_zone_and_not_exclusive() -> None:
    group = (DeviceGroup(GPU, ("g",), ()),)
    node_report = report(
        EVEN_ODD, Allocatable((2, 3), (), group), pod("p", ListedContainer("c", (), (), group))
    )
    assert node_report.tracked == ("cpu",)
    assert all(GPU not in zone.resources for zone in node_report.zones)
    assert node_report.placements is not None
    assert node_report.placements[0].held == (ZonedAmount(GPU, (), 1, "g"),)
    assert node_report.fingerprint == fingerprint([])


def test_device_on_a_zone_that_the_machine_lacks_adds_no_zone() -> None:
    node_report = report(EVEN_ODD, Allocatable((2,), (), (DeviceGroup(GPU, ("g",), (9,)),)))
    assert [zone.id for zone in node_report.zones] == [0, 1]


@pytest.mark.parametrize("lists_pool", [True, False], ids=["1.37", "1.36"])
def test_a_pool_counts_once_although_its_containers_share_it(lists_pool: bool) -> None:
    """Kubelet 1.37 lists the pool, 1.36 has it in its checkpoints alone. In both, each container is
    listed with its own and shared resources."""
    blocks = (MemoryBlock("memory", (0,), 30),)
    own_container = ListedContainer("own", (2, 4), (MemoryBlock("memory", (0,), 10),))
    rest = (6, 8), (MemoryBlock("memory", (0,), 20),)
    parts = (own_container, ListedContainer("a", *rest), ListedContainer("b", *rest))
    named = {part.name: part for part in parts}
    pool = ListedContainer("", (2, 4, 6, 8), blocks)
    stored = checkpoints(("cpu", "memory"), uid_1={**named, "": pool})
    level = pod("p", *parts, cpus=pool.cpus, memory=blocks) if lists_pool else pod("p", *parts)
    offered = Allocatable(tuple(range(24)), (MemoryBlock("memory", (0,), 100),))
    node_report = report(
        EVEN_ODD, offered, level, checkpoints=NOTHING_READ if lists_pool else stored
    )
    assert node_report.zones[0].resources["cpu"].available == 8000
    assert node_report.zones[0].resources["memory"].available == 70
    amounts = (ZonedAmount("cpu", (0,), 4000, "2,4,6,8"), ZonedAmount("memory", (0,), 30))
    uid = "" if lists_pool else "uid-1"
    assert node_report.placements == (Placement("default", "p", "", amounts, uid),)
    assert node_report.hidden == ()


def checkpoints(read: tuple[str, ...], **holdings: dict[str, ListedContainer]) -> Checkpoints:
    return Checkpoints(
        read, {uid.replace("_", "-"): containers for uid, containers in holdings.items()}
    )


def test_init_containers_cpus_come_from_the_checkpoint_once() -> None:
    holding = {"init": ListedContainer("init", (2, 4, 3)), "c": ListedContainer("c", (2,))}
    stored = checkpoints(("cpu",), uid_1=holding, uid_2={"c": ListedContainer("c", (9,))})
    node_report = report(
        EVEN_ODD,
        Allocatable(tuple(range(24))),
        pod("p", ListedContainer("c", (2,))),
        checkpoints=stored,
    )
    kept = (ZonedAmount("cpu", (0,), 1000, "4"), ZonedAmount("cpu", (1,), 1000, "3"))
    assert node_report.placements == (
        Placement("default", "p", "c", (ZonedAmount("cpu", (0,), 1000, "2"),), "uid-1"),
        Placement("default", "p", "init", kept, "uid-1"),
    )
    assert [zone.resources["cpu"].available for zone in node_report.zones] == [10000, 11000]
    assert node_report.hidden == (
        Placement("", "", "c", (ZonedAmount("cpu", (1,), 1000, "9"),), "uid-2"),
    )
    assert node_report.checkpoints == ("cpu",)


def test_objects_count_the_listed_containers_alone() -> None:
    """The plugin counts those of the pods' specs, init containers not among them, and takes no
    payload of another count.
    """
    holding = {"init": ListedContainer("init", (2, 4)), "c": ListedContainer("c", (2,))}
    pods = (pod("p", ListedContainer("c", (2,))),)
    stored = checkpoints(("cpu",), uid_1=holding)
    scan = core.Scan(
        Freshness("boot", 5), EVEN_ODD, Allocatable(tuple(range(24))), pods, checkpoints=stored
    )
    node_report = core.report("n1", "exporter-1", scan, core.Rules())
    assert [item.container for item in node_report.placements or ()] == ["c", "init"]
    assert [item.container for item in core.as_listed(node_report, scan).placements or ()] == ["c"]
    assert core.as_listed(node_report, scan).zones == node_report.zones


def test_an_init_container_without_holdings_differs_from_a_missing_checkpoint() -> None:
    holding = {"init": ListedContainer("init", (2,)), "c": ListedContainer("c", (2, 4))}
    listed = pod("p", ListedContainer("c", (2, 4)))
    node_report = report(
        EVEN_ODD,
        Allocatable(tuple(range(24))),
        listed,
        checkpoints=checkpoints(("cpu",), uid_1=holding),
    )
    assert node_report.placements is not None
    assert node_report.placements[1] == Placement("default", "p", "init", (), "uid-1")
    untold = report(EVEN_ODD, Allocatable(tuple(range(24))), listed)
    assert untold.placements is not None
    assert len(untold.placements) == 1
    assert untold.checkpoints == ()


def test_devices_show_a_pods_uid_and_its_init_containers_memory_is_hidden_but_not_counted() -> None:
    group = DeviceGroup(GPU, ("g0",), (1,))
    block = MemoryBlock("memory", (1,), 30)
    holding = {
        "init": ListedContainer("init", (), (block,), (group,)),
        "c": ListedContainer("c", (), (), (group,)),
    }
    offered = Allocatable(
        (), (MemoryBlock("memory", (1,), 100),), (group, DeviceGroup(GPU, ("g1",), (1,)))
    )
    stored = checkpoints(("memory", "devices"), uid_1=holding)
    node_report = report(
        EVEN_ODD, offered, pod("p", ListedContainer("c", (), (), (group,))), checkpoints=stored
    )
    assert node_report.placements is not None
    assert [(item.container, item.pod_uid, item.held) for item in node_report.placements] == [
        ("c", "uid-1", (ZonedAmount(GPU, (1,), 1, "g0"),)),
        ("init", "uid-1", ()),
    ]
    assert node_report.hidden == (
        Placement("default", "p", "init", (ZonedAmount("memory", (1,), 30),), "uid-1"),
    )
    assert node_report.zones[1].resources["memory"] == ZoneResource(100, 100, 100)
    assert node_report.zones[1].resources[GPU] == ZoneResource(2, 2, 1)


def test_equal_podresources_and_checkpoints_are_steady() -> None:
    first, second = DeviceGroup(GPU, ("g0",), (1,)), DeviceGroup(GPU, ("g1",), (1,))
    blocks = MemoryBlock("memory", (0,), 30), MemoryBlock("hugepages-2Mi", (0,), 2)
    stored = ListedContainer("c", (2, 4), blocks, (DeviceGroup(GPU, ("g0", "g1"), (1,)),))
    listed = ListedContainer("c", (2, 4), blocks[::-1], (second, first))
    pods, holdings = (
        (pod("p", listed), pod("idle", ListedContainer("c"))),
        checkpoints(("cpu",), uid_1={"c": stored}),
    )
    assert settled(pods, holdings)
    assert not settled((), holdings), "not listed yet, or ended and not yet let go of"
    assert not settled((*pods, pod("q", listed)), holdings), "not stored yet"
    assert not settled((pod("p", msgspec.structs.replace(listed, memory=blocks[:1])),), holdings)
    assert not settled(
        pods, checkpoints(("cpu",), uid_1={"c": stored, "init": ListedContainer("init", (2,))})
    )
    assert not settled((pod("idle", ListedContainer("c")),), Checkpoints()), (
        "no checkpoint was read"
    )
    assert not settled(pods, holdings, dynamic=()), (
        "claims' devices are listed later, without a checkpoint"
    )


def settled(
    pods: tuple[ListedPod, ...],
    stored: Checkpoints,
    dynamic: tuple[DynamicGroup, ...] | None = None,
) -> bool:
    return core.is_steady(
        core.Scan(
            Freshness("boot", 5), EVEN_ODD, Allocatable(), pods, checkpoints=stored, dynamic=dynamic
        )
    )


def test_reserved_cpus_policies_and_devices_come_from_what_the_kubelet_offers() -> None:
    offered = Allocatable(
        tuple(range(2, 24)),
        (),
        (DeviceGroup(GPU, ("g-1", "g-2"), (1,)), DeviceGroup(NET, ("n",), ())),
    )
    lost = ListedContainer(
        "c", (), (), (DeviceGroup(GPU, ("g-3",), (1,)), DeviceGroup(GPU, ("g-1",), (1,)))
    )
    node_report = report(EVEN_ODD, offered, pod("p", lost))
    assert (
        node_report.reserved_cpus,
        node_report.cpu_policy,
        node_report.memory_policy,
        node_report.policy,
    ) == (
        "0-1",
        "static",
        "None",
        "unknown",
    )
    assert node_report.devices == (
        DeviceGroupOut(GPU, (1,), "g-[1-2]", "g-3"),
        DeviceGroupOut(NET, (), "n"),
    )
    without = report(EVEN_ODD, Allocatable())
    assert (without.reserved_cpus, without.cpu_policy, without.devices) == ("", "none", ())


def test_an_unpinned_resource_is_only_a_bound() -> None:
    machine = Machine((NumaNode(0, (0, 1), 100, {"hugepages-2Mi": 64}),))
    node_report = report(machine, Allocatable())
    assert node_report.zones[0].bounds == {"cpu": 2000, "memory": 36, "hugepages-2Mi": 64}
    assert node_report.tracked == ()


def test_excluded_pods_leave_accounting_and_fingerprint_and_excluded_resources_the_zones() -> None:
    rules = core.Rules("all", frozenset({"memory"}), (core.PodPattern("def*", "sys-?"),))
    offered = Allocatable((2, 3), (MemoryBlock("memory", (0,), 100),))
    node_report = report(
        EVEN_ODD, offered, pod("sys-a", ListedContainer("c", (2,))), pod("b"), rules=rules
    )
    assert node_report.zones[0].resources == {"cpu": ZoneResource(12000, 1000, 1000)}
    assert node_report.fingerprint == fingerprint([("default", "b")])
    assert node_report.tracked == ("cpu",)


def test_excluded_pods_are_those_that_go_matches() -> None:
    """RTE ef567ef3 leaves out all pods except those beginning with `a`; Python's own patterns left
    out those alone.
    """
    rules = core.Rules("all", excluded_pods=(core.PodPattern("*", "[^a]*"),))
    node_report = report(EVEN_ODD, Allocatable(), pod("a-1"), pod("b-1"), rules=rules)
    assert node_report.fingerprint == fingerprint([("default", "a-1")])


def test_a_device_in_a_zone_that_the_machine_lacks_is_in_the_fingerprint() -> None:
    """RTE ef567ef3 (numalocality.IsPresent) asks for a node id from 0 on, not whether the machine
    has it.
    """
    holder = pod("b", ListedContainer("c", devices=(DeviceGroup("vendor/x", ("d",), (77,)),)))
    node_report = report(EVEN_ODD, Allocatable(), holder, pod("a"))
    assert node_report.fingerprint == fingerprint([("default", "b")])
    assert node_report.placements is not None
    assert all(not holding.zones for item in node_report.placements for holding in item.held)


def test_publishes_on_change_after_an_interval_and_when_asked() -> None:
    first = report(EVEN_ODD, Allocatable((2,)))
    later = msgspec.structs.replace(first, boot_time_ms=9)
    second = msgspec.structs.replace(first, fingerprint="other")
    last = core.Published(first, 1000)
    assert core.should_publish(core.Published(), first, 0, 100, False)
    assert not core.should_publish(last, later, 1099, 100, False)
    assert core.should_publish(last, later, 1100, 100, False)
    assert core.should_publish(last, second, 1001, 100, False)
    assert core.should_publish(last, later, 1001, 100, True)


def test_a_held_unhealthy_device_takes_nothing_from_the_healthy_ones() -> None:
    """gpuA is held and no longer offered; gpuB is free, gpuW lies in both zones and is held."""
    offered = (
        DeviceGroup(GPU, ("gpuB",), (0,)),
        DeviceGroup(GPU, ("gpuW",), (0,)),
        DeviceGroup(GPU, ("gpuW",), (1,)),
    )
    ill = ListedContainer("c", (), (), (DeviceGroup(GPU, ("gpuA",), (0,)),))
    wide = ListedContainer(
        "c", (), (), (DeviceGroup(GPU, ("gpuW",), (0,)), DeviceGroup(GPU, ("gpuW",), (1,)))
    )
    node_report = report(EVEN_ODD, Allocatable((), (), offered), pod("ill", ill), pod("wide", wide))
    assert [zone.resources[GPU] for zone in node_report.zones] == [
        ZoneResource(2, 2, 1),
        ZoneResource(1, 1, 0),
    ]
    assert (node_report.devices or ())[0] == DeviceGroupOut(GPU, (0,), "gpuB", "gpuA")


DEVICES = st.frozensets(
    st.sampled_from([f"{zone}-{number}" for zone in (0, 1) for number in range(4)])
)


@given(DEVICES, st.lists(DEVICES, max_size=3))
def test_available_devices_are_healthy_and_free(
    healthy: frozenset[str], holders: list[frozenset[str]]
) -> None:
    offered = tuple(DeviceGroup(GPU, (item,), (int(item[0]),)) for item in sorted(healthy))
    holding = [
        tuple(DeviceGroup(GPU, (item,), (int(item[0]),)) for item in sorted(ids)) for ids in holders
    ]
    pods = [
        pod(f"p{number}", ListedContainer("c", (), (), groups))
        for number, groups in enumerate(holding)
    ]
    node_report = report(EVEN_ODD, Allocatable((), (), offered), *pods)
    free = healthy.difference(*holders)
    for zone in node_report.zones:
        gpus = zone.resources.get(GPU, ZoneResource(0, 0, 0))
        assert gpus.allocatable == sum(item[0] == str(zone.id) for item in healthy)
        assert gpus.available == sum(item[0] == str(zone.id) for item in free)


CPU_SETS = st.sets(st.integers(0, 23), max_size=6)


@given(st.lists(CPU_SETS, max_size=6), CPU_SETS)
def test_cpus_in_use_and_available_add_up(owners: list[set[int]], offered: set[int]) -> None:
    taken: set[int] = set()
    pods = []
    for number, wanted in enumerate(owners):
        extra = tuple(sorted((wanted & offered) - taken))
        taken.update(extra)
        pods.append(pod(f"p{number}", ListedContainer("c", extra)))
    node_report = report(EVEN_ODD, Allocatable(tuple(sorted(offered))), *pods)
    for zone, parity in zip(node_report.zones, (0, 1), strict=True):
        free = sum(1 for cpu in offered - taken if cpu % 2 == parity)
        assert zone.resources["cpu"].available == free * 1000
    placed = sum(
        entry.amount for placement in node_report.placements or () for entry in placement.held
    )
    assert placed == len(taken) * 1000
