"""`topolog log ...` and what replay says of a damaged log, on a real Postgres: named rows, exit
codes, no traceback.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable

import pytest

from services.cli.main import main
from shared.eventlog.port import Commit, Draft
from shared.eventlog.postgres import PostgresEventLog
from shared.eventlog.postgres_connection import connect
from shared.events.catalog import Event
from shared.events.cluster_events import NodeObserved, PodObserved
from shared.events.report_events import NodeReported
from tests.eventlog.conftest import log_url  # noqa: F401 - fixture
from tests.ledger.given import pod, report, zone

FACTS: list[tuple[str, Event]] = [
    ("node/n1", NodeObserved("n1", "uid-n1", allocatable={"cpu": 16_000})),
    ("report/n1", NodeReported(report(zone(0, 8), zone(1, 8)))),
    ("pod/uid-web", PodObserved(pod("web", cpus=2))),
    ("pod/uid-other", PodObserved(pod("other", cpus=2))),
    ("pod/uid-web", PodObserved(pod("web", cpus=2))),
]

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def topolog(
    log_url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Run:
    """Run `topolog ...`; return exit code, stdout and stderr."""

    async def write() -> None:
        log = await PostgresEventLog.open(log_url)
        commits = [
            Commit(f"c{index}", "test", 0, 1_700_000_000_000_000, (Draft(*event),))
            for index, event in enumerate(FACTS)
        ]
        await log.append(commits)
        await log.close()

    asyncio.run(write())

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["topolog", *arguments, "--database-url", log_url])
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr()
        return int(ended.value.code or 0), printed.out, printed.err

    return run


def sql(url: str, *statements: str) -> None:
    async def execute() -> None:
        owner = await connect(url)
        for statement in statements:
            await owner.execute(statement)
        await owner.close()

    asyncio.run(execute())


def damage(url: str) -> None:
    cut = "UPDATE fact SET payload = substr(payload, 1, 20) WHERE position = 3"
    sql(url, "ALTER TABLE fact DISABLE TRIGGER fact_immutable", cut)


def test_a_damaged_row_is_named_by_every_verb_and_skipped_by_an_operators_word(
    topolog: Run, log_url: str
) -> None:
    damage(log_url)
    code, out, _ = topolog("replay", "verify", "--json")
    result = {(item["invariant"], item["position"]) for item in json.loads(out)["violations"]}
    assert (code, result) == (1, {("history", 3), ("facts", 3)})
    code, out, _ = topolog("replay", "at", "5", "--json")
    stand = json.loads(out)
    assert (code, stand["position"], stand["pods"]) == (0, 5, 1)
    assert "event 3 (PodObserved" in stand["quarantined"][0]
    assert "quarantined: event 3" in topolog("replay", "at", "5")[1]
    code, out, err = topolog("replay", "explain", "uid-web")
    assert (code, err) == (0, "")
    assert "because its stream is quarantined: event 3" in out
    assert topolog("replay", "explain", "other")[0] == 0

    code, out, _ = topolog("log", "skip", "3", "--reason", "disk trouble")
    assert code == 0
    assert "event 3 (PodObserved on pod/uid-web) is skipped (position 6)" in out
    assert json.loads(topolog("replay", "at", "6", "--json")[1])["pods"] == 2
    code, out, _ = topolog("replay", "verify", "--json")
    assert {(item["invariant"], item["position"]) for item in json.loads(out)["violations"]} == {
        ("history", 3)
    }


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("skip", "4", "--reason", "x"), "event 4 (PodObserved on pod/uid-other) can be read"),
        (("skip", "99", "--reason", "x"), "the log has no position 99; it ends at 5"),
    ],
)
def test_what_cannot_be_skipped_is_refused_with_what_to_do(
    topolog: Run, arguments: tuple[str, ...], says: str
) -> None:
    code, _, err = topolog("log", *arguments)
    assert code == 1
    assert says in err
    assert "try: " in err


def test_a_hole_is_named_and_no_traceback(topolog: Run, log_url: str) -> None:  # noqa: F811, RUF100
    sql(
        log_url,
        "ALTER TABLE fact DISABLE TRIGGER fact_immutable",
        "DELETE FROM fact WHERE position = 2",
    )
    code, out, _ = topolog("replay", "verify", "--json")
    assert code == 1
    assert ("S1", 2) in [
        (item["invariant"], item["position"]) for item in json.loads(out)["violations"]
    ]
    code, _, err = topolog("replay", "at", "5")
    assert code == 1
    assert "position 2 is missing" in err
    assert "try: topolog replay verify" in err


def test_a_new_timeline_is_recorded_in_the_log(topolog: Run) -> None:
    code, out, _ = topolog("log", "begin-timeline", "--json")
    assert (code, json.loads(out)["timeline"]) == (0, 2)
    (opened,) = [
        json.loads(line)
        for line in topolog("replay", "log", "--stream", "log", "--json")[1].splitlines()
    ]
    assert (opened["type"], opened["fact"]["timeline"]) == ("LogOpened", 2)
