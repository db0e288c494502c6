"""Extended resources of DRA drivers: not judged if the node's device plugins have none of them; the
node's zones are.
"""

from __future__ import annotations

from shared.events.scheduling_events import PodReserved
from shared.events.surroundings_events import DeviceClassObserved, SurroundingEnded
from tests.ledger.given import zone
from tests.scheduler.extender.test_extender import ROOMY, Json, World, pod

GPU, NIC = "example.com/gpu", "deviceclass.resource.kubernetes.io/nic.example.com"
CLASS = DeviceClassObserved("gpu.example.com", GPU)


def asking(devices: dict[str, str], cpus: int = 4, name: str = "p") -> Json:
    made = pod(name, cpus)
    made["spec"]["containers"][0]["resources"]["requests"].update(devices)
    made["spec"]["containers"][0]["resources"]["limits"].update(devices)
    return made


async def mixed(*classes: DeviceClassObserved) -> World:
    """A device plugin offers two GPUs of "plugin", no more of "gone", and never any of "claims"."""
    world = World()
    for device_class in classes:
        await world.tell(f"deviceclass/{device_class.name}", device_class)
    await world.node("plugin", zone(0, 8), zone(1, 8), offers={**ROOMY, GPU: 2})
    await world.node("gone", zone(0, 8), zone(1, 8), offers={**ROOMY, GPU: 0})
    await world.node("claims", zone(0, 8), zone(1, 2))
    await world.node("narrow", zone(0, 2), zone(1, 2))
    return world


async def test_a_resource_that_a_class_names_is_left_to_its_driver_where_no_plugin_offers_it() -> (
    None
):
    world = await mixed(CLASS)
    async with world.at_work():
        few = await world.filter(asking({GPU: "1"}), "plugin", "gone", "claims", "narrow")
        answer = await world.filter(asking({GPU: "4"}), "plugin", "gone", "claims", "narrow")
    assert sorted(few["NodeNames"]) == ["claims", "gone", "plugin"]
    assert "no NUMA zone as large" in few["FailedAndUnresolvableNodes"]["narrow"]
    assert sorted(answer["NodeNames"]) == ["claims", "gone"]
    assert GPU in answer["FailedAndUnresolvableNodes"]["plugin"]


async def test_a_resource_that_no_class_names_is_read_from_the_nodes() -> None:
    world = await mixed()
    async with world.at_work():
        answer = await world.filter(asking({GPU: "1"}), "plugin", "gone", "claims")
    assert answer["NodeNames"] == ["plugin"]


async def test_a_class_that_is_gone_leaves_nothing_to_its_driver() -> None:
    world = await mixed(CLASS)
    await world.tell(
        "deviceclass/gpu.example.com", SurroundingEnded("deviceclass", "gpu.example.com")
    )
    async with world.at_work():
        answer = await world.filter(asking({GPU: "1"}), "plugin", "gone", "claims")
    assert answer["NodeNames"] == ["plugin"]


async def test_one_by_its_classes_own_name_needs_no_resource_that_it_names() -> None:
    world = await mixed()
    async with world.at_work():
        answer = await world.filter(asking({NIC: "1"}), "plugin", "claims", "narrow")
    assert sorted(answer["NodeNames"]) == ["claims", "plugin"]


async def test_it_is_scored_and_bound_by_its_zones() -> None:
    world = await mixed(CLASS)
    async with world.at_work():
        made = asking({GPU: "1"})
        await world.filter(made, "claims")
        scores = await world.post(
            "prioritize", {"Pod": made, "NodeNames": ["plugin", "claims", "narrow"]}
        )
        assert {each["Host"]: each["Score"] > 0 for each in scores} == {
            "plugin": True,
            "claims": True,
            "narrow": False,
        }
        assert await world.bind(made, "claims") == ""
        assert [event.node for event in await world.events(PodReserved)] == ["claims"]
        other_pod = asking({GPU: "1"}, cpus=6, name="q")
        assert (
            "no NUMA zone with"
            in (await world.filter(other_pod, "claims"))["FailedAndUnresolvableNodes"]["claims"]
        )
        assert "no NUMA zone with" in await world.bind(other_pod, "claims")
