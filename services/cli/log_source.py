"""Which log a command reads: a database URL, the data folder of a `topolog up` that runs or has
stopped, or a file of `topolog log export` (or a folder of archived ones), which is given where a
URL may be."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from types import TracebackType

from services.cli.addresses import FILE, check_database, is_there, path_of
from services.cli.output import EXIT_USAGE, CommandError
from services.replay.filters import FilterError
from services.replay.suggestions import did_you_mean
from shared.domain.secret_url import looks_like_url
from shared.eventlog.port import EventLog

WITH_STATE = ("scheduler", "binder", "topology-store")
"""Who folds the log and tells its hash; a second one has a number behind its name. The observer is part of a scheduler."""


class LogSource:
    """`async with LogSource(url, data_dir) as log:`. A stopped data folder's Postgres is started
    for the time of reading.
    """

    def __init__(self, database_url: str, data_dir: Path | None, writes: bool = False) -> None:
        self._url = database_url
        self._data_dir = data_dir
        self._writes = writes
        self._stack = AsyncExitStack()
        self.url = ""
        """Of the database, once it is open."""

    def file(self) -> Path | None:
        """The exported history that was named instead of a URL. Raises CommandError for what is
        neither.
        """
        check_database(self._url)
        path = path_of(self._url)
        return (
            path
            if self._url and (is_there(path) or not looks_like_url(self._url.removeprefix(FILE)))
            else None
        )

    def states(self) -> list[tuple[str, str]]:
        """(name, URL of `/state`) of the services with a state that run on the data folder, for
        `verify`.
        """
        from services.embedded.running import read_services

        if self._url and self._data_dir is None:
            return []
        return [
            (one.name, one.url("/state"))
            for one in read_services(self._folder())
            if one.name.startswith(WITH_STATE)
        ]

    def state_url(self, service: str) -> str:
        """`/state` of a service by its name in the data folder, or a URL as it stands. Raises
        FilterError.
        """
        from services.embedded.running import read_services

        if service.startswith(("http://", "https://")):
            return service
        running = {one.name: one.url("/state") for one in read_services(self._folder())}
        if service not in running:
            there = (
                f"; there run {', '.join(sorted(running))}"
                if running
                else "; nothing runs on the data folder"
            )
            hint = did_you_mean(service, running) or there
            raise FilterError(
                f"--service {service!r} is no service of {self._folder()}{hint}",
                "--service http://HOST:PORT/state",
            )
        return running[service]

    def kubeconfig(self) -> str:
        """How to reach the cluster of the data folder; "" when that is not known."""
        from services.embedded.up.kubeconfig import read_kubeconfig

        return "" if self._url else read_kubeconfig(self._folder())

    def _folder(self) -> Path:
        from services.embedded.data_dir import default_data_dir

        return self._data_dir or default_data_dir()

    async def __aenter__(self) -> EventLog:
        file = self.file()
        if file is not None:
            return self._opened(file)
        from shared.eventlog.errors import LogNotMigrated, LogUnavailable
        from shared.eventlog.postgres import PostgresEventLog
        from shared.eventlog.postgres_connection import READER, WRITER

        url = self.url = self._url or await self._url_of_folder(self._folder())
        try:
            log = await PostgresEventLog.open(
                url, retry_for_s=5.0, role=WRITER if self._writes else READER
            )
        except (LogUnavailable, LogNotMigrated) as error:
            problem = str(error).partition("; ")[0]
            raise CommandError(problem, "topolog up, or --database-url of a running log") from error
        self._stack.push_async_callback(log.close)
        return log

    @asynccontextmanager
    async def database(self) -> AsyncIterator[str]:
        """The URL of a database that need not hold a log yet: of a data folder too, which is made
        where it is not there.
        """
        file = self.file()
        if file is not None:
            raise CommandError(
                f"{file} is no database", "--database-url postgresql://OWNER@HOST/EMPTY", EXIT_USAGE
            )
        async with self._stack:
            yield self._url or await self._url_of_folder(self._folder(), made=True)

    def _opened(self, file: Path) -> EventLog:
        from shared.eventlog.file_log import FileLog
        from shared.eventlog.history_file import HistoryFileError

        if self._writes:
            raise CommandError(
                f"{file} is a history in a file, which takes nothing",
                "--database-url, or --data-dir",
                EXIT_USAGE,
            )
        try:
            return FileLog.open(file)
        except HistoryFileError as error:
            raise CommandError(
                str(error), "another copy of it, or: topolog log export --out FILE"
            ) from error

    async def _url_of_folder(self, folder: Path, made: bool = False) -> str:
        from services.embedded.data_dir import DataDir, read_addresses
        from services.embedded.errors import DataFolderError, EmbeddedError
        from services.embedded.servers import EmbeddedServers

        if not made and not (folder / "VERSION").exists():
            raise CommandError(
                f"no Topolog data folder at {folder}",
                "topolog up, --data-dir or --database-url",
                EXIT_USAGE,
            )
        data_dir = DataDir(folder)
        try:
            self._stack.enter_context(data_dir)
        except DataFolderError as error:
            running = read_addresses(folder).database_url
            if running is None:
                raise CommandError(error.problem, error.remedy) from error
            return running
        servers = EmbeddedServers(data_dir, want_nats=False)
        try:
            await self._stack.enter_async_context(servers)
        except EmbeddedError as error:
            raise CommandError(error.problem, error.remedy) from error
        return servers.database_url

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        await self._stack.aclose()
