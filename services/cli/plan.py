"""`topolog plan`: options in, a plan out, and its steps with `--apply`."""

from __future__ import annotations

import os
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from services.cli.addresses import data_dir_option, database_option
from services.cli.log_source import LogSource
from services.cli.output import EXIT_FAILED, CommandError, json_line, say, say_table
from services.cli.paths import kubeconfig_option
from services.cli.replay import run
from services.cli.reserve import PREFIX, pairs, usage
from services.cli.verbs import group
from services.replay.words import by_container
from shared.domain.booking import Owner, Terms, pod_for
from shared.domain.durations import nanoseconds
from shared.domain.effective import effective_request
from shared.eventlog.port import EventLog
from shared.events.scheduling_events import BookingMade
from shared.ledger.state import Ledger
from shared.runtime.clock import SYSTEM_CLOCK

if TYPE_CHECKING:
    from services.replay.deciding_state import Followed
    from services.replay.defragmenting import Planner
    from services.upkeep.moving import Wanted

plan_app = group("Plan changes of placements.")


def register(app: typer.Typer) -> None:
    app.add_typer(plan_app, name="plan")


@plan_app.callback()
def plan() -> None:
    """Plan changes of placements."""


class Asked(msgspec.Struct, frozen=True):
    """The options. `owner` is for the bookings that get the room, unless `shape` is a pod."""

    shape: str
    count: int
    priority: int
    kubeconfig: str
    owner: Owner
    name: str
    ttl_us: int
    timeout_s: float
    settings: dict[str, str] = {}


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
    apply: Annotated[
        bool, typer.Option("--apply", help="Evict, one step at a time; stop if reality differs.")
    ] = False,
    labels: Annotated[
        list[str], typer.Option("--owner", help="Label KEY=VALUE of the pods that get the room.")
    ] = [],  # noqa: B006 - typer reads the default only
    namespace: Annotated[str, typer.Option(help="Namespace of these pods.")] = "",
    name: Annotated[str, typer.Option(help="The room is kept by bookings NAME-1, ...")] = "moved",
    ttl: Annotated[str, typer.Option(help="How long the room is kept.")] = "1h",
    timeout: Annotated[str, typer.Option(help="How long one step may take.")] = "10m",
    database_url: Annotated[str, database_option()] = "",
    data_dir: Annotated[Path | None, data_dir_option()] = None,
    kubeconfig: Annotated[
        str, kubeconfig_option("Cluster to ask for disruption budgets and owners of pods.")
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print the plan as JSON.")] = False,
) -> None:
    """Show the cheapest moves of pods that make room for pods of a shape, or make them (--apply).

    Decides with the schedulers' settings in the data folder, and over them those in this shell
    (TOPOLOG_CYCLE_*, TOPOLOG_CONFIG). Exit code 1 if there is no room for all of them, or if a step
    was not completed.
    """
    ttl_ns, timeout_ns = nanoseconds(ttl), nanoseconds(timeout)
    if not (ttl_ns and timeout_ns):
        raise usage("--ttl and --timeout are durations above 0", "--ttl 1h --timeout 10m")
    owner = Owner(namespace, "", pairs("--owner", labels))
    if apply and "=" in shape and owner == Owner():
        raise usage("the room would be for any pod", "--owner KEY=VALUE or --namespace")
    if apply and "=" not in shape and count > 1:
        raise usage("one pod gets one room", f"--count {count} with a request")
    source = LogSource(database_url, data_dir, writes=apply)
    asked = Asked(
        shape,
        count,
        priority,
        kubeconfig or source.kubeconfig(),
        owner,
        name,
        ttl_ns // 1000,
        timeout_ns / 1e9,
        dict(source.settings(os.environ)),
    )
    if apply:
        is_done = run(source, lambda log: _applied(log, asked, as_json), "defragment")
        raise typer.Exit(0 if is_done else EXIT_FAILED)
    answer = run(source, lambda log: _planned(log, asked), "defragment")
    json_line(answer) if as_json else _show(answer)
    if answer["missing"]:
        raise typer.Exit(EXIT_FAILED)


async def _planned(log: EventLog, asked: Asked) -> dict[str, Any]:
    from services.cli.deciding_here import deciding_here
    from services.cli.disruptions import disruptions
    from services.replay.deciding_state import followed_at
    from services.replay.defragmenting import defragment, wanted_pod

    pod = await wanted_pod(log, asked.shape, asked.priority)
    state, quarantined = await followed_at(log, await log.head())
    said = await disruptions(asked.kubeconfig, state.ledger.pods)
    cycle = deciding_here(asked.settings).cycle
    plan = defragment(state, cycle, pod, asked.count, said.spared, said.budgets, quarantined)
    answer = msgspec.to_builtins(plan)
    return {"position": state.ledger.position, **answer, "not_asked": said.problem}


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


