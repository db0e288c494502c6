"""How far apart a node's reports may be: never more than the interval, whatever came between."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from services.exporter import core, handlers
from services.exporter.answers import Allocatable, ListedContainer, ListedPod
from services.exporter.handlers import NodeReporter
from services.exporter.settings import ExporterSettings
from services.exporter.sysfs import Machine, NumaNode
from shared.bus.port import Message
from shared.domain.report import Freshness

INTERVAL_S = 10.0


class Kubelet:
    """One node with pods set by the test, its reader, and the outbox of its reports."""

    def __init__(self) -> None:
        self.now_s = 1_000.0
        self.pods: tuple[ListedPod, ...] = ()
        self.published_s: list[float] = []

    async def scan(self) -> core.Scan:
        machine = Machine((NumaNode(0, (0, 1, 2, 3)),))
        return core.Scan(
            Freshness("boot", int(self.now_s * 1000)), machine, Allocatable((0, 1, 2, 3)), self.pods
        )

    def put(self, node: str, message: Message) -> None:
        self.published_s.append(self.now_s)


async def test_a_report_of_a_change_puts_the_next_one_off_by_one_interval_and_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kubelet = Kubelet()
    monkeypatch.setattr(handlers, "time", SimpleNamespace(monotonic=lambda: kubelet.now_s))
    settings = ExporterSettings(nodes=("n1=/none,/sys",), interval_s=INTERVAL_S)
    reporter = NodeReporter("n1", kubelet, settings, kubelet, lambda status: None)  # type: ignore[arg-type]
    await reporter.round()
    kubelet.now_s += 0.8 * INTERVAL_S
    kubelet.pods = (ListedPod("default", "p", (ListedContainer("c", (1,)),)),)
    for _ in range(4):
        kubelet.now_s += await reporter.round()
    apart = [
        later - earlier
        for earlier, later in zip(kubelet.published_s, kubelet.published_s[1:], strict=False)
    ]
    assert len(apart) >= 3
    assert max(apart) <= INTERVAL_S
