"""The migrations of a container as a real process: done, already done, and a fault in one line with
the variable's name.
"""

from __future__ import annotations

import asyncio

import pytest

from services.embedded.errors import EmbeddedError
from services.embedded.postgres import PostgresSettings
from services.embedded.run_migrations import serve
from services.embedded.servers import EmbeddedServers
from shared.eventlog.postgres import PostgresEventLog
from tests.embedded.test_containers import entry
from tests.fixtures.ports import free_port
from tests.fixtures.servers import short_folder


def run(url: str, wait_s: int = 0) -> tuple[int, str]:
    process = entry("run_migrations", TOPOLOG_DATABASE_URL=url, TOPOLOG_DATABASE_WAIT_S=str(wait_s))
    _, words = process.communicate(timeout=120)
    return process.returncode, words


async def test_an_empty_database_is_migrated_and_a_second_time_is_harmless(
    database_url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOPOLOG_DATABASE_URL", database_url)
    monkeypatch.delenv("TOPOLOG_SERVICE_PASSWORD", raising=False)
    await serve()
    await serve()
    assert capsys.readouterr().out.splitlines() == [
        "migrated to the newest revision",
        "already at the newest revision",
    ]
    log = await PostgresEventLog.open(database_url)
    assert await log.head() == 0
    await log.close()


def test_the_process_ends_well_where_there_is_something_to_do(database_url: str) -> None:
    assert run(database_url)[0] == 0


@pytest.mark.parametrize(
    "url",
    ["postgresql://postgres@127.0.0.1:9/topolog", "postgresql://nobody.invalid/topolog", "no url"],
)
def test_a_database_that_cannot_be_reached_is_one_line_that_names_the_variable(url: str) -> None:
    code, words = run(url)
    assert (code, "TOPOLOG_DATABASE_URL" in words, "Traceback" in words) == (2, True, False)


async def test_a_database_that_is_starting_is_retried() -> None:
    """Without the retry, the Job would end at the first start of a cluster and be restarted only
    after 10, 20, 40 seconds.
    """
    port = free_port()
    process = entry(
        "run_migrations", TOPOLOG_DATABASE_URL=f"postgresql://postgres:pw@127.0.0.1:{port}/topolog"
    )
    assert process.stderr is not None
    assert process.stderr.readline().startswith("waiting for the database: ")
    with short_folder() as folder:
        settings = PostgresSettings(
            listen_addresses="127.0.0.1", password="pw", port=port, durable=False
        )
        async with EmbeddedServers(
            folder / "data", want_nats=False, postgres_settings=settings
        ) as servers:
            assert servers.postgres is not None
            await asyncio.to_thread(servers.postgres.apply_password)
            _, words = await asyncio.to_thread(process.communicate, timeout=120)
    assert (process.returncode, words) == (0, "")


def test_it_is_not_waited_for_for_ever() -> None:
    code, words = run("postgresql://postgres@127.0.0.1:9/topolog", wait_s=1)
    assert code == 2
    assert words.splitlines()[-1].startswith("error: the database could not be migrated")


async def test_nothing_is_done_without_a_database(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOPOLOG_DATABASE_URL", raising=False)
    with pytest.raises(EmbeddedError, match="TOPOLOG_DATABASE_URL"):
        await serve()
