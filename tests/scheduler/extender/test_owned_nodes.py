"""The extender on nodes whose zones Topolog chooses."""

from __future__ import annotations

from typing import Any

from services.binder.core import Work, binding_annotations
from services.scheduler.core import CoreConfig
from services.scheduler.snapshot.config import CycleConfig
from shared.domain.booking import Owner, Terms, pod_for
from shared.domain.pod import Pod
from shared.domain.policies import Policy
from shared.domain.zone_allocation import RESOURCE_STATUS, ZoneAllocation
from shared.events import streams
from shared.events.cluster_events import NodeObserved, PodObserved
from shared.events.report_events import NodeReported
from shared.events.scheduling_events import BookingMade, PodReserved
from tests.runtime.helpers import until
from tests.scheduler.extender.test_extender import ROOMY, World, pod
from tests.scheduler.owned.given import GIB, exclusive, owned_report


async def owned(*names: str, policy: Policy = "single-numa-node", **fields: Any) -> World:
    """Nodes of two zones with 15 CPUs each for pods."""
    world = World(CoreConfig(cycle=CycleConfig(default_policy=policy)))
    for name in names:
        observed = NodeObserved(name, f"uid-{name}", allocatable=ROOMY)
        await world.tell(streams.node(name), observed)
        await world.tell(streams.report(name), NodeReported(owned_report(name, **fields)))
    return world


async def running(world: World, node: str, name: str, zone: int, cpus: str, priority: int) -> None:
    """A pod that koord-scheduler put there."""
    status = (
        f'{{"cpuset":"{cpus}","numaNodeResources":[{{"node":{zone},"resources":{{"cpu":"12"}}}}]}}'
    )
    made = exclusive(name, 12, annotations={RESOURCE_STATUS: status}, priority=priority)
    seen = PodObserved(made, node=node, phase="Running")
    await world.tell(streams.pod(made.uid), seen)


async def taken_over(world: World) -> None:
    """Wait until the log has what the running pods hold."""
    core = world.core
    assert core is not None
    await until(
        lambda: all(
            charge.allocation is not None
            for node in core.ledger.nodes.values()
            for charge in node.charges.values()
        )
    )


async def test_a_bind_gives_the_pod_a_zone_and_cpus_that_its_binding_carries() -> None:
    world = await owned("n1")
    async with world.at_work():
        assert (await world.filter(pod("p"), "n1"))["NodeNames"] == ["n1"]
        assert await world.bind(pod("p"), "n1") == ""
        (reserved,) = await world.events(PodReserved)
        assert reserved.allocation == ZoneAllocation(
            {0: {"cpu": 4000, "memory": GIB}},
            "2-5",
            resource_spec='{"preferredCPUBindPolicy":"FullPCPUs"}',
        )
        work = Work("uid-p", "n1", 1, allocation=reserved.allocation)
        assert binding_annotations(work)[RESOURCE_STATUS] == (
            '{"cpuset":"2-5","numaNodeResources":'
            '[{"node":0,"resources":{"cpu":"4","memory":"1Gi"}}]}'
        )


async def test_filter_and_scores_go_by_what_the_zones_have_left() -> None:
    """Two zones of the node `split` have 3 CPUs each, one of `part` has them all."""
    world = await owned("full", "split", "part", policy="restricted")
    for node, zone, cpus in (
        ("full", 0, "1-15"),
        ("full", 1, "18-29"),
        ("split", 0, "2-13"),
        ("split", 1, "18-29"),
        ("part", 0, "2-13"),
    ):
        await running(world, node, f"{node}-{zone}", zone, cpus, 0)
    async with world.at_work():
        await taken_over(world)
        answer = await world.filter(pod("p", cpus=6), "full", "split", "part")
        assert answer["NodeNames"] == ["split", "part"]
        assert list(answer["FailedAndUnresolvableNodes"]) == ["full"]
        rated = await world.post(
            "prioritize", {"Pod": pod("q", cpus=6), "NodeNames": ["full", "split", "part"]}
        )
    scores = {each["Host"]: each["Score"] for each in rated}
    assert scores["part"] > scores["split"] > scores["full"] == 0


async def test_preemption_frees_one_zone() -> None:
    world = await owned("n1")
    await running(world, "n1", "a", 0, "2-13", 0)
    await running(world, "n1", "b", 1, "18-29", 5)
    asking = pod("p", cpus=8, priority=1000)
    offer = {"n1": {"Pods": [{"UID": "uid-a"}, {"UID": "uid-b"}], "NumPDBViolations": 0}}
    async with world.at_work():
        await taken_over(world)
        answer = await world.post("preempt", {"Pod": asking, "NodeNameToMetaVictims": offer})
    assert answer["NodeNameToMetaVictims"]["n1"]["Pods"] == [{"UID": "uid-a"}]


async def test_a_node_without_an_agent_refuses_a_pod_that_needs_a_zone() -> None:
    async with (await owned("n1", enforcer="")).at_work() as world:
        answer = await world.filter(pod("p"), "n1")
    (text,) = answer["FailedAndUnresolvableNodes"].values()
    assert "no agent on the node reports that it enforces zones" in text


async def test_a_pod_of_kube_scheduler_uses_its_booking_and_no_other_pod_does() -> None:
    world = await owned("n1", "n2")
    like = Pod("", "", "", "Guaranteed", scheduler_name="topolog")
    room = pod_for("b", "b", {"cpu": 12_000}, like)
    terms = Terms((Owner(namespace="ns", name="mine"),), once=True)
    async with world.at_work():
        await world.tell(streams.pod("b"), BookingMade("b", room, terms))
        core = world.core
        assert core is not None
        await until(lambda: any(entry.node for entry in core.ledger.pods.values()))
        booked = core.ledger.pods["b"].node
        (full,) = {"n1", "n2"} - {booked}
        for name, node in (("x", full), ("y", full), ("z", booked)):  # Fill the other zones.
            assert node in (await world.filter(pod(name, 15), node))["NodeNames"]
            assert await world.bind(pod(name, 15), node) == ""
        assert (await world.filter(pod("foreign", 12), "n1", "n2"))["NodeNames"] == []
        answer = await world.filter(pod("mine", 12), "n1", "n2")
        assert answer["NodeNames"] == [booked]
        assert await world.bind(pod("mine", 12), booked) == ""
        (drawn,) = [made for made in await world.events(PodReserved) if made.drawn_from]
        assert (drawn.uid, drawn.node) == ("uid-mine", booked)
        await until(lambda: "b" not in core.ledger.pods)
