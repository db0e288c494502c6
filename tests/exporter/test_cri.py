"""The node as a container runtime tells it, over a real gRPC socket: what is whose own, from
containerd's and CRI-O's answers.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from services.exporter import core
from services.exporter.answers import (
    Allocatable,
    DeviceGroup,
    ListedContainer,
    ListedPod,
    MemoryBlock,
)
from services.exporter.cri import devices, info, reserve
from services.exporter.cri.devices import DeviceFileError
from services.exporter.cri.info import CriInfoError
from services.exporter.cri.source import CriSource
from services.exporter.folders import FolderTree
from services.exporter.scan import NodeReader
from services.exporter.settings import ExporterSettings, NodeSpec
from services.exporter.source_grpc import SourceError
from tests.exporter.kubelets import write_sysfs
from tests.exporter.runtimes import Runtime, cgroup, containerd, crio, spec

MIB = 1 << 20
RESOURCES = json.dumps(
    {
        "resourceList": [
            {
                "resourceName": "nic",
                "selectors": {"vendors": ["8086"], "drivers": ["iavf", "vfio-pci"]},
            },
            {
                "resourceName": "gpu",
                "resourcePrefix": "amd.com",
                "selectors": [{"pciAddresses": ["0000:c1:00.0"]}],
            },
        ]
    }
).encode()


def write_pci(root: Path, address: str, vendor: str, driver: str, node: str, **files: str) -> None:
    folder = root / "bus/pci/devices" / address
    folder.mkdir(parents=True)
    for name, text in {"vendor": vendor, "device": "0x154c", "numa_node": node, **files}.items():
        (folder / name).write_text(text + "\n")
    (root / "drivers" / driver).mkdir(parents=True, exist_ok=True)
    (folder / "driver").symlink_to(root / "drivers" / driver)


@pytest.fixture
def sysfs(tmp_path: Path) -> Path:
    """Two zones of four CPUs; NICs at 3b (zone 0) and af (zone 1), a split one, a foreign one, a
    GPU without a zone.
    """
    root = write_sysfs(tmp_path / "sys")
    write_pci(root, "0000:3b:02.0", "0x8086", "iavf", "0")
    write_pci(root, "0000:3b:02.1", "0x8086", "iavf", "0")
    write_pci(root, "0000:af:02.0", "0x8086", "vfio-pci", "1")
    write_pci(root, "0000:3b:00.0", "0x8086", "iavf", "0", sriov_numvfs="2")
    write_pci(root, "0000:01:00.0", "0x1af4", "virtio-pci", "0")
    write_pci(root, "0000:c1:00.0", "0x1002", "amdgpu", "-1")
    (root / "kernel/iommu_groups/17/devices/0000:af:02.0").mkdir(parents=True)
    (root / "dev/char/226:128").mkdir(parents=True)
    (root / "dev/char/226:128/device").symlink_to(root / "bus/pci/devices/0000:c1:00.0")
    return root


@pytest.fixture(params=["containerd", "cri-o"])
async def runtime(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Runtime]:
    serving = await Runtime(tmp_path / "cri.sock", request.param).start()
    yield serving
    await serving.stop()


def source(
    runtime: Runtime, sysfs: Path, cpus: str = "0,4", memory: tuple[str, ...] = ("0:memory=1Ki",)
) -> CriSource:
    known = devices.parse(RESOURCES, "config.json")
    return CriSource(
        str(runtime.socket), FolderTree(sysfs), known, reserve.parse(cpus, memory), 5.0
    )


async def pods(runtime: Runtime, sysfs: Path) -> tuple[ListedPod, ...]:
    asked = source(runtime, sysfs)
    await asked.allocatable()
    found = await asked.pods()
    await asked.close()
    return found


def only(listed: tuple[ListedPod, ...]) -> ListedContainer:
    ((container,),) = [pod.containers for pod in listed]
    return container


@pytest.mark.parametrize("shape", [containerd, crio])
async def test_a_guaranteed_container_holds_its_cpus_memory_and_devices_and_a_shared_one_nothing(
    runtime: Runtime, sysfs: Path, shape: object
) -> None:
    made = spec(
        cgroup("", "id1"), "1-2", "0", 2048, memory=512 * MIB, hugepages={"2MB": 4 * MIB, "1GB": 0},
        env=["PCIDEVICE_INTEL_COM_NIC=0000:3b:02.1,0000:3b:02.0", "PCIDEVICE_INTEL_COM_NIC_INFO={}"],
    )  # fmt: skip
    runtime.pods = {
        ("default", "own"): {"c": shape(made)},  # type: ignore[operator]
        ("default", "shared"): {
            "c": containerd(spec(cgroup("burstable", "id2"), "0,3-7", shares=2048))
        },
        ("default", "fraction"): {
            "c": crio(spec(cgroup("", "id3"), "0,3-7", "0-1", 1536, memory=MIB))
        },
        ("kube-system", "nothing"): {},
    }
    own, fraction, shared = (
        ListedContainer(
            "c",
            (1, 2),
            (MemoryBlock("hugepages-2Mi", (0,), 4 * MIB), MemoryBlock("memory", (0,), 512 * MIB)),
            (DeviceGroup("intel.com/nic", ("0000:3b:02.0", "0000:3b:02.1"), (0,)),),
        ),
        ListedContainer("c", (), (MemoryBlock("memory", (0, 1), MIB),)),
        ListedContainer("c"),
    )
    assert await pods(runtime, sysfs) == (
        ListedPod("default", "fraction", (fraction,)),
        ListedPod("default", "own", (own,)),
        ListedPod("default", "shared", (shared,)),
        ListedPod("kube-system", "nothing"),
    )


async def test_device_nodes_lead_to_their_resources(runtime: Runtime, sysfs: Path) -> None:
    nodes = [
        ("/dev/vfio/17", 240, 0),
        ("/dev/vfio/vfio", 10, 196),
        ("/dev/dri/renderD128", 226, 128),
        ("/dev/null", 1, 3),
    ]
    runtime.pods = {
        ("default", "p"): {"c": containerd(spec(cgroup("burstable", "x"), devices=nodes))}
    }
    assert only(await pods(runtime, sysfs)).devices == (
        DeviceGroup("amd.com/gpu", ("0000:c1:00.0",), ()),
        DeviceGroup("intel.com/nic", ("0000:af:02.0",), (1,)),
    )


async def test_a_pod_cannot_claim_a_device_by_a_variable_of_its_own(
    runtime: Runtime, sysfs: Path
) -> None:
    env = [
        "PCIDEVICE_MINE=0000:3b:02.0",
        "PCIDEVICE_AMD_COM_GPU=0000:3b:02.0",
        "PCIDEVICE_INTEL_COM_NIC=../x,0000:99:00.0,",
    ]
    runtime.pods = {("default", "p"): {"c": crio(spec(cgroup("", "x"), env=env))}}
    assert only(await pods(runtime, sysfs)).devices == ()


@pytest.mark.parametrize("version", ["fs/cgroup", "fs/cgroup/cpuset"])
async def test_what_a_cgroup_says_now_counts_before_what_was_said_at_the_start(
    runtime: Runtime, sysfs: Path, version: str
) -> None:
    path = f"kubepods.slice/kubepods-pod{'x'}.slice/cri-containerd-id1.scope"
    folder = sysfs / version / path
    folder.mkdir(parents=True)
    (folder / "cpuset.cpus").write_text("5-6\n")
    (folder / "cpuset.mems").write_text("\n")
    runtime.pods = {
        ("default", "p"): {
            "c": containerd(
                spec("kubepods-podx.slice:cri-containerd:id1", "1-2", "1", 2048, memory=MIB)
            )
        }
    }
    assert only(await pods(runtime, sysfs)) == ListedContainer(
        "c", (5, 6), (MemoryBlock("memory", (1,), MIB),)
    )


def test_slices_nest_by_their_names_and_paths_cannot_leave_the_hierarchy() -> None:
    nested = "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1_2.slice/crio-ab.scope"
    assert info.cgroup_folder("kubepods-burstable-pod1_2.slice:crio:ab") == nested
    assert info.cgroup_folder("/kubepods/pod1/ab") == "kubepods/pod1/ab"
    for path in ("/kubepods/../../etc", "", "/", "a\0b"):
        with pytest.raises(ValueError):
            info.cgroup_folder(path)


@pytest.mark.parametrize(
    ("path", "own"),
    [
        ("/kubepods/pod1/ab", True),
        ("/kubepods/burstable/pod1/ab", False),
        ("/kubepods/besteffort/pod1/ab", False),
        ("kubepods-pod1.slice:crio:ab", True),
        ("kubepods-besteffort-pod1.slice:crio:ab", False),
        ("/kubelet/kubepods/burstable/pod1/ab", False),
    ],
)
def test_only_containers_of_guaranteed_pods_have_cpus_of_their_own(path: str, own: bool) -> None:
    known = info.read(containerd(spec(path, "2-3", shares=2048)), "who")
    assert info.own_cpus(known, known.cpus, "who") == ((2, 3) if own else ())


async def test_allocatable_is_the_machine_less_what_the_kubelet_keeps(
    runtime: Runtime, sysfs: Path
) -> None:
    nics = (
        DeviceGroup("amd.com/gpu", ("0000:c1:00.0",), ()),
        DeviceGroup("intel.com/nic", ("0000:3b:02.0", "0000:3b:02.1"), (0,)),
        DeviceGroup("intel.com/nic", ("0000:af:02.0",), (1,)),
    )
    blocks = (MemoryBlock("memory", (0,), 2047 << 10), MemoryBlock("memory", (1,), 2048 << 10))
    assert await source(runtime, sysfs).allocatable() == Allocatable(
        (1, 2, 3, 5, 6, 7), blocks, nics
    )
    assert await source(runtime, sysfs, "", ()).allocatable() == Allocatable((), (), nics)


async def test_a_report_is_made_of_it_and_a_runtime_is_asked_once_about_a_container(
    runtime: Runtime, sysfs: Path
) -> None:
    runtime.pods = {("default", "p"): {"c": containerd(spec(cgroup("", "x"), "1-2", "0", 2048))}}
    settings = ExporterSettings(
        node_name="n1",
        podresources_socket=f"cri://{runtime.socket}",
        topology_manager_policy="restricted",
    )
    asked = source(runtime, sysfs)
    reader = NodeReader(NodeSpec("n1", settings.podresources_socket, str(sysfs)), settings, asked)
    made = [core.report("n1", "e", await reader.scan(), core.Rules()) for _ in range(3)][-1]
    await reader.close()
    assert [zone.resources["cpu"].available for zone in made.zones] == [1000, 3000]
    assert (made.placements or ())[0].held[0].ids == "1-2"
    assert made.policy == "restricted"
    assert runtime.statuses == 1


async def test_a_container_that_ended_meanwhile_is_no_error(runtime: Runtime, sysfs: Path) -> None:
    runtime.pods = {("default", "p"): {"gone": None, "c": crio(spec(cgroup("", "x")))}}
    assert only(await pods(runtime, sysfs)).name == "c"


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({}, "its verbose status has no 'info' but nothing"),
        ({"pid": "1", "cgroup": "x"}, "no 'info' but cgroup, pid"),
        ({"info": "<xml/>"}, "no JSON with an OCI runtime spec"),
        ({"info": "{}"}, "has no runtimeSpec"),
        ({"info": '{"runtimeSpec": {"windows": {}}}'}, r"has no runtimeSpec\.linux"),
        ({"info": '{"runtimeSpec": {"linux": {"resources": {}}}}'}, "has no cgroupsPath"),
        (
            {"info": '{"runtimeSpec": {"linux": {"cgroupsPath": "/../../etc"}}}'},
            "is no path of a cgroup",
        ),
        ({"info": '{"runtimeSpec": {"linux": {"cgroupsPath": 7}}}'}, r"cgroupsPath"),
        (containerd(spec(cgroup("", "x"), "1-")), r"cpuset\.cpus: '1-' is no id"),
        (containerd(spec(cgroup("", "x"), "9000")), "goes beyond CPU"),
        (containerd(spec(cgroup("", "x"), "1", "zero", 1024)), r"cpuset\.mems"),
        (
            containerd(spec(cgroup("", "x"), "1", "0", 1024, memory=2**60)),
            "more than any machine has",
        ),
        (containerd(spec(cgroup("", "x"), hugepages={"huge": 5})), "no size like 2MB"),
    ],
)
async def test_an_answer_that_lacks_what_is_needed_names_runtime_container_and_what_was_said(
    runtime: Runtime, sysfs: Path, told: dict[str, str], words: str
) -> None:
    runtime.pods = {("default", "p"): {"main": told}}
    with pytest.raises(CriInfoError, match=words) as raised:
        await pods(runtime, sysfs)
    assert f" 1.7.27 on {runtime.socket}: container 'main'" in str(raised.value)


async def test_a_runtime_that_is_away_or_hangs_is_named_with_the_call(
    runtime: Runtime, sysfs: Path, tmp_path: Path
) -> None:
    runtime.hang = True
    asked = CriSource(str(runtime.socket), FolderTree(sysfs), (), reserve.parse("", ()), 0.2)
    with pytest.raises(
        SourceError, match=rf"CRI ListPodSandbox on {runtime.socket}: DEADLINE_EXCEEDED"
    ):
        await asked.pods()
    await asked.close()
    away = CriSource(str(tmp_path / "none.sock"), FolderTree(sysfs), (), reserve.parse("", ()), 0.2)
    with pytest.raises(SourceError, match="is a container runtime listening there"):
        await away.pods()
    await away.close()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"", "config.json"),
        (b"[]", "config.json"),
        (b'{"resourceList": [{"resourceName": "nic"}]}', "selected by nothing"),
        (
            b'{"resourceList": [{"resourceName": "nic", "selectors": {"pfNames": ["ens1"]}}]}',
            "selected by pfNames",
        ),
        (
            b'{"resourceList": [{"resourceName": "nic", "selectors": {"vendors": "8086"}}]}',
            "config.json",
        ),
    ],
)
def test_a_file_of_resources_that_would_be_misread_is_refused(text: bytes, words: str) -> None:
    with pytest.raises(DeviceFileError, match=words):
        devices.parse(text, "config.json")


def test_settings_name_what_is_wrong_with_a_reserve(tmp_path: Path) -> None:
    for wrong in (
        {"reserved_cpus": "a"},
        {"reserved_memory": ("memory=1Gi",)},
        {"device_resources": str(tmp_path / "none")},
    ):
        with pytest.raises(ValueError, match=r"--(reserved-cpus|reserved-memory|device-resources)"):
            ExporterSettings(
                node_name="n1", podresources_socket="cri:///run/containerd/containerd.sock", **wrong
            )  # type: ignore[arg-type]
    assert reserve.parse("", ("0:memory=1Gi,hugepages-2Mi=4Mi",)).memory == {
        (0, "memory"): 1 << 30,
        (0, "hugepages-2Mi"): 4 << 20,
    }
