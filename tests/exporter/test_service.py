"""The exporter's rounds: real kubelet sockets on one side, the in-memory bus on the other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from services.exporter.service import Exporter
from services.exporter.settings import ExporterSettings
from shared.bus import subjects
from shared.bus.memory import MemoryBus
from shared.bus.port import Message
from shared.domain.report import Report
from shared.kubelet.checkpoint import CpuCheckpoint, write_cpu
from shared.telemetry.setup import TelemetrySettings, set_up
from tests.exporter.kubelets import Kubelet, write_sysfs

LONG_S = 3600.0


async def eventually(holds: Callable[[], bool]) -> None:
    """Wait until a condition holds, or fail the test."""
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


class Recorder:
    """Reads the bus and keeps every report by node."""

    def __init__(self, bus: MemoryBus) -> None:
        self.reports: dict[str, list[Report]] = {}
        self._bus = bus

    async def run(self) -> None:
        async for batch in self._bus.reports():
            for message in batch:
                self._keep(message)

    def _keep(self, message: Message) -> None:
        report = msgspec.json.decode(message.data, type=Report)
        assert message.subject == subjects.report(report.node)
        assert message.headers[subjects.MSG_ID]
        self.reports.setdefault(report.node, []).append(report)

    async def until(self, holds: Callable[[dict[str, list[Report]]], bool]) -> None:
        await eventually(lambda: holds(self.reports))


@asynccontextmanager
async def exporting(bus: MemoryBus, **settings: object) -> AsyncIterator[tuple[Exporter, Recorder]]:
    chosen: dict[str, object] = {
        "interval_s": LONG_S,
        "watch_interval_s": 0.02,
        "settle_s": 0.0,
        "trailing_s": 0.05,
        **settings,
    }
    exporter, recorder = Exporter(bus, ExporterSettings(**chosen)), Recorder(bus)  # type: ignore[arg-type]
    works = (
        exporter.report_all,
        exporter.outbox.run,
        exporter.watch,
        exporter.watch_bus,
        recorder.run,
    )
    tasks = [asyncio.create_task(work()) for work in works]
    try:
        yield exporter, recorder
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await exporter.close()


@pytest.fixture
async def kubelet(tmp_path: Path) -> AsyncIterator[Kubelet]:
    (tmp_path / "kubelet").mkdir()
    write_sysfs(tmp_path / "sys")
    serving = await Kubelet(tmp_path / "k.sock").start()
    yield serving
    await serving.stop()


def node(name: str, kubelet: Kubelet) -> str:
    folder = kubelet.socket.parent
    return f"{name}={kubelet.socket},{folder / 'sys'},{folder / 'kubelet'}"


def touch(kubelet: Kubelet) -> None:
    """Change the folder as a kubelet's checkpoint does."""
    (kubelet.socket.parent / "kubelet" / "memory_manager_state").write_text(str(kubelet.pods))
    (kubelet.socket.parent / "kubelet" / "memory_manager_state").unlink()


async def test_first_report_then_silence_until_something_changes(kubelet: Kubelet) -> None:
    async with exporting(MemoryBus(), nodes=(node("n1", kubelet),)) as (_, recorder):
        await recorder.until(lambda seen: "n1" in seen)
        touch(kubelet)
        touch(kubelet)
        kubelet.pods = {"p": [1, 2]}
        touch(kubelet)
        await recorder.until(lambda seen: len(seen["n1"]) == 2)
    first, second = recorder.reports["n1"]
    assert first.placements == ()
    assert first.boot_id == second.boot_id == "boot-1"
    assert second.boot_time_ms >= first.boot_time_ms
    assert [zone.resources["cpu"].available for zone in second.zones] == [1000, 3000]


@pytest.mark.parametrize("has_folder", [True, False])
async def test_without_report_on_change_only_the_interval_and_the_notify_file_report(
    kubelet: Kubelet, tmp_path: Path, has_folder: bool
) -> None:
    notify = tmp_path / "notify"
    name = node("n1", kubelet) if has_folder else node("n1", kubelet).rpartition(",")[0]
    async with exporting(
        MemoryBus(),
        nodes=(name,),
        active_interval_s=0.02,
        report_on_change=False,
        notify_file=str(notify),
    ) as (_, recorder):
        await recorder.until(lambda seen: "n1" in seen)
        kubelet.pods = {"p": [1, 2]}
        touch(kubelet)
        await asyncio.sleep(0.3)
        assert kubelet.calls == 1
        notify.touch()
        await recorder.until(lambda seen: len(seen["n1"]) == 2)


