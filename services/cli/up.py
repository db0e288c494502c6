"""`topolog up`: options in, exit code out. What runs lives in `services.embedded.up`."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from services.cli.output import EXIT_FAILED, EXIT_USAGE, CommandError


def register(app: typer.Typer) -> None:
    """Mount the verb."""
    app.command("up")(up)


def up(
    data_dir: Annotated[
        Path | None, typer.Option(help="Where state is kept; a second start resumes. Default: ~/.local/state/topolog.")
    ] = None,
    nodes: Annotated[int, typer.Option(help="Simulated nodes.")] = 8,
    zones: Annotated[int, typer.Option(help="NUMA zones a node, 1 to 8.")] = 2,
    workload: Annotated[str, typer.Option(help="demo, openb:FOLDER (a GPU cluster trace), or none.")] = "demo",
    pods: Annotated[int, typer.Option(help="How many pods to play.")] = 60,
    load: Annotated[float, typer.Option(help="Offered load as a share of the cluster.")] = 0.9,
    speed: Annotated[str, typer.Option(help="Virtual seconds a real second for arrivals and lifetimes, or max.")] = "10",
    policy: Annotated[str, typer.Option(help="Topology Manager policy of the kubelets.")] = "single-numa-node",
    scope: Annotated[str, typer.Option(help="Topology Manager scope of the kubelets: container or pod.")] = "container",
    cache: Annotated[str, typer.Option(help="ledger, or as upstream: overreserve, discardreserved, passthrough.")] = "ledger",
    seed: Annotated[int, typer.Option(help="Seed of the workload.")] = 1,
    report_interval: Annotated[float, typer.Option(help="Seconds between full reports of a node.")] = 5.0,
    exit_when_idle: Annotated[bool, typer.Option("--exit-when-idle", help="End when every feasible pod has run.")] = False,
    idle_after: Annotated[float, typer.Option(help="Seconds without progress that count as the end.")] = 60.0,
    as_json: Annotated[bool, typer.Option("--json", help="JSON lines instead of a table.")] = False,
    database_url: Annotated[str, typer.Option(envvar="TOPOLOG_DATABASE_URL", help="An outside Postgres.")] = "",
    nats_url: Annotated[str, typer.Option(envvar="TOPOLOG_NATS_URL", help="An outside NATS.")] = "",
    kubeconfig: Annotated[str, typer.Option(envvar="TOPOLOG_KUBECONFIG", help="An outside cluster; nothing is simulated.")] = "",
) -> None:
    """Run everything on this machine: Postgres, NATS, the services, a simulated cluster and a workload.

    Exit codes: 0 every feasible pod ran, 3 a kubelet rejected a pod, 4 a feasible pod was left (with --exit-when-idle).
    """
    from services.embedded.data_dir import default_data_dir
    from services.embedded.errors import EmbeddedError
    from services.embedded.up.options import UpOptions, UsageError, check
    from services.embedded.up.run import Up

    options = UpOptions(
        data_dir=data_dir or default_data_dir(),
        nodes=nodes,
        zones=zones,
        workload=_absolute(workload),
        pods=pods,
        load=load,
        speed=speed,
        policy=policy,
        scope=scope,
        cache=cache,
        seed=seed,
        report_interval_s=report_interval,
        exit_when_idle=exit_when_idle,
        idle_after_s=idle_after,
        json=as_json,
        database_url=database_url,
        nats_url=nats_url,
        kubeconfig=kubeconfig,
    )
    try:
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
