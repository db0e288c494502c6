"""The children of `topolog up` as declarations: simulator, topology-store, scheduler, binder,
exporters, console. Starts nothing.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import msgspec

from services.embedded.child import Begins, ChildSpec, HttpReady
from services.embedded.data_dir import DataDir
from services.embedded.environment import FOREIGN, NETWORK, POSTGRES, PYTHON
from services.embedded.errors import PortInUseError
from services.embedded.nats import CHILD_NAME as NATS_SERVER
from services.embedded.ports import HOST, free_port
from services.embedded.postgres import CHILD_NAME as POSTGRES_SERVER
from services.embedded.running import CELLS_FILE, RunningService
from services.embedded.up.options import CELLS, UpOptions
from shared.runtime import start_signal
from shared.runtime.secret_file import SecretUnreadable, value_or_file
from shared.telemetry.reasons import plain

SIMULATOR, STORE, SCHEDULER, BINDER, EXPORTER, CONSOLE = (
    "simulator",
    "topology-store",
    "scheduler",
    "binder",
    "exporter",
    "console",
)
SERVICES = (
    (STORE, "services.topology_store"),
    (SCHEDULER, "services.scheduler"),
    (BINDER, "services.binder"),
    (CONSOLE, "services.console"),
)

DATABASE = ("TOPOLOG_DATABASE_URL", "TOPOLOG_DATABASE_URL_FILE")
BUS = ("TOPOLOG_NATS_URL", "TOPOLOG_NATS_URL_FILE")
ONE_LOG: Mapping[str, str] = MappingProxyType({})
# They stop after the services.
SERVERS = (POSTGRES_SERVER, NATS_SERVER, SIMULATOR)
# Tests and benchmarks use these to stop a process at a certain line, and to sample its stacks.
WATCHED = ("TOPOLOG_CRASH_AT", "TOPOLOG_CRASH_ONCE", "TOPOLOG_SAMPLES")

# The scheduler's policy for the zones of nodes whose kubelets align nothing.
DEFAULT_POLICY = "TOPOLOG_CYCLE_DEFAULT_POLICY"
PATIENCE = "TOPOLOG_REPORT_MAX_AGE_S"
_ROOT = Path(__file__).resolve().parents[3]


class Ports(msgspec.Struct, frozen=True):
    """HTTP port by child name, chosen before the start and kept over restarts of a child, and the
    cell of services if there are several."""

    by_name: dict[str, int]
    cells: dict[str, str] = {}

    def of_all(self, name: str) -> list[int]:
        """Return the ports of every process of a service."""
        return [
            port
            for child, port in self.by_name.items()
            if child == name or child.startswith(f"{name}-")
        ]

    def running(self) -> list[RunningService]:
        """Return the note for other commands."""
        return [
            RunningService(name, port, self.cells.get(name, ""))
            for name, port in self.by_name.items()
        ]


def choose_ports(options: UpOptions, last_api_port: int = 0) -> Ports:
    """Return a different free port for every child that serves HTTP. The Kubernetes API keeps its
    last port if that is free. Raises PortInUseError if a port of the options is in use.
    """
    names = [name for name, *_ in service_names(options)]
    if not options.kubeconfig:
        names += [SIMULATOR, *exporter_names(options)]
    ports: dict[str, int] = (
        {SIMULATOR: _api_port(options.api_port, last_api_port)} if SIMULATOR in names else {}
    )
    for name in names:
        ports[name] = ports.get(name) or free_port(None, ports.values())
    cells = {name: cell for name, _, _, cell in service_names(options)}
    return Ports({name: ports[name] for name in names}, cells)


def _api_port(chosen: int, last: int) -> int:
    if not chosen:
        return free_port(last, ())
    try:
        socket.create_server((HOST, chosen)).close()
    except OSError as error:
        raise PortInUseError(
            f"the API port {chosen} is unusable: {plain(error)}",
            "Use another --api-port, or leave it out for any free port",
        ) from error
    return chosen


def exporter_names(options: UpOptions) -> list[str]:
    """Return the names of the exporters: a few processes serve all simulated nodes."""
    return [f"{EXPORTER}-{number}" for number in range(min(options.exporters, options.nodes))]


def service_names(options: UpOptions) -> list[tuple[str, str, str, str]]:
    """Return (name, service, module, cell) of every service process: `scheduler`, `scheduler-2`,
    `scheduler-b` of the second cell, ... One console serves all cells.
    """
    counts = {
        STORE: 1 + options.standbys,
        SCHEDULER: options.schedulers,
        BINDER: 1 + options.standbys,
        CONSOLE: int(options.console),
    }
    return [
        (
            "-".join(filter(None, (name, cell if at else "", str(number) if number > 1 else ""))),
            name,
            module,
            cell,
        )
        for at, cell in enumerate(cell_names(options))
        for name, module in SERVICES
        for number in range(1, counts[name] + 1)
        if not (at and name == CONSOLE)
    ]


def cell_names(options: UpOptions) -> tuple[str, ...]:
    """Return the names of the cells; one of "" without several."""
    return tuple(CELLS[: options.cells]) if options.cells > 1 else ("",)


def environment(
    options: UpOptions, database_url: str, nats_url: str, kubeconfig: str, trace_file: Path
) -> dict[str, str]:
    """Return the variables of all services."""
    return {
        **_address(DATABASE, database_url, options.database_url_file),
        **_address(BUS, nats_url, options.nats_url_file),
        "TOPOLOG_KUBECONFIG": kubeconfig,
        **({"TOPOLOG_CACHE": options.cache} if options.cache else {}),
        "TOPOLOG_TRACE_FILE": os.environ.get("TOPOLOG_TRACE_FILE", str(trace_file)),
        "TOPOLOG_TRACE_RATIO": os.environ.get("TOPOLOG_TRACE_RATIO", "0.01"),
        **_patience(options),
        **({DEFAULT_POLICY: options.policy} if options.owner == "topolog" else {}),
        **options.extra_env,
    }


def http_token() -> str:
    """Return the HTTP token of the children, "" for none: they inherit it from this process."""
    try:
        return value_or_file(os.environ, "TOPOLOG_HTTP_TOKEN")
    except SecretUnreadable:
        return ""


def _address(variables: tuple[str, str], url: str, file: str) -> dict[str, str]:
    """Return the variable with an address, or with the file that contains it, so that a rotated
    password is read again.
    """
    return {variables[1]: os.path.abspath(file)} if file else {variables[0]: url}


def _patience(options: UpOptions) -> dict[str, str]:
    """Use three report intervals of a simulated node unless the variable is set. Exporters of an
    outside cluster have their own interval, and services the default for it.
    """
    if options.kubeconfig or PATIENCE in os.environ:
        return {}
    return {PATIENCE: str(max(3 * options.report_interval_s, 10.0))}


def simulator(options: UpOptions, folder: DataDir, ports: Ports) -> ChildSpec:
    """Return the simulator: API server, kubelets and workload in one process."""
    port = ports.by_name[SIMULATOR]
    flags = {
        "--data-dir": str(folder.folder(SIMULATOR)),
        "--api-port": str(port),
        "--shards": str(len(exporter_names(options))),
        "--status-file": str(status_file(folder)),
        "--start-file": str(start_file(folder)),
        "--scheduler": "topolog",
        "--nodes": str(options.nodes),
        "--zones": str(options.zones),
        "--policy": options.policy,
        "--scope": options.scope,
        "--owner": options.owner,
        "--workload": options.workload,
        "--pods": str(options.pods),
        "--load": str(options.load),
        "--speed": options.speed,
        "--seed": str(options.seed),
    }
    argv = [f"{flag}={value}" for flag, value in flags.items()]
    return _python(
        SIMULATOR,
        "services.simulator",
        argv,
        folder,
        {},
        WATCHED,
        f"http://127.0.0.1:{port}/readyz",
        60.0,
    )


def status_file(folder: DataDir) -> Path:
    """Return the path of the simulator's status."""
    return folder.folder(SIMULATOR) / "status.json"


