"""Gangs whose pods are together on nodes with one value of a label."""

from __future__ import annotations

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.domain.gang import Gang, GangRules
from shared.domain.pod import Pod
from shared.events import streams
from shared.events.binding_events import BindIntended, PodBound
from shared.events.scheduling_events import PodReserved
from tests.ledger.given import pod, zone
from tests.scheduler.default.story import Story

RACK, BLOCK = "example.com/rack", "example.com/block"


def member(name: str, rules: GangRules, size: int = 3, cpus: int = 4) -> Pod:
    return pod(name, cpus=cpus, gang=Gang("ns/train", size, rules=rules))


async def world(racks: dict[str, list[int]], block: str = "b1", **layers: str) -> Story:
    """Nodes of one zone with these free CPUs, by rack."""
    story = Story(topology_layers=layers)
    for rack, free in racks.items():
        for number, cpus in enumerate(free):
            name = f"{rack}-{number}"
            labels = {RACK: rack, BLOCK: block} if rack else {}
            await story.node(
                name, labels=labels, allocatable={"cpu": cpus * 1000, "memory": 1 << 40}
            )
            await story.report(zone(0, cpus), node=name)
    return story


async def decide(story: Story) -> dict[str, str]:
    """Return the node of each pod that this turn reserves."""
    earlier = set(await story.reservations())
    await story.decide()
    return dict(set(await story.reservations()) - earlier)


def racks_of(nodes: dict[str, str]) -> set[str]:
    return {node.partition("-")[0] for node in nodes.values()}


async def test_a_gang_is_in_one_required_domain_and_leaves_the_larger_one_free() -> None:
    story = await world({"r1": [4, 4], "r2": [4] * 5, "r3": [4] * 3, "": [4] * 4})
    await story.arrives(*(member(name, GangRules(required=(RACK,))) for name in "abc"))
    nodes = await decide(story)
    assert (len(nodes), racks_of(nodes)) == (3, {"r3"})
    assert [event.gang_domain for event in await story.events(PodReserved)] == [{RACK: "r3"}] * 3


async def test_the_refusal_names_the_domain_that_is_nearest() -> None:
    story = await world({"r1": [4], "r2": [4, 4]})
    pods = [member(name, GangRules(required=(RACK,))) for name in "abc"]
    await story.arrives(*pods)
    assert await decide(story) == {}
    (message,) = await story.verdicts(pods[0])
    begin = (
        f"gang ns/train: 2 of 3 pods fit, in {RACK} r2; for the next one: 0/3 nodes are available"
    )
    assert message.startswith(begin)
    await story.node("r2-2", labels={RACK: "r2"})
    await story.report(zone(0, 4), node="r2-2")
    assert racks_of(await decide(story)) == {"r2"}


async def test_a_layer_without_labels_is_said() -> None:
    story = await world({"": [4, 4, 4]})
    pods = [member(name, GangRules(required=("BlockLayer",))) for name in "abc"]
    await story.arrives(*pods)
    assert await decide(story) == {}
    (message,) = await story.verdicts(pods[0])
    assert message == "gang ns/train: no node has labels for the layer(s) BlockLayer"


async def test_layers_get_their_labels_by_a_setting_and_preferred_ones_may_be_missed() -> None:
    rules = GangRules(required=("BlockLayer",), preferred=("RackLayer",))
    layers = {"BlockLayer": BLOCK, "RackLayer": RACK}
    for racks, expected in (
        ({"r1": [4, 4], "r2": [4, 4, 4, 4]}, {"r2"}),
        ({"r1": [4, 4], "r2": [4, 4]}, {"r1", "r2"}),
    ):
        story = await world(racks, **layers)
        await story.arrives(*(member(name, rules) for name in "abc"))
        assert racks_of(await decide(story)) == expected


async def test_a_later_pod_goes_where_its_gang_is() -> None:
    story = await world({"r1": [4, 4, 4], "r2": [8] * 4})
    rules = GangRules(required=(RACK,))
    pods = [member(name, rules) for name in "abcd"]
    await story.arrives(*pods[:3])
    assert racks_of(await decide(story)) == {"r1"}
    for event in await story.events(PodReserved):
        stream, name = streams.pod(event.uid), event.uid.removeprefix("uid-")
        await story.tell(stream, BindIntended(event.uid, "ns", name, event.node, 1))
        await story.tell(stream, PodBound(event.uid, event.node))
    await story.arrives(pods[3])
    assert await decide(story) == {}
    (message,) = await story.verdicts(pods[3])
    assert message.startswith(f"gang ns/train: this pod must be with the others, in {RACK} r1: 0/7")
    await story.ends(pods[0])
    await story.report(zone(0, 4), node="r1-0", at=2)
    assert racks_of(await decide(story)) == {"r1"}


async def test_a_pod_that_selects_another_domain_does_not_follow() -> None:
    story = await world({"r1": [4], "r2": [4]})
    pods = [member(name, GangRules(required=(RACK,)), size=2) for name in "ab"]
    for number, made in enumerate(pods):
        selector = {RACK: f"r{number + 1}"}
        constraints = msgspec.structs.replace(made.constraints, node_selector=selector)
        await story.arrives(msgspec.structs.replace(made, constraints=constraints))
    assert await decide(story) == {}


FREE = st.lists(st.integers(1, 5), min_size=1, max_size=3)


@settings(max_examples=25, deadline=None)
@given(st.lists(FREE, min_size=1, max_size=3), st.lists(st.integers(1, 4), min_size=2, max_size=4))
async def test_a_gang_has_nodes_if_one_domain_alone_would_place_it(
    racks: list[list[int]], cpus: list[int]
) -> None:
    by_rack = {f"r{number}": free for number, free in enumerate(racks)}

    async def placed(racks: dict[str, list[int]], rules: GangRules) -> dict[str, str]:
        story = await world(racks)
        size = len(cpus)
        await story.arrives(*(member(f"p{n}", rules, size, count) for n, count in enumerate(cpus)))
        return await decide(story)

    alone = [await placed({rack: free}, GangRules()) for rack, free in by_rack.items()]
    nodes = await placed(by_rack, GangRules(required=(RACK,)))
    assert bool(nodes) == any(alone)
    assert len(racks_of(nodes)) == bool(nodes)
