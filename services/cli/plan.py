"""`topolog plan`: options in, a plan out. Nothing is changed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from services.cli.addresses import data_dir_option, database_option
from services.cli.log_source import LogSource
from services.cli.output import EXIT_FAILED, json_line, say, say_table
from services.cli.paths import kubeconfig_option
from services.cli.replay import run
from services.cli.verbs import group
from services.replay.words import by_container
from shared.eventlog.port import EventLog

plan_app = group("Plan changes of placements.")


def register(app: typer.Typer) -> None:
    app.add_typer(plan_app, name="plan")


@plan_app.callback()
def plan() -> None:
    """Plan changes of placements."""


@plan_app.command("defragment")
def defragment_command(
    shape: Annotated[
        str,
        typer.Option("--for", help="A request such as cpu=8,memory=16Gi, or a pod of the log."),
    ],
    count: Annotated[int, typer.Option(help="Number of such pods.", min=1, max=1000)] = 1,
    priority: Annotated[
        int, typer.Option(help="Highest priority of pods that are moved for a request.")
    ] = 0,
    database_url: Annotated[str, database_option()] = "",
    data_dir: Annotated[Path | None, data_dir_option()] = None,
    kubeconfig: Annotated[
        str, kubeconfig_option("Cluster to ask for disruption budgets and owners of pods.")
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print the plan as JSON.")] = False,
) -> None:
    """Show the cheapest moves of pods that make room for pods of a shape.

    Evicts nothing. Decides with the schedulers' settings in the data folder, and over them those in
    this shell (TOPOLOG_CYCLE_*, TOPOLOG_CONFIG). Exit code 1 if there is no room for all of them.
    """
    from services.cli.deciding_here import deciding_here
    from services.cli.disruptions import disruptions
    from services.replay.deciding_state import followed_at
    from services.replay.defragmenting import defragment, wanted_pod

    source = LogSource(database_url, data_dir)
    cycle = deciding_here(source.settings(os.environ)).cycle

    async def planned(log: EventLog) -> dict[str, Any]:
        pod = await wanted_pod(log, shape, priority)
        state, quarantined = await followed_at(log, await log.head())
        asked = await disruptions(kubeconfig or source.kubeconfig(), state.ledger.pods)
        plan = defragment(state, cycle, pod, count, asked.spared, asked.budgets, quarantined)
        answer = msgspec.to_builtins(plan)
        return {"position": state.ledger.position, **answer, "not_asked": asked.problem}

    answer = run(source, planned, "defragment")
    if as_json:
        json_line(answer)
    else:
        _show(answer)
    if answer["missing"]:
        raise typer.Exit(EXIT_FAILED)


def _show(answer: dict[str, Any]) -> None:
    rows = []
    for number, step in enumerate(answer["steps"], 1):
        for move in step["moves"]:
            target = f"{move['to']} {by_container(move['zones'])}".rstrip()
            rows.append(
                [f"{number}", "evict", move["pod"], f"{move['priority']}", move["node"], target]
            )
        target = f"{step['node']} {by_container(step['zones'])}".rstrip()
        rows.append([f"{number}", "place", "one more pod", "", "", target])
    say(f"plan at position {answer['position']}")
    if rows:
        say_table(("#step", "action", "pod", "#priority", "from", "to"), rows)
    if answer["missing"]:
        say(f"no moves of one node's pods make room for {answer['missing']} more")
        say("request less, or add a node: topolog doctor names a type for pods that wait")
    if not answer["is_cheapest"]:
        say("cheaper moves may exist: not all sets of pods were tried")
    if answer["not_asked"]:
        say(f"disruption budgets and owners of pods were not asked: {answer['not_asked']}")
        say("name the cluster before you follow the plan: --kubeconfig FILE")