def start_file(folder: DataDir) -> Path:
    """Return the file that starts the workload: it is created when every node reports."""
    return folder.folder(SIMULATOR) / "start"


def services(
    options: UpOptions,
    folder: DataDir,
    ports: Ports,
    env: Mapping[str, str],
    database_urls: Mapping[str, str] = ONE_LOG,
    begins: Begins | None = None,
) -> list[ChildSpec]:
    """Return topology-stores, schedulers, binders and the console, each as a process. Each cell has
    a database of `database_urls`. All but the console load their code at once, and begin when
    `begins` returns."""
    specs = []
    cells = json.dumps([{"name": cell} for cell in database_urls])
    for name, service, module, cell in service_names(options):
        port = ports.by_name[name]
        child_env = {**env, "TOPOLOG_HTTP_PORT": str(port)}
        if cell:
            child_env[DATABASE[0]] = database_urls[cell]
            child_env |= {"TOPOLOG_CELL": cell, "TOPOLOG_CELLS": cells}
            child_env["TOPOLOG_CELLS_FILE"] = str(folder.path / CELLS_FILE)
        if service in (BINDER, CONSOLE):  # they do not use the bus
            child_env = {name: value for name, value in child_env.items() if name not in BUS}
        child_env["TOPOLOG_TRACE_FILE"] = env["TOPOLOG_TRACE_FILE"].replace("{service}", name)
        waits = begins if service != CONSOLE else None
        if waits is not None:
            child_env[start_signal.VARIABLE] = "true"
        spec = _python(
            name,
            module,
            [],
            folder,
            child_env,
            _passes(options, service),
            f"http://127.0.0.1:{port}/livez",
            30.0,
        )
        specs.append(msgspec.structs.replace(spec, begins=waits, stop_before=SERVERS))
    return specs


