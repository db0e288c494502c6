"""The run of `topolog up`: servers, migration, children, status, end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import time
from pathlib import Path

from services.embedded.child import ChildEvent, ChildEventKind, ChildSpec
from services.embedded.data_dir import DataDir, default_data_dir
from services.embedded.nats import NatsSettings
from services.embedded.postgres import DATABASE, EmbeddedPostgres
from services.embedded.running import forget_services, write_cells, write_services
from services.embedded.servers import EmbeddedServers
from services.embedded.supervisor import Supervisor
from services.embedded.up import attach, children, exporter_keys, kubeconfig
from services.embedded.up.children import CONSOLE, SCHEDULER, SIMULATOR, Ports
from services.embedded.up.display import Display, is_over
from services.embedded.up.migrating import migrate
from services.embedded.up.options import ENDLESS, UpOptions
from services.embedded.up.resuming import Shape, write_shape
from services.embedded.up.scheduler_settings import write_settings
from services.embedded.up.status import (
    Status,
    Workload,
    ask_schedulers,
    read_nodes,
    read_workload,
    until_all_report,
)
from shared.eventlog.postgres_logins import SERVICE, make_login
from shared.telemetry.reasons import plain

EXIT_OK, EXIT_REJECTED, EXIT_LEFT = 0, 3, 4
STATUS_EVERY_S = 0.5
RESUME_LOOKS = 10
REPORTS_LIMIT_S = 20.0


class Up:
    """One run on one data folder."""

    def __init__(self, options: UpOptions, display: Display | None = None) -> None:
        self._options = options
        self._database_url = self._nats_url = ""
        self._database_urls: dict[str, str] = {}
        self._bus = NatsSettings()
        self._servers: EmbeddedServers | None = None
        self._display = display or Display(options.json)
        self._supervisor = Supervisor(self._on_child)
        self._stopping = asyncio.Event()
        self._servers_are_ready = asyncio.Event()
        self._begun_s = time.monotonic()
        self._started = False
        self._restarts = 0
        self._status = Status(0.0)
        self._simulation = Path()

    async def run(self) -> int:
        """Run until stopped or over; return the exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stopping.set)
        with DataDir(self._options.data_dir, fresh=self._options.fresh) as folder:
            try:
                return await self._serve(folder)
            finally:
                self._display.close()
                await self._supervisor.stop()
                forget_services(folder.path)

    async def _serve(self, folder: DataDir) -> int:
        self._simulation = children.status_file(folder)
        self._simulation.unlink(missing_ok=True)
        children.start_file(folder).unlink(missing_ok=True)
        starting = asyncio.ensure_future(self._start(folder))
        stop = asyncio.ensure_future(self._stopping.wait())
        await asyncio.wait({starting, stop}, return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        if not starting.done():
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
            return EXIT_OK
        ports = await starting
        self._started = True
        self._display.note(
            f"topolog up: ready after {self._elapsed():.1f} s, data in {folder.path}"
        )
        attaching = await self._attaching(folder) if self._options.kubeconfig else []
        for line in (
            *await self._resumed(folder, ports),
            *hints(self._options, folder, ports),
            *attaching,
        ):
            self._display.note(line)
        await self._watch_with_picture(ports)
        code = exit_code(self._status.workload) if self._options.exit_when_idle else EXIT_OK
        self._display.close()
        self._display.summary(
            self._status, code, self._options.exit_when_idle and not self._stopping.is_set()
        )
        return code

    async def _check_outside(self) -> None:
        """Check outside servers: before anything is made in a new folder, and while a known folder
        starts."""
        options = self._options
        if options.database_url or options.nats_url or options.kubeconfig:
            # The clients of outside servers take a third of a second to load.
            from services.embedded.up.outside import check_outside

            await check_outside(options)

    def _progress(self, step: str) -> None:
        self._display.note(f"{self._elapsed():5.1f} s  {step}")

    async def _start(self, folder: DataDir) -> Ports:
        if not folder.resumed:
            await self._check_outside()
        self._progress("starting the servers and the services")
        ports = children.choose_ports(self._options, kubeconfig.last_port(folder.path))
        servers = self._servers = self._make_servers(folder)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._start_servers(folder, servers))
                if folder.resumed:
                    group.create_task(self._check_outside())
                services = group.create_task(self._start_services(folder, ports, servers))
                if not self._options.kubeconfig:
                    group.create_task(
                        self._supervisor.start([children.simulator(self._options, folder, ports)])
                    )
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        env, consoles = services.result()
        if not self._options.kubeconfig:
            urls = await self._exporter_urls(folder)
            await self._supervisor.start(
                children.exporters(self._options, folder, ports, env, urls)
            )
        write_services(folder.path, ports.running())
        self._write_notes(folder, ports)
        if not self._options.kubeconfig:
            self._progress("waiting for the first report of each node")
            await self._until_all_report(ports)
            children.start_file(folder).touch()
        # It takes CPU for a second or two, which the services need to become ready.
        await self._supervisor.start(consoles)
        return ports

    async def _until_all_report(self, ports: Ports) -> None:
        """Wait until the scheduler knows every node's zones, because the first pods of the workload
        could not be placed before. A node that never reports delays the workload only for a limited
        time."""
        nodes = read_nodes(self._simulation)
        numbers = await until_all_report(
            ports.of_all(SCHEDULER), nodes, REPORTS_LIMIT_S, children.http_token()
        )
        if numbers.nodes_reporting < nodes:
            self._display.note(
                f"{numbers.nodes_reporting} of {nodes} nodes report so far; "
                "the workload begins nevertheless"
            )

    def _write_notes(self, folder: DataDir, ports: Ports) -> None:
        """Write what later commands and a later start need."""
        options = self._options
        if options.kubeconfig:
            kubeconfig.write_outside(folder.path, options.kubeconfig)
            return
        kubeconfig.write_simulated(folder.path, ports.by_name[SIMULATOR])
        shape = Shape(
            options.nodes,
            options.zones,
            options.workload,
            options.policy,
            options.scope,
            options.owner,
            options.seed,
            options.cells,
        )
        write_shape(folder.path, shape)

    def _make_servers(self, folder: DataDir) -> EmbeddedServers:
        self._bus = self._bus_settings(folder)
        return EmbeddedServers(
            folder,
            want_postgres=not self._options.database_url,
            want_nats=not self._options.nats_url,
            nats_settings=self._bus,
            supervisor=self._supervisor,
        )

    async def _start_servers(self, folder: DataDir, servers: EmbeddedServers) -> None:
        """Start the servers, prepare the databases, and let the services begin."""
        await servers.start()
        database_url = self._database_url = self._options.database_url or servers.database_url
        self._progress("migrating the database")
        await migrate(database_url)
        if servers.postgres is not None:
            # The socket trusts every user name. Services use a login without further rights.
            await make_login(database_url, SERVICE, secrets.token_urlsafe(24))
            await self._make_cells(folder, servers.postgres)
        self._servers_are_ready.set()

    def _cell_databases(self) -> dict[str, str]:
        """Return the cells' databases by cell, none without cells. The first cell has the log of a
        folder without cells."""
        cells = children.cell_names(self._options) if self._options.cells > 1 else ()
        return {cell: f"{DATABASE}_{cell}" if at else DATABASE for at, cell in enumerate(cells)}

    async def _make_cells(self, folder: DataDir, postgres: EmbeddedPostgres) -> None:
        """Create the cells' databases."""
        databases = self._cell_databases()
        for name in list(databases.values())[1:]:
            await asyncio.to_thread(postgres.create_database, name)
            await migrate(postgres.url(name))
            await make_login(postgres.url(name), SERVICE, secrets.token_urlsafe(24))
        write_cells(folder.path, {cell: postgres.url(name) for cell, name in databases.items()})

    async def _start_services(
        self, folder: DataDir, ports: Ports, servers: EmbeddedServers
    ) -> tuple[dict[str, str], list[ChildSpec]]:
        """Start the services once the bus' address is certain. They load their code while Postgres
        starts, and begin when all servers are ready. Return the variables of services, and the
        console, which is not started.
        """
        options, postgres = self._options, servers.postgres
        database_url = postgres.url(user=SERVICE) if postgres is not None else options.database_url
        if postgres is not None:
            self._database_urls = {
                cell: postgres.url(name, SERVICE) for cell, name in self._cell_databases().items()
            }
        if servers.nats is not None:
            await servers.nats_is_ready.wait()
        self._nats_url = options.nats_url or servers.nats_url
        simulated = f"http://127.0.0.1:{ports.by_name[SIMULATOR]}" if not options.kubeconfig else ""
        traces = folder.folder("traces") / "{service}.jsonl"
        env = children.environment(
            options,
            database_url,
            self._nats_url,
            options.kubeconfig or simulated,
            traces,
        )
        write_settings(folder.path, os.environ | env)
        specs = children.services(
            options, folder, ports, env, self._database_urls, self._servers_are_ready.wait
        )
        await self._supervisor.start([spec for spec in specs if spec.name != CONSOLE])
        await self._servers_are_ready.wait()
        return env, [spec for spec in specs if spec.name == CONSOLE]

    async def _exporter_urls(self, folder: DataDir) -> dict[str, str]:
        """Return the bus URL of each exporter; an outside bus keeps the given URL."""
        shares = children.shares(self._options, folder)
        if self._options.nats_url or self._servers is None:
            return dict.fromkeys(shares, self._nats_url)
        return await exporter_keys.urls(self._servers, folder, shares)

    async def _attaching(self, folder: DataDir) -> list[str]:
        """Return the instructions for attaching an outside cluster's nodes. On this run's bus each
        node has its own key; an outside bus keeps the given URL."""
        from services.embedded.up.outside import nodes_of
        from shared.kube.connection import address_of

        cluster = f"cluster: {address_of(self._options.kubeconfig)}"
        if self._options.nats_url or self._servers is None:
            return [
                cluster,
                *attach.words(
                    attach.write(folder.path, self._nats_url), self._nats_url, keys=False
                ),
            ]
        seeds = await exporter_keys.seeds(
            self._servers, folder, await nodes_of(self._options.kubeconfig)
        )
        url = attach.exporter_url(self._nats_url, self._address())
        return [
            cluster,
            *attach.words(
                attach.write(folder.path, url, attach.authority(self._nats_url), seeds), url
            ),
        ]

    def _address(self) -> str:
        """Return this machine's address as the cluster's nodes reach it."""
        from shared.kube.connection import address_of

        server = address_of(self._options.kubeconfig)
        return self._options.advertise or attach.own_address(server)

    def _bus_settings(self, folder: DataDir) -> NatsSettings:
        """Return the settings of the bus: on the network for nodes of an outside cluster, otherwise
        on loopback."""
        outside = self._options.kubeconfig and not self._options.nats_url
        if outside:
            return attach.bus(exporter_keys.credentials(folder), self._address())
        return NatsSettings(credentials=str(exporter_keys.credentials(folder)))

    async def _resumed(self, folder: DataDir, ports: Ports) -> list[str]:
        if not folder.resumed:
            return []
        for _ in range(RESUME_LOOKS):
            await self._look(ports)
            if self._status.scheduling.position:
                break
            await asyncio.sleep(STATUS_EVERY_S)
        return resumed_words(self._options, self._status)

    async def _watch_with_picture(self, ports: Ports) -> None:
        """Watch the run. Closing the picture ends the run, a failed picture does not."""
        picture = self._display.picture
        if picture is None:
            await self._watch(ports)
            return
        self._display.begin_picture()
        drawing = asyncio.create_task(picture.run(self._database_urls or {"": self._database_url}))
        drawing.add_done_callback(self._picture_ended)
        try:
            await self._watch(ports)
        finally:
            drawing.cancel()
            await asyncio.gather(drawing, return_exceptions=True)

    def _picture_ended(self, drawing: asyncio.Task[None]) -> None:
        if not drawing.cancelled() and drawing.exception() is not None:
            self._display.without_picture(plain(drawing.exception() or Exception()))
        else:
            self._stopping.set()

    async def _watch(self, ports: Ports) -> None:
        failure = asyncio.ensure_future(self._supervisor.wait_for_failure())
        try:
            while not self._stopping.is_set():
                await self._look(ports)
                self._display.show(self._status)
                if self._options.exit_when_idle and is_over(
                    self._status, self._options.idle_after_s
                ):
                    return
                if failure.done():
                    raise failure.result()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._stopping.wait(), STATUS_EVERY_S)
        finally:
            failure.cancel()

    async def _look(self, ports: Ports) -> None:
        previous, now_s = self._status, self._elapsed()
        workload = previous.workload
        if SIMULATOR in ports.by_name:
            workload = read_workload(self._simulation, previous.workload)
        numbers = await ask_schedulers(
            ports.of_all(SCHEDULER), previous.scheduling, children.http_token()
        )
        passed_s = max(now_s - previous.elapsed_s, 1e-3)
        rate = 0.0
        if previous.scheduling.position:
            rate = (numbers.position - previous.scheduling.position) / passed_s
        self._status = Status(
            round(now_s, 1),
            workload,
            numbers,
            max(rate, 0.0),
            self._restarts,
            SIMULATOR in ports.by_name,
            numbers is not previous.scheduling,
        )

    def _on_child(self, event: ChildEvent) -> None:
        if event.kind is ChildEventKind.READY and not self._started:
            self._progress(f"{event.name} is ready")
        if event.kind is ChildEventKind.RESTARTED:
            self._restarts += 1
        if (
            event.kind in (ChildEventKind.DIED, ChildEventKind.RESTARTED, ChildEventKind.GAVE_UP)
            and not self._stopping.is_set()
        ):
            code = "" if event.exit_code is None else f" (exit {event.exit_code})"
            self._display.note(f"{event.name} {event.kind.value.replace('_', ' ')}{code}")

    def _elapsed(self) -> float:
        return time.monotonic() - self._begun_s


