"""The scheduler service: composition only. A decider (one of many), an observer and a relay (both
leased) share one fold of the log.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

from services.scheduler.core import SchedulerCore
from services.scheduler.extender.settings import ExtenderSettings
from services.scheduler.handlers import ROLE, Decider, fold_of
from services.scheduler.settings import SchedulerSettings, chosen
from services.scheduler.snapshot import kernel
from services.scheduler.watch.event_writer import ROLE as OBSERVER
from services.scheduler.watch.observer import Observer
from shared.bus.port import StreamLimits
from shared.domain.state_hash import state_hash
from shared.eventlog.port import EventLog
from shared.eventlog.postgres import PostgresEventLog
from shared.events.catalog import EXTENT
from shared.kube import rights
from shared.runtime import api_readiness, lean, start_signal
from shared.runtime.api_readiness import ApiReadiness
from shared.runtime.app import Exit, Service, run_service
from shared.runtime.groups import lease_losses
from shared.runtime.http import json_response
from shared.runtime.leadership import NO_LEADER, Leadership
from shared.runtime.lent_lease import LentLease
from shared.runtime.log_size import watch_size
from shared.runtime.membership import Membership
from shared.runtime.projector import Folded, Projector
from shared.runtime.relay import CONSUMER as RELAY
from shared.runtime.relay import Relay
from shared.runtime.settings import SettingsInvalid, load
from shared.runtime.waiting import set_within
from shared.telemetry import logs, names

if TYPE_CHECKING:
    from services.scheduler.extender.extender import Extender

# How long everything else waits for the first decision. A start from a snapshot decides first,
# because loading the clients of NATS and of Kubernetes takes about 0.1 s.
DECIDES_FIRST_S = 2.0


async def build(service: Service, settings: SchedulerSettings) -> None:
    """Open what the service needs and name its tasks."""
    choice = chosen(settings)
    for warning in choice.warnings:
        logs.get("scheduler").warning(names.UNWISE_ARGUMENT, problem=warning)
    if kernel.COMPILED is None:
        logs.get("scheduler").warning(names.NO_KERNEL)
    log = await PostgresEventLog.open(
        settings.database(), production=settings.production, archive=settings.archive
    )
    service.on_close("log", log.close)
    lent_lease = LentLease()
    decider = Decider(log, lent_lease, service.clock, settings.batch_pods, choice.resync_period_s)
    observers: list[Observer] = []
    extenders: list[Extender] = []

    def folded(core: SchedulerCore, page: Folded) -> None:
        decider.folded(core, page)
        for observer in observers:
            observer.folded(page)
        for extender in extenders:
            extender.folded(core, page)

    def reset(core: SchedulerCore) -> None:
        decider.reset(core)
        for observer in observers:
            observer.reset()
        for extender in extenders:
            extender.reset()

    def unlisted() -> str:
        return projector.state.folded.listings.problem()

    projector = Projector(
        "scheduler",
        log,
        fold_of(choice.core),
        after=folded,
        on_reset=reset,
        health=service.health,
        differs=settings.fold_differs,
        vouches=True,
    )
    service.health.show("awaits", unlisted)
    lean.replaying()
    service.task("fold", projector.run)
    service.task("decide", lambda: _decide(decider, projector))
    if not settings.shadow:
        _join(service, settings, log, lent_lease, decider, projector)
    if settings.extender.port:
        extenders.append(_extend(service, settings.extender, decider, projector))
    if settings.observe:
        _observe(service, settings, log, decider, projector, observers)
    if settings.relay:
        _relay(service, settings, log, decider)
        service.task(
            "log-size", lambda: watch_size(log, settings.log_limit_gib << 30, service.clock)
        )
    _routes(service, projector)


async def _decide(decider: Decider, projector: Projector[SchedulerCore]) -> None:
    replayed = asyncio.create_task(_replayed(decider, projector))
    try:
        await decider.run(projector)
    finally:
        replayed.cancel()


async def _replayed(decider: Decider, projector: Projector[SchedulerCore]) -> None:
    """Wait until the waiting pods are decided. A standby decides none, so it does not wait."""
    await projector.wait_live()
    await set_within(decider.looked, DECIDES_FIRST_S)
    lean.replayed()


def _relay(service: Service, settings: SchedulerSettings, log: EventLog, decider: Decider) -> None:
    async def relay() -> None:
        await set_within(decider.looked, DECIDES_FIRST_S)
        from shared.bus.jetstream import JetStreamBus

        bus = JetStreamBus(
            settings.bus(),
            limits=StreamLimits(settings.nats_nodes, replicas=settings.nats_replicas),
        )
        service.on_close("bus", bus.close)
        await Relay(
            log,
            bus,
            service.holder,
            health=service.health,
            ttl_s=settings.lease_ttl_s,
            cell=settings.cell,
        ).run()

    _awaited(service, RELAY)
    service.task("relay", relay)


def _awaited(service: Service, role: str) -> None:
    # Only until the role reports its own state: a service that was ready must stay ready.
    service.health.check(f"role {role}", lambda: NO_LEADER)


def _join(
    service: Service,
    settings: SchedulerSettings,
    log: EventLog,
    held: LentLease,
    decider: Decider,
    projector: Projector[SchedulerCore],
) -> None:
    """Join the role of all schedulers of one name. A process that still replays the log, or
    disagrees with the running release, does not join.
    """
    role, ttl_s = f"{ROLE}/{settings.scheduler_name}", settings.lease_ttl_s
    leading: dict[str, Any] = {"ttl_s": ttl_s, "clock": service.clock, "health": service.health}
    knowing: dict[str, Any] = {
        "extent": EXTENT,
        "behind": lambda: projector.behind,
        "disagrees": lambda: projector.disagrees,
    }
    membership = Membership(
        log, role, service.holder, changed=decider.share_out, **knowing, **leading
    )
    service.health.show(
        "sharing", lambda: {**membership.details(), "queue": len(projector.state.queue)}
    )

    async def join() -> None:
        await projector.wait_live()
        await membership.run(held.keep)

    service.task("member", join)


def _extend(
    service: Service,
    settings: ExtenderSettings,
    decider: Decider,
    projector: Projector[SchedulerCore],
) -> Extender:
    # Loaded here, because few schedulers serve an extender.
    from services.scheduler.extender.extender import Extender
    from services.scheduler.extender.server import ExtenderServer

    extender = Extender(projector, decider.wake, settings.bind_within_s)
    decider.after_turn = extender.answered
    service.task("extender", ExtenderServer(extender, settings).run)
    return extender


def _observe(
    service: Service,
    settings: SchedulerSettings,
    log: EventLog,
    decider: Decider,
    projector: Projector[SchedulerCore],
    observers: list[Observer],
) -> None:
    # `observers` gets the observer once it is loaded.
    others = settings.extender.schedulers if settings.extender.port else ()

    async def observe() -> None:
        await set_within(decider.looked, DECIDES_FIRST_S)
        from shared.kube.client import KubeClient

        kube = KubeClient(settings.kubeconfig)
        service.on_close("kube", kube.close)
        cells = projector.state.config.cells
        needed = rights.SCHEDULER | (rights.CELL if cells is not None else frozenset())
        readiness = ApiReadiness(kube, needed, service.clock)
        service.health.check(api_readiness.COMPONENT, readiness.problem)
        observer = Observer(
            log,
            kube,
            projector,
            (settings.scheduler_name, *others),
            service.clock,
            settings.relist_s,
            cells,
        )
        observers.append(observer)
        service.health.check("observed cluster", observer.problem)
        leadership = Leadership(
            log, OBSERVER, service.holder, ttl_s=settings.lease_ttl_s, health=service.health
        )
        with lease_losses():
            async with asyncio.TaskGroup() as group:
                group.create_task(readiness.run())
                group.create_task(leadership.run(observer.lead))

    service.health.check(api_readiness.COMPONENT, lambda: api_readiness.NOT_ASKED)
    _awaited(service, OBSERVER)
    service.task("observe", observe)


def _routes(service: Service, projector: Projector[SchedulerCore]) -> None:
    async def state(_request: Request) -> Response:
        ledger = projector.state.ledger
        return json_response(
            {"projection": "ledger", "position": ledger.position, "hash": state_hash(ledger)}
        )

    async def stats(_request: Request) -> Response:
        cells = projector.state.config.cells
        cell = cells.own if cells is not None else ""
        return json_response({**projector.state.stats(), "cell": cell})

    async def charged(_request: Request) -> Response:
        nodes = projector.state.ledger.nodes.values()
        return json_response({"uids": sorted(uid for node in nodes for uid in node.charges)})

    service.route("/charged", charged)
    service.route("/state", state)
    service.route("/stats", stats)


def main() -> int:
    """Run until stopped; returns the exit code. Settings are checked before anything is opened."""
    try:
        chosen(load(SchedulerSettings, os.environ))
    except SettingsInvalid as error:
        lines = "\n".join(f"  {problem}" for problem in error.problems)
        print(
            (
                f"topolog-scheduler cannot start, {len(error.problems)} setting(s) to "
                f"correct:\n{lines}"
            ),
            file=sys.stderr,
        )
        return Exit.SETTINGS
    if start_signal.is_awaited(os.environ):
        _load_clients()
    return run_service("topolog-scheduler", SchedulerSettings, build, needs_database=True)


def _load_clients() -> None:
    """Load what comes after the first decision, in time that would pass idle."""
    import shared.bus.jetstream
    import shared.kube.client  # noqa: F401
