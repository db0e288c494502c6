"""The topology-store service: composition only. Report loop, silence watch (leased), mirror, and topology over HTTP."""

from __future__ import annotations

from services.topology_store import http
from services.topology_store.handlers import Reports
from services.topology_store.mirror import Mirror
from services.topology_store.settings import TopologyStoreSettings
from services.topology_store.silence import ROLE as SILENCE
from services.topology_store.silence import Silence
from shared.bus.jetstream import JetStreamBus
from shared.eventlog.postgres import PostgresEventLog
from shared.kube.client import KubeClient
from shared.runtime.app import Service, run_service
from shared.runtime.leadership import Leadership


async def build(service: Service, settings: TopologyStoreSettings) -> None:
    """Open what the service needs and name its tasks."""
    log = await PostgresEventLog.open(settings.database_url)
    service.on_close("log", log.close)
    bus = JetStreamBus(settings.nats_url)
    service.on_close("bus", bus.close)
    await bus.ensure_streams()
    reports = Reports(log, bus, service.clock)
    await reports.load()
    service.task("reports", reports.run)
    silence = Silence(reports, log, bus, settings.report_max_age_s, service.clock, service.health)
    service.health.check("bus", silence.waits_for)
    service.task("hearing", silence.hear)
    leadership = Leadership(log, SILENCE, service.holder, ttl_s=settings.lease_ttl_s, clock=service.clock, health=service.health)
    service.task("silence", lambda: silence.run(leadership))
    if settings.mirror:
        kube = KubeClient(settings.kubeconfig)
        service.on_close("kube", kube.close)
        service.task("mirror", Mirror(reports, kube, settings.mirror_interval_s, service.clock).run)
    http.serve(service, reports, log)


def main() -> int:
    """Run until stopped; returns the exit code."""
    return run_service("topolog-topology-store", TopologyStoreSettings, build)