async def test_unchanged_node_is_reported_again_every_interval(kubelet: Kubelet) -> None:
    async with exporting(MemoryBus(), nodes=(node("n1", kubelet),), interval_s=0.1) as (
        _,
        recorder,
    ):
        await recorder.until(lambda seen: len(seen.get("n1", [])) >= 4)
    times = [report.boot_time_ms for report in recorder.reports["n1"]]
    assert times == sorted(set(times))


async def test_dead_and_hanging_nodes_do_not_delay_the_others(
    kubelet: Kubelet, tmp_path: Path
) -> None:
    hanging = await Kubelet(tmp_path / "h.sock").start()
    hanging.hang = True
    others = (
        f"dead={tmp_path / 'none.sock'},{tmp_path / 'sys'}",
        node("hanging", hanging),
        f"odd={kubelet.socket},{tmp_path}",
    )
    async with exporting(MemoryBus(), nodes=(*others, node("n1", kubelet)), interval_s=0.1) as (
        exporter,
        recorder,
    ):
        await recorder.until(lambda seen: len(seen.get("n1", [])) >= 5)
        await eventually(
            lambda: all(exporter.reporters[name].status.error for name in ("dead", "odd"))
        )
        statuses = {name: reporter.status for name, reporter in exporter.reporters.items()}
        assert set(recorder.reports) == {"n1"}
        assert "UNAVAILABLE" in statuses["dead"].error
        assert "check the sysfs root" in statuses["odd"].error
        assert statuses["n1"].error == ""
        hanging.hang = False
    await hanging.stop()


async def test_a_returned_node_is_reported(kubelet: Kubelet) -> None:
    await kubelet.stop()
    async with exporting(MemoryBus(), nodes=(node("n1", kubelet),), interval_s=0.3) as (
        exporter,
        recorder,
    ):
        await eventually(lambda: exporter.reporters["n1"].status.failures > 0)
        again = await Kubelet(kubelet.socket).start()
        await recorder.until(lambda seen: "n1" in seen)
        assert exporter.reporters["n1"].status.error == ""
        await again.stop()


async def test_the_newest_report_waits_for_an_absent_bus(kubelet: Kubelet) -> None:
    bus = MemoryBus()
    bus.down = True
    async with exporting(bus, nodes=(node("n1", kubelet),)) as (exporter, recorder):
        await eventually(lambda: exporter.outbox.failures > 0)
        kubelet.pods = {"p": [1]}
        touch(kubelet)
        await eventually(lambda: exporter.reporters["n1"].status.scans >= 2)
        bus.down = False
        await recorder.until(lambda seen: "n1" in seen)
    assert recorder.reports["n1"][0].placements != ()


async def test_an_empty_bus_gets_every_node_in_full(kubelet: Kubelet) -> None:
    async with exporting(MemoryBus(), nodes=(node("n1", kubelet),)) as (exporter, recorder):
        await recorder.until(lambda seen: "n1" in seen)
        exporter.request_full()
        await recorder.until(lambda seen: len(seen["n1"]) == 2)
    first, second = recorder.reports["n1"]
    assert msgspec.structs.replace(first, boot_time_ms=0) == msgspec.structs.replace(
        second, boot_time_ms=0
    )


async def test_configuration_and_checkpoint_of_the_kubelet_are_read(kubelet: Kubelet) -> None:
    folder = kubelet.socket.parent / "kubelet"
    (folder / "config.yaml").write_text(
        "topologyManagerPolicy: restricted\ntopologyManagerScope: pod\n"
    )
    (folder / "cpu_manager_state").write_bytes(
        write_cpu(CpuCheckpoint("static", 0b1, {"uid-7": {"c": 0b10, "init": 0b110}}))
    )
    kubelet.pods = {"p": [1]}
    async with exporting(MemoryBus(), nodes=(node("n1", kubelet),)) as (_, recorder):
        await recorder.until(lambda seen: "n1" in seen)
    report = recorder.reports["n1"][0]
    assert (report.policy, report.scope) == ("restricted", "pod")
    assert [(placement.container, placement.pod_uid) for placement in report.placements or ()] == [
        ("c", "uid-7"),
        ("init", "uid-7"),
    ]
    assert report.zones[0].resources["cpu"].available == 1000


