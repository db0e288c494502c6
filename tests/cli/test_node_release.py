"""`topolog node release` on a real log: one event, printed as a sentence or as JSON; mistakes are
usage errors.
"""

from __future__ import annotations

import asyncio
import json
import sys

import pytest

from services.cli import log_source
from services.cli.main import main
from shared.eventlog.port import Commit, Draft
from shared.eventlog.postgres import PostgresEventLog
from shared.events import streams
from shared.events.codec import decode
from shared.events.report_events import NodeReleased, NodeReported
from tests.eventlog.conftest import log_url  # noqa: F401 - fixture
from tests.topology_store.words import report


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["topolog", "node", "release", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


async def reported(url: str) -> None:
    log = await PostgresEventLog.open(url)
    await log.append(
        [Commit("c", "test", 0, 0, (Draft(streams.report("n1"), NodeReported(report())),))]
    )
    await log.close()


async def events(url: str) -> list[object]:
    log = await PostgresEventLog.open(url)
    try:
        return [decode(envelope) for envelope in await log.read(0, 10)]
    finally:
        await log.close()


def test_a_node_is_released_by_one_event_with_user_and_reason(
    log_url: str,  # noqa: F811, RUF100
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    asyncio.run(reported(log_url))
    monkeypatch.setattr("getpass.getuser", lambda: "ada")
    assert (
        run(monkeypatch, "n1", "--reason", "set back to a snapshot", "--database-url", log_url) == 0
    )
    assert (
        capsys.readouterr().out == "node n1 is released (position 2); its next report is accepted\n"
    )
    assert run(monkeypatch, "n1", "--json", "--database-url", log_url) == 0
    assert json.loads(capsys.readouterr().out) == {"node": "n1", "position": 3}
    released = asyncio.run(events(log_url))[1:]
    assert released == [
        NodeReleased("n1", "ada", "set back to a snapshot"),
        NodeReleased("n1", "ada"),
    ]


@pytest.mark.parametrize(
    ("node", "url", "code", "message"),
    [
        ("stranger", "", 1, "has never reported"),
        ("n1", "postgresql://postgres@127.0.0.1:9/none", 1, "does not answer"),
    ],
)
def test_a_fault_is_named(
    log_url: str,  # noqa: F811, RUF100
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    node: str,
    url: str,
    code: int,
    message: str,
) -> None:
    monkeypatch.setattr(log_source, "RETRY_FOR_S", 0.1)
    assert run(monkeypatch, node, "--database-url", url or log_url) == code
    words = capsys.readouterr()
    assert message in words.err + words.out
    assert "Traceback" not in words.err
