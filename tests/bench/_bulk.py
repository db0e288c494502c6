"""A log with its oldest events in files, as `topolog log prune` leaves it, made without its rows:
25 times as quick as appending, archiving and pruning them.

Checkpoints are made only for the questions that are asked later, at the distance of those that
`prune` keeps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from hashlib import md5, sha256
from itertools import chain
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
from shared.eventlog.history_file import Header, Writer, pack
from shared.eventlog.port import EventLog, Place
from shared.eventlog.postgres_care import COLUMNS
from shared.events.cluster_events import PodEnded, PodObserved
from shared.events.codec import decode
from shared.events.envelope import Envelope
from tests.bench._history import History

LOG_ID = "bench"
_KEYS = {"pod_name": "hash, position", "pruned_stream": "id"}
_HEADS = """
INSERT INTO stream_head (stream, version) SELECT stream, max(version) FROM fact GROUP BY stream;
INSERT INTO commit_seen (commit_id, first, last)
    SELECT topolog_commit_key(commit_id), min(position), max(position) FROM fact
    WHERE type IN ('NodeObserved', 'PodObserved', 'PodBound', 'PodRunning', 'PodEnded')
    GROUP BY commit_id;
"""


class States:
    """States of the scheduler at some positions. Each is folded from the events that made it: of
    the nodes, and of the pods that still live there."""

    def __init__(self, history: History, positions: Iterable[int]) -> None:
        self._nodes, self._memory = SchedulerState(), history.events_of_live_pods()
        self._first = history.events(0)
        self._wanted = sorted(set(positions))
        self._folded: dict[int, SchedulerState] = {}

    def follow(self, block: Sequence[Envelope]) -> Iterator[tuple[Place, bytes]]:
        """Fold a block of the history. Yield the states that it completes, as checkpoints."""
        first, last = block[0].position, block[-1].position
        for envelope in block[: max(0, self._first - first + 1)]:
            scheduler.evolve(self._nodes, envelope, decode(envelope))
        for place in [place for place in self._wanted if place - self._memory <= last]:
            state, done = self._folded.get(place), False
            for envelope in block:
                if envelope.position <= max(self._first, place - self._memory) or done:
                    continue
                if state is None:
                    state = self._folded[place] = scheduler.load(scheduler.dump(self._nodes))
                    state.ledger.position = envelope.position - 1
                scheduler.evolve(state, envelope, decode(envelope))
                if done := envelope.position == place:
                    yield Place(place, envelope.chain), scheduler.dump(state)
            if done:
                self._wanted.remove(place)
                del self._folded[place]


async def fill(
    log: EventLog, owner: Any, folder: Path, history: History, pods: int, in_rows: int, asked: int
) -> int:
    """Fill an empty log with the history: all but about `in_rows` events in the folder. Return the
    last pruned position."""
    history_file.LEVEL = 1
    size = await owner.fetchval("SELECT partition_size FROM counter")
    edge: int = max(0, history.events(pods) - in_rows) // size * size
    places = [
        history.position_of(pods * number // asked) // STATES_EVERY * STATES_EVERY
        for number in range(asked)
    ]
    near = [edge - EVERY, edge]
    states = States(history, [place for place in (*places, *near) if 0 < place <= edge])
    for table in _KEYS:
        await owner.execute(f"ALTER TABLE {table} DROP CONSTRAINT {table}_pkey")
    blocks = _cut_at(history.blocks(pods), range(size, edge + 1, size))
    folder.mkdir(parents=True, exist_ok=True)
    link, newest = b"", None
    for first in range(1, edge + 1, size):
        last = first + size - 1
        with (folder / file_name(first, last)).open("wb") as file:
            header = Header(log_id=LOG_ID, timeline=1, first=first, last=last, before=link.hex())
            writer = Writer(file, header)
            while newest is None or newest.position != last:
                block = next(blocks)
                writer.add(block)
                await _list_pods(owner, block)
                for place, state in states.follow(block):
                    checkpoint = Checkpoint(place, "", state)
                    if place.position in near:
                        await save_checkpoint(log, PROJECTION, FORM, checkpoint)
                    name = state_name(*key_of(PROJECTION, FORM.version), place.position)
                    (folder / name).write_bytes(place.chain + packed(checkpoint))
                newest = block[-1]
            link = newest.chain
            writer.end()
    for table, columns in _KEYS.items():
        await owner.execute(f"ALTER TABLE {table} ADD PRIMARY KEY ({columns})")
    if newest is not None:
        data = pack([newest])
        values = (edge, edge, sha256(data).digest(), data)
        await owner.execute("INSERT INTO archived_block VALUES ($1, $2, $3, $4)", *values)
        await owner.execute("UPDATE pruned SET position = $1, archive = $2", edge, str(folder))
        await owner.execute("UPDATE counter SET partitioned_to = $1", edge)
    await _rows(owner, blocks)
    return edge


async def _list_pods(owner: Any, block: Sequence[Envelope]) -> None:
    """List the names of a pruned block's pods, and the versions of ended ones."""
    names = [
        (_hash(event.stream.removeprefix("pod/uid-")), event.position)
        for event in block
        if event.type == PodObserved.__name__
    ]
    ended = [
        (UUID(bytes=md5(event.stream.encode()).digest()), event.version, block[-1].position)
        for event in block
        if event.type == PodEnded.__name__
    ]
    await owner.copy_records_to_table("pod_name", records=names)
    await owner.copy_records_to_table("pruned_stream", records=ended)


def _hash(name: str) -> int:
    """Return what `topolog_name_hash` returns (migration 0010)."""
    return int.from_bytes(md5(name.encode()).digest()[:8], signed=True)


def _cut_at(blocks: Iterator[list[Envelope]], positions: Iterable[int]) -> Iterator[list[Envelope]]:
    """Yield the events in blocks that end at these positions, or where they ended."""
    edges = chain(positions, [1 << 62])
    edge = next(edges)
    for block in blocks:
        while block[-1].position > edge:
            count = edge - block[0].position + 1
            if count > 0:
                yield block[:count]
            block, edge = block[max(count, 0) :], next(edges)
        yield block


async def _rows(owner: Any, blocks: Iterator[list[Envelope]]) -> None:
    newest: Envelope | None = None
    for block in blocks:
        await owner.execute("SELECT topolog_roll($1)", block[-1].position)
        rows = [msgspec.structs.astuple(envelope) for envelope in block]
        await owner.copy_records_to_table("fact", records=rows, columns=COLUMNS)
        newest = block[-1]
    await owner.execute(_HEADS)
    if newest is not None:
        statement = "UPDATE counter SET position = $1, chain = $2, log_id = $3"
        await owner.execute(statement, newest.position, newest.chain, LOG_ID)
