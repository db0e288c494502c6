"""`topolog replay ...`: options in, rows out. What is read and told lives in `services.replay`, how
it is printed in `replay_print`."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from services.cli import replay_print, window
from services.cli.addresses import data_dir_option, database_option, http_token
from services.cli.log_source import LogSource
from services.cli.output import EXIT_FAILED, EXIT_USAGE, CommandError, json_line
from services.cli.window import From, To
from services.replay import filters, moments
from services.replay.filters import Filter, FilterError
from shared.eventlog.port import EventLog
from shared.ledger.fold import GapError

T = TypeVar("T")

replay_app = typer.Typer(
    help="Read the log again: what happened, why, and whether it all holds together.",
    no_args_is_help=True,
)

Database = Annotated[str, database_option()]
DataDir = Annotated[Path | None, data_dir_option()]
Json = Annotated[bool, typer.Option("--json", help="JSON lines, with everything in full.")]
NEGATIVE_POSITIONS = {"ignore_unknown_options": True}


def run(source: LogSource, use: Callable[..., Awaitable[T]], verb: str) -> T:
    """Open the log, run, close; a bad filter becomes a usage error of this verb."""

    async def session() -> T:
        async with source as log:
            return await use(log)

    with usage_errors(verb):
        return asyncio.run(session())


@contextmanager
def usage_errors(verb: str) -> Iterator[None]:
    """A filter that cannot be meant is wrong usage; without a remedy of its own it is that verb's
    help.
    """
    try:
        yield
    except FilterError as error:
        raise CommandError(
            str(error), error.remedy or f"topolog replay {verb} --help", EXIT_USAGE
        ) from error
    except GapError as error:
        raise CommandError(f"the log is broken: {error}", "topolog replay verify") from error


@replay_app.command("log", context_settings=NEGATIVE_POSITIONS)
def log_command(
    database_url: Database = "",
    data_dir: DataDir = None,
    stream: Annotated[str, typer.Option(help="Stream pattern, for example 'node/*'.")] = "",
    type_: Annotated[
        str, typer.Option("--type", help="Fact type pattern, for example 'Pod*'.")
    ] = "",
    pod: Annotated[str, typer.Option(help="Pod uid, name or namespace/name.")] = "",
    node: Annotated[str, typer.Option(help="Facts that concern this node.")] = "",
    from_: From = None,
    to: To = None,
    limit: Annotated[int, typer.Option(help="At most this many facts.", min=1)] = 1_000_000_000,
    follow: Annotated[
        bool,
        typer.Option("--follow", "-f", help="Go on as facts arrive, from the end, or from --from."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Show facts in order of position: time, pod, node, one sentence."""
    from services.replay.listing import Listing, list_events

    if follow and to:
        raise CommandError(
            "--follow goes on for ever, and --to ends", "the one or the other", EXIT_USAGE
        )
    window.check(from_, to, "replay log")
    with usage_errors("log"):
        wanted = Filter(stream=stream, type=filters.check_type(type_), node=node)

    async def listed(log: EventLog) -> None:
        asked = await window.window(log, from_, to)
        first = asked.first if from_ or not follow else asked.last + 1
        await list_events(
            log,
            Listing(wanted, first, asked.last, pod, limit, follow),
            replay_print.event_printer(as_json),
        )
        if asked.empty and not follow:
            window.note(asked.empty)

    run(LogSource(database_url, data_dir), listed, "log")


@replay_app.command("at", context_settings=NEGATIVE_POSITIONS)
def at_command(
    moment: Annotated[
        list[str], typer.Argument(help="A position, head, -100, 10m ago, or a time (ISO 8601).")
    ],
    database_url: Database = "",
    data_dir: DataDir = None,
    node: Annotated[str, typer.Option(help="Only this node.")] = "",
    as_json: Json = False,
) -> None:
    """Show zones, charges, proofs and dirty flags as they stood."""
    from services.replay.state_at import state_at

    text = " ".join(moment)
    with usage_errors("at"):
        moments.parse(text, int(time.time() * 1_000_000))
    state = run(LogSource(database_url, data_dir), lambda log: state_at(log, text, node), "at")
    if as_json:
        json_line(state)
    else:
        replay_print.state(state)


