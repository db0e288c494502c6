"""`topolog replay diff`, `predict`, `why-not` and `fragmentation`: options in, tables out."""

from __future__ import annotations

import os
import time
from typing import Annotated

import typer

from services.cli import replay_print
from services.cli.addresses import exists, path_of
from services.cli.in_cells import Cell, one_cell
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
    after: Annotated[str, typer.Argument(help="Like BEFORE. FILE@MOMENT is a moment of a file.")],
    database_url: Database = "",
    data_dir: DataDir = None,
    node: Annotated[str, typer.Option(help="Only this node.")] = "",
    cell: Cell = "",
    as_json: Json = False,
) -> None:
    """Compare two moments, or two histories, by node.

    Shows a summary, then differences of pods, zones, charges and scheduling outcomes. Exit code 1
    if there are any.
    """
    with usage_errors("diff"):
        for text in (before, after):
            _check_argument(text)
    in_log = not (_is_file(before) and _is_file(after))
    source = LogSource(database_url, data_dir, cell=cell)
    source = one_cell(source, node=node) if in_log else source
    first, first_has_node = _state(
        before,
        source,
        node,
        f"topolog replay diff {_moment_of(before, '1')} {after}",
    )
    second, second_has_node = _state(
        after,
        source,
        node,
        f"topolog replay diff {before} {_moment_of(after, 'head')}",
    )
    if node and not (first_has_node or second_has_node):
        has_file = _is_file(before) or _is_file(after)
        hint = did_you_mean(node, {*first.nodes, *second.nodes})
        raise CommandError(
            f"no node {node!r} in {'either history' if has_file else 'the history'}{hint}",
            "topolog replay log --type NodeObserved",
            EXIT_USAGE,
        )
    result = difference(first, second, node)
    if as_json:
        json_line(result)
    else:
        replay_print.difference(result)
    if result.differs:
        raise typer.Exit(EXIT_FAILED)


def _check_argument(text: str) -> None:
    if _is_file(text):
        return
    if "/" in text:
        raise CommandError(
            f"there is no file {_parts(text)[0]}",
            "topolog log export --out FILE writes one",
            EXIT_USAGE,
        )
    moments.parse(text, time.time_ns() // 1000)


def _is_file(text: str) -> bool:
    """Return whether an argument names a file, with or without a moment."""
    return exists(path_of(_parts(text)[0]))


def _parts(text: str) -> tuple[str, str]:
    """Split into path and moment; an `@` may also be part of the path."""
    path, separator, moment = text.rpartition("@")
    return (path, moment) if separator and not exists(path_of(text)) else (text, "")


def _moment_of(text: str, moment: str) -> str:
    """Return the argument for another moment of the same log."""
    return f"{_parts(text)[0]}@{moment}" if _is_file(text) else moment


def _state(text: str, live: LogSource, node: str, remedy: str) -> tuple[State, bool]:
    """Return the state that an argument names, and whether its log knows the node. `remedy` is for
    a moment outside the log."""
    path, moment = _parts(text)
    in_file = _is_file(text)
    source = LogSource(path, None) if in_file else live

    async def fold(log: EventLog) -> tuple[State, bool]:
        position = await position_of(log, (moment if in_file else text) or "head", remedy=remedy)
        state = state_of(text, await ledger_at(log, position))
        versions = await log.versions([streams.node(node), streams.report(node)])
        return state, any(versions.values())

    return run(source, fold, "diff")


@replay_app.command("predict")
def predict_command(
    pod: Annotated[
        str, typer.Argument(help="Pod uid, name or namespace/name; the newest of that name.")
    ],
    database_url: Database = "",
    data_dir: DataDir = None,
    cell: Cell = "",
    as_json: Json = False,
) -> None:
    """Say where a pod would be placed now, and in which zones.

    Decides with the schedulers' settings in the data folder, and over them those in this shell
    (TOPOLOG_CYCLE_*, TOPOLOG_CONFIG).
    """
    from services.cli.deciding_here import deciding_here
    from services.replay.predicting import predict

    source = one_cell(LogSource(database_url, data_dir, cell=cell), pod)
    deciding = deciding_here(source.settings(os.environ))
    answer = run(source, lambda log: predict(log, pod, deciding), "predict")
    if as_json:
        json_line(answer)
    else:
        replay_print.prediction(answer)


@replay_app.command("why-not", context_settings=NEGATIVE_POSITIONS)
def why_not_command(
    pod: Annotated[
        str, typer.Argument(help="Pod uid, name or namespace/name; the newest of that name.")
    ],
    node: Annotated[str, typer.Option(help="Node that the pod was not placed on.")],
    at: Annotated[
        str,
        typer.Option(
            "--at",
            help=(
                "Moment: 500, head, 10m ago, a time. Default: now, or before an ended pod was "
                "placed."
            ),
        ),
    ] = "",
    database_url: Database = "",
    data_dir: DataDir = None,
    cell: Cell = "",
    as_json: Json = False,
) -> None:
    """Explain why a pod was not placed on a node, and what would change that.

    Decides with the schedulers' settings in the data folder, and over them those in this shell
    (TOPOLOG_CYCLE_*, TOPOLOG_CONFIG).
    """
    from services.cli.deciding_here import deciding_here
    from services.replay.why_not import why_not

    source = one_cell(LogSource(database_url, data_dir, cell=cell), pod)
    cycle = deciding_here(source.settings(os.environ)).cycle
    answer = run(source, lambda log: why_not(log, pod, node, at, cycle), "why-not")
    if as_json:
        json_line(answer)
    else:
        replay_print.why_not(answer)


@replay_app.command("fragmentation", context_settings=NEGATIVE_POSITIONS)
def fragmentation_command(
    at: Annotated[str, typer.Option("--at", help="Moment: 500, head, 10m ago, a time.")] = "head",
    node: Annotated[str, typer.Option(help="Only this node.")] = "",
    classes: Annotated[
        int, typer.Option(help="Maximal number of pod classes, the most frequent first.", min=1)
    ] = 10,
    database_url: Database = "",
    data_dir: DataDir = None,
    cell: Cell = "",
    as_json: Json = False,
) -> None:
    """Show how many more pods of each frequent class fit, and how many would at best.

    Asks the filter with the schedulers' settings in the data folder, and over them those in this
    shell (TOPOLOG_CYCLE_*, TOPOLOG_CONFIG).
    """
    from services.cli.deciding_here import deciding_here
    from services.replay.fragmentation import fragmentation

    source = one_cell(LogSource(database_url, data_dir, cell=cell), node=node)
    cycle = deciding_here(source.settings(os.environ)).cycle
    answer = run(
        source,
        lambda log: fragmentation(log, at, cycle, classes, node),
        "fragmentation",
    )
    if as_json:
        json_line(answer)
    else:
        replay_print.fragmentation(answer, bool(node))
