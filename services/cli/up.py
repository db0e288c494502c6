"""`topolog up`: options in, exit code out. `services.embedded.up` runs everything."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from services.cli.addresses import BUS, DATABASE, bus_option, database_option, file_of
from services.cli.output import EXIT_USAGE, CommandError, is_screen
from services.cli.paths import absolute_path, kubeconfig_option, path_option

PODS_UNTIL_IDLE = 60
SPEED_WITH_END, SPEED_WITHOUT_END = "10", "2"

DataDir = Annotated[
    Path | None,
    path_option(
        help="Folder of the state; a second start resumes. Default: ~/.local/state/topolog."
    ),
]
Fresh = Annotated[bool, typer.Option("--fresh", help="Delete the data folder's contents first.")]
Nodes = Annotated[
    int | None, typer.Option(help="Simulated nodes. Default: 8, or as in the data folder.")
]
Zones = Annotated[
    int | None,
    typer.Option(help="NUMA zones per node, 1 to 8. Default: 2, or as in the data folder."),
]
Workload = Annotated[
    str | None,
    typer.Option(
        help="demo, gangs (of 4 pods), openb:FOLDER (a GPU cluster trace), or none. Default: demo."
    ),
]
Pods = Annotated[
    int | None,
    typer.Option(help="Number of pods. Default: unlimited; 60 with --exit-when-idle."),
]
Load = Annotated[float, typer.Option(help="Offered load as a share of the cluster.")]
Speed = Annotated[
    str | None,
    typer.Option(
        help="Virtual seconds per second for arrivals and lifetimes, or max. "
        "Default: 2, or 10 for a limited number of pods."
    ),
]
Policy = Annotated[
    str | None,
    typer.Option(help="Topology Manager policy of the kubelets. Default: single-numa-node."),
]
Scope = Annotated[
    str | None, typer.Option(help="Topology Manager scope, container or pod. Default: container.")
]
Owner = Annotated[
    str | None,
    typer.Option(
        help="Who chooses zones for CPUs and memory: kubelet, or topolog. Default: kubelet."
    ),
]
Cache = Annotated[
    str | None,
    typer.Option(
        help="ledger, or a cache of the upstream plugin: overreserve, discardreserved or "
        "passthrough. Default: TOPOLOG_CACHE, or ledger."
    ),
]
Seed = Annotated[
    int | None, typer.Option(help="Seed of the workload. Default: 1, or as in the data folder.")
]
ReportInterval = Annotated[float, typer.Option(help="Seconds between full reports of a node.")]
ReportOnChange = Annotated[
    bool, typer.Option(help="Report a node between full reports if its kubelet's state changed.")
]
ApiPort = Annotated[
    int,
    typer.Option(help="Port of the simulated Kubernetes API. Default: the last one, or any."),
]
ExitWhenIdle = Annotated[
    bool, typer.Option("--exit-when-idle", help="Exit when every feasible pod has run.")
]
IdleAfter = Annotated[float, typer.Option(help="Seconds without progress that count as idle.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON lines instead of the picture.")]
Plain = Annotated[bool, typer.Option("--plain", help="Print lines instead of the picture.")]
DatabaseUrl = Annotated[str, database_option("URL of an outside Postgres.", "unrelated")]
NatsUrl = Annotated[str, bus_option("URL of an outside NATS.", "unrelated")]
Kubeconfig = Annotated[
    str, kubeconfig_option("Kubeconfig of an outside cluster; then nothing is simulated.")
]
Schedulers = Annotated[int, typer.Option(help="Schedulers that share the pods, 1 to 8.")]
Standbys = Annotated[
    int, typer.Option(help="Additional binders and topology-stores for failover, 0 to 3.")
]
Console = Annotated[bool, typer.Option(help="Serve the picture in a browser, too.")]
Cells = Annotated[
    int | None,
    typer.Option(
        help="Cells, each with a log and services, 1 to 4. Default: 1, or as in the data folder."
    ),
]
Advertise = Annotated[
    str, typer.Option(help="Address of this machine as seen from an outside cluster's nodes.")
]


def register(app: typer.Typer) -> None:
    app.command("up")(up)


def up(
    data_dir: DataDir = None,
    fresh: Fresh = False,
    nodes: Nodes = None,
    zones: Zones = None,
    workload: Workload = None,
    pods: Pods = None,
    load: Load = 0.9,
    speed: Speed = None,
    policy: Policy = None,
    scope: Scope = None,
    owner: Owner = None,
    cache: Cache = None,
    seed: Seed = None,
    report_interval: ReportInterval = 5.0,
    report_on_change: ReportOnChange = True,
    api_port: ApiPort = 0,
    exit_when_idle: ExitWhenIdle = False,
    idle_after: IdleAfter = 60.0,
    as_json: Json = False,
    plain: Plain = False,
    database_url: DatabaseUrl = "",
    nats_url: NatsUrl = "",
    kubeconfig: Kubeconfig = "",
    advertise: Advertise = "",
    schedulers: Schedulers = 1,
    standbys: Standbys = 0,
    cells: Cells = None,
    console: Console = True,
) -> None:
    """Run Topolog on this machine, with a simulated cluster and a workload.

    Starts Postgres, NATS, the four services, and the cluster. With --exit-when-idle the exit code
    is 0 if every feasible pod ran, 3 if a kubelet rejected a pod, 4 if a feasible pod did not run.
    """
    cluster = {"nodes": nodes, "zones": zones, "policy": policy, "scope": scope, "owner": owner}
    cluster |= {"workload": _absolute_folder(workload), "seed": seed, "cells": cells}
    options = {
        "fresh": fresh,
        "pods": pods,
        "load": load,
        "speed": speed,
        "report_interval_s": report_interval,
        "report_on_change": report_on_change,
        "api_port": api_port,
        "exit_when_idle": exit_when_idle,
        "idle_after_s": idle_after,
        "json": as_json,
        "database_url": database_url,
        "nats_url": nats_url,
        "kubeconfig": kubeconfig,
        "advertise": advertise,
        "cache": cache or "",
    }
    options |= {"schedulers": schedulers, "standbys": standbys, "console": console}
    raise typer.Exit(_run(data_dir, cluster, options, plain))


def _run(
    data_dir: Path | None, cluster: dict[str, Any], options: dict[str, Any], plain: bool
) -> int:
    from services.embedded.data_dir import default_data_dir
    from services.embedded.up.display import Display
    from services.embedded.up.options import UpOptions, UsageError, check
    from services.embedded.up.resuming import Given, shape_for

    display = Display(options["json"], _picture(options["json"] or plain))
    folder = data_dir or default_data_dir()
    options |= _pods_and_speed(options["pods"], options["speed"], options["exit_when_idle"])
    try:
        shape = shape_for(folder, Given(**cluster), options["fresh"])
        fields = options | _secret_files(options) | msgspec.structs.asdict(shape)
        checked = check(UpOptions(data_dir=folder, **fields))
        # Importing the services takes a second or two: say first that something happens.
        display.note(f"topolog up: loading (data in {folder})")
        from services.cli.child_settings import declared
        from services.embedded.up.run import Up

        with_variables = msgspec.structs.replace(checked, declared=declared())
        return asyncio.run(Up(with_variables, display).run())
    except UsageError as error:
        raise CommandError(error.problem, error.remedy, EXIT_USAGE) from error


def _secret_files(options: dict[str, Any]) -> dict[str, str]:
    """Return the files that hold the URLs of outside servers. Services get the files, so that they
    can read a rotated password.
    """
    return {
        "database_url_file": file_of(DATABASE, options["database_url"]),
        "nats_url_file": file_of(BUS, options["nats_url"]),
    }


def _picture(disabled: bool) -> Any:
    """Return the live picture if the terminal can draw it."""
    if disabled or not is_screen():
        return None
    from services.top.screen import Screen

    return Screen(owns_cluster=True)


def _pods_and_speed(pods: int | None, speed: str | None, exit_when_idle: bool) -> dict[str, Any]:
    from services.embedded.up.options import ENDLESS

    if pods is not None and pods < 0:
        raise CommandError(
            f"--pods must not be negative (found {pods})",
            "leave --pods out for an unlimited workload",
            EXIT_USAGE,
        )
    default = PODS_UNTIL_IDLE if exit_when_idle else ENDLESS
    count = default if pods is None else pods
    return {
        "pods": count,
        "speed": speed or (SPEED_WITHOUT_END if count == ENDLESS else SPEED_WITH_END),
    }


def _absolute_folder(workload: str | None) -> str | None:
    kind, colon, folder = (workload or "").partition(":")
    return f"{kind}:{absolute_path(folder)}" if colon and folder else workload
