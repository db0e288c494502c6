"""The log that a command reads: a database URL, the data folder of a `topolog up` that runs or has
stopped, or a file of `topolog log export` (or a folder of such files) given in place of a URL.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from types import TracebackType

from services.cli.addresses import FILE, check_database, exists, path_of
from services.cli.output import EXIT_USAGE, CommandError
from services.cli.paths import archive_here
from services.embedded.running import CELLS_FILE, read_cells
from services.replay.filters import FilterError
from services.replay.suggestions import did_you_mean
from shared.domain.secret_url import looks_like_url
from shared.eventlog.port import EventLog

# Seconds until a database that does not answer is an error.
RETRY_FOR_S = 5.0

CELLS_VARIABLE = "TOPOLOG_CELLS_FILE"

# Services that fold the log and publish its hash; further instances have a number behind the name.
# The observer is part of a scheduler.
WITH_STATE = ("scheduler", "binder", "topology-store")


class LogSource:
    """`async with LogSource(url, data_dir) as log:`. Starts the Postgres of a stopped data folder
    for the time of reading. With `cell` it is the log of that cell.

    `url` is the database's once it is open. `started_here` is True if the data folder was stopped.
    """

    def __init__(
        self, database_url: str, data_dir: Path | None, writes: bool = False, cell: str = ""
    ) -> None:
        self._url = database_url
        self._data_dir = data_dir
        self._writes = writes
        self.cell = cell
        self._stack = AsyncExitStack()
        self.url = ""
        self.started_here = False

    def file(self) -> Path | None:
        """Return the exported history that was given in place of a URL. Raises CommandError for
        text that is neither.
        """
        check_database(self._url)
        path = path_of(self._url)
        is_file = exists(path) or not looks_like_url(self._url.removeprefix(FILE))
        return path if self._url and is_file else None

    def in_cell(self, cell: str) -> LogSource:
        """Return the log of one cell."""
        return LogSource(self._url, self._data_dir, self._writes, cell)

    def states(self) -> list[tuple[str, str]]:
        """Return (name, URL of `/state`) of the services with state on the data folder, of this
        cell only."""
        from services.embedded.running import read_services

        if self._url and self._data_dir is None:
            return []
        return [
            (service.name, service.url("/state"))
            for service in read_services(self._folder())
            if service.name.startswith(WITH_STATE) and self.cell in ("", service.cell)
        ]

    def state_url(self, service: str) -> str:
        """Return the URL of `/state` of a service by its name in the data folder; a URL is returned
        as it is. Raises FilterError.
        """
        from services.embedded.running import read_services

        if service.startswith(("http://", "https://")):
            return service
        urls = {running.name: running.url("/state") for running in read_services(self._folder())}
        if service not in urls:
            if urls:
                services = f"; these run: {', '.join(sorted(urls))}"
            else:
                services = "; no service runs on the data folder"
            raise FilterError(
                f"--service {service!r} is no service of {self._folder()}"
                f"{did_you_mean(service, urls) or services}",
                "--service http://HOST:PORT/state",
            )
        return urls[service]

    def kubeconfig(self, running: bool = True) -> str:
        """Return the kubeconfig of the data folder's cluster; "" if there is none, or if it is a
        simulated cluster that is not `running`."""
        from services.embedded.up.kubeconfig import path_of as simulated
        from services.embedded.up.kubeconfig import read_kubeconfig

        if self._url:
            return ""
        kubeconfig = read_kubeconfig(self._folder())
        is_stopped = not running and kubeconfig == str(simulated(self._folder()))
        return "" if is_stopped else kubeconfig

    def settings(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Return the variables by which the log's schedulers decide: those of the data folder, and
        over them those of the environment.
        """
        from services.embedded.up.scheduler_settings import read_settings

        return (read_settings(self._folder()) if not self._url else {}) | dict(environment)

    def nats_url(self) -> str:
        """Return the bus of the data folder, "" if it is unknown."""
        from services.embedded.data_dir import read_addresses

        return read_addresses(self._folder()).nats_url or ""

    def _folder(self) -> Path:
        from services.embedded.data_dir import default_data_dir

        return self._data_dir or default_data_dir()

    def cells(self) -> dict[str, str]:
        """Return the database URL of each cell: of the data folder, or of the file that
        TOPOLOG_CELLS_FILE names; {} without cells."""
        if self._url:
            return {}
        file = os.environ.get(CELLS_VARIABLE, "") if self._data_dir is None else ""
        path = Path(file) if file else self._folder() / CELLS_FILE
        if not file and not path.exists():
            return {}
        try:
            return read_cells(path)
        except ValueError as error:
            remedy = "write a line CELL: DATABASE_URL for each cell"
            raise CommandError(str(error), remedy, EXIT_USAGE) from error

    @asynccontextmanager
    async def logs(self) -> AsyncIterator[dict[str, EventLog]]:
        """Yield the log of each cell by name; without cells one, named "". Starts the Postgres of a
        stopped data folder."""
        urls = self.cells()
        async with AsyncExitStack() as stack:
            if self.cell or not urls:
                yield {self.cell: await stack.enter_async_context(self)}
                return
            if not self.cells_are_named():
                await stack.enter_async_context(self.database(make=False))
            yield {
                cell: await stack.enter_async_context(LogSource(url, None))
                for cell, url in urls.items()
            }

    def cells_are_named(self) -> bool:
        """Return whether the cells are those of TOPOLOG_CELLS_FILE, not of a data folder."""
        return bool(os.environ.get(CELLS_VARIABLE)) and self._data_dir is None

    async def _url_of_log(self, make: bool = False) -> str:
        if self._url and not self.cell:
            return self._url
        urls = self.cells()
        if self.cell and self.cell not in urls:
            problem = f"there is no cell {self.cell!r}"
            remedy = f"one of {', '.join(urls)}" if urls else f"--data-dir, or {CELLS_VARIABLE}"
            raise CommandError(problem, remedy, EXIT_USAGE)
        if self.cell and self.cells_are_named():
            return urls[self.cell]
        url = await self._url_of_folder(self._folder(), make)
        return urls.get(self.cell, url)

    async def __aenter__(self) -> EventLog:
        file = self.file()
        if file is not None:
            return self._opened(file)
        from shared.eventlog.errors import LogNotMigrated, LogUnavailable
        from shared.eventlog.postgres import PostgresEventLog
        from shared.eventlog.postgres_connection import READER, WRITER

        url = self.url = await self._url_of_log()
        try:
            log = await PostgresEventLog.open(
                url,
                retry_for_s=RETRY_FOR_S,
                role=WRITER if self._writes else READER,
                archive=archive_here(),
            )
        except (LogUnavailable, LogNotMigrated) as error:
            problem = str(error).partition("; ")[0]
            raise CommandError(problem, "topolog up, or --database-url of a running log") from error
        self._stack.push_async_callback(log.close)
        return log

    @asynccontextmanager
    async def database(self, make: bool = True) -> AsyncIterator[str]:
        """Yield the URL of a database that need not hold a log yet. A data folder that does not
        exist is created if `make` is set.
        """
        file = self.file()
        if file is not None:
            raise CommandError(
                f"{file} is no database", "--database-url postgresql://OWNER@HOST/EMPTY", EXIT_USAGE
            )
        async with self._stack:
            yield await self._url_of_log(make)

    def _opened(self, file: Path) -> EventLog:
        from shared.eventlog.file_log import FileLog
        from shared.eventlog.history_file import HistoryFileError

        if self._writes:
            raise CommandError(
                f"{file} is an exported history, which is read-only",
                "--database-url or --data-dir of a log",
                EXIT_USAGE,
            )
        try:
            return FileLog.open(file)
        except HistoryFileError as error:
            raise CommandError(
                str(error), "another copy of it, or: topolog log export --out FILE"
            ) from error

    async def _url_of_folder(self, folder: Path, make: bool = False) -> str:
        from services.embedded.data_dir import DataDir, read_addresses
        from services.embedded.errors import DataFolderError, EmbeddedError
        from services.embedded.servers import EmbeddedServers

        if not make and not (folder / "VERSION").exists():
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
        self.started_here = True
        return servers.database_url

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        await self._stack.aclose()
