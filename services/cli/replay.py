"""`topolog replay ...`: options in, rows out. What is read and told lives in `services.replay`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from services.cli.log_source import LogSource
from services.cli.output import EXIT_FAILED, EXIT_USAGE, CommandError, console, json_line, table
from services.replay import filters
from services.replay.filters import Filter, FilterError
from shared.ledger.fold import GapError

T = TypeVar("T")

replay_app = typer.Typer(help="Read the log again: what happened, why, and whether it all holds together.", no_args_is_help=True)

Database = Annotated[str, typer.Option("--database-url", envvar="TOPOLOG_DATABASE_URL", help="The log's Postgres.")]
DataDir = Annotated[Path | None, typer.Option("--data-dir", help="A data folder of `topolog up`, running or stopped.")]
Json = Annotated[bool, typer.Option("--json", help="JSON lines instead of a table.")]


def register(app: typer.Typer) -> None:
    """Mount the verbs."""
    app.add_typer(replay_app, name="replay")


def run(source: LogSource, use: Callable[..., Awaitable[T]], verb: str) -> T:
    """Open the log, run, close; a bad filter becomes a usage error of this verb."""

    async def session() -> T:
        async with source as log:
            return await use(log)

    with usage_errors(verb):
        return asyncio.run(session())


@contextmanager
def usage_errors(verb: str) -> Iterator[None]:
    """A filter that cannot be meant is wrong usage; the remedy is that verb's own help."""
    try:
        yield
    except FilterError as error:
        raise CommandError(str(error), f"topolog replay {verb} --help", EXIT_USAGE) from error
    except GapError as error:
        raise CommandError(f"the log is broken: {error}", "topolog replay verify") from error


@replay_app.command("log")
def log_command(
    database_url: Database = "",
    data_dir: DataDir = None,
    stream: Annotated[str, typer.Option(help="Stream pattern, for example 'node/*'.")] = "",
    type_: Annotated[str, typer.Option("--type", help="Fact type pattern, for example 'Pod*'.")] = "",
    pod: Annotated[str, typer.Option(help="Pod uid, name or namespace/name.")] = "",
    node: Annotated[str, typer.Option(help="Facts that concern this node.")] = "",
    since: Annotated[str, typer.Option(help="Time, ISO 8601 or Unix seconds.")] = "",
    until: Annotated[str, typer.Option(help="Time, ISO 8601 or Unix seconds.")] = "",
    from_: Annotated[int, typer.Option("--from", help="First position.", min=1)] = 1,
    limit: Annotated[int, typer.Option(help="At most this many facts.", min=1)] = 1_000_000_000,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as facts arrive.")] = False,
    as_json: Json = False,
) -> None:
    """Show facts in order of position."""
    from services.replay.commands import Listing, list_facts

    with usage_errors("log"):
        wanted = Filter(
            stream=stream,
            type=filters.check_type(type_),
            node=node,
            since_us=filters.moment(since) if since else 0,
            until_us=filters.moment(until) if until else 2**62,
        )
    listing = Listing(wanted, pod, from_ - 1, limit, follow)
    run(LogSource(database_url, data_dir), lambda log: list_facts(log, listing, _fact_printer(as_json)), "log")


def _fact_printer(as_json: bool) -> Callable[[dict[str, object]], None]:
    if as_json:
        return json_line
    out = console()

    def show(row: dict[str, object]) -> None:
        out.print(
            f"{row['position']:>9}  {row['time']}  {row['stream']}@{row['version']}  {row['type']}  {row['summary']}",
            markup=False,
        )

    return show


