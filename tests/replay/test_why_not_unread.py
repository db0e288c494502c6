"""Why a pod does not go to a node with an unreadable stream: the answer says so."""

from __future__ import annotations

from services.replay.why_not import why_not
from services.scheduler.snapshot.config import CycleConfig
from shared.eventlog.port import Commit, Draft
from tests.cli.test_replay import HISTORY
from tests.runtime.helpers import FaultyLog, undecodable


async def test_a_node_whose_stream_cannot_be_read_takes_no_pod_and_why_not_says_so() -> None:
    log = FaultyLog()
    for number, drafts in enumerate(HISTORY):
        events = tuple(Draft(stream, event) for stream, event in drafts)
        await log.append([Commit(f"c{number}", "test", 0, 1_700_000_000_000_000 + number, events)])
    report = next(entry for entry in await log.read(0, 100) if entry.stream == "report/n1")
    log.damage = undecodable(report.position)
    answer = await why_not(log, "ns/big", "n1", "head", CycleConfig())
    assert answer.answer.startswith("no pod goes to n1: ")
    assert str(report.position) in answer.answer
