"""Claims of dynamic resource allocation: reported as listed, counted in zones if a slice or /sys
names one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from services.exporter import core, recorded, slices, wire
from services.exporter.answers import Allocatable
from services.exporter.podresources import podresources_pb2 as pb
from services.exporter.service import Exporter
from services.exporter.settings import ExporterSettings
from services.exporter.slices import SliceError
from services.exporter.source_recording import RecordingError
from services.topology_store.delta import changes, resembles
from services.topology_store.validation import problem_of
from shared.bus.memory import MemoryBus
from shared.domain import dynamic
from shared.domain.report import ClaimedDevice, DynamicGroup, Placement, Report, Zone, ZoneResource
from shared.kube.client import KubeClient
from shared.kube.nrt import to_nrt
from shared.kube.port import Answer, Lost
from shared.ledger.reports import apply_change
from tests.exporter.kubelets import Kubelet, write_sysfs
from tests.exporter.test_core import EVEN_ODD, report
from tests.exporter.test_service import Recorder, eventually
from tests.kube.test_rights import Authorizer, authorizer  # noqa: F401

GPU = "gpu.example.com"
NODE = "n1"


def claim(*devices: tuple[str, str, list[str]], name: str = "gpu") -> pb.DynamicResource:
    """A claim with devices (driver, device, CDI names)."""
    made = pb.DynamicResource(claim_name=name, claim_namespace="blue")
    for driver, device, cdi in devices:
        first = made.claim_resources.add(driver_name=driver, pool_name=NODE, device_name=device)
        for item in cdi:
            first.cdi_devices.add(name=item)
    return made


def listed(*claims: pb.DynamicResource) -> pb.ListPodResourcesResponse:
    answer = pb.ListPodResourcesResponse()
    container = answer.pod_resources.add(name="p", namespace="blue").containers.add(name="c")
    container.dynamic_resources.extend(claims)
    return answer


def device(name: str, attributes: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {"name": name, "attributes": attributes or {}, **more}


def slice_of(
    *devices: dict[str, Any], node: str = NODE, generation: int = 1, driver: str = GPU
) -> dict[str, Any]:
    spec = {
        "driver": driver,
        "nodeName": node,
        "pool": {"name": node, "generation": generation},
        "devices": list(devices),
    }
    return {"metadata": {"name": f"{node}-{driver}", "uid": "u"}, "spec": spec}


def numa(zone: int) -> dict[str, Any]:
    return {slices.NUMA_NODE: {"int": zone}}


class Sys:
    """A /sys tree of a few files."""

    def __init__(self, **files: str) -> None:
        self.files = files

    def text(self, path: str) -> str | None:
        return self.files.get(path.split("/")[3]) if path.endswith("/numa_node") else None


def grouped(*items: dict[str, Any], tree: Sys | None = None) -> tuple[DynamicGroup, ...]:
    return slices.groups(slices.devices(list(items), NODE), tree or Sys(), frozenset((0, 1)))


# -- what podresources lists
# --------------------------------------------------------------------------------------------------


def test_claims_are_reported_with_driver_pool_device_and_cdi_names() -> None:
    pods = wire.pods(
        listed(claim((GPU, "gpu-1", ["example.com/gpu=1"]), ("nic.example.com", "vf-3", [])))
    )
    node_report = report(EVEN_ODD, Allocatable(), *pods)
    (placement,) = node_report.placements or ()
    assert placement.held == ()
    assert placement.claims == (
        ClaimedDevice("blue/gpu", GPU, NODE, "gpu-1", cdi=("example.com/gpu=1",)),
        ClaimedDevice("blue/gpu", "nic.example.com", NODE, "vf-3"),
    )
    assert node_report.dynamic is None, "nobody asked for slices: nothing is known of zones"


def test_repeated_cdi_names_count_once() -> None:
    (pod,) = wire.pods(
        listed(
            claim(
                (GPU, "a", ["x=a"]), (GPU, "b", ["x=a", "x=b"]), (GPU, "c", ["x=a", "x=b", "x=c"])
            )
        )
    )
    assert [item.cdi for item in pod.containers[0].claims] == [("x=a",), ("x=b",), ("x=c",)]
    (pod,) = wire.pods(listed(claim((GPU, "a", ["x=all"]), (GPU, "b", ["x=all"]))))
    assert [item.cdi for item in pod.containers[0].claims] == [("x=all",), ("x=all",)]


def test_a_claim_without_devices_and_a_share_are_reported() -> None:
    shared = claim((GPU, "a", []))
    shared.claim_resources[0].share_id = "uid-7"
    (pod,) = wire.pods(listed(claim(name="empty"), shared))
    assert pod.containers[0].claims == (
        ClaimedDevice("blue/empty"),
        ClaimedDevice("blue/gpu", GPU, NODE, "a", "uid-7"),
    )


def test_a_zone_that_the_machine_lacks_elsewhere_costs_no_claim() -> None:
    answer = listed(claim((GPU, "a", [])))
    strange = answer.pod_resources[0].containers[0].memory.add(memory_type="memory", size=1)
    strange.topology.nodes.add(ID=77)
    (placement,) = report(EVEN_ODD, Allocatable(), *wire.pods(answer)).placements or ()
    assert len(placement.claims) == 1


# -- what slices say
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("attributes", "zones"),
    [
        (numa(1), (1,)),
        ({slices.NUMA_NODE: {"ints": [1, 0]}}, (1,)),
        ({"dra.cpu/numaNodeID": {"int": 0}}, (0,)),
        ({"numaNode": {"int": 1}}, (1,)),
        ({"dra.cpu/numaNode": {"int": 1}, "dra.net/numaNode": {"int": 1}}, (1,)),
        ({"dra.cpu/numaNode": {"int": 1}, "dra.net/numaNode": {"int": 0}}, ()),
        ({slices.PCI_ADDRESS: {"string": "0000:3B:00.0"}}, (1,)),
        ({slices.PCI_ADDRESS: {"string": "0000:5e:00.0"}}, ()),
        ({slices.PCI_ADDRESS: {"string": "../../../etc"}}, ()),
        ({**numa(0), slices.PCI_ADDRESS: {"string": "0000:3b:00.0"}}, (0,)),
        (numa(7), ()),
        (numa(-1), ()),
        ({slices.NUMA_NODE: {"string": "1"}}, ()),
        ({slices.NUMA_NODE: {"bool": True}}, ()),
        ({}, ()),
    ],
)
def test_the_zone_comes_from_the_first_attribute_or_is_unknown(
    attributes: dict[str, Any], zones: tuple[int, ...]
) -> None:
    tree = Sys(**{"0000:3b:00.0": "1\n", "0000:5e:00.0": "-1\n"})
    assert grouped(slice_of(device("a", attributes)), tree=tree) == (
        DynamicGroup(GPU, NODE, zones, "a"),
    )


def test_only_the_newest_generation_of_this_nodes_pools_counts() -> None:
    result = grouped(
        slice_of(device("old", numa(0)), generation=1),
        slice_of(device("a-1", numa(0)), generation=2),
        slice_of(device("a-2", numa(0)), generation=2),
        slice_of(device("theirs", numa(0)), node="n2", generation=9),
    )
    assert result == (DynamicGroup(GPU, NODE, (0,), "a-[1-2]"),)


def test_older_versions_keep_attributes_one_level_deeper() -> None:
    old = {"name": "a", "basic": {"attributes": numa(1)}}
    assert grouped(slice_of(old)) == (DynamicGroup(GPU, NODE, (1,), "a"),)


def test_parts_of_devices_are_not_counted_as_devices_and_tainted_ones_are_withheld() -> None:
    result = grouped(
        slice_of(
            device("whole", numa(0)),
            device("mig", numa(0), consumesCounters=[{"counterSet": "g"}]),
            device("cpus", numa(0), allowMultipleAllocations=True),
            device("ill", numa(0), taints=[{"key": "ill", "effect": "NoSchedule"}]),
            device("noted", numa(0), taints=[{"key": "x", "effect": "None"}]),
        )
    )
    assert result == (DynamicGroup(GPU, NODE, (0,), "noted,whole", "ill", "cpus,mig"),)
    counted = dynamic.by_zone(Report(NODE, "b", 1, dynamic=result))
    assert counted == {0: {f"resource.k8s.io/{GPU}": ZoneResource(3, 2, 2)}}


@pytest.mark.parametrize(
    "items", [None, [7], [{"spec": {}}], [{"spec": {"driver": 1, "pool": {"name": "p"}}}], {"a": 1}]
)
def test_a_document_without_slices_is_an_error(items: object) -> None:
    with pytest.raises(SliceError):
        slices.devices(items, NODE)


@pytest.mark.parametrize(
    ("items", "why"),
    [
        (
            [{"spec": {"driver": GPU, "pool": {"name": "p"}, "nodeName": NODE, "devices": 7}}],
            "not ResourceSlices",
        ),
        ([slice_of(device("A_b"))], "not names that an API server accepts"),
        ([slice_of(device("a"), driver="x" * 70)], "not names that an API server accepts"),
        (
            [slice_of(device("a", numa(0)), device("a", numa(1)))],
            f"{GPU}/{NODE}/a more than once",
        ),
        (
            [slice_of(*(device(f"{'d' * 50}-{number}") for number in range(2000)))],
            "at most 65536 are read",
        ),
        (
            [slice_of(device("a"), driver=f"d{number}") for number in range(600)],
            "600 pools in 600 places",
        ),
    ],
)
def test_invalid_or_too_many_slices_are_an_error(items: object, why: str) -> None:
    with pytest.raises(SliceError, match=why):
        slices.devices(items, NODE)


def test_a_thousand_functions_of_a_card_are_not_too_many() -> None:
    functions = [
        device(f"vf-{number}", {slices.PCI_ADDRESS: {"string": f"0000:{number:02x}:00.0"}})
        for number in range(1024)
    ]
    assert len(slices.devices([slice_of(*functions)], NODE)) == 1024


# -- counted
# --------------------------------------------------------------------------------------------------


def held(*names: str, pod: str = "p") -> Placement:
    return Placement(
        "blue", pod, "c", claims=tuple(ClaimedDevice("blue/x", GPU, NODE, name) for name in names)
    )


def counted(*placements: Placement) -> Report:
    groups = (
        DynamicGroup(GPU, NODE, (0,), "a-[1-3]"),
        DynamicGroup(GPU, NODE, (1,), "b"),
        DynamicGroup(GPU, NODE, (), "u"),
    )
    return Report(NODE, "boot", 1, zones=(Zone(0), Zone(1)), placements=placements, dynamic=groups)


def test_a_device_that_two_containers_share_is_taken_once() -> None:
    result = dynamic.by_zone(counted(held("a-1", "u"), held("a-1", "b", pod="q")))
    name = dynamic.resource_name(GPU)
    assert result == {0: {name: ZoneResource(3, 3, 2)}, 1: {name: ZoneResource(1, 1, 0)}}


def test_objects_show_the_counts_among_a_zones_resources_and_nothing_without_slices() -> None:
    shown = {zone["name"]: zone["resources"] for zone in to_nrt(counted(held("b")))["zones"]}
    assert shown["node-1"] == [
        {"name": f"resource.k8s.io/{GPU}", "capacity": "1", "allocatable": "1", "available": "0"}
    ]
    assert not any(
        zone["resources"] for zone in to_nrt(Report(NODE, "b", 1, zones=(Zone(0),)))["zones"]
    )


def test_a_resource_that_is_excluded_is_not_reported() -> None:
    scanned = report(
        EVEN_ODD,
        Allocatable(),
        rules=core.Rules(excluded_resources=frozenset((dynamic.resource_name(GPU),))),
    )
    assert scanned.dynamic is None
    assert core._dynamic(counted().dynamic, frozenset((dynamic.resource_name(GPU),))) == ()


def test_a_claim_more_is_a_small_event_and_other_devices_are_a_report_in_full() -> None:
    earlier, later = counted(), counted(held("a-1"))
    delta = changes(earlier, later)
    assert delta is not None
    assert resembles(earlier, later)
    assert apply_change(earlier, delta) == later
    assert not resembles(earlier, Report(NODE, "boot", 1, zones=(Zone(0), Zone(1)), placements=()))


@pytest.mark.parametrize(
    "report",
    [
        counted(held("x" * 300)),
        counted(Placement("blue", "p", "c", claims=(ClaimedDevice("blue/\n"),))),
        counted(held(*(f"cpu-{number}" for number in range(5000)))),
        counted(Placement("blue", "p", "c", claims=(ClaimedDevice("blue/x", cdi=("c",) * 500),))),
        Report(NODE, "b", 1, dynamic=(DynamicGroup("a b", "p"),)),
        Report(NODE, "b", 1, dynamic=(DynamicGroup(GPU, "p", ids="a-[9"),)),
        Report(NODE, "b", 1, dynamic=(DynamicGroup(GPU, "p", ids="a-[0-999999999]"),)),
        Report(NODE, "b", 1, dynamic=(DynamicGroup(GPU, "\0"),)),
    ],
)
def test_absurd_claims_and_devices_are_refused(report: Report) -> None:
    assert problem_of(NODE, report) is not None
    assert problem_of(NODE, counted(held("a-1"))) is None
    assert problem_of(NODE, counted(held(*(f"cpu-{number}" for number in range(1024))))) is None


# -- a recorded moment, and a whole exporter
# --------------------------------------------------------------------------------------------------


def recording(folder: Path, text: str) -> Path:
    folder.mkdir()
    (folder / "list.pb").write_bytes(listed(claim((GPU, "gpu-1", []))).SerializeToString())
    (folder / "allocatable.pb").write_bytes(pb.AllocatableResourcesResponse().SerializeToString())
    (folder / "resourceslices.json").write_text(text)
    return folder


def test_a_recorded_list_of_slices_counts(tmp_path: Path) -> None:
    text = json.dumps({"items": [slice_of(device("gpu-1", numa(1)), device("gpu-2", numa(1)))]})
    node_report = recorded.report(
        recording(tmp_path / "r", text), write_sysfs(tmp_path / "sys"), NODE, None, core.Rules()
    )
    assert dynamic.by_zone(node_report) == {1: {dynamic.resource_name(GPU): ZoneResource(2, 2, 1)}}


def test_a_damaged_list_of_slices_is_named(tmp_path: Path) -> None:
    folder = recording(tmp_path / "r", "[]")
    with pytest.raises(RecordingError, match=r"resourceslices\.json"):
        recorded.report(folder, write_sysfs(tmp_path / "sys"), NODE, None, core.Rules())


class Api:
    """Returns the given answers for slices; the last one repeats."""

    def __init__(self, *answers: Answer | Lost) -> None:
        self.answers = list(answers)
        self.asked = 0

    async def resource_slices(self, node: str) -> Answer | Lost:
        assert node == NODE
        self.asked += 1
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


class DraKubelet(Kubelet):
    """A kubelet that lists one pod with given claims."""

    claims: tuple[pb.DynamicResource, ...] = ()

    async def _list(self, request: bytes, context: Any) -> bytes:
        return listed(*self.claims).SerializeToString()


@asynccontextmanager
async def exporting(
    tmp_path: Path, api: Api
) -> AsyncIterator[tuple[Exporter, DraKubelet, Callable[[], Report]]]:
    kubelet = DraKubelet(tmp_path / "k.sock")
    await kubelet.start()
    spec = f"{NODE}={kubelet.socket},{write_sysfs(tmp_path / 'sys')}"
    bus = MemoryBus()
    settings = ExporterSettings(
        nodes=(spec,), dra_slices=True, active_interval_s=0.02, interval_s=3600.0
    )
    exporter, recorder = Exporter(bus, settings, api), Recorder(bus)  # type: ignore[arg-type]
    assert exporter.slices is not None
    works = (exporter.report_all, exporter.outbox.run, exporter.slices.run, recorder.run)
    tasks = [asyncio.create_task(work()) for work in works]
    try:
        await recorder.until(lambda seen: NODE in seen)
        yield exporter, kubelet, lambda: recorder.reports[NODE][-1]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await exporter.close()
        await kubelet.stop()


async def test_an_exporter_counts_claims_that_come_and_go(tmp_path: Path) -> None:
    name = dynamic.resource_name(GPU)
    body = {"items": [slice_of(device("gpu-1", numa(1)), device("gpu-2", numa(1)))]}
    async with exporting(tmp_path, Api(Answer(200, body=body))) as (_, kubelet, newest):
        await eventually(lambda: dynamic.by_zone(newest()) == {1: {name: ZoneResource(2, 2, 2)}})
        kubelet.claims = (claim((GPU, "gpu-2", [])),)
        await eventually(lambda: dynamic.by_zone(newest()) == {1: {name: ZoneResource(2, 2, 1)}})
        kubelet.claims = ()
        await eventually(lambda: dynamic.by_zone(newest()) == {1: {name: ZoneResource(2, 2, 2)}})


async def test_a_device_without_slice_triggers_a_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.exporter.slice_source.SOON_S", 0.05)
    empty, full = (
        Answer(200, body={"items": []}),
        Answer(200, body={"items": [slice_of(device("gpu-2", numa(0)))]}),
    )
    async with exporting(tmp_path, Api(empty, full)) as (_, kubelet, newest):
        await eventually(lambda: newest().dynamic == ())
        kubelet.claims = (claim((GPU, "gpu-2", [])),)
        await eventually(
            lambda: (
                dynamic.by_zone(newest())
                == {0: {dynamic.resource_name(GPU): ZoneResource(1, 1, 0)}}
            )
        )


@pytest.mark.parametrize(
    "answer", [Answer(403, message="no"), Lost("away"), Answer(200, body={"items": [1]})]
)
async def test_without_an_answer_claims_are_reported_and_no_zone_is_made_up(
    tmp_path: Path, answer: Answer | Lost, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = Api(answer)
    async with exporting(tmp_path, api) as (_, kubelet, newest):
        kubelet.claims = (claim((GPU, "gpu-2", [])),)
        await eventually(lambda: any(item.claims for item in newest().placements or ()))
        await eventually(lambda: api.asked > 0)
        assert newest().dynamic is None


async def test_the_client_lists_the_slices_of_one_node_in_a_served_version(
    authorizer: tuple[Authorizer, KubeClient],  # noqa: F811, RUF100
) -> None:
    answer = await authorizer[1].resource_slices(NODE)
    assert isinstance(answer, Answer)
    assert answer.body["kind"] == "ResourceSliceList"
