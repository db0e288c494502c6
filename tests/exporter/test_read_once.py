"""Unchanged files are read once: answers, checkpoints and reports equal those of a reader without a
cache.
"""

from __future__ import annotations

import random
from pathlib import Path

import msgspec
import pytest
from google.protobuf.message import DecodeError

from services.exporter import checkpoints, core, folders, wire
from services.exporter.answers import Allocatable, ListedPod
from services.exporter.checkpoints import Checkpoints
from services.exporter.kubelet_config import KubeletSettings
from services.exporter.podresources import podresources_pb2 as pb
from services.exporter.scan import NodeReader
from services.exporter.settings import ExporterSettings, NodeSpec
from shared.domain.report import Freshness
from shared.domain.statement import Statement
from shared.kubelet.checkpoint import CpuCheckpoint, write_cpu
from tests.exporter.kubelets import write_sysfs
from tests.exporter.test_asking import Asked
from tests.exporter.test_core import EVEN_ODD, pod
from tests.fuzz.mutation import damaged


def answered(rng: random.Random) -> pb.ListPodResourcesResponse:
    """Return a few random pods, with repeated names, in any order, with any number of CPUs."""
    answer = pb.ListPodResourcesResponse()
    for name in rng.sample("abcdef", rng.randrange(5)):
        container = answer.pod_resources.add(namespace=rng.choice("xy"), name=name).containers.add(
            name="main"
        )
        container.cpu_ids.extend(range(rng.randrange(3)))
        container.memory.add(memory_type="memory", size=rng.randrange(2)).topology.nodes.add(
            ID=rng.randrange(2)
        )
    return answer


def test_pods_of_an_answer_like_the_one_before_are_those_of_the_answer_read_alone() -> None:
    rng, lists = random.Random(5), wire.Lists()
    for _ in range(500):
        answer = answered(rng)
        for data in (
            answer.SerializeToString(),
            damaged(rng, answer.SerializeToString() + b"\x0a\0"),
        ):
            try:
                alone = wire.pods(pb.ListPodResourcesResponse.FromString(data))
            except (DecodeError, ValueError) as error:
                with pytest.raises(type(error)):
                    lists.read(data)
            else:
                assert lists.read(data) == alone


def test_equal_bytes_are_the_same_value() -> None:
    answer, lists = pb.ListPodResourcesResponse(), wire.Lists()
    for name in "ab":
        answer.pod_resources.add(namespace="x", name=name)
    earlier = lists.read(answer.SerializeToString())
    assert lists.read(answer.SerializeToString()) is earlier
    answer.pod_resources[1].containers.add(name="main")
    later = lists.read(answer.SerializeToString())
    assert later[0] is earlier[0]
    assert later[1] != earlier[1]


async def test_incremental_reads_of_checkpoints_equal_full_reads(
    tmp_path: Path,
) -> None:
    rng, folder = random.Random(6), tmp_path / "kubelet"
    (folder / "device-plugins").mkdir(parents=True)
    write_sysfs(tmp_path / "sys")
    spec = NodeSpec("n1", str(tmp_path / "k.sock"), str(tmp_path / "sys"), str(folder))
    reader = NodeReader(spec, ExporterSettings(node_name="n1"), Asked())
    contents = (
        [write_cpu(CpuCheckpoint("static", 1, {"u": {"c": cpus}})) for cpus in (2, 4)],
        [
            b'{"policyName":"Static","machineState":{"0":{"cells":[0,1]}},"entries":{}}',
            b'{"machineState":{}}',
        ],
        [
            b'{"Data":{"RegisteredDevices":{"x":["a"]}}}',
            b'{"Data":{"RegisteredDevices":{"x":["b"]}}}',
        ],
    )
    for _ in range(200):
        for name, made in zip(folders.CHECKPOINTS, contents, strict=True):
            match rng.randrange(4):
                case 0:
                    (folder / name).unlink(missing_ok=True)
                case 1:
                    (folder / "draft").write_bytes(rng.choice([*made, b"{", b""]))
                    (folder / "draft").replace(folder / name)
        files = [folder / name for name in folders.CHECKPOINTS]
        alone = checkpoints.parse(*(file.read_bytes() if file.exists() else b"" for file in files))
        assert (await reader.scan()).checkpoints == alone


class Changing(Asked):
    """A kubelet that writes a checkpoint during List, a few times."""

    def __init__(self, file: Path, times: int) -> None:
        super().__init__()
        self.file, self.left, self.lists = file, times, 0

    async def pods(self) -> tuple[ListedPod, ...]:
        self.lists += 1
        if self.left:
            self.left -= 1
            self.file.write_bytes(
                write_cpu(CpuCheckpoint("static", 1, {"u": {"c": 2**self.lists}}))
            )
        return ()


@pytest.mark.parametrize(("writes", "lists"), [(0, 1), (1, 2), (2, 3), (3, 3)])
async def test_a_list_counts_with_checkpoints_that_did_not_change(
    writes: int, lists: int, tmp_path: Path
) -> None:
    (tmp_path / "kubelet").mkdir()
    write_sysfs(tmp_path / "sys")
    spec = NodeSpec(
        "n1", str(tmp_path / "k.sock"), str(tmp_path / "sys"), str(tmp_path / "kubelet")
    )
    source = Changing(tmp_path / "kubelet" / folders.CHECKPOINTS[0], writes)
    source.file.write_bytes(write_cpu(CpuCheckpoint("static", 1, {"u": {"c": 1}})))
    result = (await NodeReader(spec, ExporterSettings(node_name="n1"), source).scan()).checkpoints
    assert source.lists == lists
    assert result == (
        checkpoints.parse(source.file.read_bytes(), b"", b"")
        if writes < 3
        else checkpoints.NOTHING_READ
    )


def test_a_report_is_made_again_if_its_content_changed() -> None:
    scan = core.Scan(Freshness("boot", 5), EVEN_ODD, Allocatable((1, 2)), (pod("a"),))
    node_report = core.report("n1", "e", scan, core.Rules())
    later = msgspec.structs.replace(scan, freshness=Freshness("boot", 6))
    assert core.report_again(scan, node_report, later) == core.report(
        "n1", "e", later, core.Rules()
    )
    others = {
        "machine": msgspec.structs.replace(EVEN_ODD),
        "allocatable": Allocatable((1, 2, 3)),
        "pods": (pod("a"), pod("b")),
        "kubelet": KubeletSettings("restricted"),
        "checkpoints": Checkpoints(("cpu",)),
        "kubelet_version": "v1.36.0",
        "dynamic": (),
        "unlisted": True,
        "statement": Statement(),
    }
    assert {"freshness", *others} == set(core.Scan.__struct_fields__)
    for name, second in others.items():
        assert (
            core.report_again(scan, node_report, msgspec.structs.replace(later, **{name: second}))
            is None
        ), name
