"""`topolog log checkpoint`: write checkpoints of the head, from which services start again.

Services write one every 25,000 to 200,000 positions. One of this moment makes an update shorter,
and follows a redaction, which deletes all snapshots and checkpoints.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from services.binder.service import fold as binder_fold
from services.scheduler.core import CoreConfig
from services.scheduler.handlers import fold_of
from services.topology_store.service import fold as topology_store_fold
from services.upkeep.errors import UpkeepRefused
from shared.eventlog.port import EventLog
from shared.runtime.health import Health
from shared.runtime.projector import Fold, Projector

LOOK_S = 0.5


class Checkpointed(msgspec.Struct, frozen=True):
    """A projection, and the position of its new checkpoint."""

    projection: str
    position: int


async def checkpoint(log: EventLog) -> list[Checkpointed]:
    """Fold the log to its head as each service does, and keep the states. Raises UpkeepRefused."""
    folds: dict[str, Fold[Any]] = {
        "scheduler": fold_of(CoreConfig()),
        "binder": binder_fold(),
        "topology-store": topology_store_fold(),
    }
    return [await _one(log, name, fold) for name, fold in folds.items()]


async def _one(log: EventLog, name: str, fold: Fold[Any]) -> Checkpointed:
    health = Health()
    projector = Projector(name, log, msgspec.structs.replace(fold, promises=None), health=health)
    running = asyncio.create_task(projector.run())
    try:
        while not projector.live and not running.done() and health.status().healthy:
            await asyncio.wait({running}, timeout=LOOK_S)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    for component, problem in health.status().red.items():
        raise UpkeepRefused(f"{component}: {problem}", "topolog replay verify")
    await projector.save_checkpoint()
    return Checkpointed(name, projector.position)
