"""Pods by name in Postgres: listed when they are appended, archived, redacted and migrated."""

from __future__ import annotations

from functools import partial

import msgspec
import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import Connection

from services.replay.names import uids_of
from services.upkeep.archiving import archive
from services.upkeep.redacting import redact
from shared.eventlog import postgres_care as care
from shared.eventlog.port import Commit, Draft, PodNames
from shared.eventlog.postgres import PostgresEventLog
from shared.eventlog.postgres_connection import connect
from shared.eventlog.postgres_engine import make_engine
from shared.eventlog.revisions import MIGRATIONS
from shared.events.cluster_events import PodEnded, PodObserved, PodRunning
from tests.ledger.given import pod

OLD = "0009"
DAY_US = 86_400_000_000


async def observe(log: PostgresEventLog, name: str, uid: str, namespace: str = "ns") -> None:
    observed = msgspec.structs.replace(
        pod(name, cpus=1), uid=uid, namespace=namespace, annotations={"note": "a NUL: \x00"}
    )
    stream = f"pod/{uid}"
    drafts = (
        Draft(stream, PodObserved(observed)),
        Draft(stream, PodRunning(uid, "n1")),
        Draft(stream, PodEnded(uid, "succeeded", "n1")),
    )
    await log.append([Commit(f"observe {uid}", "test", 0, 1, drafts)])


async def test_pods_of_a_name_are_listed_where_they_were_first_observed(
    postgres_log: PostgresEventLog,
) -> None:
    await observe(postgres_log, "web-0", "u1")
    await observe(postgres_log, "web-1", "u2")
    await observe(postgres_log, "web-0", "u3", namespace="other")
    assert await postgres_log.pods_named("web-0") == PodNames([1, 7])
    assert await postgres_log.pods_named("web") == PodNames([])
    assert await uids_of(postgres_log, "web-0") == ["u1", "u3"]
    assert await uids_of(postgres_log, "other/web-0") == ["u3"]
    assert await uids_of(postgres_log, "u2") == ["u2"]


async def test_a_question_by_name_reads_the_events_of_that_name_only(
    postgres_log: PostgresEventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(50):
        await observe(postgres_log, f"web-{number}", f"u{number}")
    asked: list[tuple[int, int]] = []
    read = postgres_log.read

    async def counted(after: int, limit: int = 1000) -> list[object]:
        asked.append((after, limit))
        return list(await read(after, limit))

    monkeypatch.setattr(postgres_log, "read", counted)
    assert await uids_of(postgres_log, "ns/web-30") == ["u30"]
    assert asked == [(90, 1)]


async def test_an_event_that_cannot_be_read_does_not_stop_the_append(log_url: str) -> None:
    owner = await connect(log_url)
    for payload in (b"\xff", b"not json", b"[]", b'{"pod": 1}', b'{"pod": {"name": "\\u0000"}}'):
        assert await owner.fetchval("SELECT topolog_pod_name($1)", payload) is None
    await owner.close()


async def test_archived_pods_are_found_and_redacted_pods_only_by_their_new_name(
    postgres_log: PostgresEventLog, log_url: str
) -> None:
    owner = await connect(log_url)
    await owner.execute("DROP TABLE fact_0000000000000001; DROP TABLE fact_0000000001000001")
    await owner.execute("UPDATE counter SET partition_size = 6, partitioned_to = 0")
    await owner.execute("SELECT topolog_roll(0)")
    await owner.close()
    for number in range(5):
        await observe(postgres_log, f"web-{number}", f"u{number}")
    partitions = [
        partition for partition in (await care.status(log_url)).partitions if partition.full
    ]
    await archive(postgres_log, partitions, None, partial(care.archive, log_url))
    assert (await care.status(log_url)).archived_to == 12
    assert await uids_of(postgres_log, "web-1") == ["u1"]
    for name, uid in (("web-1", "u1"), ("web-4", "u4")):
        (redacted,) = await redact(
            postgres_log, f"ns/{name}", "me", "asked for", 1, partial(care.mask, log_url)
        )
        assert (await postgres_log.pods_named(name)).positions == []
        assert await uids_of(postgres_log, redacted.name) == [uid]


async def test_a_migration_lists_rows_and_says_which_archived_events_it_does_not_list(
    postgres_log: PostgresEventLog, log_url: str
) -> None:
    await observe(postgres_log, "web-0", "u0")
    await observe(postgres_log, "web-1", "u1")
    owner = await connect(log_url)
    await owner.execute(
        "DROP TRIGGER fact_pod_name ON fact; DROP TABLE pod_name, pod_name_from;"
        "DROP FUNCTION topolog_name_hash, topolog_pod_name, topolog_list_pod;"
        f"UPDATE alembic_version SET version_num = '{OLD}';"
        "INSERT INTO archived_block (first, last, sha256, data) VALUES (1, 2, '', '')"
    )
    await owner.close()
    await migrated(log_url)
    assert await postgres_log.pods_named("web-0") == PodNames([1], unlisted=2)
    await observe(postgres_log, "web-1", "u2")
    assert await postgres_log.pods_named("web-1") == PodNames([4, 7], unlisted=2)


async def migrated(url: str) -> None:
    engine = make_engine(url)
    async with engine.connect() as connection:
        await connection.run_sync(_to_0010)
        await connection.commit()
    await engine.dispose()


def _to_0010(connection: Connection) -> None:
    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(MIGRATIONS))
    command.upgrade(config, "0010")
