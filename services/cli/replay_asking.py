"""`topolog replay diff` and `replay why-not`: options in, tables out. What differs and why is told
by `services.replay`.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Annotated

import typer

from services.cli import replay_print
from services.cli.addresses import is_there, path_of
from services.cli.log_source import LogSource
from services.cli.output import EXIT_FAILED, EXIT_USAGE, CommandError, json_line
from services.cli.replay import (
    NEGATIVE_POSITIONS,
    Database,
    DataDir,
    Json,
    replay_app,
    run,
    usage_errors,
)
from services.replay import moments
from services.replay.differing import State, difference, state_of
from services.replay.positions import position_of
from services.replay.reading import ledger_at
from services.replay.suggestions import did_you_mean
from shared.eventlog.port import EventLog
from shared.events import streams


@replay_app.command("diff", context_settings=NEGATIVE_POSITIONS)
def diff_command(
    before: Annotated[
        str,
        typer.Argument(
            help="A moment (500, head, -100, 10m ago, a time), or a file of `topolog log export`."
        ),
    ],
    after: Annotated[
        str, typer.Argument(help="As the first one. FILE@MOMENT is a moment of a file.")
    ],
    database_url: Database = "",
    data_dir: DataDir = None,
    node: Annotated[str, typer.Option(help="Only this node.")] = "",
    as_json: Json = False,
) -> None:
    """Show what is different between two positions, or two histories: pods, zones, charges and
    verdicts, by node.

    Exit code 1 when they differ.
    """
    with usage_errors("diff"):
        for text in (before, after):
            if "/" in text and not _is_file(text):
                raise CommandError(
                    f"there is no file {_parts(text)[0]}",
                    "topolog log export --out FILE writes one",
                    EXIT_USAGE,
                )
            if not _is_file(text):
                moments.parse(text, time.time_ns() // 1000)
    one, there = _state(
        before,
        database_url,
        data_dir,
        node,
        f"topolog replay diff {_moment_of(before, '1')} {after}",
    )
    other, here = _state(
        after,
        database_url,
        data_dir,
        node,
        f"topolog replay diff {before} {_moment_of(after, 'head')}",
    )
    if node and not (there or here):
        which = "either history" if _is_file(before) or _is_file(after) else "the history"
        hint = did_you_mean(node, {*one.nodes, *other.nodes})
        raise CommandError(
            f"no node {node!r} in {which}{hint}",
            "topolog replay log --type NodeObserved",
            EXIT_USAGE,
        )
    found = difference(one, other, node)
    if as_json:
        json_line(found)
    else:
        replay_print.difference(found)
    if found.differs:
        raise typer.Exit(EXIT_FAILED)


def _is_file(text: str) -> bool:
    """Whether an argument names a file, and perhaps a moment of it."""
    return is_there(path_of(_parts(text)[0]))


def _parts(text: str) -> tuple[str, str]:
    """Path and moment; an `@` may be in the path too."""
    path, at, moment = text.rpartition("@")
    return (path, moment) if at and not is_there(path_of(text)) else (text, "")


def _moment_of(text: str, moment: str) -> str:
    """Another moment of the log that an argument names, as an argument."""
    return f"{_parts(text)[0]}@{moment}" if _is_file(text) else moment


def _state(
    text: str, database_url: str, data_dir: Path | None, node: str, remedy: str
) -> tuple[State, bool]:
    """The state that one argument names, and whether its log has heard of the node; `remedy` where
    it names a moment that its log does not hold."""
    path, moment = _parts(text)
    in_file = _is_file(text)
    source = LogSource(path, None) if in_file else LogSource(database_url, data_dir)

    async def fold(log: EventLog) -> tuple[State, bool]:
        wanted = moment if in_file else text
        state = state_of(
            text, await ledger_at(log, await position_of(log, wanted or "head", remedy=remedy))
        )
        return state, any((await log.versions([streams.node(node), streams.report(node)])).values())

    return run(source, fold, "diff")


@replay_app.command("why-not", context_settings=NEGATIVE_POSITIONS)
def why_not_command(
    pod: Annotated[
        str, typer.Argument(help="Pod uid, name or namespace/name; of namesakes the newest.")
    ],
    node: Annotated[str, typer.Option(help="The node that it did not get.")],
    at: Annotated[
        str,
        typer.Option(
            "--at", help="When: 500, head, 10m ago, a time. The pod's last decision without it."
        ),
    ] = "",
    database_url: Database = "",
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Tell what stood in a pod's way on one node at one moment, and what would have helped.

    Decided with the scheduler's settings (TOPOLOG_CYCLE_*, TOPOLOG_CONFIG) as they are here.
    """
    from services.cli.deciding_here import deciding_here
    from services.replay.why_not import why_not

    cycle = deciding_here(os.environ).cycle
    found = run(
        LogSource(database_url, data_dir), lambda log: why_not(log, pod, node, at, cycle), "why-not"
    )
    if as_json:
        json_line(found)
    else:
        replay_print.why_not(found)
