"""`topolog cells ...`: the cells of a cluster, and the move of a node between them."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from services.cli.addresses import data_dir_option
from services.cli.log_source import CELLS_VARIABLE, LogSource
from services.cli.output import EXIT_FAILED, EXIT_USAGE, CommandError, json_line, say, say_table
from services.cli.paths import kubeconfig_option
from services.cli.verbs import group
from shared.domain.cells import OWNER, WANTED
from shared.kube.port import Answer

LOOK_EVERY_S = 0.3
cells_app = group("Show the cells of a cluster, and move nodes between them.")

DataDir = Annotated[Path | None, data_dir_option()]
Json = Annotated[bool, typer.Option("--json", help="Print a JSON line.")]


def register(app: typer.Typer) -> None:
    app.add_typer(cells_app, name="cells")


@cells_app.command("list")
def list_command(data_dir: DataDir = None, as_json: Json = False) -> None:
    """Show the nodes, pods and newest position of each cell.

    Cells are those of the data folder, or of the file that TOPOLOG_CELLS_FILE names, with lines
    CELL: DATABASE_URL.
    """
    rows = asyncio.run(_rows(LogSource("", data_dir)))
    if as_json:
        json_line(rows)
        return
    say_table(
        ("CELL", "#POSITION", "#NODES", "#PODS", "#WAITING"),
        [[str(value) for value in row.values()] for row in rows],
    )


async def _rows(source: LogSource) -> list[dict[str, Any]]:
    from services.top.follow import Follower

    if not source.cells():
        raise CommandError(
            "this log is no cell", f"topolog up --cells 2, or {CELLS_VARIABLE}", EXIT_USAGE
        )
    rows = []
    async with source.logs() as logs:
        for cell, log in logs.items():
            follower = Follower(log)
            await follower.at_head()
            ledger = follower.ledger
            stages = [pod.stage for pod in ledger.pods.values()]
            nodes = sum(node.observed is not None for node in ledger.nodes.values())
            row = {"cell": cell, "position": ledger.position, "nodes": nodes}
            rows.append(row | {"pods": len(stages), "waiting": stages.count("pending")})
    return rows


@cells_app.command("move")
def move_command(
    node: Annotated[str, typer.Argument(help="Node to move.")],
    to: Annotated[str, typer.Option("--to", help="Cell that gets the node and its pods.")],
    data_dir: DataDir = None,
    kubeconfig: Annotated[str, kubeconfig_option("Cluster of the node.")] = "",
    wait_s: Annotated[
        float, typer.Option("--wait", help="Seconds to wait for the new owner.", min=0)
    ] = 60.0,
    as_json: Json = False,
) -> None:
    """Give a node with its pods to another cell: label it, and wait until the cell owns it.

    The old cell withdraws its reservations there, and waits for bindings under way. It is safe to
    interrupt and to repeat this.
    """
    source = LogSource("", data_dir)
    cells = source.cells()
    if cells and to not in cells:
        raise CommandError(
            f"there is no cell {to!r}", f"one of {', '.join(sorted(cells))}", EXIT_USAGE
        )
    address = kubeconfig or source.kubeconfig()
    if not address:
        raise CommandError("no cluster is given", "--kubeconfig FILE, or --data-dir", EXIT_USAGE)
    owner = asyncio.run(_moved(address, node, to, wait_s))
    if as_json:
        json_line({"node": node, "owner": owner, "wanted": to})
    elif owner == to:
        say(f"node {node} is in cell {to}")
    else:
        say(f"node {node} is wanted by cell {to}; its owner is still {owner or 'none'}")
        say("the move goes on; look at `cell.kept` in the log of that cell's scheduler")
    if owner != to:
        raise typer.Exit(EXIT_FAILED)


async def _moved(kubeconfig: str, node: str, to: str, wait_s: float) -> str:
    """Label the node, and return its owner once that is the new cell, or the time is over."""
    from shared.kube.client import KubeClient

    kube, until_s = KubeClient(kubeconfig), time.monotonic() + wait_s
    path = f"/metadata/labels/{WANTED.replace('/', '~1')}"
    try:
        answer = await kube.patch_node(node, [{"op": "add", "path": path, "value": to}])
        while True:
            if not isinstance(answer, Answer) or not answer.ok:
                raise CommandError(
                    f"node {node}: {answer.message}", "check the name, and the right to patch nodes"
                )
            owner = str(answer.body["metadata"].get("labels", {}).get(OWNER, ""))
            if owner == to or time.monotonic() > until_s:
                return owner
            await asyncio.sleep(LOOK_EVERY_S)
            answer = await kube.get_node(node)
    finally:
        await kube.close()
