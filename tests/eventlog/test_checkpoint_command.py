"""`topolog log checkpoint`: each service starts from the checkpoint that it wrote."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from services.binder.service import fold as binder_fold
from services.scheduler.core import CoreConfig
from services.scheduler.handlers import fold_of
from services.topology_store.service import fold as topology_store_fold
from services.upkeep.checkpointing import checkpoint
from services.upkeep.errors import UpkeepRefused
from shared.eventlog.memory import MemoryEventLog
from shared.runtime.projector import Fold, Projector
from tests.eventlog.test_life import commits

FOLDS: dict[str, Fold[Any]] = {
    "scheduler": fold_of(CoreConfig()),
    "binder": binder_fold(),
    "topology-store": topology_store_fold(),
}


@pytest.mark.parametrize("name", FOLDS)
async def test_a_release_with_other_fold_code_starts_from_it(name: str) -> None:
    log = MemoryEventLog()
    await log.append(commits())
    head = await log.head()
    written = await checkpoint(log)
    assert [(one.projection, one.position) for one in written] == [(f, head) for f in FOLDS]
    other_release = msgspec.structs.replace(FOLDS[name], fingerprint="other code")
    begun: list[int] = []
    projector: Projector[Any] = Projector(
        name, log, other_release, on_reset=lambda _state: begun.append(projector.position)
    )
    running = asyncio.create_task(projector.run())
    assert await projector.wait_for(head, 20)
    running.cancel()
    assert begun == [head]


async def test_a_log_that_cannot_be_folded_gets_none() -> None:
    log = MemoryEventLog()
    await log.append(commits())
    broken = msgspec.structs.replace(log._events[2], payload=b"{")
    log._events[2] = broken
    with pytest.raises(UpkeepRefused, match="pod/uid-alice-0 is quarantined"):
        await checkpoint(log)
    assert not log._snapshots
