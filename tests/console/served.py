"""A console over a log in memory, on a free port of loopback."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from services.console.service import Source, serve
from services.console.settings import ConsoleSettings
from shared.eventlog.port import EventLog
from shared.runtime.app import Service
from shared.telemetry.setup import TelemetrySettings, set_up
from tests.ledger.given import container, pod, zone
from tests.scheduler.default.story import Story


async def small_cluster() -> Story:
    """Return the log of two nodes with two zones of 6 CPUs: `placed` is reserved on one, and
    `large` waits.
    """
    story = Story()
    for node in ("n1", "n2"):
        await story.node(node)
        await story.report(zone(0, 6), zone(1, 6), node=node)
    await story.arrives(pod("placed", container("c", 4)))
    await story.decide()
    await story.arrives(pod("large", container("c", 7)))
    await story.decide()
    return story


@contextlib.asynccontextmanager
async def served(log: EventLog, **options: object) -> AsyncIterator[str]:
    """Yield the address of a console whose fold has reached the head of the log."""
    async with served_cells({"": log}, **options) as url:
        yield url


@contextlib.asynccontextmanager
async def served_cells(logs: dict[str, EventLog], **options: object) -> AsyncIterator[str]:
    """The same of the logs of several cells."""
    settings = ConsoleSettings(sample_every_s=0.1, **options)  # type: ignore[arg-type]
    service = Service("console", settings, set_up("console", TelemetrySettings()))
    await service.serve_http()
    serve(service, {cell: Source(log, "") for cell, log in logs.items()}, settings)
    service.built = True
    running = asyncio.create_task(service.run())
    try:
        for _ in range(2000):
            if not service.health.status().waiting:
                break
            await asyncio.sleep(0.01)
        assert service.http is not None
        yield service.http.url
    finally:
        service.stopping.set()
        await running
        await service.close()
