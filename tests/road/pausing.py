"""Pause processes of a running road in the middle of an append that is not in the log when they
stop.

While the log takes no events, every writer repeats its append until it is answered: a paused
process then does so once it wakes up, whatever has become of its lease. Roles change hands
meanwhile, because leases are no events. Must not know the log's answers.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from tests.road.failing_over import Holder, holders, until
from tests.road.harness import Road

_CLOSE = """
CREATE FUNCTION takes_no_facts() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN RAISE EXCEPTION 'the log takes no facts' USING ERRCODE = 'lock_not_available'; END $$;
CREATE TRIGGER takes_no_facts BEFORE INSERT ON fact
FOR EACH STATEMENT EXECUTE FUNCTION takes_no_facts();
"""
_OPEN = "DROP TRIGGER takes_no_facts ON fact; DROP FUNCTION takes_no_facts()"


class Paused(msgspec.Struct, frozen=True):
    """A process with its leases when it was paused, its refused appends by then, the log's head and
    the relay's position.
    """

    name: str
    pid: int
    held: tuple[Holder, ...]
    refused: float
    head: int
    relayed: int


@asynccontextmanager
async def no_events_taken(database: Any) -> AsyncIterator[None]:
    """Let the log refuse appends during the block, so that all processes retry."""
    await database.execute(_CLOSE)
    try:
        yield
    finally:
        await database.execute(_OPEN)


async def pause_in_mid_append(road: Road, database: Any, *choices: Sequence[int]) -> list[Paused]:
    """Pause, of each group of processes, the first with an unanswered append."""
    return [await _first(road, database, pids) for pids in choices]


async def _first(road: Road, database: Any, pids: Sequence[int]) -> Paused:
    waiting_pids: list[int] = []

    async def sent() -> bool:
        waiting_pids.extend(
            [pid for pid in pids if await asyncio.to_thread(_unanswered, road, road.child(pid))]
        )
        return bool(waiting_pids)

    async with asyncio.timeout(20):
        await until(sent)
    pid, name = waiting_pids[0], road.child(waiting_pids[0])
    refused = await asyncio.to_thread(refusals, road, name)
    os.kill(pid, signal.SIGSTOP)
    roles = tuple(each for each in await holders(database) if each.pid == pid)
    return Paused(
        name,
        pid,
        roles,
        refused,
        await database.fetchval("SELECT position FROM counter"),
        await relayed(database),
    )


def _unanswered(road: Road, name: str) -> float:
    answered = road.count(name, "topolog_append_outcomes_total")
    return road.count(name, "topolog_append_batch_commits_sum") - answered


def refusals(road: Road, name: str) -> float:
    """Return how many commits the log refused to a process because a newer epoch leads."""
    return road.count(name, "topolog_append_outcomes_total", outcome="Fenced")


async def relayed(database: Any) -> int:
    """Return the position up to which events are on the bus."""
    return int(await database.fetchval("SELECT position FROM checkpoint WHERE consumer = 'relay'"))


async def counted_out(database: Any, paused: Sequence[Paused]) -> None:
    """Wait until the paused processes hold no lease."""
    epochs = {each.lease: each.epoch for process in paused for each in process.held}

    async def newer() -> bool:
        rows = await database.fetch(
            "SELECT role, epoch FROM writer WHERE role = ANY($1)", list(epochs)
        )
        return all(row["epoch"] > epochs[row["role"]] for row in rows) and len(rows) == len(epochs)

    async with asyncio.timeout(30):
        await until(newer)
