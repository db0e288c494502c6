"""`topolog node ...`: what an operator says about a node becomes a fact. What it means is the
fold's matter.
"""

from __future__ import annotations

import time
from typing import Annotated

import typer

from services.cli.log import Database, DataDir, Json, run, who
from services.cli.log_source import LogSource
from services.cli.output import EXIT_FAILED, CommandError, json_line
from shared.eventlog.port import Appended, Commit, Draft, EventLog
from shared.events import streams
from shared.events.report_events import NodeReleased
from shared.events.scheduling_events import NodeReadmitted

ROLE = "operator"
TRIES = 5

node_app = typer.Typer(
    help="Say something about a node that only an operator can know.", no_args_is_help=True
)


def register(app: typer.Typer) -> None:
    """Mount the verbs."""
    app.add_typer(node_app, name="node")


@node_app.command("release")
def release_command(
    node: Annotated[
        str, typer.Argument(help="The node, as /topology and `topolog replay at` name it.")
    ],
    reason: Annotated[str, typer.Option(help="Why; kept in the log.")] = "",
    database_url: Database = "",
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Believe the next report of a node that is locked out, whatever boot and moment it names.

    A node is locked out when its reports are refused and nothing else is heard of it: after a
    forged report, or when a virtual machine was set back to a snapshot. Look at the machine first:
    what runs there is what its next report will say.
    """
    event, now_us = NodeReleased(node, who(), reason[:500]), time.time_ns() // 1000
    position = run(
        LogSource(database_url, data_dir, writes=True), lambda log: release(log, event, now_us)
    )
    if as_json:
        json_line({"node": node, "position": position})
    else:
        print(f"node {node} is released (position {position}); its next report counts")


@node_app.command("readmit")
def readmit_command(
    node: Annotated[str, typer.Argument(help="The node, as `topolog replay at` names it.")],
    database_url: Database = "",
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Send pods again to a node that is set aside: its kubelet rejected such pods, a policy denied
    them, or races were lost.

    The node opens by itself when its report changes what was wrong, and is tried again later in any
    case. Mend the cause first: what is still wrong sets the node aside again.
    """
    now_us = time.time_ns() // 1000
    position = run(
        LogSource(database_url, data_dir, writes=True), lambda log: readmit(log, node, now_us)
    )
    if as_json:
        json_line({"node": node, "position": position})
    else:
        print(f"node {node} takes all pods again (position {position})")


async def release(log: EventLog, event: NodeReleased, now_us: int) -> int:
    """Append the fact; returns its position. Raises CommandError for a node that never reported."""
    unknown = CommandError(
        f"node {event.node!r} has never reported",
        "topolog replay log --type NodeReported",
        EXIT_FAILED,
    )
    return await _append(log, "release", streams.report(event.node), event, now_us, unknown)


async def readmit(log: EventLog, node: str, now_us: int) -> int:
    """Append the fact; returns its position. Raises CommandError for a node that nobody has seen."""
    unknown = CommandError(f"node {node!r} was never seen", "topolog replay at", EXIT_FAILED)
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
        f"facts about node {event.node} arrive without a pause", "try again", EXIT_FAILED
    )
