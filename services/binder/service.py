"""The binder service, composed: one fold, the binding and evicting loops (leased), the
announcer.
"""

from __future__ import annotations

import asyncio

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from services.binder import core
from services.binder.announcer import Announcer
from services.binder.core import BinderState
from services.binder.evictor import Evictor
from services.binder.handlers import ROLE, Binder
from services.binder.queued_to_bound import QueuedToBound
from services.binder.settings import BinderSettings
from shared.eventlog.checkpoints import Form
from shared.eventlog.port import Lease
from shared.eventlog.postgres import PostgresEventLog
from shared.eventlog.snapshots import fingerprint
from shared.kube import rights
from shared.kube.client import KubeClient
from shared.runtime.app import Service, run_service
from shared.runtime.groups import lease_losses
from shared.runtime.http import json_response
from shared.runtime.leadership import Leadership
from shared.runtime.marks import Promises
from shared.runtime.projector import Fold, Folded, Projector
from shared.telemetry import names
from shared.telemetry.instruments import observe_traced
from shared.telemetry.propagation import exemplar


async def build(service: Service, settings: BinderSettings) -> None:
    log = await PostgresEventLog.open(
        settings.database(), production=settings.production, archive=settings.archive
    )
    service.on_close("log", log.close)
    kube = KubeClient(settings.kubeconfig)
    service.on_close("kube", kube.close)
    service.needs_kubernetes(kube, rights.BINDER)
    announcer = Announcer(kube, settings.scheduler_name, settings.kai_placement)
    followers: list[Binder | Evictor] = []

    queued_to_bound = QueuedToBound(settings.scheduler_name)

    def folded(state: BinderState, page: Folded) -> None:
        announcer.folded(state, page)
        for latency_s, trace in queued_to_bound.latencies(page):
            if announcer.enabled:  # only the leader measures, so that no pod is counted twice
                observe_traced(names.QUEUED_TO_BOUND, latency_s, exemplar(trace))
        for follower in followers:
            follower.folded(state, page)

    def reset(state: BinderState) -> None:
        for follower in followers:
            follower.reset(state)

    projector: Projector[BinderState] = Projector(
        "binder",
        log,
        fold(),
        after=folded,
        on_reset=reset,
        health=service.health,
        differs=settings.fold_differs,
        vouches=True,
    )
    service.health.show("awaits", lambda: core.waits(projector.state))
    binder = Binder(log, kube, projector, settings, service.clock)
    evictor = Evictor(log, kube, projector, settings, service.clock)
    followers += [binder, evictor]
    leadership = Leadership(
        log, ROLE, service.holder, ttl_s=settings.lease_ttl_s, health=service.health
    )

    async def lead(lease: Lease) -> None:
        with lease_losses():
            async with asyncio.TaskGroup() as group:
                group.create_task(binder.lead(lease))
                group.create_task(evictor.lead(lease))
                if settings.announce:
                    group.create_task(announcer.lead(projector))

    service.task("fold", projector.run)
    service.task("bind", lambda: leadership.run(lead))
    if settings.announce:
        service.task("announce", announcer.run)
    _routes(service, projector)


def fold() -> Fold[BinderState]:
    """Return the binder's fold as the projector runs it."""
    return Fold(
        core.initial,
        core.evolve,
        fingerprint=fingerprint(core.__name__, "binder"),
        dump=msgspec.json.encode,
        load=lambda data: msgspec.json.decode(data, type=BinderState),
        promises=Promises(core.promises, core.weight),
        pass_over=core.pass_over,
        set_aside=core.quarantine,
        form=Form(),
        weight=lambda state: len(state.pods),
    )


def _routes(service: Service, projector: Projector[BinderState]) -> None:
    async def stats(_request: Request) -> Response:
        state = projector.state
        intended = sum(work.stage == "intended" for work in state.work.values())
        return json_response(
            {
                "position": state.position,
                "work": len(state.work),
                "intended": intended,
                "pods": len(state.pods),
                "evictions": len(state.evictions),
            }
        )

    async def state(_request: Request) -> Response:
        current = projector.state
        return json_response(
            {"projection": "binder", "position": current.position, "hash": core.digest(current)}
        )

    service.route("/state", state)
    service.route("/stats", stats)


def main() -> int:
    return run_service("topolog-binder", BinderSettings, build, needs_database=True)
