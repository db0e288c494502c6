"""`topolog up`: options in, exit code out. What runs lives in `services.embedded.up`."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from services.cli.output import EXIT_FAILED, EXIT_USAGE, CommandError, is_screen

PODS_UNTIL_IDLE = 60
SPEED_WITH_END, SPEED_WITHOUT_END = "10", "2"


def register(app: typer.Typer) -> None:
    """Mount the verb."""
    app.command("up")(up)


def up(
    data_dir: Annotated[
        Path | None, typer.Option(help="Where state is kept; a second start resumes. Default: ~/.local/state/topolog.")
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Delete what the data folder holds, and begin anew.")] = False,
    nodes: Annotated[int | None, typer.Option(help="Simulated nodes. Default: 8, or those of the data folder.")] = None,
    zones: Annotated[int | None, typer.Option(help="NUMA zones a node, 1 to 8. Default: 2, or as before.")] = None,
    workload: Annotated[
        str | None, typer.Option(help="demo, openb:FOLDER (a GPU cluster trace), or none. Default: demo, or as before.")
    ] = None,
    pods: Annotated[
        int | None, typer.Option(help="How many pods to play. Default: without end; 60 with --exit-when-idle.")
    ] = None,
    load: Annotated[float, typer.Option(help="Offered load as a share of the cluster.")] = 0.9,
    speed: Annotated[
        str | None,
        typer.Option(help="Virtual seconds a real second for arrivals and lifetimes, or max. Default: 2; 10 with an end."),
    ] = None,
    policy: Annotated[
        str | None, typer.Option(help="Topology Manager policy of the kubelets. Default: single-numa-node, or as before.")
    ] = None,
    scope: Annotated[
        str | None,
        typer.Option(help="Topology Manager scope of the kubelets, container or pod. Default: container."),
    ] = None,
    cache: Annotated[str, typer.Option(help="ledger, or as upstream: overreserve, discardreserved, passthrough.")] = "ledger",
    seed: Annotated[int | None, typer.Option(help="Seed of the workload. Default: 1, or as before.")] = None,
    report_interval: Annotated[float, typer.Option(help="Seconds between full reports of a node.")] = 5.0,
    api_port: Annotated[int, typer.Option(help="Port of the simulated Kubernetes API; 0 is any free one.")] = 0,
    exit_when_idle: Annotated[bool, typer.Option("--exit-when-idle", help="End when every feasible pod has run.")] = False,
    idle_after: Annotated[float, typer.Option(help="Seconds without progress that count as the end.")] = 60.0,
    as_json: Annotated[bool, typer.Option("--json", help="JSON lines instead of a picture.")] = False,
    database_url: Annotated[str, typer.Option(envvar="TOPOLOG_DATABASE_URL", help="An outside Postgres.")] = "",
    nats_url: Annotated[str, typer.Option(envvar="TOPOLOG_NATS_URL", help="An outside NATS.")] = "",
    kubeconfig: Annotated[str, typer.Option(envvar="TOPOLOG_KUBECONFIG", help="An outside cluster; nothing is simulated.")] = "",
) -> None:
    """Run everything on this machine: Postgres, NATS, the services, a simulated cluster and a workload.

    Exit codes: 0 every feasible pod ran, 3 a kubelet rejected a pod, 4 a feasible pod was left (with --exit-when-idle).
    """
    from services.embedded.data_dir import default_data_dir
    from services.embedded.errors import EmbeddedError
    from services.embedded.up.options import ENDLESS, UpOptions, UsageError, check
    from services.embedded.up.resuming import Given, shape_for
    from services.embedded.up.run import Up

    folder = data_dir or default_data_dir()
    count = pods if pods is not None else (PODS_UNTIL_IDLE if exit_when_idle else ENDLESS)
    if pods is not None and pods < 0:
        raise CommandError(f"--pods is {pods}", "leave --pods out for a workload without end", EXIT_USAGE)
    try:
        given = Given(nodes, zones, _absolute(workload) if workload is not None else None, policy, scope, seed)
        shape = shape_for(folder, given, fresh)
        options = UpOptions(
            data_dir=folder,
            fresh=fresh,
            nodes=shape.nodes,
            zones=shape.zones,
            workload=shape.workload,
            pods=count,
            load=load,
            speed=speed or (SPEED_WITHOUT_END if count == ENDLESS else SPEED_WITH_END),
            policy=shape.policy,
            scope=shape.scope,
            cache=cache,
            seed=shape.seed,
            report_interval_s=report_interval,
            api_port=api_port,
            exit_when_idle=exit_when_idle,
            idle_after_s=idle_after,
            json=as_json,
            picture=is_screen() and not as_json,
            database_url=database_url,
            nats_url=nats_url,
            kubeconfig=kubeconfig,
        )
        code = asyncio.run(Up(check(options)).run())
    except UsageError as error:
        raise CommandError(error.problem, error.remedy, EXIT_USAGE) from error
    except EmbeddedError as error:
        raise CommandError(error.problem, error.remedy, EXIT_FAILED) from error
    raise typer.Exit(code)


def _absolute(workload: str) -> str:
    """A folder is meant from where the command was given."""
    kind, colon, folder = workload.partition(":")
    return f"{kind}:{Path(folder).expanduser().resolve()}" if colon and folder else workload