def store_cpus(kubelet: Kubelet, **pods: int) -> None:
    """Write the kubelet's CPU checkpoint: CPUs as a mask by pod uid. The file is replaced as a
    whole.
    """
    draft = kubelet.socket.parent / "draft"
    draft.write_bytes(
        write_cpu(CpuCheckpoint("static", 0b1, {uid: {"c": cpus} for uid, cpus in pods.items()}))
    )
    draft.replace(kubelet.socket.parent / "kubelet" / "cpu_manager_state")


async def test_a_change_is_looked_at_again_only_while_podresources_and_checkpoints_differ(
    kubelet: Kubelet,
) -> None:
    store_cpus(kubelet)
    async with exporting(
        MemoryBus(), nodes=(node("n1", kubelet),), settle_s=0.05, trailing_s=0.6
    ) as (_, recorder):
        await recorder.until(lambda seen: "n1" in seen)
        assert kubelet.calls == 1
        kubelet.pods = {"p": [1]}
        store_cpus(kubelet, one=0b10)
        await recorder.until(lambda seen: len(seen["n1"]) == 2)
        await asyncio.sleep(0.8)
        assert kubelet.calls == 2
        store_cpus(kubelet, one=0b10, two=0b100)
        await recorder.until(lambda seen: len(seen["n1"]) == 3)
        kubelet.pods = {"p": [1], "late": [2]}
        await recorder.until(lambda seen: len(seen["n1"]) == 4)
        await asyncio.sleep(0.8)
        assert kubelet.calls == 4


async def test_a_thousand_pods_are_reported_and_a_report_of_more_is_cut(
    kubelet: Kubelet, tmp_path: Path
) -> None:
    second = await Kubelet(tmp_path / "o.sock").start()
    async with exporting(
        MemoryBus(), nodes=(node("n1", kubelet), node("n2", second)), interval_s=0.2
    ) as (exporter, recorder):
        kubelet.pods = {f"pod-{number:04d}": [number % 8] for number in range(1000)}
        await recorder.until(
            lambda seen: any(len(item.placements or ()) == 1000 for item in seen.get("n1", ()))
        )
        kubelet.pods = {f"{'p' * 200}-{number:04d}": [number % 8] for number in range(3000)}
        await recorder.until(lambda seen: seen["n1"][-1].placements is None)
        assert "placements of all 3000 pods left out" in exporter.reporters["n1"].status.notices
        assert "n1" in exporter.notices()
        count = len(recorder.reports["n2"])
        await recorder.until(lambda seen: len(seen["n2"]) > count + 2)
        kubelet.pods = {"p": [1]}
        await recorder.until(lambda seen: len(seen["n1"][-1].placements or ()) == 1)
        assert "left out" not in str(exporter.reporters["n1"].status.notices)
    await second.stop()


def _value(page: str, name: str) -> float:
    """Return one counter from a metrics page; other tests of this process count, too."""
    return next(
        (
            float(line.rpartition(" ")[2])
            for line in page.splitlines()
            if line.startswith(f"{name} ")
        ),
        0.0,
    )


async def test_metrics_have_the_names_of_rte_and_nfd_too(kubelet: Kubelet, tmp_path: Path) -> None:
    telemetry = set_up("exporter-test", TelemetrySettings())
    nodes = (node("n1", kubelet), f"dead={tmp_path / 'none.sock'},{tmp_path / 'sys'}")
    exporter = Exporter(MemoryBus(), ExporterSettings(nodes=nodes))
    counters = (
        'rte_podresource_api_call_failures_total{function_name="get_allocatable_resources",node="dead"}',
        "nfd_topology_updater_scan_errors_total",
    )
    earlier = [_value(telemetry.metrics_page().decode(), name) for name in counters]
    await exporter.once()
    exporter.reporters["n1"].trigger()
    await asyncio.sleep(0.02)
    await exporter.reporters["n1"].round()
    await exporter.close()
    shown = telemetry.metrics_page().decode()
    assert [_value(shown, name) for name in counters] == [count + 1 for count in earlier]
    assert (
        'rte_operation_delay_milliseconds{node="n1",operation_name="podresources_scan",trigger="periodic"}'
        in shown
    )
    assert _value(shown, 'rte_wakeup_delay_milliseconds{node="n1",trigger="reactive"}') > 0
