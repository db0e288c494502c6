"""A log with its oldest events in files, as `topolog log prune` leaves it, made without its rows:
80 times as quick as appending, archiving and pruning them.

The log is complete after each file, so that an interrupted run goes on with the next one, and a
kept log grows: its rows are written again. Lines are
written by this process, compressed by a thread of it, and states are folded by a second process.
Checkpoints are made only for the questions that are asked later, at the distance of those that
`prune` keeps.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from hashlib import md5, sha256
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec

from services.scheduler.state import state as scheduler
from services.scheduler.state.state import FORM, PROJECTION, SchedulerState
from services.upkeep.pruning import STATES_EVERY
from shared.eventlog import history_file
from shared.eventlog.archive_files import file_name, state_name
from shared.eventlog.checkpoints import EVERY, Checkpoint, key_of, packed, save_checkpoint
from shared.eventlog.history_file import (
    BLOCK_FACTS,
    Header,
    Writer,
    envelope_of,
    line_of,
    pack,
    unpack,
)
from shared.eventlog.port import EventLog, Place
from shared.eventlog.postgres_care import COLUMNS
from shared.events import streams
from shared.events.codec import decode
from shared.events.envelope import Envelope
from tests.bench._history import VERSION_RUNNING, History, name_of, uid_of
from tests.bench._lines import Lines, chain_in

LOG_ID = "bench"
_KEYS = {"pod_name": "hash, position", "pruned_stream": "id"}
_HEADS = """
INSERT INTO stream_head (stream, version) SELECT stream, max(version) FROM fact GROUP BY stream;
INSERT INTO commit_seen (commit_id, first, last)
    SELECT topolog_commit_key(commit_id), min(position), max(position) FROM fact
    WHERE type IN ('NodeObserved', 'PodObserved', 'PodBound', 'PodRunning', 'PodEnded')
    GROUP BY commit_id;
