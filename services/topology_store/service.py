"""The topology-store service: composition only. Report loop, silence watch, mirror, and topology over HTTP."""

from __future__ import annotations

from services.topology_store import http
from services.topology_store.handlers import Reports
from services.topology_store.mirror import Mirror
from services.topology_store.settings import TopologyStoreSettings
from shared.bus.jetstream import JetStreamBus
from shared.eventlog.postgres import PostgresEventLog
from shared.kube.client import KubeClient
from shared.runtime.app import Service, run_service


async def build(service: Service, settings: TopologyStoreSettings) -> None:
    """Open what the service needs and name its tasks."""
    log = await PostgresEventLog.open(settings.database_url)
    service.on_close("log", log.close)
    bus = JetStreamBus(settings.nats_url)
    service.on_close("bus", bus.close)
    await bus.ensure_streams()
    reports = Reports(log, bus, settings.report_max_age_s, service.clock)
    await reports.load()
    service.task("reports", reports.run)
    service.task("silence", reports.watch_silence)
    if settings.mirror:
        kube = KubeClient(settings.kubeconfig)
        service.on_close("kube", kube.close)
        service.task("mirror", Mirror(reports, kube, settings.mirror_interval_s, service.clock).run)
    http.serve(service, reports, log)


def main() -> int:
    """Run until stopped; returns the exit code."""
    return run_service("topolog-topology-store", TopologyStoreSettings, build)
