"""A cluster that has an exporter already: NodeResourceTopology objects without placements feed the
whole road.

What the nodes' exporters publish is turned into objects as resource-topology-exporter writes them;
Topolog reads only those. Charges are settled by the fingerprint then, and no kubelet may reject a
pod for it.
"""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import msgspec
import pytest

from shared.bus.jetstream import JetStreamBus
from shared.domain.report import Report
from shared.kube.client import KubeClient
from shared.kube.nrt import to_nrt
from shared.kube.port import Answer
from tests.road.harness import folder, running, topolog, verified

PATH = "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies"


class OtherExporter(threading.Thread):
    """Writes each node's newest report as an object, by plain create and merge patch, until
    stopped.
    """

    def __init__(self, data: Path, api_url: str) -> None:
        super().__init__(daemon=True)
        self._nats_url = msgspec.json.decode((data / "addresses.json").read_bytes())["nats_url"]
        self._api_url = api_url
        self._stopping = threading.Event()
        self.written = 0

    def run(self) -> None:
        asyncio.run(self._serve())

    def stop(self) -> None:
        self._stopping.set()
        self.join(30)

    async def _serve(self) -> None:
        bus, kube = JetStreamBus(self._nats_url), KubeClient(self._api_url)
        copying = asyncio.create_task(self._copy(bus, kube))
        while not self._stopping.is_set():  # noqa: ASYNC110 - told by another thread
            await asyncio.sleep(0.1)
        copying.cancel()
        await asyncio.gather(copying, return_exceptions=True)
        await bus.close()
        await kube.close()

    async def _copy(self, bus: JetStreamBus, kube: KubeClient) -> None:
        async for messages in bus.reports():
            for message in messages:
                report = msgspec.json.decode(message.data, type=Report)
                await self._write(kube, to_nrt(msgspec.structs.replace(report, placements=None)))

    async def _write(self, kube: KubeClient, made: dict[str, object]) -> None:
        name = made["metadata"]["name"]  # type: ignore[index]
        answer = await kube._call(
            "PATCH", f"{PATH}/{name}", body=made, content_type="application/merge-patch+json"
        )
        if isinstance(answer, Answer) and answer.status == 404:
            await kube._call("POST", PATH, body=made)
        self.written += 1


@pytest.mark.timeout(300)
def test_objects_of_another_exporter_feed_the_whole_road() -> None:
    flags = (
        "--nodes",
        "3",
        "--pods",
        "15",
        "--load",
        "0.5",
        "--exit-when-idle",
        "--speed",
        "max",
        "--report-interval",
        "1",
    )
    with (
        folder() as path,
        running(path, *flags, env={"TOPOLOG_REPORTS": "nrt", "TOPOLOG_MIRROR": "false"}) as road,
    ):
        exporter = OtherExporter(path, f"http://127.0.0.1:{road.services()['simulator']}")
        exporter.start()
        code = road.wait(240)
        exporter.stop()
        assert code == 0, road.output()
        assert exporter.written >= 3
        assert verified(path)
        reported_events = topolog(
            "replay", "log", "--data-dir", str(path), "--type", "NodeReported", "--json"
        ).stdout
        assert '"nrt:' in reported_events, "reports out of objects"
        assert reported_events.count('"NodeReported"') == reported_events.count('"nrt:'), (
            "and out of nothing else"
        )
