"""`topolog up`: options in, exit code out. What runs lives in `services.embedded.up`."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Any

import typer

from services.cli.addresses import BUS, DATABASE, bus_option, database_option, file_of
from services.cli.output import EXIT_FAILED, EXIT_USAGE, CommandError, is_screen

PODS_UNTIL_IDLE = 60
SPEED_WITH_END, SPEED_WITHOUT_END = "10", "2"

DataDir = Annotated[
    Path | None,
    typer.Option(
        help="Where state is kept; a second start resumes. Default: ~/.local/state/topolog."
    ),
]
Fresh = Annotated[
    bool, typer.Option("--fresh", help="Delete what the data folder holds, and begin anew.")
]
Nodes = Annotated[
    int | None, typer.Option(help="Simulated nodes. Default: 8, or those of the data folder.")
]
Zones = Annotated[
    int | None, typer.Option(help="NUMA zones a node, 1 to 8. Default: 2, or as before.")
]
Workload = Annotated[
    str | None,
    typer.Option(help="demo, openb:FOLDER (a GPU cluster trace), or none. Default: demo."),
]
Pods = Annotated[
    int | None,
    typer.Option(help="How many pods to play. Default: without end; 60 with --exit-when-idle."),
]
Load = Annotated[float, typer.Option(help="Offered load as a share of the cluster.")]
Speed = Annotated[
    str | None,
    typer.Option(
        help="Virtual seconds a real second for arrivals and lifetimes, or max. Default: 2; 10 with an end."
    ),
]
Policy = Annotated[
    str | None,
    typer.Option(help="Topology Manager policy of the kubelets. Default: single-numa-node."),
]
Scope = Annotated[
    str | None, typer.Option(help="Topology Manager scope, container or pod. Default: container.")
]
Cache = Annotated[
    str | None,
    typer.Option(
        help="ledger, or as upstream: overreserve, discardreserved, passthrough. Default: TOPOLOG_CACHE, or ledger."
    ),
]
Seed = Annotated[int | None, typer.Option(help="Seed of the workload. Default: 1, or as before.")]
ReportInterval = Annotated[float, typer.Option(help="Seconds between full reports of a node.")]
ApiPort = Annotated[
    int,
    typer.Option(help="Port of the simulated Kubernetes API. Default: as before, or any free one."),
]
ExitWhenIdle = Annotated[
    bool, typer.Option("--exit-when-idle", help="End when every feasible pod has run.")
]
IdleAfter = Annotated[float, typer.Option(help="Seconds without progress that count as the end.")]
Json = Annotated[bool, typer.Option("--json", help="JSON lines instead of a picture.")]
Plain = Annotated[bool, typer.Option("--plain", help="Lines instead of a picture.")]
DatabaseUrl = Annotated[str, database_option("An outside Postgres.", "another matter")]
NatsUrl = Annotated[str, bus_option("An outside NATS.", "another matter")]
Kubeconfig = Annotated[
    str, typer.Option(envvar="TOPOLOG_KUBECONFIG", help="An outside cluster; nothing is simulated.")
]

Schedulers = Annotated[
    int, typer.Option(help="Schedulers that share the pods out among them, 1 to 8.")
]
Standbys = Annotated[
    int, typer.Option(help="Further binders and topology-stores, ready to take over, 0 to 3.")
]
Advertise = Annotated[
    str, typer.Option(help="This machine's address as the nodes of an outside cluster reach it.")
]


def register(app: typer.Typer) -> None:
    """Mount the verb."""
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
    cache: Cache = None,
    seed: Seed = None,
    report_interval: ReportInterval = 5.0,
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
) -> None:
    """Run everything on this machine: Postgres, NATS, the services, a simulated cluster and a
    workload.

    Exit codes: 0 every feasible pod ran, 3 a kubelet rejected a pod, 4 a feasible pod was left
    (with --exit-when-idle).
    """
    given = {
        "nodes": nodes,
        "zones": zones,
        "workload": _absolute(workload),
        "policy": policy,
        "scope": scope,
        "seed": seed,
    }
    rest = {
        **{
            "fresh": fresh,
            "pods": pods,
            "load": load,
            "speed": speed,
            "report_interval_s": report_interval,
        },
        **{
            "api_port": api_port,
            "exit_when_idle": exit_when_idle,
            "idle_after_s": idle_after,
            "json": as_json,
        },
        **{
            "database_url": database_url,
            "nats_url": nats_url,
            "kubeconfig": kubeconfig,
            "advertise": advertise,
        },
        **{"cache": cache or "", "schedulers": schedulers, "standbys": standbys},
    }
    raise typer.Exit(_run(data_dir, given, rest, plain))


def _run(data_dir: Path | None, given: dict[str, Any], rest: dict[str, Any], plain: bool) -> int:
    from services.cli.child_settings import declared
    from services.embedded.data_dir import default_data_dir
    from services.embedded.errors import EmbeddedError
    from services.embedded.up.options import UpOptions, UsageError, check
    from services.embedded.up.resuming import Given, shape_for
    from services.embedded.up.run import Up

    folder = data_dir or default_data_dir()
    rest |= _pods_and_speed(rest["pods"], rest["speed"], rest["exit_when_idle"])
    try:
        shape = shape_for(folder, Given(**given), rest["fresh"])
        wanted = {name: getattr(shape, name) for name in shape.__struct_fields__}
        options = check(
            UpOptions(data_dir=folder, declared=declared(), **wanted, **(rest | _files(rest)))
        )
        return asyncio.run(Up(options, _picture(options.json or plain)).run())
    except UsageError as error:
        raise CommandError(error.problem, error.remedy, EXIT_USAGE) from error
    except EmbeddedError as error:
        raise CommandError(error.problem, error.remedy, EXIT_FAILED) from error


def _files(rest: dict[str, Any]) -> dict[str, str]:
    """Where the URLs of outside servers stand in files, the services are given these: they read
    them again.
    """
    return {
        "database_url_file": file_of(DATABASE, rest["database_url"]),
        "nats_url_file": file_of(BUS, rest["nats_url"]),
    }


def _picture(without: bool) -> Any:
    """The live picture, on a terminal that can show it."""
    if without or not is_screen():
        return None
    from services.top.screen import Screen

    return Screen()


def _pods_and_speed(pods: int | None, speed: str | None, exit_when_idle: bool) -> dict[str, Any]:
    from services.embedded.up.options import ENDLESS

    if pods is not None and pods < 0:
        raise CommandError(
            f"--pods is {pods}", "leave --pods out for a workload without end", EXIT_USAGE
        )
    count = pods if pods is not None else (PODS_UNTIL_IDLE if exit_when_idle else ENDLESS)
    return {
        "pods": count,
        "speed": speed or (SPEED_WITHOUT_END if count == ENDLESS else SPEED_WITH_END),
    }


def _absolute(workload: str | None) -> str | None:
    """A folder is meant from where the command was given."""
    kind, colon, folder = (workload or "").partition(":")
    return f"{kind}:{Path(folder).expanduser().resolve()}" if colon and folder else workload
