"""The children of `topolog up` as declarations: simulator, topology-store, scheduler, binder,
exporters. Starts nothing.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

from services.embedded.child import ChildSpec, HttpReady
from services.embedded.data_dir import DataDir
from services.embedded.environment import FOREIGN, NETWORK, POSTGRES, PYTHON
from services.embedded.errors import PortInUseError
from services.embedded.ports import HOST, free_port
from services.embedded.running import RunningService
from services.embedded.up.options import UpOptions
from shared.kube.connection import runs_plugin
from shared.runtime.secret_file import SecretUnreadable, value_or_file
from shared.telemetry.reasons import plain

SIMULATOR, STORE, SCHEDULER, BINDER, EXPORTER = (
    "simulator",
    "topology-store",
    "scheduler",
    "binder",
    "exporter",
)
SERVICES = (
    (STORE, "services.topology_store"),
    (SCHEDULER, "services.scheduler"),
    (BINDER, "services.binder"),
)

DATABASE = ("TOPOLOG_DATABASE_URL", "TOPOLOG_DATABASE_URL_FILE")
BUS = ("TOPOLOG_NATS_URL", "TOPOLOG_NATS_URL_FILE")
WATCHED = ("TOPOLOG_CRASH_AT", "TOPOLOG_CRASH_ONCE", "TOPOLOG_SAMPLES")
"""By which tests and benchmarks have processes end at a passage, or tell what they spend their time on."""

PATIENCE = "TOPOLOG_REPORT_MAX_AGE_S"


class Ports(msgspec.Struct, frozen=True):
    """HTTP port by child name, chosen free before the start and kept over restarts of a child."""

    by_name: dict[str, int]

    def of_all(self, name: str) -> list[int]:
        """The ports of every process of a service."""
        return [
            port
            for each, port in self.by_name.items()
            if each == name or each.startswith(f"{name}-")
        ]

    def running(self) -> list[RunningService]:
        """The note for other commands."""
        return [RunningService(name, port) for name, port in self.by_name.items()]


def choose_ports(options: UpOptions, last_api_port: int = 0) -> Ports:
    """A free port for every child that serves HTTP, none given twice. The Kubernetes API keeps the
    port that it had last time, if that is free. Raises PortInUseError for a chosen port that is
    taken."""
    names = [name for name, _, _ in service_names(options)]
    if not options.kubeconfig:
        names += [SIMULATOR, *exporter_names(options)]
    ports: dict[str, int] = (
        {SIMULATOR: _api_port(options.api_port, last_api_port)} if SIMULATOR in names else {}
    )
    for name in names:
        ports[name] = ports.get(name) or free_port(None, ports.values())
    return Ports({name: ports[name] for name in names})


def _api_port(chosen: int, last: int) -> int:
    if not chosen:
        return free_port(last, ())
    try:
        socket.create_server((HOST, chosen)).close()
    except OSError as error:
        raise PortInUseError(
            f"the API port {chosen} cannot be had: {plain(error)}",
            "--api-port with another number, or without it any free port",
        ) from error
    return chosen


def exporter_names(options: UpOptions) -> list[str]:
    """A few processes serve all simulated nodes."""
    return [f"{EXPORTER}-{number}" for number in range(min(options.exporters, options.nodes))]


def service_names(options: UpOptions) -> list[tuple[str, str, str]]:
    """(name, service, module) of every service process: `scheduler`, `scheduler-2`, ..."""
    many = {
        STORE: 1 + options.standbys,
        SCHEDULER: options.schedulers,
        BINDER: 1 + options.standbys,
    }
    return [
        (name if number == 1 else f"{name}-{number}", name, module)
        for name, module in SERVICES
        for number in range(1, many[name] + 1)
    ]


def environment(
    options: UpOptions, database_url: str, nats_url: str, kubeconfig: str, trace_file: Path
) -> dict[str, str]:
    """What all services are told."""
    return {
        **_said(DATABASE, database_url, options.database_url_file),
        **_said(BUS, nats_url, options.nats_url_file),
        "TOPOLOG_KUBECONFIG": kubeconfig,
        **({"TOPOLOG_CACHE": options.cache} if options.cache else {}),
        "TOPOLOG_TRACE_FILE": os.environ.get("TOPOLOG_TRACE_FILE", str(trace_file)),
        "TOPOLOG_TRACE_RATIO": os.environ.get("TOPOLOG_TRACE_RATIO", "0.01"),
        **_patience(options),
        **options.extra_env,
    }


def http_token() -> str:
    """What the children ask for, as it stands now: they pass it from this process' environment. ""
    for none.
    """
    try:
        return value_or_file(os.environ, "TOPOLOG_HTTP_TOKEN")
    except SecretUnreadable:
        return ""


def _said(variables: tuple[str, str], url: str, file: str) -> dict[str, str]:
    """An address, or the file in which it stands, to be read again when a password is rotated."""
    return {variables[1]: os.path.abspath(file)} if file else {variables[0]: url}


def _patience(options: UpOptions) -> dict[str, str]:
    """Three reports of a simulated node, unless said otherwise. Exporters of an outside cluster
    have intervals of their own, and the services the silence that goes with those."""
    if options.kubeconfig or PATIENCE in os.environ:
        return {}
    return {PATIENCE: str(max(3 * options.report_interval_s, 10.0))}


def simulator(options: UpOptions, folder: DataDir, ports: Ports) -> ChildSpec:
    """API server, kubelets and workload in one process."""
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
    """Where the simulator keeps its newest status."""
    return folder.folder(SIMULATOR) / "status.json"


def start_file(folder: DataDir) -> Path:
    """Made when everything is ready and every node reports: the workload begins then."""
    return folder.folder(SIMULATOR) / "start"


def services(
    options: UpOptions, folder: DataDir, ports: Ports, env: Mapping[str, str]
) -> list[ChildSpec]:
    """topology-stores, schedulers and binders, each its own process."""
    specs = []
    for name, service, module in service_names(options):
        port = ports.by_name[name]
        own = {**env, "TOPOLOG_HTTP_PORT": str(port)}
        if service == BINDER:  # it hears nothing from the bus
            own = {variable: value for variable, value in own.items() if variable not in BUS}
        own["TOPOLOG_TRACE_FILE"] = env["TOPOLOG_TRACE_FILE"].replace("{service}", name)
        specs.append(
            _python(
                name,
                module,
                [],
                folder,
                own,
                _passes(options, service),
                f"http://127.0.0.1:{port}/livez",
                30.0,
            )
        )
    return specs


def shares(options: UpOptions, folder: DataDir) -> dict[str, Path]:
    """The file of nodes of each exporter; the simulator writes them."""
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
    """The production exporter, a share of the simulated nodes each, and the bus as it calls it
    (`nats_urls`).
    """
    specs = []
    for name, share in shares(options, folder).items():
        port = ports.by_name[name]
        argv = [
            "--nodes-file",
            str(share),
            "--interval",
            f"{options.report_interval_s:g}",
            "--http-port",
            str(port),
        ]
        own = {
            "TOPOLOG_TRACE_RATIO": env["TOPOLOG_TRACE_RATIO"],
            **_said(BUS, nats_urls[name], options.nats_url_file),
        }
        own["TOPOLOG_TRACE_FILE"] = env["TOPOLOG_TRACE_FILE"].replace("{service}", name)
        specs.append(
            _python(
                name,
                "services.exporter",
                argv,
                folder,
                own,
                _passes(options, EXPORTER),
                f"http://127.0.0.1:{port}/livez",
                30.0,
            )
        )
    return specs


def _passes(options: UpOptions, service: str) -> tuple[str, ...]:
    """What a service gets of this process' environment: what its settings declare, but the servers'
    addresses, which it is told where it needs them. Nobody knows what a command needs that a
    kubeconfig gets its credentials from."""
    ours = tuple(
        name for name in options.declared.get(service, ()) if name not in (*DATABASE, *BUS)
    )
    if service == EXPORTER:
        return (*NETWORK, *WATCHED, *ours)
    plugin = (FOREIGN,) if options.kubeconfig and runs_plugin(options.kubeconfig) else ()
    database = POSTGRES if options.database_url else ()
    return (*NETWORK, *WATCHED, *database, *plugin, *ours)


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
    """Run from the project's root, so that `topolog up` works from any folder."""
    return ChildSpec(
        name=name,
        argv=(sys.executable, "-m", module, *argv),
        ready=HttpReady(ready_url),
        log_path=folder.logs / f"{name}.log",
        env={"PYTHONUNBUFFERED": "1", **env},
        passes=(*PYTHON, *passes),
        cwd=Path(__file__).resolve().parents[3],
        ready_timeout_s=ready_timeout_s,
    )
