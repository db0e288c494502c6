"""Pruning in a real Postgres: the past is in files, nothing of it is lost, and no late commit gives
an ended pod a second life.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import sys
from functools import partial
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from services.replay.commands import verify
from services.replay.filters import FilterError
from services.replay.names import uids_of
from services.replay.reading import ledger_at
from services.upkeep import pruning
from services.upkeep.errors import UpkeepRefused
from services.upkeep.redacting import mask_everywhere, redact
from shared.domain.state_hash import state_hash
from shared.eventlog import history_file, postgres_logins, postgres_pruning
from shared.eventlog import postgres_care as care
from shared.eventlog.archive_place import place_of
from shared.eventlog.checkpoints import Checkpoint, Form, nearest_checkpoint, save_checkpoint
from shared.eventlog.errors import LogBusy, LoginTooWeak, LogPruned
from shared.eventlog.file_log import FileLog
from shared.eventlog.port import Appended, Commit, Conflict, Draft, Duplicate, Lost, Place
from shared.eventlog.postgres import PostgresEventLog
from shared.eventlog.postgres_connection import connect
from shared.eventlog.postgres_logins import KEEPER, LOGINS, VIEWER, make_login
from shared.eventlog.skips import skips
from shared.events.cluster_events import NodeObserved, PodObserved
from shared.events.log_events import FactSkipped
from shared.runtime.consumer import Consumer
from shared.runtime.projector import Fold, Projector
from tests.eventlog.test_life import (  # noqa: F401 - fixture
    PARTITION,
    PODS,
    archived,
    commits,
    everything,
    killed,
    log,
    of_stream,
    relayed,
)
from tests.ledger.given import pod
from tests.runtime.test_projector import fold

NOW_US = 1_800_000_000_000_000
DAYS = 90.0
NAME = re.compile(rb'"(ns/)?alice-0"')


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(care, "BLOCK_FACTS", 15)
    monkeypatch.setattr(history_file, "BLOCK_FACTS", 15)


async def checkpointed(log: PostgresEventLog, position: int, name: str = "scheduler") -> None:
    (event,) = await log.read(position - 1, 1)
    place = Place(position, event.chain)
    await log.save_snapshot(name, "f", place, b"state")
    await save_checkpoint(log, name, Form(), Checkpoint(place, "f", b"state"))


async def pruned(url: str, log: PostgresEventLog, folder: Path | str) -> int:
    prunable = await postgres_pruning.prunable(url)
    ranges = await pruning.due(log, prunable, DAYS, NOW_US)
    drop = partial(postgres_pruning.prune, url)
    done = await pruning.prune(log, prunable, ranges, place_of(str(folder)), drop)
    return done[-1].last if done else 0


async def given_pruned(url: str, log: PostgresEventLog, folder: Path | str) -> int:
    """Archive and prune all full partitions but the last one, and return the last position."""
    await relayed(log)
    head = await log.head()
    await checkpointed(log, head // PARTITION * PARTITION - 3)
    await archived(url, log)
    return await pruned(url, log, folder)


async def test_pruned_events_read_as_if_they_were_rows(
    log: PostgresEventLog,
    log_url: str,
    tmp_path: Path,
) -> None:
    skip = FactSkipped(100_000, "pod/x", "me", "why")
    await log.append([Commit("skip", "operator", 0, 1, (Draft("log", skip),))])
    node = Draft("node/n2", NodeObserved("n2", "uid-n2"))
    await log.append([Commit(f"n{n}", "test", 0, 1, (node,)) for n in range(2 * PARTITION)])
    names = ["node/n1", "report/n1", "log", *(f"pod/uid-alice-{n}" for n in range(PODS))]
    earlier, skipped = await everything(log), await skips(log)
    by_stream = {name: await of_stream(log, name) for name in names}
    versions, uids = await log.versions([*names, "pod/no"]), await uids_of(log, "alice-0")
    state = state_hash(await ledger_at(log))
    last = await given_pruned(log_url, log, tmp_path)
    assert last == (len(earlier) // PARTITION - 1) * PARTITION
    fresh = await PostgresEventLog.open(log_url)
    for reader in (log, fresh):
        assert await reader.begins() == 1
        assert await everything(reader) == earlier
        assert {name: await of_stream(reader, name) for name in names} == by_stream
        assert await of_stream(reader, "node/n1", 5, 3) == by_stream["node/n1"][5:8]
        assert await reader.versions([*names, "pod/no"]) == versions
        for position in (150, 20, 90, last, 41, len(earlier), 3):
            for name in names[:9]:
                version = sum(event.stream == name for event in earlier[:position])
                assert await reader.version_at(name, position) == version
                assert await of_stream(reader, name, version) == by_stream[name][version:]
                assert (
                    await of_stream(reader, name, max(0, version - 4), 2)
                    == by_stream[name][max(0, version - 4) : max(0, version - 4) + 2]
                )
        assert await uids_of(reader, "alice-0") == uids == ["uid-alice-0"]
        assert await skips(reader) == skipped
    result = await verify(fresh, [])
    assert (result.ok, result.violations, result.positions) == (True, [], len(earlier))
    assert state_hash(await ledger_at(fresh)) == state
    assert (await care.status(log_url)).pruned_to == last
    await fresh.close()


async def test_questions_about_pruned_events_begin_at_checkpoints_in_the_files(
    log: PostgresEventLog,
    log_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pruning, "STATES_EVERY", 10)
    for position in (15, 22, 35, 70, 75):
        await checkpointed(log, position)
    last = await given_pruned(log_url, log, tmp_path)
    owner = await connect(log_url)
    await owner.execute("DELETE FROM older_snapshot")
    await owner.close()
    fresh = await PostgresEventLog.open(log_url)
    starts = {}
    for until in (14, 15, 34, 35, 60, 74, 75, last):
        kept = await nearest_checkpoint(fresh, "scheduler", Form(), until)
        starts[until] = kept.place.position if kept is not None else 0
    assert starts == {14: 0, 15: 0, 34: 22, 35: 35, 60: 35, 74: 35, 75: 75, last: 75}
    everywhere = partial(mask_everywhere, log_url, log)
    await redact(log, "ns/alice-0", "me", "asked", 1, everywhere)
    assert await nearest_checkpoint(fresh, "scheduler", Form(), last) is None
    await fresh.close()


async def test_without_the_files_the_history_begins_at_the_last_pruned_event(
    log: PostgresEventLog,
    log_url: str,
    tmp_path: Path,
) -> None:
    earlier = await everything(log)
    last = await given_pruned(log_url, log, tmp_path / "files")
    shutil.move(tmp_path / "files", tmp_path / "elsewhere")
    assert await log.begins() == last
    for position in (last + 1, len(earlier)):
        version = sum(event.stream == "node/n1" for event in earlier[:position])
        assert await log.version_at("node/n1", position) == version, "no file is searched"
    assert await log.read(last - 1, 5) == earlier[last - 1 : last + 4]
    with pytest.raises(LogPruned, match="in files of the archive only"):
        await log.read(0)
    with pytest.raises(FilterError, match=f"begins at position {last}"):
        await verify(log, [])
    with pytest.raises(UpkeepRefused, match="lacks files of positions 1 to"):
        await pruned(log_url, log, tmp_path / "new")
    assert await pruned(log_url, log, tmp_path / "elsewhere") == 0
    assert await log.begins() == 1


async def test_a_late_commit_never_gives_an_ended_pod_a_second_life(
    log: PostgresEventLog,
    log_url: str,
    tmp_path: Path,
) -> None:
    stream, observed = "pod/uid-alice-0", PodObserved(pod("alice-0", cpus=2))
    versions = (await log.versions([stream]))[stream]
    await given_pruned(log_url, log, tmp_path)
    head = await log.head()
    (newest,) = await log.read(head - 1, 1)

    async def late(name: str, expected: int = -1, **place: Any) -> Any:
        draft = Draft(stream, observed, expected)
        return (await log.append([Commit(name, "test", 0, 1, (draft,), **place)]))[0]

    assert await late("c2") == Conflict(stream, -1, versions)
    assert await late("new") == Conflict(stream, -1, versions)
    assert await late("as new", 0) == Conflict(stream, 0, versions)
    assert await late("older", versions - 1) == Conflict(stream, versions - 1, versions)
    assert await late("archived place", seen=Place(2, b"x")) == Conflict("log", 2, head)
    assert await log.head() == head
    # Only a decision on the present log continues the stream: the cluster has the pod again.
    again = await late("again", seen=Place(head, newest.chain))
    assert again == Appended(head + 1, head + 1, {stream: versions + 1})
    assert len(await of_stream(log, stream)) == versions + 1
    assert (await verify(log, [])).ok


async def test_ids_behind_the_horizon_are_forgotten_and_later_ones_are_not(
    log: PostgresEventLog,
    log_url: str,
    tmp_path: Path,
) -> None:
    all_commits = commits()
    last = await given_pruned(log_url, log, tmp_path)
    owner = await connect(log_url)
    assert await owner.fetchval("SELECT min(last) > $1 FROM commit_seen", last)
    assert await owner.fetchval("SELECT count(*) FROM stream_head WHERE stream LIKE 'pod/%'") < PODS
    await owner.close()
    (outcome,) = await log.append(all_commits[-1:])
    assert isinstance(outcome, Duplicate)
    # A reader that was away misses nothing that the log still knows of.
    identity = await log.identity()
    lost = Lost(identity.timeline, identity.timeline, 3, commit_id="c1")
    assert await log.begin_timeline(1, lost) == identity


async def test_only_what_everything_has_passed_is_pruned(
    log: PostgresEventLog,
    log_url: str,
    tmp_path: Path,
) -> None:
    await relayed(log)
    await archived(log_url, log)
    await log.save_snapshot("binder", "f", Place(150, (await log.read(149, 1))[0].chain), b"s")
    assert await pruned(log_url, log, tmp_path) == 0
    await checkpointed(log, 2 * PARTITION + 1, "binder")
    assert await pruned(log_url, log, tmp_path) == 2 * PARTITION
    owner = await connect(log_url)
    first = await owner.fetchval("SELECT min(first) FROM archived_block WHERE last > first")
    await owner.close()
    with pytest.raises(LogBusy, match="projection binder has not passed"):
        await postgres_pruning.prune(log_url, [first], str(tmp_path))
    with pytest.raises(UpkeepRefused, match="at least 7d"):
        await pruning.due(log, await postgres_pruning.prunable(log_url), 6.9, NOW_US)


async def test_the_keepers_login_archives_and_prunes_and_does_nothing_else(
    log: PostgresEventLog,
    log_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        postgres_logins, "LOGINS", {"a_keeper": LOGINS[KEEPER], "a_viewer": LOGINS[VIEWER]}
    )
    for name in ("a_keeper", "a_viewer"):
        await make_login(log_url, name, "a password")
    viewer, url = (log_url.replace("//postgres@", f"//a_{name}@") for name in ("viewer", "keeper"))
    with pytest.raises(LoginTooWeak, match="member of role topolog_pruner"):
        await postgres_pruning.prune(viewer, [], "x")
    with pytest.raises(LoginTooWeak, match="this login may not archive"):
        await care.require_keeper(viewer)
    earlier = await everything(log)
    await relayed(log, 2 * PARTITION)
    partitions = (await care.status(log_url)).partitions
    with pytest.raises(LogBusy, match="consumer relay has not passed position 120"):
        await care.archive(url, partitions[2])
    await log.save_checkpoint("relay", len(earlier), 2 * PARTITION)
    last = len(earlier) // PARTITION * PARTITION
    await checkpointed(log, last - 3)
    await archived(url, log)
    assert (await care.status(log_url)).archived_to == last - PARTITION
    assert await everything(log) == earlier
    command = ["log", "prune", "--to", str(tmp_path), "--database-url", url]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "services.cli.main", *command)
    )
    assert await process.wait() == 0
    assert (await care.status(log_url)).pruned_to > 0
    pruner = await connect(url)
    for statement in (
        "DELETE FROM commit_seen",
        "DELETE FROM stream_head",
        "DELETE FROM archived_block",
        "UPDATE pruned SET position = 0",
        "DELETE FROM fact",
        "SELECT topolog_begin_timeline()",
        "INSERT INTO archived_block VALUES (1, 2, '', '')",
        "DROP TABLE fact",
    ):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await pruner.execute(statement)
    for statement in (
        "SELECT topolog_drop_partition(1000001)",
        f"SELECT topolog_drop_partition({last + 1})",
        "SELECT topolog_archive_block(1, 2, '', '', '{}', '{}', '{}')",
        f"SELECT topolog_archive_block(1, {len(earlier) + 9}, '', '', '{{}}', '{{}}', '{{}}')",
    ):
        with pytest.raises(asyncpg.ObjectInUseError):
            await pruner.execute(statement)
    await pruner.close()


async def test_redaction_masks_pruned_events_in_their_files(
    log: PostgresEventLog,
    log_url: str,
    tmp_path: Path,
) -> None:
    earlier = await everything(log)
    last = await given_pruned(log_url, log, tmp_path)
    everywhere = partial(mask_everywhere, log_url, log)
    await redact(log, "ns/alice-0", "me", "asked", 1, everywhere)
    fresh = await PostgresEventLog.open(log_url)
    later = await everything(fresh)
    assert [row.chain for row in later[: len(earlier)]] == [row.chain for row in earlier]
    assert not [row for row in later[:last] if NAME.search(row.payload)]
    result = await verify(fresh, [])
    assert (result.ok, result.violations) == (True, [])
    in_files = await everything(FileLog.open(tmp_path))
    assert not [row for row in in_files if NAME.search(row.payload)]
    await fresh.close()


async def test_killed_between_blocks_it_loses_nothing_and_finishes_when_run_again(
    log: PostgresEventLog,
    log_url: str,
    tmp_path: Path,
) -> None:
    earlier = await everything(log)
    await relayed(log)
    await checkpointed(log, len(earlier) // PARTITION * PARTITION - 3)
    await archived(log_url, log)
    first_range = (await postgres_pruning.prunable(log_url)).ranges[0]
    arguments = ["log", "prune", "--to", str(tmp_path), "--database-url", log_url]
    command = [sys.executable, "-m", "services.cli.main", *arguments]
    # In the middle of the first partition, and before the first block of the third.
    for waiting in (first_range.blocks[1], 2 * PARTITION + 1):
        lock = "SELECT 1 FROM archived_block WHERE first = $1 FOR UPDATE"
        reached = "SELECT position FROM pruned"
        await killed(command, log_url, (lock, waiting), (reached, waiting - 1))
        assert await everything(log) == earlier
    process = await asyncio.create_subprocess_exec(*command)
    assert await process.wait() == 0
    assert await everything(log) == earlier
    assert (await verify(log, [])).ok
    status = await care.status(log_url)
    assert status.pruned_to == (len(earlier) // PARTITION - 1) * PARTITION


async def test_readers_that_begin_again_begin_behind_what_was_pruned(
    log: PostgresEventLog,
    log_url: str,
    tmp_path: Path,
) -> None:
    counting = fold("the former code")
    form: Fold[Any] = Fold(
        counting.initial, counting.evolve, "f", counting.dump, counting.load, form=Form()
    )
    former = Projector("scheduler", log, form)
    await run_to_head(log, former)
    await relayed(log)
    for position in (2 * PARTITION + 1, 3 * PARTITION + 1):
        (event,) = await log.read(position - 1, 1)
        state = counting.initial()
        for envelope in (await everything(log))[:position]:
            counting.evolve(state, envelope, None)  # type: ignore[arg-type]
        dumped = counting.dump(state)  # type: ignore[misc]
        checkpoint = Checkpoint(Place(position, event.chain), "f", dumped)
        await save_checkpoint(log, "scheduler", Form(), checkpoint)
    await archived(log_url, log)
    assert await pruned(log_url, log, tmp_path / "files") == 3 * PARTITION
    shutil.rmtree(tmp_path / "files")
    other_release = Projector("scheduler", log, Fold(*_other(form)))
    await run_to_head(log, other_release)
    assert other_release.state == former.state
    seen: list[int] = []

    async def handle(page: Any) -> None:
        seen.extend(event.position for event in page)

    relay = Consumer("relay", log, handle, checkpoint=True)
    running = asyncio.create_task(relay.run())
    await log.begin_timeline(1)
    head = await log.head()
    assert await relay.wait_for(head, 10) or await relay.wait_for(head, 10)
    running.cancel()
    assert seen[-1] == head
    assert seen[0] > 3 * PARTITION


def _other(form: Fold[Any]) -> tuple[Any, ...]:
    values = [getattr(form, name) for name in form.__struct_fields__]
    values[2] = "other code"
    return tuple(values)


async def run_to_head(log: PostgresEventLog, projector: Projector[Any]) -> None:
    running = asyncio.create_task(projector.run())
    assert await projector.wait_for(await log.head(), 20)
    running.cancel()
