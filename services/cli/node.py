"""`topolog node ...`: an operator's decision about a node becomes an event of the log."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from services.cli.log import Database, DataDir, Json, run, user_name
from services.cli.log_source import LogSource
from services.cli.output import EXIT_FAILED, CommandError, json_line, say
from services.cli.verbs import group
from shared.eventlog.port import Appended, Commit, Draft, EventLog
from shared.events import streams
from shared.events.report_events import NodeReleased
from shared.events.scheduling_events import NodeReadmitted

ROLE = "operator"
TRIES = 5

node_app = group("Manually release or readmit a node.")


def register(app: typer.Typer) -> None:
    app.add_typer(node_app, name="node")


@node_app.command("release")
def release_command(
    node: Annotated[
        str, typer.Argument(help="Node name, as in /topology and `topolog replay at`.")
    ],
    reason: Annotated[str, typer.Option(help="Reason; kept in the log.")] = "",
    database_url: Database = "",
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Accept the next report of a locked-out node, whatever its boot id and time.

    A node is locked out if its reports are refused and no acceptable report follows: after a forged
    report, or after a virtual machine was reset to a snapshot. Check the machine first, because its
    next report is believed.
    """
    event, now_us = NodeReleased(node, user_name(), reason[:500]), time.time_ns() // 1000
    position = run(
        LogSource(database_url, data_dir, writes=True), lambda log: release(log, event, now_us)
    )
    if as_json:
        json_line({"node": node, "position": position})
    else:
        say(f"node {node} is released (position {position}); its next report is accepted")


@node_app.command("readmit")
def readmit_command(
    node: Annotated[str, typer.Argument(help="Node name, as in `topolog replay at`.")],
    database_url: Database = "",
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Schedule pods again to an excluded node.

    A node is excluded for a class of pods after its kubelet rejected such pods, a policy denied
    them, or races were lost. It is readmitted by itself when its report changes accordingly, and
    tried again later in any case. Fix the cause first: otherwise it is excluded again.
    """
    now_us = time.time_ns() // 1000
    position = run(
        LogSource(database_url, data_dir, writes=True), lambda log: readmit(log, node, now_us)
    )
    if as_json:
        json_line({"node": node, "position": position})
    else:
        say(f"node {node} accepts all pods again (position {position})")


async def release(log: EventLog, event: NodeReleased, now_us: int) -> int:
    """Append the event and return its position. Raises CommandError if the node never reported."""
    unknown = CommandError(
        f"node {event.node!r} has never reported",
        "topolog replay log --type NodeReported",
        EXIT_FAILED,
    )
    return await _append(log, "release", streams.report(event.node), event, now_us, unknown)


async def readmit(log: EventLog, node: str, now_us: int) -> int:
    """Append the event and return its position. Raises CommandError if the node is unknown."""
    unknown = CommandError(f"no node {node!r} in the log", "topolog replay at head", EXIT_FAILED)
    return await _append(
        log, "readmit", streams.node(node), NodeReadmitted(node, cause="operator"), now_us, unknown
    )


async def _append(
    log: EventLog,
    verb: str,
    stream: str,
    event: NodeReleased | NodeReadmitted,
    now_us: int,
    unknown: CommandError,
) -> int:
    for _ in range(TRIES):
        version = (await log.versions([stream]))[stream]
        if not version:
            raise unknown
        draft = Draft(stream, event, version)
        commit = Commit(
            f"{verb}/{event.node}/{version}", ROLE, 0, now_us, (draft,), correlation=event.node
        )
        outcome = (await log.append([commit]))[0]
        if isinstance(outcome, Appended):
            return outcome.last
    raise CommandError(
        f"events of node {event.node} arrived during each of {TRIES} tries", "try again"
    )
