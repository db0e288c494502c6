"""The password of the services' login is changed under a running log: a log with its URL in a file
goes on without a restart.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import asyncpg
import pytest

from services.embedded.postgres import PostgresSettings
from services.embedded.servers import EmbeddedServers
from shared.domain.secret_url import database_trouble
from shared.eventlog.errors import LogUnavailable
from shared.eventlog.migrate import upgrade
from shared.eventlog.port import Appended
from shared.eventlog.postgres import PostgresEventLog
from shared.eventlog.postgres_connection import connect
from shared.eventlog.postgres_logins import SERVICE, make_login
from shared.runtime.projector import Projector
from shared.runtime.secret_file import UrlFile
from tests.eventlog.words import commit
from tests.fixtures.ports import free_port
from tests.fixtures.servers import ServerThread, short_folder
from tests.runtime.helpers import QUICK, running
from tests.runtime.test_projector import fold

HOST = "127.0.0.1"


class Rotating:
    """A server that asks TCP clients for passwords (scram-sha-256), and the file of the services'
    URL.
    """

    def __init__(self, owner: str, port: int, file: Path) -> None:
        self.owner, self.port, self.file = owner, port, file

    def url(self, password: str) -> str:
        return f"postgresql://{SERVICE}:{password}@{HOST}:{self.port}/topolog"

    def write(self, password: str) -> None:
        """Replace the file as a whole, as a kubelet does with a mounted Secret."""
        draft = self.file.with_suffix(".new")
        draft.write_text(self.url(password) + "\n")
        draft.replace(self.file)

    async def change(self, password: str) -> int:
        """Change the password in the server, and end all sessions that used the previous one.
        Return their number.
        """
        await make_login(self.owner, SERVICE, password)
        owner = await connect(self.owner)
        try:
            ended = await owner.fetch(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = $1", SERVICE
            )
        finally:
            await owner.close()
        return len(ended)

    async def appends(self, log: PostgresEventLog) -> int:
        """Append an event and return its position."""
        (done,) = await log.append([commit(uuid4().hex)])
        assert isinstance(done, Appended)
        return done.last


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[str, int]]:
    """Yield the owner's URL (by the socket) and the port."""
    port = free_port()
    settings = PostgresSettings(
        shared_buffers_mb=64,
        max_connections=100,
        durable=False,
        listen_addresses=HOST,
        password="owner's",
        port=port,
    )
    with short_folder() as place:
        thread = ServerThread(
            lambda: EmbeddedServers(place / "data", want_nats=False, postgres_settings=settings)
        )
        try:
            yield thread.servers.database_url, port
        finally:
            thread.close()


@pytest.fixture
async def rotating(server: tuple[str, int], tmp_path: Path) -> Rotating:
    owner, port = server
    await upgrade(owner)
    await make_login(owner, SERVICE, "first")
    made = Rotating(owner, port, tmp_path / "url")
    made.write("first")
    return made


async def opened(rotating: Rotating, retry_for_s: float = 60.0) -> PostgresEventLog:
    return await PostgresEventLog.open(
        UrlFile(str(rotating.file), database_trouble), production=True, retry_for_s=retry_for_s
    )


async def test_a_log_and_its_projector_go_on_with_the_new_password(rotating: Rotating) -> None:
    log = await opened(rotating)
    projector = Projector("p", log, fold(), options=QUICK)
    try:
        async with running(projector.run()):
            assert await projector.wait_for(await rotating.appends(log), 60)
            assert await log.acquire("role", "me", 30.0) is not None
            for password in ("second", "third"):
                assert await rotating.change(password) >= 3
                with pytest.raises(asyncpg.InvalidPasswordError):
                    await connect(rotating.url("first"))
                waiting = asyncio.ensure_future(rotating.appends(log))
                await asyncio.sleep(0.3)
                assert not waiting.done(), "it got in with a password that is no more"
                rotating.write(password)
                assert await projector.wait_for(await waiting, 60)
                assert await log.acquire(f"role {password}", "me", 30.0) is not None
                assert projector.position == await log.head()
    finally:
        await log.close()


async def test_a_file_that_is_being_written_is_waited_for_and_logged_without_its_password(
    rotating: Rotating,
) -> None:
    log = await opened(rotating, retry_for_s=0.5)
    try:
        await rotating.appends(log)
        await rotating.change("fourth")
        for text in ("", "postgresql://u:sEcReT#@h/x", "\ufeff"):
            rotating.file.write_text(text)
            with pytest.raises(LogUnavailable) as received:
                await log.head()
            assert str(rotating.file) in str(received.value)
            assert "sEcReT" not in str(received.value)
        rotating.file.unlink()
        with pytest.raises(LogUnavailable, match="no such file or folder"):
            await rotating.appends(log)
        rotating.write("fourth")
        assert await rotating.appends(log) == await log.head()
    finally:
        await log.close()


async def test_without_a_file_the_password_of_the_start_is_kept(rotating: Rotating) -> None:
    log = await PostgresEventLog.open(rotating.url("first"), retry_for_s=0.5)
    try:
        await rotating.change("fifth")
        rotating.write("fifth")
        with pytest.raises(LogUnavailable, match="password authentication failed"):
            await log.head()
    finally:
        await log.close()
