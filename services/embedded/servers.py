"""Postgres and NATS of one data folder: started in parallel, with the database created, stopped
cleanly.

Used by `topolog up` and by the tests. Knows nothing of the services.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from services.embedded.child import OnEvent, ignore_event
from services.embedded.data_dir import DataDir, ServerAddresses
from services.embedded.errors import ChildFailedError, EmbeddedError
from services.embedded.nats import CHILD_NAME as NATS
from services.embedded.nats import DEFAULT_SETTINGS as DEFAULT_NATS
from services.embedded.nats import EmbeddedNats, NatsSettings
from services.embedded.postgres import CHILD_NAME as POSTGRES
from services.embedded.postgres import DEFAULT_SETTINGS, EmbeddedPostgres, PostgresSettings
from services.embedded.supervisor import Supervisor

_NATS_ADDRESS_TRIES = 3


class EmbeddedServers:
    """`async with EmbeddedServers(data_dir) as servers:` starts the wanted servers and stops them
    at the end.

    `data_dir` is a path (opened and locked here) or an open DataDir. A `supervisor` may be given to
    share it with other children; then its owner stops it. Raises DataFolderError, PortInUseError,
    ServerBinaryError, ChildFailedError.
    """

    def __init__(
        self,
        data_dir: Path | DataDir,
        *,
        want_postgres: bool = True,
        want_nats: bool = True,
        postgres_settings: PostgresSettings = DEFAULT_SETTINGS,
        nats_settings: NatsSettings = DEFAULT_NATS,
        supervisor: Supervisor | None = None,
        on_event: OnEvent = ignore_event,
    ) -> None:
        self.data_dir = data_dir if isinstance(data_dir, DataDir) else DataDir(data_dir)
        self.supervisor = supervisor or Supervisor(on_event)
        self.postgres = (
            EmbeddedPostgres(self.data_dir, postgres_settings) if want_postgres else None
        )
        self.nats = EmbeddedNats(self.data_dir, nats_settings) if want_nats else None
        self.ready_after_s: dict[str, float] = {}
        self.nats_is_ready = asyncio.Event()
        self._owns_folder = not self.data_dir.is_open
        self._owns_supervisor = supervisor is None

    @property
    def database_url(self) -> str:
        """See EmbeddedPostgres.url. Raises EmbeddedError without an embedded Postgres."""
        if self.postgres is None:
            raise EmbeddedError(
                "no embedded Postgres was started", "Start it with want_postgres=True"
            )
        return self.postgres.url()

    @property
    def nats_url(self) -> str:
        """See EmbeddedNats.url. Raises EmbeddedError without an embedded NATS."""
        if self.nats is None:
            raise EmbeddedError("no embedded NATS was started", "Start it with want_nats=True")
        return self.nats.url

    async def start(self) -> Self:
        """Start the wanted servers; return when they are ready and the database exists."""
        if self._owns_folder:
            self.data_dir.open()
        try:
            await self._start_both()
        except BaseException as error:
            await self.stop()
            if isinstance(error, BaseExceptionGroup):
                raise error.exceptions[0] from None
            raise
        return self

    async def stop(self) -> None:
        """Stop what was started here and release the folder. Safe to call twice."""
        try:
            if self._owns_supervisor:
                await self.supervisor.stop()
                if self.postgres is not None and self.data_dir.is_open:
                    self.postgres.clean_up()
        finally:
            if self._owns_folder:
                self.data_dir.close()

    async def _start_both(self) -> None:
        async with asyncio.TaskGroup() as group:
            if self.postgres is not None:
                group.create_task(self._timed(POSTGRES, self._start_postgres(self.postgres)))
            if self.nats is not None:
                group.create_task(self._timed(NATS, self._start_nats(self.nats)))
        self.data_dir.write_addresses(
            ServerAddresses(
                self.postgres.url() if self.postgres is not None else None,
                self.nats.url if self.nats is not None else None,
            )
        )

    async def reload_nats(self) -> None:
        """Reload the users of NATS; connections of removed users end. Raises DataFolderError."""
        if self.nats is not None:
            await _to_its_end(self.nats.write_config)
            self.supervisor.child(NATS).hang_up()

    async def _timed(self, name: str, starting: Awaitable[None]) -> None:
        begun_s = time.monotonic()
        await starting
        self.ready_after_s[name] = time.monotonic() - begun_s

    async def _start_postgres(self, postgres: EmbeddedPostgres) -> None:
        await _to_its_end(postgres.prepare)
        await self.supervisor.start([postgres.spec()])
        await _to_its_end(postgres.create_database)

    async def _start_nats(self, nats: EmbeddedNats) -> None:
        """Choose another port if a program took the chosen one before the server started."""
        for attempt in range(_NATS_ADDRESS_TRIES):
            await _to_its_end(nats.prepare)
            try:
                await self.supervisor.start([nats.spec()])
                self.nats_is_ready.set()
                return
            except ChildFailedError as error:
                in_use = "address already in use" in error.log_tail
                if attempt == _NATS_ADDRESS_TRIES - 1 or not in_use:
                    raise

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        await self.stop()


async def _to_its_end(work: Callable[[], None]) -> None:
    """Run blocking work in a thread. A thread cannot be cancelled, so a cancellation waits for it:
    otherwise its tools would work in a released folder. An error of the work is then dropped in
    favour of the cancellation.
    """
    running = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.gather(running, return_exceptions=True)
        raise
