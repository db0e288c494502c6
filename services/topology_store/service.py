"""The topology-store service, composed.

Report loop (in every replica), silence watch (leased), topology objects (read by every replica,
written by the replica with the lease), and topology over HTTP.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from services.topology_store import following, http
from services.topology_store.bus_streams import BusStreams
from services.topology_store.following import Nodes
from services.topology_store.handlers import ROLE, Reports
from services.topology_store.intake import Intake
from services.topology_store.mirror import Mirror
from services.topology_store.mirroring import Terms
from services.topology_store.objects import Listener, Objects
from services.topology_store.reservations import Reservations
from services.topology_store.settings import TopologyStoreSettings
from services.topology_store.silence import ROLE as SILENCE
from services.topology_store.silence import Silence
from services.topology_store.startup_taint import StartupTaint
from shared.bus.jetstream import JetStreamBus
from shared.bus.port import StreamLimits
from shared.eventlog.checkpoints import Form
from shared.eventlog.port import EventLog, Lease
from shared.eventlog.postgres import PostgresEventLog
from shared.eventlog.snapshots import fingerprint
from shared.kube import rights
from shared.kube.client import KubeClient
from shared.kube.port import KubeUnavailableError
from shared.runtime.app import Service, Work, run_service
from shared.runtime.consumer import ConsumerOptions
from shared.runtime.groups import lease_losses
from shared.runtime.health import Health
from shared.runtime.leadership import Leadership
from shared.runtime.lent_lease import LentLease
from shared.runtime.membership import Membership
from shared.runtime.projector import Fold, Projector
from shared.telemetry import logs, names

# The role that writes NodeResourceTopology objects.
MIRROR = "mirror"
# Nothing waits for this service's fold, so close events are read in one page: each page has a cost.
LINGER_S = 0.1


async def build(service: Service, settings: TopologyStoreSettings) -> None:
    log = await PostgresEventLog.open(
        settings.database(), production=settings.production, archive=settings.archive
    )
    service.on_close("log", log.close)
    bus = JetStreamBus(
        settings.bus(), limits=StreamLimits(settings.nats_nodes, replicas=settings.nats_replicas)
    )
    service.on_close("bus", bus.close)
    streams = BusStreams(bus, service.clock)
    service.health.check("streams of the bus", streams.waits_for)
    service.task("streams of the bus", streams.make, lasts=False)
    lent_lease = LentLease()
    exporter_wins = settings.reports == "both"
    reports = Reports(log, lent_lease, bus, service.clock, exporter_wins, settings.cell)
    leasing: dict[str, Any] = {
        "ttl_s": settings.lease_ttl_s,
        "clock": service.clock,
        "health": service.health,
    }
    membership = Membership(log, ROLE, service.holder, **leasing)
    service.task("member", lambda: membership.run(lent_lease.keep))
    service.health.show("sharing", membership.details)
    projector = follow(log, reports, service.health)
    service.task("fold", projector.run)
    if settings.reports != "nrt":
        service.task("reports", reports.run)
    silence = Silence(reports, log, bus, settings.report_max_age_s, service.clock, service.health)
    service.health.check("bus", silence.waits_for)
    service.task("bus watch", silence.watch_bus)
    leadership = Leadership(log, SILENCE, service.holder, **leasing)
    service.task("silence", lambda: silence.run(leadership))
    kube = _kube(service, settings)
    if kube is not None:
        _objects(service, settings, log, kube, reports, projector)
    http.serve(service, reports, log)


def _kube(service: Service, settings: TopologyStoreSettings) -> KubeClient | None:
    """Return the client, or None if no task needs it, or if no API server is configured and all
    tasks that need it are optional."""
    reads, writes, taint = (
        settings.reports != "bus",
        settings.mirror != "false",
        bool(settings.startup_taint),
    )
    fulfils = settings.fulfil_reservations
    if not (reads or writes or taint or fulfils):
        return None
    try:
        kube = KubeClient(settings.kubeconfig)
    except KubeUnavailableError as error:
        is_needed = settings.reports == "nrt" or settings.mirror == "true" or taint or fulfils
        if is_needed or settings.kubeconfig:
            raise
        logs.get("topology-store").warning(names.TOPOLOGY_OFF, problem=str(error))
        return None
    service.on_close("kube", kube.close)
    needed = rights.TOPOLOGY_MIRROR if writes else rights.TOPOLOGY_INTAKE
    needed |= rights.STARTUP_TAINT if taint else frozenset()
    service.needs_kubernetes(kube, needed | (rights.RESERVATIONS if fulfils else frozenset()))
    return kube


def _objects(
    service: Service,
    settings: TopologyStoreSettings,
    log: EventLog,
    kube: KubeClient,
    reports: Reports,
    projector: Projector[Nodes],
) -> None:
    listeners: list[Listener] = []
    if settings.reports != "bus":
        intake = Intake(reports, service.clock, settings.koordlet_memory_policy)
        listeners.append(intake)
        service.task("intake", intake.run)
    terms = Terms(settings.mirror_pessimism, settings.mirror_keep_expired_s)
    mirror = Mirror(
        kube, service.clock, terms, settings.mirror_interval_s, settings.mirror_writes_per_s
    )
    writers: list[Work] = []
    if settings.mirror != "false":
        listeners.append(mirror)
        writers.append(mirror.run)
    if settings.startup_taint:
        writers.append(StartupTaint(kube, service.clock, settings.startup_taint, mirror.ledger).run)
    if settings.fulfil_reservations:
        writers.append(Reservations(kube, service.clock, mirror.ledger).run)

    async def follow_objects() -> None:
        # Before the fold is at the head, each object would lose a race to its own last report.
        await projector.wait_live()
        await Objects(kube, service.clock, *listeners).run()

    if listeners:
        service.task("objects", follow_objects)
    if writers:
        service.task("mirror fold", mirror.projector(log, service.health).run)
        _lead(service, settings, log, *writers)


def _lead(service: Service, settings: TopologyStoreSettings, log: EventLog, *works: Work) -> None:
    """Let one replica at a time write. All replicas fold, so that each can take over at once."""

    async def lead(_lease: Lease) -> None:
        with lease_losses():
            async with asyncio.TaskGroup() as group:
                for work in works:
                    group.create_task(work())

    leadership = Leadership(
        log,
        MIRROR,
        service.holder,
        ttl_s=settings.lease_ttl_s,
        clock=service.clock,
        health=service.health,
    )
    service.task("mirror", lambda: leadership.run(lead))


def fold() -> Fold[Nodes]:
    """Return the topology-store's fold."""
    return Fold(
        initial=dict,
        evolve=following.evolve,
        fingerprint=fingerprint(following.__name__, "topology-store"),
        dump=following.dump,
        load=following.load,
        pass_over=following.pass_over,
        form=Form(),
        weight=len,
    )


def follow(log: EventLog, reports: Reports, health: Health) -> Projector[Nodes]:
    """Return the projector that keeps `reports` up to date with the log."""

    def set_aside(_nodes: Nodes, stream: str) -> None:
        if stream.startswith(following.PREFIX):
            reports.quarantine(stream)

    projector: Projector[Nodes] = Projector(
        "topology-store",
        log,
        msgspec.structs.replace(fold(), set_aside=set_aside),
        after=reports.folded,
        on_reset=reports.reset,
        snapshot_every=20_000,
        health=health,
        options=ConsumerOptions(linger_s=LINGER_S),
        vouches=True,
    )
    reports.follows(projector)
    return projector


def main() -> int:
    return run_service("topolog-topology-store", TopologyStoreSettings, build, needs_database=True)
