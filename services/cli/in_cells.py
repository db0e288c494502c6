"""Commands over several cells: one answer for each cell, or the cell that has a pod or node.

`--cell NAME` selects one. Without cells there is one log, whose name is "".
"""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from services.cli.log_source import LogSource
from services.cli.output import EXIT_USAGE, CommandError
from services.replay.names import uids_of
from shared.eventlog.port import EventLog
from shared.events import streams
from shared.events.cluster_events import NodeEnded, PodEnded

Cell = Annotated[str, typer.Option("--cell", help="Only this cell, if there are several.")]
_ENDS = (PodEnded.__name__, NodeEnded.__name__)


def each_cell(source: LogSource) -> dict[str, LogSource]:
    """Return the source of each cell that was asked for."""
    if source.cell:
        return {source.cell: source}
    return {cell: source.in_cell(cell) for cell in source.cells()} or {"": source}


def one_cell(source: LogSource, pod: str = "", node: str = "") -> LogSource:
    """Return the source of the cell that has the pod or node; the first if no cell knows it. Raises
    CommandError if there are several cells and neither is given."""
    sources = each_cell(source)
    if len(sources) == 1:
        return next(iter(sources.values()))
    if not (pod or node):
        problem = f"there are several cells: {', '.join(sources)}"
        raise CommandError(problem, f"--cell {next(iter(sources))}", EXIT_USAGE)
    cell = asyncio.run(_newest(source, pod, node))
    return sources[cell] if cell else next(iter(sources.values()))


async def _newest(source: LogSource, pod: str, node: str) -> str:
    """Return the cell with the newest event of the pod or node, "" for none. A cell where it has
    not ended goes first."""
    last = dict[str, tuple[bool, int]]()
    async with source.logs() as logs:
        for cell, log in logs.items():
            names = [streams.pod(uid) for uid in await uids_of(log, pod)] if pod else []
            last[cell] = await _last(log, names if pod else [streams.node(node)])
    cell = max(last, key=lambda cell: last[cell])
    return cell if last[cell][1] else ""


async def _last(log: EventLog, names: list[str]) -> tuple[bool, int]:
    """Return whether one of the streams goes on, and the time of its newest event."""
    newest, versions = (False, 0), await log.versions(names)
    for name, version in versions.items():
        for envelope in await log.read_stream(name, version - 1, 1) if version else ():
            newest = max(newest, (envelope.type not in _ENDS, envelope.time_us))
    return newest