async def _applied(log: EventLog, asked: Asked, as_json: bool) -> bool:
    """Plan and carry out the steps. Return whether all are done."""
    from services.replay.deciding_state import followed_at
    from services.replay.defragmenting import Step
    from services.upkeep.moving import Mover

    followed = await followed_at(log, await log.head())
    wanted = await _wanted(log, followed[0].ledger, asked)
    number = 0

    def progress(text: str) -> None:
        json_line({"step": number, "event": text}) if as_json else say(f"step {number}: {text}")

    mover = Mover(log, partial(_planner, asked), SYSTEM_CLOCK, asked.timeout_s, progress)
    begun = [room for room in wanted if _is_begun(followed[0].ledger, room.pod.uid)]
    for room in begun:
        progress(f"{room.pod.name} was begun before")
        if not (await mover.completed(Step("", {}), room, {})).done:
            return False
    rest = [room for room in wanted if room not in begun]
    followed = await followed_at(log, await log.head(), followed)
    plan = (await _planner(asked, followed)).plan([room.pod for room in rest])
    answer = {"position": followed[0].ledger.position, **msgspec.to_builtins(plan), "not_asked": ""}
    json_line(answer) if as_json else _show(answer)
    if plan.missing:
        return False
    for number, (step, room) in enumerate(zip(plan.steps, rest, strict=True), 1):
        result = await mover.carry_out(step, room)
        if result.problem:
            progress(f"{'differs' if result.done else 'stopped'}: {result.problem}")
        if not result.done or (result.problem and number < len(rest)):
            progress("no further step is begun; run the command again for a new plan")
            return False
    return True


async def _planner(asked: Asked, followed: Followed) -> Planner:
    """Return a planner that moves no pod whose controller the log or the API does not know."""
    from services.cli.deciding_here import deciding_here
    from services.cli.disruptions import disruptions
    from services.replay.defragmenting import Planner

    state, quarantined = followed
    said = await disruptions(asked.kubeconfig, state.ledger.pods)
    if said.problem:
        problem = f"disruption budgets and owners of pods are not known: {said.problem}"
        raise CommandError(problem, "--kubeconfig of an account that may list them")
    unknown = {uid for uid, entry in state.ledger.pods.items() if not entry.pod.controller}
    cycle = deciding_here(asked.settings).cycle
    return Planner(state, cycle, said.spared | unknown, said.budgets, quarantined)


async def _wanted(log: EventLog, ledger: Ledger, asked: Asked) -> list[Wanted]:
    """Return what gets the room: the pod itself, or bookings for pods of the shape."""
    from services.cli.deciding_here import deciding_here
    from services.replay.defragmenting import wanted_pod
    from services.upkeep.moving import Wanted
    from shared.kube.reservation_objects import template_of

    pod = await wanted_pod(log, asked.shape, asked.priority)
    scheduler_name = deciding_here(asked.settings).scheduler_name
    if "=" not in asked.shape:
        entry = ledger.pods.get(pod.uid)
        if entry is None or entry.stage != "pending" or pod.gang is not None:
            raise usage(f"pod {pod.key} does not wait alone", "--for REQUEST --owner KEY=VALUE")
        return [Wanted(entry.pod)]
    like = msgspec.structs.replace(template_of(pod, scheduler_name), priority=asked.priority)
    terms = Terms((asked.owner,), "Aligned", True, time.time_ns() // 1000 + asked.ttl_us)
    wanted = []
    for number in range(1, asked.count + 1):
        name = f"{asked.name}-{number}"
        made = pod_for(PREFIX + name, name, effective_request(pod), like)
        entry = ledger.pods.get(made.uid)
        booking = entry.booking if entry is not None else None
        if booking is not None and (booking.pod, booking.terms.owners) != (made, terms.owners):
            raise CommandError(f"booking {name} is for other pods", "--name OTHER")
        event = BookingMade(made.uid, made, terms) if booking is None else None
        wanted.append(Wanted(made, event))
    return wanted


def _is_begun(ledger: Ledger, uid: str) -> bool:
    """Return whether an earlier run began to make room for this booking or pod."""
    entry = ledger.pods.get(uid)
    return entry is not None and bool(entry.node or entry.nominated)
