"""Logins of their own: made by the owner, rotated, enough for a service and no more; a service that
is the owner says so.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import asyncpg
import pytest
import structlog

from services.cli.main import main
from services.embedded.errors import EmbeddedError
from services.embedded.run_migrations import serve
from services.upkeep.errors import UpkeepRefused
from services.upkeep.logins import make_logins
from shared.eventlog import postgres_logins
from shared.eventlog.errors import LoginTooStrong, LoginTooWeak
from shared.eventlog.inspection import inspect
from shared.eventlog.port import Appended
from shared.eventlog.postgres import PostgresEventLog
from shared.eventlog.postgres_connection import PRUNER, READER, WRITER, connect
from shared.eventlog.postgres_logins import Rights, make_login, scram
from shared.telemetry import names
from tests.eventlog.words import commit


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> str:
    """Use other names in each test, because logins belong to the server and not to the database."""
    name = f"service_{uuid4().hex[:12]}"
    monkeypatch.setattr(postgres_logins, "LOGINS", {name: WRITER, f"{name}_viewer": READER})
    monkeypatch.setattr("services.upkeep.logins.LOGINS", {name: WRITER, f"{name}_viewer": READER})
    return name


def as_user(url: str, user: str) -> str:
    return url.replace("//postgres@", f"//{user}@")


async def test_a_services_login_appends_leases_and_keeps_snapshots_and_cannot_become_more(
    log_url: str, service: str
) -> None:
    assert await make_login(log_url, service, "a password")
    assert not await make_login(log_url, service, "another password"), (
        "made again, it gets the other password"
    )
    log = await PostgresEventLog.open(as_user(log_url, service), production=True)
    assert isinstance((await log.append([commit("c")]))[0], Appended)
    assert await log.acquire("role", "me", 5) is not None
    await log.close()
    connection = await connect(as_user(log_url, service), role=WRITER)
    for statement in (
        "RESET ROLE; DELETE FROM fact",
        "SET ROLE postgres",
        "ALTER TABLE fact DISABLE TRIGGER ALL",
    ):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.execute(statement)
    await connection.close()
    owner = await connect(log_url)
    await owner.execute(f"DROP ROLE {service}")
    await owner.close()


async def test_a_service_that_is_the_owner_is_warned_and_refused_in_production(
    log_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    log = await PostgresEventLog.open(log_url, production=False)
    await log.close()
    with pytest.raises(LoginTooStrong, match=r"superuser.*topolog database roles"):
        await PostgresEventLog.open(log_url, production=True)


async def test_a_login_that_may_become_the_owner_or_was_granted_writing_is_no_services(
    log_url: str, service: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """All roles that the login could assume count: without inheritance, through a role of its own,
    or by a grant on every table.
    """
    await make_login(log_url, service, "a password")
    owner = await connect(log_url)
    between = f"{service}_between"
    await owner.execute(f"CREATE ROLE {between} NOINHERIT")
    for grant, rank in (
        (
            f"GRANT pg_write_all_data TO {between}; GRANT {between} TO {service}",
            "a writer of every table",
        ),
        (f"GRANT postgres TO {between}", "a superuser"),
    ):
        await owner.execute(grant)
        with pytest.raises(LoginTooStrong, match=rank):
            await PostgresEventLog.open(as_user(log_url, service), production=True)
        assert rank in (await inspect(as_user(log_url, service))).rank
    await owner.execute(f"DROP ROLE {service}; DROP ROLE {between}")
    await owner.close()


async def test_a_service_with_a_readers_login_says_so_at_its_start(
    log_url: str, service: str
) -> None:
    viewer = f"{service}_viewer"
    await make_login(log_url, viewer, "a password")
    for production in (False, True):
        with pytest.raises(LoginTooWeak, match=r"may not append.*topolog database roles"):
            await PostgresEventLog.open(as_user(log_url, viewer), production=production)
    log = await PostgresEventLog.open(as_user(log_url, viewer), role=READER)
    assert await log.head() == 0, "who reads is asked nothing"
    await log.close()
    assert not (await inspect(as_user(log_url, viewer))).rank


@pytest.mark.parametrize(
    "verb",
    [
        ["log", "skip", "1", "--reason", "looked at it", "--force"],
        ["log", "begin-timeline"],
        ["log", "archive", "--older-than", "1d"],
    ],
)
async def test_a_command_with_a_readers_login_names_the_login_that_may(
    log_url: str, service: str, verb: list[str]
) -> None:
    log = await PostgresEventLog.open(log_url)
    await log.append([commit("c")])
    await log.close()
    viewer = f"{service}_viewer"
    await make_login(log_url, viewer, "a password")
    command = [
        sys.executable,
        "-m",
        "services.cli.main",
        *verb,
        "--database-url",
        as_user(log_url, viewer),
    ]
    ended = await asyncio.to_thread(subprocess.run, command, capture_output=True)
    assert ended.returncode == 1
    said = ended.stderr.decode()
    assert "unexpected error" not in said
    assert re.search(
        r"try: give --database-url with (the owner's login|the login topolog_(service|keeper))",
        said,
    ), said


@pytest.mark.parametrize("login", ["", "_viewer"])
@pytest.mark.parametrize("verb", [["log", "status"], ["log", "archive", "--dry-run"]])
async def test_services_and_readers_may_see_how_large_the_log_is(
    log_url: str, service: str, login: str, verb: list[str]
) -> None:
    await make_login(log_url, service + login, "a password")
    command = [
        sys.executable,
        "-m",
        "services.cli.main",
        *verb,
        "--database-url",
        as_user(log_url, service + login),
    ]
    ended = await asyncio.to_thread(subprocess.run, command, capture_output=True)
    assert ended.returncode == 0, ended.stderr


async def test_a_login_that_is_made_later_is_waited_for(log_url: str, service: str) -> None:
    opening = asyncio.create_task(PostgresEventLog.open(as_user(log_url, service), production=True))
    done, _ = await asyncio.wait({opening}, timeout=0.5)
    assert not done
    await make_login(log_url, service, "a password")
    log = await opening
    assert await log.head() == 0
    await log.close()


def test_the_owner_of_the_log_is_distinguished_from_a_superuser() -> None:
    assert not Rights("topolog_service", False, False, False, True).problem
    assert "the owner of the log" in Rights("topolog", False, True, True, True).problem
    assert "a superuser" in Rights("postgres", True, True, True, True).problem


def test_a_verifier_is_that_of_the_standard() -> None:
    """RFC 7677's example: user `user`, password `pencil`."""
    from base64 import b64decode

    made = scram("pencil", b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="))
    assert made.startswith("SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$")
    assert "wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=" in made


def test_the_command_makes_logins_with_passwords_in_files(
    log_url: str,
    service: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = tmp_path / "passwords"
    for _ in range(2):
        monkeypatch.setattr(
            sys,
            "argv",
            [
                "topolog",
                "database",
                "roles",
                "--database-url",
                log_url,
                "--password-dir",
                str(folder),
            ],
        )
        with pytest.raises(SystemExit) as ended:
            main()
        assert not ended.value.code
    shown = capsys.readouterr().out
    file = folder / f"{service}.password"
    assert file.stat().st_mode & 0o077 == 0
    assert str(file) in shown
    assert file.read_text().strip() not in shown


async def test_logins_are_refused_in_words_where_there_is_no_log_or_the_login_may_not_make_them(
    log_url: str, database_url: str, service: str, tmp_path: Path
) -> None:
    """Logins belong to the whole server, so the command would change the services' password even
    through another database.
    """
    await make_logins(log_url, tmp_path)
    for url, words in (
        (database_url, "the database holds no log"),
        (as_user(log_url, f"{service}_viewer"), "may not create roles"),
        (as_user(log_url, "nobody"), 'role "nobody" does not exist'),
        ("postgresql://u:letters123@127.0.0.1:1/none", "does not answer"),
    ):
        with pytest.raises(UpkeepRefused, match=words) as refused:
            await make_logins(url, tmp_path)
        assert "owner" in refused.value.remedy
        assert "letters123" not in str(refused.value)


async def test_the_migrations_of_a_container_make_the_logins_of_services_and_keeper(
    log_url: str, service: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOPOLOG_DATABASE_URL", log_url)
    for name, login, role in (("SERVICE", service, WRITER), ("KEEPER", f"{service}_k", PRUNER)):
        monkeypatch.setenv(f"TOPOLOG_{name}_PASSWORD", "letters123")
        monkeypatch.setattr(f"services.embedded.run_migrations.{name}", login)
        monkeypatch.setitem(postgres_logins.LOGINS, login, role)
    await serve()
    for login, role in ((service, WRITER), (f"{service}_k", PRUNER)):
        connection = await connect(as_user(log_url, login))
        assert await connection.fetchval("SELECT pg_has_role($1, 'MEMBER')", role)
        await connection.close()


async def test_migrations_by_an_owner_without_createrole_end_with_a_message(
    log_url: str, service: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await make_login(log_url, service, "a password")
    owner = await connect(log_url)
    await owner.execute(
        f"ALTER SCHEMA public OWNER TO {service}; GRANT SELECT ON ALL TABLES IN SCHEMA "
        f"public TO {service}"
    )
    monkeypatch.setenv("TOPOLOG_DATABASE_URL", as_user(log_url, service))
    monkeypatch.setenv("TOPOLOG_SERVICE_PASSWORD", "letters123")
    monkeypatch.setattr("services.embedded.run_migrations.SERVICE", service)
    with pytest.raises(EmbeddedError, match="may not create roles"):
        await serve()
    await owner.close()


async def test_a_database_that_may_lose_acknowledged_events_is_reported(
    log_url: str, service: str
) -> None:
    """The setting may be the server's, the role's, or the database's."""
    await make_login(log_url, service, "a password")
    owner = await connect(log_url)
    for setting, expected in (("off", True), ("local", False), ("on", False)):
        await owner.execute(f"ALTER ROLE {service} SET synchronous_commit = {setting}")
        with structlog.testing.capture_logs() as lines:
            log = await PostgresEventLog.open(as_user(log_url, service), production=True)
            await log.close()
        off = [line["off"] for line in lines if line["event"] == names.LOG_NOT_DURABLE]
        assert any("synchronous_commit" in settings for settings in off) == expected
        seen = await inspect(as_user(log_url, service))
        assert ("synchronous_commit" in seen.not_durable) == expected
    await owner.execute(f"DROP ROLE {service}")
    await owner.close()
