"""Nodes whose zones Topolog chooses: reservations carry allocations, and the log restores them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.binder import core as binder_core
from services.binder.admissions import Admissions
from services.scheduler.snapshot.owners import STRATEGY_LABEL, owners_of
from services.topology_store.delta import changes
from services.topology_store.intake import read_object
from shared.domain.gang import Gang
from shared.domain.policies import Policy
from shared.domain.report import Placement, Report, ZonedAmount
from shared.domain.resources import CPU, MEMORY
from shared.domain.state_hash import state_hash
from shared.domain.zone_allocation import RESOURCE_STATUS, ZoneAllocation, annotations_of
from shared.events import streams
from shared.events.binding_events import PodBound
from shared.events.cluster_events import NodeObserved, PodEnded
from shared.events.report_events import NodeReportChanged, NodeReported
from shared.events.scheduling_events import (
    DemandWeighed,
    PodAllocationFound,
    PodNominated,
    PodReserved,
    PodVerdictChanged,
)
from shared.kube.koordlet import RESERVATION
from shared.kubelet.cpuset import parse_cpus, union
from shared.owned.drift import drift_of
from tests.kube.test_koordlet import koordlets
from tests.scheduler.owned.given import GIB, OwnedWorld, exclusive, owned_report, share

KOORDLETS_OFFER = {CPU: 6_000, MEMORY: 128 * GIB, "pods": 110}


def koordlets_report(*allocs: dict[str, Any]) -> Report:
    """A node of two zones with 4 CPUs, of which koordlet keeps two, as the topology-store reads
    its object."""
    kept = {RESERVATION: '{"reservedCPUs":"0-1"}'}
    topology = koordlets({"policy": "none"}, list(allocs) or None, kept)
    topology["metadata"]["resourceVersion"] = str(7 + len(allocs))
    report = read_object(topology | {"topologyPolicies": ["None"]})
    assert isinstance(report, Report)
    return report


def allocation(reserved: PodReserved) -> ZoneAllocation:
    assert reserved.allocation is not None
    return reserved.allocation


def test_a_share_that_fits_no_zone_waits_although_the_node_has_room() -> None:
    world = OwnedWorld()
    world.node()
    assert world.place(share("large", 20_000)) == {}
    assert any(isinstance(event, PodVerdictChanged) for _, event in world.log)


def test_restricted_splits_a_pod_over_two_zones() -> None:
    world = OwnedWorld("restricted")
    world.node()
    zones = allocation(world.place(share("large", 20_000))["large"]).zones
    assert [amounts[CPU] for amounts in zones.values()] == [10_000, 10_000]


def test_best_effort_chooses_a_zone_too() -> None:
    world = OwnedWorld("best-effort")
    world.node()
    assert len(allocation(world.place(share("p", 4_000))["p"]).zones) == 1
    assert len(allocation(world.place(share("large", 20_000))["large"]).zones) == 2


@pytest.mark.parametrize(("value", "zones"), [("", 1), ("MostAllocated", 1), ("LeastAllocated", 2)])
def test_zones_are_filled_one_after_the_other_unless_the_label_spreads_pods(
    value: str, zones: int
) -> None:
    """A zone that stays empty has room for a pod as large as a zone."""
    world = OwnedWorld()
    world.node(labels={STRATEGY_LABEL: value} if value else {})
    first, second = (allocation(world.place(exclusive(name, 4))[name]).zones for name in "ab")
    assert len({*first, *second}) == zones
    assert bool(world.place(exclusive("zone", 15))) == (zones == 1)


@pytest.mark.parametrize("policy", ["best-effort", "restricted"])
def test_a_node_with_one_zone_for_the_pod_comes_before_a_node_that_splits_it(
    policy: Policy,
) -> None:
    """Best fit alone would take the fuller node, whose zones have 8 CPUs each."""
    world = OwnedWorld(policy)
    world.node("fuller")
    for zone in (0, 1):
        status = f'{{"numaNodeResources":[{{"node":{zone},"resources":{{"cpu":"7"}}}}]}}'
        pod = share(f"held-{zone}", 7_000, annotations={RESOURCE_STATUS: status})
        world.seen(pod, "fuller")
    world.turn()
    assert world.place(share("small", 6_000))["small"].node == "fuller"
    world.node("empty")
    reserved = world.place(share("p", 10_000))["p"]
    assert (reserved.node, len(allocation(reserved).zones)) == ("empty", 1)


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [("KoordinatorMostAllocated", "used"), ("KoordinatorLeastAllocated", "empty")],
)
def test_koordinators_strategies_count_the_zones_in_use(strategy: str, expected: str) -> None:
    world = OwnedWorld(strategy=strategy)
    for name in ("empty", "used"):
        world.node(name)
    status = '{"numaNodeResources":[{"node":0,"resources":{"cpu":"1"}}]}'
    world.seen(share("held", 1_000, annotations={RESOURCE_STATUS: status}), "used")
    world.turn()
    assert world.place(share("p", 15_000))["p"].node == expected


@pytest.mark.parametrize(("value", "score"), [("MostAllocated", 50), ("LeastAllocated", 75)])
def test_the_nodes_label_counts_zones_in_use_under_every_strategy(value: str, score: int) -> None:
    """The example of Koordinator's proposal 20230415: one of four zones is in use, and the pod
    needs another one.
    """
    world, expected = OwnedWorld(), {"MostAllocated": "used", "LeastAllocated": "empty"}[value]
    for name in ("empty", "used"):
        world.node(name, zones=4, labels={STRATEGY_LABEL: value})
    status = '{"numaNodeResources":[{"node":0,"resources":{"cpu":"1"}}]}'
    world.seen(share("held", 1_000, annotations={RESOURCE_STATUS: status}), "used")
    world.turn()
    reserved = world.place(share("p", 15_000))["p"]
    assert (reserved.node, reserved.score, reserved.without_effect) == (expected, score, ())


def test_demand_is_weighed_by_zone_on_nodes_whose_zones_topolog_chooses() -> None:
    """A zone of 16 CPUs and 64 GiB, less what is reserved, holds two pods of 30 GiB."""
    world = OwnedWorld()
    world.node()
    world.place(*[exclusive(f"p{at}", 4, 30) for at in range(20)])
    world.turn()
    events = [event for _, event in world.log if isinstance(event, DemandWeighed)]
    wanted = [(each.running, each.waiting, each.room) for each in events[-1].wanted]
    assert wanted == [(4, 16, 0)]


def test_a_stranger_keeps_no_zone_from_pods_with_a_policy_of_their_own() -> None:
    """A pod that Topolog did not place counts in every zone, but must not count as a pod over
    several zones, which would bar pods with a policy.
    """
    world = OwnedWorld("none")
    world.node()
    world.seen(share("stranger", 1_000, scheduler_name="other"), "n1")
    spec = {
        "scheduling.koordinator.sh/numa-topology-spec": '{"numaTopologyPolicy":"SingleNUMANode"}'
    }
    assert len(allocation(world.place(share("p", 4_000, annotations=spec))["p"]).zones) == 1


def test_full_zones_are_avoided_and_then_refused() -> None:
    world = OwnedWorld()
    world.node()
    made = world.place(*[share(f"p{at}", 1_000, 40) for at in range(3)])
    assert sorted(zone for r in made.values() for zone in allocation(r).zones) == [0, 1]


def test_a_pod_with_whole_cpus_gets_its_own_and_the_prediction_names_the_zone() -> None:
    world = OwnedWorld()
    world.node()
    reserved = world.place(exclusive("p", 4))["p"]
    (zone,) = allocation(reserved).zones
    assert parse_cpus(allocation(reserved).cpus).bit_count() == 4
    assert (reserved.predicted, reserved.certain) == ({"c": (zone,)}, True)
    assert allocation(reserved).resource_spec == '{"preferredCPUBindPolicy":"FullPCPUs"}'


def test_victims_are_of_one_zone_shares_included() -> None:
    """Of pods that fill two zones, two make room in one zone, although any two are enough CPUs."""
    world = OwnedWorld()
    world.node()
    low = [share("a", 8_000), exclusive("b", 8), exclusive("c", 7), share("d", 7_000)]
    zones = {name: set(allocation(r).zones) for name, r in world.place(*low).items()}
    for pod in low:
        world.seen(pod, "n1")
    world.seen(share("urgent", 14_000, priority=100))
    made = [event for _ in range(2) for event in world.turn()]
    (nominated,) = [event for event in made if isinstance(event, PodNominated)]
    victims = [zones[uid.removeprefix("uid-")] for uid in nominated.victims]
    assert len(victims) == 2
    assert victims[0] == victims[1]


def test_an_end_frees_exactly_what_the_pod_held() -> None:
    world = OwnedWorld()
    world.node(zones=1)
    first = world.place(exclusive("a", 14))["a"]
    assert world.place(exclusive("b", 14)) == {}
    world.tell(streams.pod("uid-a"), PodEnded("uid-a", "succeeded"))
    second = next(event for event in world.turn() if isinstance(event, PodReserved))
    assert allocation(second).cpus == allocation(first).cpus


def test_a_pod_without_allocation_is_charged_in_every_zone_until_its_zones_are_known() -> None:
    world = OwnedWorld()
    world.node(labels={}, enforced=())
    world.seen(share("stranger", 10_000, scheduler_name="other"), "n1")
    assert world.place(share("p", 8_000)) == {}
    status = '{"numaNodeResources":[{"node":1,"resources":{"cpu":"10"}}]}'
    world.seen(share("annotated", 1_000, annotations={RESOURCE_STATUS: status}), "n1")
    (event,) = [event for event in world.turn() if isinstance(event, PodAllocationFound)]
    assert (event.uid, event.source) == ("uid-annotated", "annotation")
    assert event.allocation.zones == {1: {CPU: 10_000}}
    assert [event for event in world.turn() if isinstance(event, PodAllocationFound)] == []


@pytest.mark.parametrize(
    "status",
    [
        '{"numaNodeResources":[{"node":7,"resources":{"cpu":"1"}}]}',
        '{"numaNodeResources":[{"node":0,"resources":{"cpu":"-100"}}]}',
        '{"other":' + "[" * 9000,
    ],
)
def test_an_annotation_that_cannot_be_true_frees_nothing(status: str) -> None:
    """The pod counts in every zone, like a pod without an annotation."""
    world = OwnedWorld()
    world.node("n1")
    world.seen(share("forged", 6_000, annotations={RESOURCE_STATUS: status}), "n1")
    assert [event for event in world.turn() if isinstance(event, PodAllocationFound)] == []
    assert world.place(exclusive("p", 10)) == {}
    assert "p" in world.place(exclusive("p", 9))


def test_what_the_enforcer_reports_of_a_stranger_is_taken_over() -> None:
    world, stranger = OwnedWorld(), share("stranger", 10_000)
    world.seen(stranger, "n1")
    in_zone_1 = (ZonedAmount(CPU, (1,), 0, "17-31"),)
    world.node(enforced=(Placement("ns", "stranger", "c", in_zone_1, stranger.uid),))
    (event,) = [event for event in world.turn() if isinstance(event, PodAllocationFound)]
    assert (event.source, event.allocation.zones) == ("enforcer", {1: {CPU: 10_000}})
    assert list(allocation(world.place(share("p", 8_000))["p"]).zones) == [0]


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(1, 9), st.integers(1, 30)), max_size=12))
def test_no_zone_is_overfull_no_cpu_is_given_twice_and_a_replay_knows_the_same(
    asked: list[tuple[bool, int, int]],
) -> None:
    world = OwnedWorld("restricted")
    world.node("n1")
    world.node("n2", zones=4)
    amounts_by_zone: dict[tuple[str, int], dict[str, int]] = {}
    cpus: dict[str, int] = {}
    for number, (is_exclusive, cpu, memory) in enumerate(asked):
        made = exclusive if is_exclusive else share
        pod = made(f"p{number}", cpu if is_exclusive else cpu * 700, memory)
        for reserved in world.place(pod).values():
            given_cpus = parse_cpus(allocation(reserved).cpus)
            assert not cpus.get(reserved.node, 0) & given_cpus
            cpus[reserved.node] = cpus.get(reserved.node, 0) | given_cpus
            sums = dict.fromkeys((CPU, MEMORY), 0)
            for zone, amounts in allocation(reserved).zones.items():
                total = amounts_by_zone.setdefault((reserved.node, zone), dict.fromkeys(sums, 0))
                for name, amount in amounts.items():
                    sums[name] += amount
                    total[name] += amount
                assert total[CPU] <= 15_000
                assert total[MEMORY] <= 62 * GIB
            assert sums == pod.containers[0].requests
    assert state_hash(world.again().ledger) == state_hash(world.core.ledger)
    pod = exclusive("next", 3)
    world.seen(pod)
    again = world.again()
    assert [made.drafts for made in again.decide(9)] == [
        made.drafts for made in world.core.decide(9)
    ]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"cpu_policy": "static"}, "cpuManagerPolicy is static"),
        ({"memory_policy": "Static"}, "memoryManagerPolicy is Static"),
        ({"policy": "restricted"}, "topologyManagerPolicy is restricted"),
        ({"enforcer": ""}, "no agent on the node reports that it enforces zones"),
        ({"enforcer": "unknown"}, "no agent on the node reports that it enforces zones"),
        ({"cpu_policy": "unknown"}, "the report does not name the kubelet's managers"),
    ],
)
def test_topolog_owns_only_what_the_kubelet_does_not(fields: dict[str, Any], reason: str) -> None:
    assert owners_of(owned_report("n1")).is_owned
    owners = owners_of(owned_report("n1", **fields))
    assert (owners.is_owned, owners.reason) == (False, reason)


def test_a_strict_policy_that_nothing_keeps_refuses_with_the_reason() -> None:
    world = OwnedWorld()
    world.node(enforcer="")
    assert world.place(share("p", 1_000)) == {}
    (verdict,) = [event for _, event in world.log if isinstance(event, PodVerdictChanged)]
    assert "no agent on the node reports that it enforces zones" in verdict.message


def test_koordinators_labels_decide_who_gets_a_set() -> None:
    world = OwnedWorld("restricted")
    world.node()
    labels = {"koordinator.sh/qosClass": "LSR"}
    made = world.place(
        share("lsr", 4_000, 1, labels=labels),
        exclusive("ls", 4, labels={"koordinator.sh/qosClass": "LS"}),
        share("mid", 4_000, 1, labels=labels, priority=7_000),
    )
    assert {name: bool(allocation(r).cpus) for name, r in made.items()} == {
        "lsr": True,
        "ls": False,
        "mid": False,
    }


def test_the_memory_label_decides_whether_memory_is_counted_or_bound() -> None:
    label = "node.koordinator.sh/numa-memory-policy"
    world = OwnedWorld()
    world.node("n1", labels={label: "bind"})
    reserved = world.place(exclusive("p", 2))["p"]
    assert annotations_of(allocation(reserved))[label] == "bind"
    uncounted = OwnedWorld()
    uncounted.node("n1", labels={label: "none"})
    assert MEMORY not in next(
        iter(allocation(uncounted.place(share("p", 2, 90))["p"]).zones.values())
    )


def test_koordlet_enforces_what_the_binding_carries_and_its_list_is_proof() -> None:
    """From its object to the Binding, and back: pods of others are known by `pod-cpu-allocs`."""
    world = OwnedWorld()
    binder, admissions = binder_core.initial(), Admissions()
    world.tell(streams.node("n1"), NodeObserved("n1", "uid-n1", allocatable=KOORDLETS_OFFER))
    reported = koordlets_report()
    world.tell(streams.report("n1"), NodeReported(reported))
    assert owners_of(reported).text == "cpu: topolog, memory: topolog, devices: kubelet"
    reserved = world.place(exclusive("p", 2))["p"]
    assert (list(allocation(reserved).zones), allocation(reserved).cpus) == ([0], "2-3")
    world.seen(exclusive("other", 2), node="n1")
    assert world.place(exclusive("q", 4)) == {}, "the other pod may be anywhere"
    world.tell(streams.pod("uid-p"), PodBound("uid-p", "n1"))
    listed = koordlets_report(
        {"namespace": "ns", "name": "p", "uid": "uid-p", "cpuset": "2-3"},
        {"namespace": "ns", "name": "other", "uid": "uid-other", "cpuset": "4-5"},
    )
    delta = changes(reported, listed)
    assert isinstance(delta, NodeReportChanged)
    world.tell(streams.report("n1"), delta)
    (takeover,) = [event for event in world.turn() if isinstance(event, PodAllocationFound)]
    assert (takeover.uid, takeover.source, takeover.allocation.cpus) == (
        "uid-other",
        "enforcer",
        "4-5",
    )
    assert list(takeover.allocation.zones) == [1]
    assert allocation(world.place(exclusive("r", 2))["r"]).cpus == "6-7"
    proofs = []
    for envelope, event in world.log:
        binder = binder_core.evolve(binder, envelope, event)
        proofs += admissions.fold(event)
        if event == reserved:
            written = binder_core.binding_annotations(binder.work["uid-p"])
    assert written[RESOURCE_STATUS] == (
        '{"cpuset":"2-3","numaNodeResources":[{"node":0,"resources":{"cpu":"2","memory":"1Gi"}}]}'
    )
    assert [(proof.uid, proof.zones, proof.unlike) for proof in proofs] == [
        ("uid-p", {"": (0,)}, "")
    ]


def test_a_pod_that_gets_other_cpus_later_is_announced_once() -> None:
    world = OwnedWorld()
    world.node()
    world.place(exclusive("p", 2))
    world.tell(streams.pod("uid-p"), PodBound("uid-p", "n1"))
    for ids in ("2-3", "2-3,5", "2-3,5", "2-3", "2-3,7"):
        zonal = (ZonedAmount(CPU, (0,), 2_000, ids),)
        placement = Placement("ns", "p", "c", zonal, "uid-p")
        world.tell(
            streams.report("n1"), NodeReportChanged("n1", "boot-1", 1, enforced=(placement,))
        )
    world.tell(streams.pod("uid-p"), PodEnded("uid-p", "succeeded"))
    admissions = Admissions()
    drifts = [pod.drift for _, event in world.log for pod in admissions.fold(event)]
    assert drifts == [
        "",
        "Runs on n1 otherwise than reserved: container c: CPUs 2-3,5, reserved are 2-3",
        "Runs on n1 otherwise than reserved: container c: CPUs 2-3,7, reserved are 2-3",
    ]


def test_koordlet_lists_other_cpus_than_were_reserved() -> None:
    drift = drift_of(
        ZoneAllocation({0: {CPU: 2_000}}, "2-3"),
        koordlets_report({"namespace": "ns", "uid": "uid-p", "name": "p", "cpuset": "2,6"}).enforced
        or (),
    )
    assert drift == "the pod: CPUs 2,6, reserved are 2-3"


def test_a_gang_is_given_cpus_as_a_whole_or_leaves_those_of_its_turn() -> None:
    world = OwnedWorld()
    world.node()
    large = [exclusive(f"l{n}", 8, gang=Gang("ns/large", 4)) for n in range(4)]
    small = [exclusive(f"s{n}", 3, gang=Gang("ns/small", 3)) for n in range(3)]
    reserved = world.place(exclusive("first", 8), *large, exclusive("last", 8), *small)
    assert set(reserved) == {"first", "last", "s0", "s1", "s2"}
    cpus = [parse_cpus(allocation(event).cpus) for event in reserved.values()]
    assert sum(one.bit_count() for one in cpus) == union(cpus).bit_count() == 25
