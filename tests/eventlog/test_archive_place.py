"""The archive in a bucket of a real S3 server, and in a folder that lies elsewhere: every reader
finds the pruned events there, and nothing is removed that the place does not hold.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from moto.server import ThreadedMotoServer

from services.replay.commands import verify
from services.upkeep.errors import UpkeepRefused
from services.upkeep.redacting import mask_everywhere, redact
from shared.eventlog import history_file, postgres_pruning
from shared.eventlog import postgres_care as care
from shared.eventlog.archive_place import Bucket, trouble
from shared.eventlog.errors import LogPruned
from shared.eventlog.postgres import PostgresEventLog
from tests.eventlog.test_life import (  # noqa: F401 - fixture
    PARTITION,
    archived,
    everything,
    log,
    relayed,
)
from tests.eventlog.test_pruning import NAME, checkpointed, given_pruned, pruned


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(care, "BLOCK_FACTS", 15)
    monkeypatch.setattr(history_file, "BLOCK_FACTS", 15)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    logging.getLogger("werkzeug").setLevel(logging.WARNING)
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def bucket(server: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """Return the URL of an empty bucket with a prefix."""
    for name, value in (
        ("AWS_ENDPOINT_URL", server),
        ("AWS_ACCESS_KEY_ID", "key"),
        ("AWS_SECRET_ACCESS_KEY", "secret"),
        ("AWS_REGION", "us-east-1"),
    ):
        monkeypatch.setenv(name, value)
    name = re.sub(r"[^a-z0-9]", "-", tmp_path.name.lower())
    urlopen(Request(f"{server}/{name}", method="PUT")).close()
    return f"s3://{name}/of/topolog"


async def test_every_reader_reaches_pruned_events_in_the_bucket(
    log: PostgresEventLog,
    log_url: str,
    bucket: str,
) -> None:
    earlier = await everything(log)
    last = await given_pruned(log_url, log, bucket)
    assert last == (len(earlier) // PARTITION - 1) * PARTITION
    assert (await postgres_pruning.prunable(log_url)).archive == bucket
    fresh = await PostgresEventLog.open(log_url)
    assert await fresh.begins() == 1
    assert await everything(fresh) == earlier
    result = await verify(fresh, [])
    assert (result.ok, result.positions) == (True, len(earlier))
    await fresh.close()


async def test_redaction_masks_pruned_events_in_the_bucket(
    log: PostgresEventLog,
    log_url: str,
    bucket: str,
) -> None:
    earlier = await everything(log)
    last = await given_pruned(log_url, log, bucket)

    async def everywhere(*arguments: object) -> int:
        return await mask_everywhere(log_url, log, *arguments)  # type: ignore[arg-type]

    await redact(log, "ns/alice-0", "me", "asked", 1, everywhere)
    fresh = await PostgresEventLog.open(log_url)
    later = await everything(fresh)
    assert [row.chain for row in later[: len(earlier)]] == [row.chain for row in earlier]
    assert not [row for row in later[:last] if NAME.search(row.payload)]
    assert (await verify(fresh, [])).ok
    await fresh.close()


async def test_a_bucket_that_cannot_be_reached_loses_nothing(
    log: PostgresEventLog,
    log_url: str,
    bucket: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    earlier = await everything(log)
    await relayed(log)
    await checkpointed(log, len(earlier) // PARTITION * PARTITION - 3)
    await archived(log_url, log)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(UpkeepRefused, match=r"cannot be used: .*error sending request"):
        await pruned(log_url, log, bucket)
    assert (await care.status(log_url)).pruned_to == 0
    assert await everything(log) == earlier
    monkeypatch.undo()


async def test_without_the_bucket_readers_say_what_they_lack(
    log: PostgresEventLog,
    log_url: str,
    bucket: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    last = await given_pruned(log_url, log, bucket)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    fresh = await PostgresEventLog.open(log_url)
    assert await fresh.begins() == last
    with pytest.raises(LogPruned, match=f"{bucket} cannot be read.*TOPOLOG_ARCHIVE"):
        await fresh.read(0)
    await fresh.close()


async def test_the_setting_names_another_place_than_the_log(
    log: PostgresEventLog,
    log_url: str,
    tmp_path: Path,
) -> None:
    earlier = await everything(log)
    await given_pruned(log_url, log, tmp_path / "files")
    shutil.move(tmp_path / "files", tmp_path / "elsewhere")
    moved = await PostgresEventLog.open(log_url, archive=str(tmp_path / "elsewhere"))
    assert await moved.begins() == 1
    assert await everything(moved) == earlier
    await moved.close()


async def test_the_commands_take_the_bucket_from_one_setting(
    log: PostgresEventLog,
    log_url: str,
    bucket: str,
) -> None:
    earlier = await everything(log)
    await relayed(log)
    await checkpointed(log, len(earlier) // PARTITION * PARTITION - 3)
    variables = os.environ | {"TOPOLOG_ARCHIVE": bucket, "TOPOLOG_DATABASE_URL": log_url}
    for verb in (
        ["log", "archive"],
        ["log", "prune", "--older-than", "90d"],
        ["replay", "verify"],
    ):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "services.cli.main", *verb),
            env=variables,
            stdout=asyncio.subprocess.PIPE,
        )
        output, _ = await process.communicate()
        assert process.returncode == 0, output.decode()
    assert (await care.status(log_url)).pruned_to == (len(earlier) // PARTITION - 1) * PARTITION
    assert len(Bucket(bucket).names()) == len(earlier) // PARTITION - 1


@pytest.mark.parametrize(
    ("location", "problem"),
    [
        ("s3://bucket", ""),
        ("s3://bucket/a/b", ""),
        ("/var/lib/archive", ""),
        ("s3://", "names no bucket; give s3://BUCKET/PREFIX"),
        ("gs://bucket", "must be a folder or s3://BUCKET/PREFIX"),
    ],
)
def test_a_place_that_is_none_is_refused(location: str, problem: str) -> None:
    assert trouble(location) == problem