def exit_code(pods: Workload) -> int:
    """Return 0 if every feasible pod ran, 3 if a kubelet rejected a pod, 4 if a feasible pod was
    left or lost.
    """
    if pods.rejected:
        return EXIT_REJECTED
    return EXIT_LEFT if pods.left or pods.lost else EXIT_OK


def hints(options: UpOptions, folder: DataDir, ports: Ports) -> list[str]:
    """Return the console's address and commands for another terminal."""
    console = (
        [f"console: http://127.0.0.1:{ports.by_name[CONSOLE]}/console/"] if options.console else []
    )
    if options.kubeconfig:
        return console
    data_dir = "" if folder.path == default_data_dir() else f" --data-dir {folder.path}"
    return [
        *console,
        f"kubectl: export KUBECONFIG={kubeconfig.path_of(folder.path)} "
        f"(API on http://127.0.0.1:{ports.by_name[SIMULATOR]})",
        f"live events: topolog replay log --follow{data_dir}",
    ]


def resumed_words(options: UpOptions, status: Status) -> list[str]:
    """Describe what a second start resumes."""
    numbers, workload = status.scheduling, status.workload
    live = (
        numbers.pods_pending
        + numbers.pods_reserved
        + numbers.pods_intended
        + numbers.pods_bound
        + numbers.pods_running
    )
    lines = [f"resumed: {numbers.position:,} events, {numbers.nodes} nodes, {live} live pods"]
    if options.kubeconfig or options.workload == "none":
        return lines
    if options.pods != ENDLESS and workload.resumed >= options.pods:
        lines.append(
            f"all {options.pods} pods of the workload were created before; "
            "topolog up --fresh starts from scratch"
        )
    elif workload.resumed:
        lines.append(f"the workload continues after its first {workload.resumed:,} pods")
    return lines
