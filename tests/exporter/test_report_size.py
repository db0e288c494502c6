"""A report of any pods stays within the limits of the topology-store, and says what was cut."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.exporter import core, report_size
from services.exporter.answers import (
    Allocatable,
    DeviceGroup,
    ListedContainer,
    ListedPod,
    MemoryBlock,
)
from services.exporter.checkpoints import Checkpoints
from services.exporter.report_size import ReportTooLarge, fitted
from services.exporter.scan import NodeReader
from services.exporter.settings import ExporterSettings, NodeSpec
from services.exporter.source_grpc import AnswerTooLarge
from services.exporter.sysfs import Machine, NumaNode
from services.topology_store import validation
from shared.bus import subjects
from shared.domain.report import ClaimedDevice, Freshness, Report
from shared.kubelet.checkpoint import CPU_FILE, CpuCheckpoint, write_cpu
from shared.kubelet.cpuset import parse_cpus
from tests.exporter.kubelets import write_sysfs

GPU = "vendor.example/gpu"
MACHINE = Machine(
    tuple(NumaNode(zone, tuple(range(zone * 64, zone * 64 + 64)), 1 << 40) for zone in range(4))
)
OFFERED = Allocatable(
    tuple(range(1, 256)),
    tuple(MemoryBlock("memory", (zone,), 1 << 40) for zone in range(4)),
    (DeviceGroup(GPU, tuple(f"gpu-{number}" for number in range(64)), (0,)),),
)


def scanned(
    *pods: ListedPod, holdings: dict[str, dict[str, ListedContainer]] | None = None
) -> Report:
    stored = Checkpoints(("cpu", "memory"), holdings or {})
    scan = core.Scan(Freshness("boot", 5), MACHINE, OFFERED, pods, checkpoints=stored)
    return core.report("n1", "exporter-1", scan, core.Rules())


def accepted(report: Report) -> Report:
    """Return the report as the topology-store reads it."""
    reading = validation.read(subjects.report("n1"), msgspec.json.encode(report))
    assert isinstance(reading, Report), reading
    return reading


def memory(number: int, name: str, size: int = 4096) -> ListedContainer:
    return ListedContainer(name, (), (MemoryBlock("memory", (number % 4,), size),))


def test_containers_that_hold_nothing_cost_nothing() -> None:
    pod = ListedPod("n" * 63, "p" * 253, tuple(ListedContainer(f"c{i}") for i in range(20_000)))
    report, cut = fitted(scanned(pod))
    assert (len(accepted(report).placements or ()), cut) == (1, "")


def test_a_pod_of_many_containers_is_one_entry_with_their_sum() -> None:
    huge = ListedPod("default", "huge", tuple(memory(i, f"c{i}") for i in range(20_000)))
    small = ListedPod("default", "small", (ListedContainer("c", (1, 2), (), ()),))
    whole = scanned(huge, small)
    report, cut = fitted(whole)
    assert "default/huge is listed as one entry" in cut
    placements = accepted(report).placements or ()
    entry, second = placements
    assert (entry.pod, entry.container, second.container) == ("huge", "", "c")
    assert sum(amount.amount for amount in entry.held) == 20_000 * 4096
    assert report.zones == whole.zones


def test_init_containers_and_ended_pods_are_cut_too() -> None:
    inits = {f"init-{i}": memory(i, f"init-{i}") for i in range(9_000)}
    app = ListedContainer("app", (1,))
    ended = {f"uid-{i}": {"c": memory(i, "c")} for i in range(50)}
    holdings = {"uid-live": {"app": app, **inits}, **ended}
    report, cut = fitted(scanned(ListedPod("default", "p", (app,)), holdings=holdings))
    assert cut
    accepted(report)


def test_more_pods_than_a_report_holds_leave_no_placements() -> None:
    pods = [
        ListedPod("d", f"{'p' * 240}-{i}", (ListedContainer("c", (i % 255 + 1,)),))
        for i in range(3000)
    ]
    whole = scanned(*pods)
    report, cut = fitted(whole)
    assert (report.placements, cut) == (None, "placements of all 3000 pods left out")
    assert accepted(report).zones == whole.zones


def test_devices_and_claims_are_summed() -> None:
    gpus = tuple(
        ListedContainer(
            f"c{i}",
            (),
            (),
            (DeviceGroup(GPU, (f"gpu-{i % 64}",), (0,)),),
            (ClaimedDevice("d/claim", "driver", "pool", f"dev-{i % 64}"),),
        )
        for i in range(5_000)
    )
    report, cut = fitted(scanned(ListedPod("default", "p", gpus)))
    (entry,) = accepted(report).placements or ()
    assert cut
    assert (entry.held[0].amount, len(entry.claims)) == (64, 64)


def test_an_inventory_without_pods_that_is_too_large_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(report_size, "MAX_REPORT_BYTES", 1024)
    with pytest.raises(ReportTooLarge, match="without any pod"):
        fitted(scanned())


names = st.text("abcdefghij-", min_size=1, max_size=63).map(lambda text: f"a{text}z"[:63])
sizes = st.sampled_from([1, 2, 30, 700, 6_000, 20_000])
kinds = st.sampled_from(["nothing", "memory", "cpu", "gpu", "wide"])


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(names, names, sizes, kinds, st.booleans()), min_size=1, max_size=120))
def test_no_pods_that_an_api_server_accepts_silence_a_node(
    shapes: list[tuple[str, str, int, str, bool]],
) -> None:
    budget, pods = 60_000, []
    for number, (namespace, name, count, kind, long) in enumerate(shapes):
        count = min(count, max(1, budget))
        budget -= count
        containers = []
        for index in range(count):
            container = f"c{index}" + ("x" * 50 if long else "")
            made = ListedContainer(container)
            if kind == "memory":
                made = memory(index, container)
            elif kind == "cpu":
                made = ListedContainer(container, (index % 255 + 1,))
            elif kind == "gpu":
                made = ListedContainer(
                    container, (), (), (DeviceGroup(GPU, (f"gpu-{index % 64}",), (0,)),)
                )
            elif kind == "wide":
                zones = tuple(zone for zone in range(4) if (index + 1) >> zone & 1)
                made = ListedContainer(container, (), (MemoryBlock("memory", zones, 1),))
            containers.append(made)
        pods.append(ListedPod(namespace, f"{name}-{number}", tuple(containers)))
    whole = scanned(*pods)
    report, cut = fitted(whole)
    reading = accepted(report)
    assert reading.zones == whole.zones
    if reading.placements is not None:
        listed = {(entry.namespace, entry.pod) for entry in reading.placements}
        assert listed == {(pod.namespace, pod.name) for pod in pods} or "left out" in cut
    else:
        assert cut


class TooLarge:
    """A kubelet with a list of pods that exceeds the size limit."""

    async def pods(self) -> tuple[ListedPod, ...]:
        raise AnswerTooLarge("podresources List: larger than max", "list")

    async def allocatable(self) -> Allocatable:
        return Allocatable((1, 2, 3, 5, 6, 7))

    async def close(self) -> None:
        pass


async def test_a_list_that_is_too_large_leaves_the_amounts_of_the_checkpoints(
    tmp_path: Path,
) -> None:
    write_sysfs(tmp_path / "sys")
    spec = NodeSpec("n1", str(tmp_path / "k.sock"), str(tmp_path / "sys"), str(tmp_path))
    reader = NodeReader(spec, ExporterSettings(nodes=("n1=/x,/y",)), TooLarge())
    with pytest.raises(AnswerTooLarge):
        await reader.scan()
    cpus_held = {"uid-1": {"a": parse_cpus("1-2")}, "uid-2": {"b": parse_cpus("5")}}
    (tmp_path / CPU_FILE).write_bytes(
        write_cpu(CpuCheckpoint("static", parse_cpus("0,3"), cpus_held))
    )
    scan = await reader.scan()
    report = core.report("n1", "exporter-1", scan, core.Rules())
    assert "pods not listed" in scan.notices[-1]
    available = [zone.resources["cpu"].available for zone in report.zones]
    assert (available, report.placements) == ([1000, 2000], None)
    assert core.as_listed(report, scan).placements is None
    accepted(report)