@replay_app.command("at")
def at_command(
    moment: Annotated[str, typer.Argument(help="A position, or a time (ISO 8601).")],
    database_url: Database = "",
    data_dir: DataDir = None,
    node: Annotated[str, typer.Option(help="Only this node.")] = "",
    as_json: Json = False,
) -> None:
    """Show zones, charges, proofs and dirty flags as they stood."""
    from services.replay.commands import stand_at

    stands = run(LogSource(database_url, data_dir), lambda log: stand_at(log, moment, node), "at")
    if as_json:
        json_line(stands)
        return
    out = console()
    out.print(f"position {stands['position']} of {stands['head']}, state {stands['hash']}", markup=False)
    for problem in stands["set_aside"]:
        out.print(f"set aside: {problem}", markup=False)
    for entry in stands["nodes"]:
        flags = ", ".join(
            flag
            for flag in (
                entry["policy"],
                entry["scope"],
                entry["dirty"] and "dirty",
                entry["expired"] and "expired",
                entry["locked"] and "locked out",
            )
            if flag
        )
        zones = table(
            f"\n{entry['node']} ({flags})", ("zone", "resource", "#allocatable", "#surely free", "#at best"), entry["zones"]
        )
        out.print(zones)
        for problem in entry["problems"]:
            out.print(problem, markup=False)
        if entry["charges"]:
            out.print(table("", ("pod", "state", "could be in", "held"), entry["charges"]))


@replay_app.command("explain")
def explain_command(
    pod: Annotated[str, typer.Argument(help="Pod uid, name or namespace/name.")],
    database_url: Database = "",
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Tell one pod's story: queued, each verdict, reserved where and why, bound, admitted or refused."""
    from services.replay.commands import explain

    stories = run(LogSource(database_url, data_dir), lambda log: explain(log, pod), "explain")
    if not stories:
        raise CommandError(f"no pod {pod!r} in the log", "topolog replay log --type PodObserved", EXIT_FAILED)
    if as_json:
        for story in stories:
            json_line(story)
        return
    out = console()
    for story in stories:
        out.print(f"{story.key} ({story.uid})", markup=False, style="bold")
        for line in story.lines:
            out.print(f"{line.position:>9}  {line.time}  {line.title}", markup=False)
            for detail in line.detail:
                out.print(f"{'':>41}{detail}", markup=False)
        if story.set_aside:
            out.print(f"what follows is not told: {story.set_aside}", markup=False)


@replay_app.command("verify")
def verify_command(
    database_url: Database = "",
    data_dir: DataDir = None,
    service: Annotated[list[str] | None, typer.Option(help="URL of a service's /state, to compare hashes with.")] = None,
    as_json: Json = False,
) -> None:
    """Fold the whole log from zero and check every invariant; exit 1 when one is broken."""
    from services.replay.commands import verify

    source = LogSource(database_url, data_dir)
    verdict = run(source, lambda log: verify(log, [*(service or ()), *source.state_urls()]), "verify")
    if as_json:
        json_line(verdict)
    else:
        _show_verdict(verdict)
    if not verdict.ok:
        raise typer.Exit(EXIT_FAILED)


def _show_verdict(verdict: object) -> None:
    from services.replay.commands import Verdict

    assert isinstance(verdict, Verdict)
    out = console()
    out.print(
        f"{verdict.positions} facts, {verdict.streams} streams, state {verdict.hash}, {verdict.facts_per_s:,.0f} facts/s",
        markup=False,
    )
    out.print(table("", ("invariant", "verdict"), verdict.rows()))
    for violation in verdict.violations:
        out.print(f"{violation.invariant} at {violation.position}: {violation.message}", markup=False)


@replay_app.command("predictions")
def predictions_command(
    database_url: Database = "",
    data_dir: DataDir = None,
    by: Annotated[str, typer.Option(help="Group by `policy` or `node`.")] = "policy",
    misses: Annotated[int, typer.Option(help="Show at most this many misses.", min=0)] = 10,
    as_json: Json = False,
) -> None:
    """Compare the zones that the kubelet model predicted with those that the reports showed."""
    from services.replay.predictions import predictions

    found = run(LogSource(database_url, data_dir), lambda log: predictions(log, by, misses), "predictions")
    if as_json:
        json_line(found)
        return
    out = console()
    out.print(table("", (by, "#predicted", "#hit", "#rate"), [g.row() for g in found.groups]))
    for miss in found.misses:
        out.print(
            f"{miss.position:>9}  {miss.pod} on {miss.node}: predicted {miss.predicted}, got {miss.actual}; {miss.difference}",
            markup=False,
        )