@replay_app.command("explain")
def explain_command(
    pod: Annotated[str, typer.Argument(help="Pod uid, name or namespace/name.")],
    database_url: Database = "",
    data_dir: DataDir = None,
    kubeconfig: Annotated[
        str,
        typer.Option(
            envvar="TOPOLOG_KUBECONFIG", help="Where to ask for a pod that the log does not know."
        ),
    ] = "",
    recompute: Annotated[
        bool, typer.Option(help="Decide again what was decided: folds the log from its beginning.")
    ] = True,
    as_json: Json = False,
) -> None:
    """Tell one pod's story: queued, each verdict, reserved where and why, bound, admitted, proven
    on which zone.

    Decisions are computed again with the scheduler's settings (TOPOLOG_CYCLE_*, TOPOLOG_CONFIG) as
    they are here.
    """
    from services.cli.deciding_here import deciding_here
    from services.cli.foreign_pod import foreign_pod
    from services.replay.telling import UnknownPod, explain

    source = LogSource(database_url, data_dir)
    by = deciding_here(os.environ) if recompute else None
    try:
        stories = run(source, lambda log: explain(log, pod, by), "explain")
    except CommandError as error:
        if not isinstance(error.__cause__, UnknownPod):
            raise
        told = asyncio.run(foreign_pod(pod, kubeconfig or source.kubeconfig()))
        if told is None:
            raise CommandError(error.problem, error.remedy, EXIT_FAILED) from error
        replay_print.foreign(told, as_json)
        return
    replay_print.stories(stories, as_json)


@replay_app.command("verify")
def verify_command(
    database_url: Annotated[str, database_option(data_dir="beside")] = "",
    data_dir: DataDir = None,
    service: Annotated[
        list[str] | None,
        typer.Option(
            help="A service to compare hashes with: its name in the data folder, or its /state URL."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Fold the whole log from zero and check every invariant; exit 1 when one is broken.

    States of the schedulers, binders and topology-stores that run on the data folder are compared;
    who does not answer is named. They are asked with the token in TOPOLOG_HTTP_TOKEN.
    """
    from services.replay.commands import verify

    source, token = LogSource(database_url, data_dir), http_token()
    with usage_errors("verify"):
        named = [source.state_url(one) for one in service or ()]
    verdict = run(source, lambda log: verify(log, source.states(), named, token), "verify")
    if as_json:
        json_line(verdict)
    else:
        replay_print.verdict(verdict)
    if not verdict.ok:
        raise typer.Exit(EXIT_FAILED)


@replay_app.command("shadow")
def shadow_command(
    database_url: Database = "",
    data_dir: DataDir = None,
    cases: Annotated[
        int, typer.Option(help="Name at most this many pods that came out differently.", min=0)
    ] = 20,
    as_json: Json = False,
) -> None:
    """Judge what other schedulers did: which rejections Topolog would have prevented, where it
    would have refused what ran.
    """
    from services.replay.shadow import shadow

    found = run(LogSource(database_url, data_dir), lambda log: shadow(log, cases), "shadow")
    if as_json:
        json_line(found)
    else:
        replay_print.shadow(found)


@replay_app.command("predictions")
def predictions_command(
    database_url: Database = "",
    data_dir: DataDir = None,
    by: Annotated[str, typer.Option(help="Group by `policy` or `node`.")] = "policy",
    misses: Annotated[int, typer.Option(help="Show at most this many misses.", min=0)] = 10,
    as_json: Json = False,
) -> None:
    """Compare the zones that the kubelet model predicted with those that the reports showed; of
    misses, what was known within bounds only, by the scheduler's settings (TOPOLOG_CYCLE_*,
    TOPOLOG_CONFIG) as they are here."""
    from services.cli.deciding_here import deciding_here
    from services.replay.predictions import predictions

    cycle = deciding_here(os.environ).cycle
    found = run(
        LogSource(database_url, data_dir),
        lambda log: predictions(log, by, misses, cycle),
        "predictions",
    )
    if as_json:
        json_line(found)
    else:
        replay_print.predictions(found, by)
