"""Memory of an exporter while hundreds of pods come and go, its kubelet restarts, and the bus is
sometimes absent."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import types
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from services.exporter.service import Exporter
from services.exporter.settings import ExporterSettings
from shared.bus.memory import MemoryBus
from shared.bus.port import BusUnavailable, Message
from shared.telemetry.setup import TelemetrySettings, set_up
from tests.exporter.kubelets import Kubelet, write_sysfs

ROUNDS = 40
NO_STATE = (
    type,
    types.ModuleType,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    types.FrameType,
)


class Forgetful(MemoryBus):
    """A bus that rejects every tenth batch, and stores none."""

    tried = 0

    async def publish_many(self, messages: list[Message]) -> None:
        self.tried += 1
        if self.tried % 10 == 0:
            raise BusUnavailable("away")


def held_bytes(root: object) -> int:
    """Return the bytes of everything that an object refers to, without code."""
    seen, waiting, size = {id(root)}, [root], 0
    while waiting:
        first = waiting.pop()
        size += sys.getsizeof(first)
        for second in gc.get_referents(first):
            if id(second) not in seen and not isinstance(second, NO_STATE):
                seen.add(id(second))
                waiting.append(second)
    return size


@pytest.fixture
async def kubelet(tmp_path: Path) -> AsyncIterator[Kubelet]:
    write_sysfs(tmp_path / "sys")
    (tmp_path / "kubelet").mkdir()
    serving = await Kubelet(tmp_path / "k.sock").start()
    yield serving
    await serving.stop()


async def live(exporter: Exporter, kubelet: Kubelet, begin: int) -> None:
    """Run rounds of every node with new pods each time; the kubelet does not answer in some."""
    for number in range(begin, begin + ROUNDS):
        kubelet.pods = {f"pod-{number}-{index}": [index] for index in (1, 2, 3)}
        kubelet.refusals = int(number % 13 == 0)
        if number % 20 == 10:
            await kubelet.stop()
            await kubelet.start()
        if number % 20 == 15:
            kubelet.socket.rename(kubelet.socket.with_suffix(".away"))
        await asyncio.gather(*(reporter.round() for reporter in exporter.reporters.values()))
        exporter.reporters["n1"].trigger()
        if number % 20 == 15:
            kubelet.socket.with_suffix(".away").rename(kubelet.socket)
        if number % 10 == 5:
            exporter.request_full()
        await asyncio.sleep(0)


async def test_the_memory_of_an_exporter_does_not_grow(kubelet: Kubelet, tmp_path: Path) -> None:
    telemetry = set_up("exporter-test", TelemetrySettings())
    folder = f"{tmp_path / 'sys'},{tmp_path / 'kubelet'}"
    nodes = (
        f"n1={kubelet.socket},{folder}",
        f"dead={tmp_path / 'x.sock'},{folder}",
    )
    exporter = Exporter(
        Forgetful(), ExporterSettings(nodes=nodes, active_interval_s=0.0, trailing_s=0.0)
    )
    sending = asyncio.create_task(exporter.outbox.run())

    async def state() -> tuple[int, int, int, int]:
        await asyncio.sleep(0.5)
        gc.collect()
        return (
            held_bytes(exporter.reporters) + held_bytes(exporter.outbox),
            len(os.listdir("/proc/self/fd")),
            len(asyncio.all_tasks()),
            len(telemetry.metrics_page().splitlines()),
        )

    await live(exporter, kubelet, 0)
    early = await state()
    for again in (1, 2, 3):
        await live(exporter, kubelet, again * ROUNDS)
    late = await state()
    sending.cancel()
    await exporter.close()
    assert late[0] < early[0] * 1.05
    assert late[1] <= early[1] + 2
    assert late[2] <= early[2] + 2
    assert late[3] == early[3]
    assert exporter.reporters["n1"].status.scans > ROUNDS