"""
_PARTITIONS = "SELECT inhrelid::regclass FROM pg_inherits WHERE inhparent = 'fact'::regclass"
_REACHED = """
WITH gone AS (DELETE FROM archived_block)
UPDATE counter SET position = $1, partitioned_to = $1, chain = $2, log_id = $3
"""
# Lines that wait for the thread that compresses them.
_WAITING_BLOCKS = 20

Given = tuple[int, float]


def state_at(given: Given, position: int) -> bytes:
    """Return the scheduler's state at a position, folded from the events that made it: of the
    nodes, and of the pods that still live there."""
    history, state = History(*given), SchedulerState()
    first = max(0, history.number_at(position) - history.live - given[0])
    rows = history.of_nodes()
    for row in rows:
        scheduler.evolve(state, row, decode(row))
    if first:
        history.begin_at(first, b"")
        state.ledger.position = history.position
    for number in range(first, history.number_at(position) + 1):
        for row in history.of_pod(number):
            if row.position <= position:
                scheduler.evolve(state, row, decode(row))
    return scheduler.dump(state)


async def fill(
    log: EventLog,
    owner: Any,
    folder: Path,
    given: Given,
    pods: int,
    in_rows: int,
    asked: Iterable[int],
) -> int:
    """Fill a log with the history of `pods`: all but about `in_rows` events in the folder, with the
    states from which questions about the pods `asked` begin. A log that is partly filled is
    completed. Return the last pruned position."""
    history_file.LEVEL = 1
    history = History(*given)
    size = await owner.fetchval("SELECT partition_size FROM counter")
    edge: int = max(0, history.events(pods) - in_rows) // size * size
    reached = await owner.fetchval("SELECT position FROM pruned")
    places = [history.position_of(number) // STATES_EVERY * STATES_EVERY for number in asked]
    near = [place for place in (edge - EVERY, edge) if place > 0]
    wanted = sorted({place for place in (*places, *near) if reached < place <= edge})
    await _drop_rows(owner)
    for table in _KEYS:
        await owner.execute(f"ALTER TABLE {table} DROP CONSTRAINT IF EXISTS {table}_pkey")
    folder.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(1, get_context("spawn")) as second, ThreadPoolExecutor(1) as thread:
        states = {place: second.submit(state_at, given, place) for place in wanted}
        files = _Files(given, folder, thread, states, await _chain_at(owner, reached))
        for first in range(reached + 1, edge + 1, size):
            newest = files.write(first, first + size - 1)
            for checkpoint in files.checkpoints(newest.position):
                if checkpoint.place.position in near:
                    await save_checkpoint(log, PROJECTION, FORM, checkpoint)
            lists = _lists_of_pods(history, first, newest.position)
            async with owner.transaction():
                for table, rows in lists.items():
                    await owner.copy_records_to_table(table, records=rows)
                await _keep_newest(owner, newest, folder)
    await _rows(owner, given, edge, pods, await _chain_at(owner, edge))
    for table, columns in _KEYS.items():
        await owner.execute(f"ALTER TABLE {table} ADD PRIMARY KEY ({columns})")
    return edge


class _Files:
    """Writes files of the history one after the other, and the states that they complete."""

    def __init__(
        self,
        given: Given,
        folder: Path,
        thread: ThreadPoolExecutor,
        states: dict[int, Future[bytes]],
        chain: bytes,
    ) -> None:
        self._given, self._folder, self._thread, self._states = given, folder, thread, states
        self._chain, self._chains = chain, dict[int, bytes]()
        self._lines: Iterator[bytes] | None = None

    def write(self, first: int, last: int) -> Envelope:
        """Write the file of these positions. Return its last event."""
        if self._lines is None:
            self._lines = _lines_from(self._given, first, self._chain)
        path, line = self._folder / file_name(first, last), b""
        chain = self._chain.hex()
        with path.with_suffix(".new").open("wb") as file:
            header = Header(log_id=LOG_ID, timeline=1, first=first, last=last, before=chain)
            writer, waiting = Writer(file, header), list[Future[None]]()
            for begin in range(first, last + 1, BLOCK_FACTS):
                count = min(BLOCK_FACTS, last + 1 - begin)
                lines = list(islice(self._lines, count))
                line = lines[-1]
                for place in self._states:
                    if begin <= place < begin + count:
                        self._chains[place] = chain_in(lines[place - begin])
                waiting.append(self._thread.submit(writer.add_block, b"".join(lines), count))
                if len(waiting) > _WAITING_BLOCKS:
                    waiting.pop(0).result()
            for block in waiting:
                block.result()
            writer.end()
        os.replace(path.with_suffix(".new"), path)
        self._chain = chain_in(line)
        return envelope_of(line)

    def checkpoints(self, until: int) -> Iterator[Checkpoint]:
        """Write the states up to a position, and yield them."""
        for place in [place for place in self._states if place <= until]:
            state = self._states.pop(place).result()
            checkpoint = Checkpoint(Place(place, self._chains.pop(place)), "", state)
            name = state_name(*key_of(PROJECTION, FORM.version), place)
            (self._folder / name).write_bytes(checkpoint.place.chain + packed(checkpoint))
            yield checkpoint


def _lines_from(given: Given, position: int, chain: bytes) -> Iterator[bytes]:
    """Yield the lines from a position on, without end. `chain` is that of the event before it."""
    history, lines = History(*given), Lines(*given)
    number = history.number_at(position)
    if number < lines.first:
        for block in history.blocks(lines.first):
            chain = block[-1].chain
            yield from (line_of(row) for row in block if row.position >= position)
        number, position = lines.first, history.position_of(lines.first)
    skipped = position - history.position_of(number)
    for pod in lines.of_pods(number, 1 << 62, chain, skipped):
        yield from pod


async def _drop_rows(owner: Any) -> None:
    """Drop what a shorter history has after its files."""
    for (partition,) in await owner.fetch(_PARTITIONS):
        await owner.execute(f"DROP TABLE {partition}")
    await owner.execute("TRUNCATE stream_head, commit_seen, archived_stream")
    await owner.execute("DELETE FROM pod_name WHERE position > (SELECT position FROM pruned)")
    await owner.execute("UPDATE counter SET partitioned_to = (SELECT position FROM pruned)")


async def _chain_at(owner: Any, position: int) -> bytes:
    """Return the chain at the last pruned position."""
    if not position:
        return b""
    return unpack(await owner.fetchval("SELECT data FROM archived_block"))[-1].chain


async def _keep_newest(owner: Any, newest: Envelope, folder: Path) -> None:
    """Keep what the log keeps of a last pruned event."""
    data, edge = pack([newest]), newest.position
    await owner.execute(_REACHED, edge, newest.chain, LOG_ID)
    values = (edge, edge, sha256(data).digest(), data)
    await owner.execute("INSERT INTO archived_block VALUES ($1, $2, $3, $4)", *values)
    await owner.execute("UPDATE pruned SET position = $1, archive = $2", edge, str(folder))


def _lists_of_pods(history: History, first: int, last: int) -> dict[str, list[Any]]:
    """Return the rows of a pruned file's pods: their names, and the versions of ended ones."""
    names, ended = list[tuple[int, int]](), list[tuple[UUID, int, int]]()
    for number in range(history.number_at(first), history.number_at(last) + 1):
        position, pod_ended = history.position_of(number), number - history.live
        if pod_ended >= 0 and first <= position <= last:
            stream = streams.pod(uid_of(pod_ended))
            end = min(last, position + BLOCK_FACTS - 1 - (position - first) % BLOCK_FACTS)
            identity = UUID(bytes=md5(stream.encode()).digest())
            ended.append((identity, VERSION_RUNNING + 1, end))
        position += pod_ended >= 0
        if first <= position <= last:
            names.append((_hash(name_of(number)), position))
    return {"pod_name": names, "pruned_stream": ended}


def _hash(name: str) -> int:
    """Return what `topolog_name_hash` returns (migration 0010)."""
    return int.from_bytes(md5(name.encode()).digest()[:8], signed=True)


async def _rows(owner: Any, given: Given, edge: int, pods: int, chain: bytes) -> None:
    """Write the events after the files as rows."""
    last = History(*given).events(pods)
    lines = islice(_lines_from(given, edge + 1, chain), last - edge)
    async with owner.transaction():
        while block := list(map(envelope_of, islice(lines, BLOCK_FACTS))):
            await owner.execute("SELECT topolog_roll($1)", block[-1].position)
            rows = [msgspec.structs.astuple(envelope) for envelope in block]
            await owner.copy_records_to_table("fact", records=rows, columns=COLUMNS)
            chain = block[-1].chain
        await owner.execute(_HEADS)
        await owner.execute("UPDATE counter SET position = $1, chain = $2", last, chain)