def shares(options: UpOptions, folder: DataDir) -> dict[str, Path]:
    """Return the file of nodes of each exporter; the simulator writes them."""
    return {
        name: folder.folder(SIMULATOR) / f"exporter-{number}.json"
        for number, name in enumerate(exporter_names(options))
    }


def exporters(
    options: UpOptions,
    folder: DataDir,
    ports: Ports,
    env: Mapping[str, str],
    nats_urls: Mapping[str, str],
) -> list[ChildSpec]:
    """Return the production exporters, each with a share of the simulated nodes and its URL of the
    bus (`nats_urls`).
    """
    specs = []
    for name, share in shares(options, folder).items():
        port = ports.by_name[name]
        argv = [
            "--nodes-file",
            str(share),
            "--interval",
            f"{options.report_interval_s:g}",
            f"--report-on-change={str(options.report_on_change).lower()}",
            "--http-port",
            str(port),
        ]
        child_env = {
            "TOPOLOG_TRACE_RATIO": env["TOPOLOG_TRACE_RATIO"],
            **_address(BUS, nats_urls[name], options.nats_url_file),
        }
        child_env["TOPOLOG_TRACE_FILE"] = env["TOPOLOG_TRACE_FILE"].replace("{service}", name)
        specs.append(
            _python(
                name,
                "services.exporter",
                argv,
                folder,
                child_env,
                _passes(options, EXPORTER),
                f"http://127.0.0.1:{port}/livez",
                30.0,
            )
        )
    return specs


def _passes(options: UpOptions, service: str) -> tuple[str, ...]:
    """Return the variables of this process that a service gets: those of its settings, except for
    the servers' addresses. The command of a credential plugin in a kubeconfig may need any
    variable.
    """
    ours = tuple(
        name for name in options.declared.get(service, ()) if name not in (*DATABASE, *BUS)
    )
    if service == EXPORTER:
        return (*NETWORK, *WATCHED, *ours)
    plugin = (FOREIGN,) if options.kubeconfig and _runs_plugin(options.kubeconfig) else ()
    database = POSTGRES if options.database_url else ()
    # The credentials of an archive in a bucket.
    bucket = ("AWS_*",) if os.environ.get("TOPOLOG_ARCHIVE", "").startswith("s3://") else ()
    return (*NETWORK, *WATCHED, *database, *bucket, *plugin, *ours)


def _runs_plugin(kubeconfig: str) -> bool:
    # The client is loaded only if it is needed.
    from shared.kube.connection import runs_plugin

    return runs_plugin(kubeconfig)


def _python(
    name: str,
    module: str,
    argv: list[str],
    folder: DataDir,
    env: Mapping[str, str],
    passes: tuple[str, ...],
    ready_url: str,
    ready_timeout_s: float,
) -> ChildSpec:
    """Run in the folder of `topolog up`, so that a relative path in a variable or in a URL (`?ca=`)
    means the same file there. `-P` keeps modules of that folder from shadowing Topolog's.
    """
    python_path = os.pathsep.join(filter(None, (str(_ROOT), os.environ.get("PYTHONPATH"))))
    return ChildSpec(
        name=name,
        argv=(sys.executable, "-P", "-m", module, *argv),
        ready=HttpReady(ready_url),
        log_path=folder.logs / f"{name}.log",
        env={"PYTHONUNBUFFERED": "1", "PYTHONPATH": python_path, **env},
        passes=(*PYTHON, *passes),
        ready_timeout_s=ready_timeout_s,
    )
