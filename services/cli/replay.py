"""`topolog replay ...`: options in, rows out. `services.replay` reads the log, `replay_print`
prints.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
import typer

from services.cli import replay_print, window
from services.cli.addresses import data_dir_option, database_option, http_token
from services.cli.in_cells import Cell, each_cell, one_cell
from services.cli.log_source import LogSource
from services.cli.output import EXIT_FAILED, EXIT_USAGE, CommandError, json_line
from services.cli.paths import kubeconfig_option
from services.cli.progress import ReadingBar, reading_bar
from services.cli.verbs import group
from services.cli.window import From, To
from services.replay import filters, moments, reading
from services.replay.filters import Filter, FilterError, UnknownPod
from shared.eventlog.port import EventLog
from shared.ledger.fold import GapError

T = TypeVar("T")

replay_app = group("Read the event log: what happened, why, and whether it is consistent.")

Database = Annotated[str, database_option()]
DataDir = Annotated[Path | None, data_dir_option()]
Json = Annotated[bool, typer.Option("--json", help="Print JSON lines with all fields.")]
NEGATIVE_POSITIONS = {"ignore_unknown_options": True}


def register(app: typer.Typer) -> None:
    """Mount the verbs of this file, of `replay_asking` and of `whatif`."""
    app.add_typer(replay_app, name="replay")


def run(source: LogSource, use: Callable[..., Awaitable[T]], verb: str) -> T:
    """Open the log, run `use` on it, close it. Raises CommandError as `usage_errors` does."""

    async def session() -> T:
        async with source as log:
            return await use(log)

    with usage_errors(verb), reading_bar():
        return asyncio.run(session())


@contextmanager
def usage_errors(verb: str) -> Iterator[None]:
    """Turn an invalid filter into wrong usage of the verb (exit code 2). An unknown pod is not
    wrong usage: every verb exits with 1.
    """
    try:
        yield
    except FilterError as error:
        exit_code = EXIT_FAILED if isinstance(error, UnknownPod) else EXIT_USAGE
        remedy = error.remedy or f"topolog replay {verb} --help"
        raise CommandError(str(error), remedy, exit_code) from error
    except GapError as error:
        raise CommandError(f"the log is broken: {error}", "topolog replay verify") from error


@replay_app.command("log", context_settings=NEGATIVE_POSITIONS)
def log_command(
    database_url: Database = "",
    data_dir: DataDir = None,
    stream: Annotated[str, typer.Option(help="Stream pattern, for example 'node/*'.")] = "",
    type_: Annotated[
        str, typer.Option("--type", help="Event type pattern, for example 'Pod*'.")
    ] = "",
    pod: Annotated[str, typer.Option(help="Pod uid, name or namespace/name.")] = "",
    node: Annotated[str, typer.Option(help="Only events of this node.")] = "",
    from_: From = None,
    to: To = None,
    limit: Annotated[int, typer.Option(help="Maximal number of events.", min=1)] = 1_000_000_000,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow", "-f", help="Continue as events arrive, from the end or from --from."
        ),
    ] = False,
    cell: Cell = "",
    as_json: Json = False,
) -> None:
    """List events in order of position: time, pod, node, one sentence.

    Of several cells, those of the cell that has the pod or node, or --cell.
    """
    from services.replay.listing import Listing, list_events

    if follow and to:
        raise CommandError(
            "--follow has no end, and --to gives one", "use one of the two options", EXIT_USAGE
        )
    window.check(from_, to, "replay log")
    with usage_errors("log"):
        event_filter = Filter(stream=stream, type=filters.check_type(type_), node=node)

    async def print_events(log: EventLog) -> None:
        positions = await window.window(log, from_, to)
        first = positions.first if from_ or not follow else positions.last + 1
        await list_events(
            log,
            Listing(event_filter, first, positions.last, pod, limit, follow),
            _printer(as_json),
        )
        if positions.empty and not follow:
            window.note(positions.empty)

    source = one_cell(LogSource(database_url, data_dir, cell=cell), pod, node)
    run(source, print_events, "log")


def _printer(as_json: bool) -> Callable[[dict[str, Any]], None]:
    show, bar = replay_print.event_printer(as_json), reading.SHOW_PROGRESS.get()

    def show_row(row: dict[str, Any]) -> None:
        if isinstance(bar, ReadingBar):
            bar.hide()
        show(row)

    return show_row


@replay_app.command("at", context_settings=NEGATIVE_POSITIONS)
def at_command(
    moment: Annotated[
        list[str], typer.Argument(help="A position, head, -100, 10m ago, or a time (ISO 8601).")
    ],
    database_url: Database = "",
    data_dir: DataDir = None,
    node: Annotated[str, typer.Option(help="Only this node.")] = "",
    cell: Cell = "",
    as_json: Json = False,
) -> None:
    """Show zones, charges and dirty nodes at a moment, of each cell if there are several.

    A position is one of each cell's own log; a time is the same for all.
    """
    from services.replay.state_at import state_at

    text = " ".join(moment)
    with usage_errors("at"):
        moments.parse(text, int(time.time() * 1_000_000))

    async def show(cell_name: str, log: EventLog) -> None:
        parts = state_at(log, text, node)
        state = ({"cell": cell_name} if cell_name else {}) | await anext(parts)
        if as_json:
            nodes = [msgspec.Raw(msgspec.json.encode(part)) async for part in parts]
            json_line(state | {"nodes": nodes})
            return
        replay_print.cell(cell_name)
        replay_print.state(state)
        async for part in parts:
            replay_print.node(part)

    source = LogSource(database_url, data_dir, cell=cell)
    sources = each_cell(one_cell(source, node=node) if node else source)
    for name, of_cell in sources.items():
        run(of_cell, partial(show, name), "at")


@replay_app.command("explain")
def explain_command(
    pod: Annotated[str, typer.Argument(help="Pod uid, name or namespace/name.")],
    database_url: Database = "",
    data_dir: DataDir = None,
    kubeconfig: Annotated[
        str, kubeconfig_option("Cluster to ask about a pod that is not in the log.")
    ] = "",
    recompute: Annotated[
        bool, typer.Option(help="Compute the decisions again, from the nearest snapshot.")
    ] = True,
    cell: Cell = "",
    as_json: Json = False,
) -> None:
    """Explain one pod: why it waits, or why it was placed on its node and zone, in each cell.

    Decisions are computed again with the schedulers' settings in the data folder, and over them
    those in this shell (TOPOLOG_CYCLE_*, TOPOLOG_CONFIG).
    """
    from services.cli.deciding_here import deciding_here
    from services.cli.foreign_pod import foreign_pod
    from services.replay.explain import Story, explain

    source = LogSource(database_url, data_dir, cell=cell)
    rules = deciding_here(source.settings(os.environ)) if recompute else None

    async def explained() -> dict[str, list[Story]]:
        stories, unknown = dict[str, list[Story]](), None
        async with source.logs() as logs:
            for name, log in logs.items():
                try:
                    stories[name] = await explain(log, pod, rules)
                except UnknownPod as error:
                    unknown = error
        if not stories and unknown is not None:
            raise unknown
        return stories

    try:
        with usage_errors("explain"), reading_bar():
            stories = asyncio.run(explained())
    except CommandError as error:
        if not isinstance(error.__cause__, UnknownPod):
            raise
        foreign = asyncio.run(foreign_pod(pod, kubeconfig or source.kubeconfig()))
        if foreign is None:
            raise
        replay_print.foreign(foreign, as_json)
        return
    for name, in_cell in stories.items():
        replay_print.stories(in_cell, as_json, name)


@replay_app.command("verify")
def verify_command(
    database_url: Annotated[str, database_option(data_dir="combined")] = "",
    data_dir: DataDir = None,
    service: Annotated[
        list[str] | None,
        typer.Option(
            help="Service whose hash is compared: its name in the data folder, or its /state URL."
        ),
    ] = None,
    cell: Cell = "",
    as_json: Json = False,
) -> None:
    """Fold the whole log, or that of each cell, and check every invariant.

    Also compares the states of the schedulers, binders and topology-stores that run on the data
    folder; a service that does not answer is named. TOPOLOG_HTTP_TOKEN is sent as the token. Exit
    code 1 if an invariant is violated.
    """
    from services.replay.commands import verify

    source, token = LogSource(database_url, data_dir, cell=cell), http_token()
    sources = each_cell(one_cell(source) if service else source)
    with usage_errors("verify"):
        urls = [source.state_url(name) for name in service or ()]
    is_ok = True
    for name, of_cell in sources.items():
        states = of_cell.states()
        result = run(of_cell, lambda log, states=states: verify(log, states, urls, token), "verify")
        is_ok &= result.ok
        if as_json:
            json_line({"cell": name, **msgspec.to_builtins(result)} if name else result)
        else:
            replay_print.cell(name)
            replay_print.verdict(result)
    if not is_ok:
        raise typer.Exit(EXIT_FAILED)


@replay_app.command("shadow")
def shadow_command(
    database_url: Database = "",
    data_dir: DataDir = None,
    cases: Annotated[
        int, typer.Option(help="Maximal number of pods to name whose outcome differs.", min=0)
    ] = 20,
    cell: Cell = "",
    as_json: Json = False,
) -> None:
    """Compare other schedulers' placements with Topolog's filters.

    Shows the rejections that Topolog would have prevented, and the pods that ran although Topolog
    would have refused them.
    """
    from services.replay.shadow import shadow

    source = one_cell(LogSource(database_url, data_dir, cell=cell))
    judgement = run(source, lambda log: shadow(log, cases), "shadow")
    if as_json:
        json_line(judgement)
    else:
        replay_print.shadow(judgement)


@replay_app.command("predictions")
def predictions_command(
    database_url: Database = "",
    data_dir: DataDir = None,
    by: Annotated[str, typer.Option(help="Group by `policy` or `node`.")] = "policy",
    misses: Annotated[int, typer.Option(help="Maximal number of misses to show.", min=0)] = 10,
    cell: Cell = "",
    as_json: Json = False,
) -> None:
    """Compare predicted zones with the zones in the reports.

    For each miss, shows what was undecided by the schedulers' settings in the data folder, and over
    them those in this shell (TOPOLOG_CYCLE_*, TOPOLOG_CONFIG).
    """
    from services.cli.deciding_here import deciding_here
    from services.replay.predictions import predictions

    source = one_cell(LogSource(database_url, data_dir, cell=cell))
    cycle = deciding_here(source.settings(os.environ)).cycle
    result = run(
        source,
        lambda log: predictions(log, by, misses, cycle),
        "predictions",
    )
    if as_json:
        json_line(result)
    else:
        replay_print.predictions(result, by)
