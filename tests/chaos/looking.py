"""Read the cluster and the log: a list of pods with the log's head, and the log folded to its end.
Judges nothing.
"""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import msgspec

from services.replay.reading import envelopes, fold_one
from shared.eventlog.postgres import PostgresEventLog
from shared.eventlog.postgres_connection import READER, plain_url
from shared.eventlog.skips import skips
from shared.events.cluster_events import PodEnded
from shared.events.quarantine import QuarantinedStreams
from shared.ledger.state import Ledger
from tests.road.harness import Road


class Look(msgspec.Struct, frozen=True):
    """The API server's pods, None if it did not answer; the log's head was `head` just before."""

    head: int
    pods: list[dict[str, Any]] | None


class Folded(msgspec.Struct):
    """The whole log: its ledger, and the node on which each pod ended."""

    ledger: Ledger = msgspec.field(default_factory=Ledger)
    ended: dict[str, int] = {}


async def look(road: Road, database_url: str) -> Look:
    """Return the API server's pods and the head of the log."""
    database = await asyncpg.connect(plain_url(database_url))
    head = await database.fetchval("SELECT position FROM counter")
    await database.close()
    listed = await asyncio.to_thread(road.kube, "/api/v1/pods")
    return Look(head, listed.get("items") if isinstance(listed, dict) else None)


async def folded(database_url: str) -> Folded:
    """Fold the log from its beginning, as the services do."""
    state, quarantined = Folded(), QuarantinedStreams()
    log = await PostgresEventLog.open(database_url, role=READER)
    try:
        quarantined.skipped = await skips(log)
        async for envelope in envelopes(log):
            event, _ = fold_one(state.ledger, envelope, quarantined)
            if isinstance(event, PodEnded):
                state.ended[event.uid] = envelope.position
    finally:
        await log.close()
    return state
