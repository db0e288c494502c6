"""Absurd moments, positions and node names are wrong usage with a remedy, and never a traceback."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from services.replay import moments
from services.replay.filters import Filter, FilterError
from services.replay.listing import Listing, list_events
from services.upkeep.exporting import export
from shared.eventlog.file_log import FileLog
from tests.cli.test_replay_asking import Run, topolog  # noqa: F401 - fixture
from tests.eventlog.conftest import log_url  # noqa: F401 - fixture
from tests.eventlog.test_history_files import FACTS, a_log

ABSURD = [
    "99999-01-01",
    "9" * 12 + "-01-01",
    "9" * 30,
    "9" * 400,
    "9" * 5000,
    "9" * 30 + ".5",
    "-" + "9" * 30,
    "-" + "9" * 5000,
    "head-" + "9" * 30,
    "9" * 20 + "d",
    "9" * 400 + "d ago",
    "9" * 400 + "." + "9" * 400 + "s",
    "2026-01-01T99:00",
    "0000-00-00",
    "nan",
    "inf",
    "1e3",
    "\x00",
]


@pytest.mark.parametrize("text", ABSURD, ids=lambda text: text[:20])
def test_what_no_log_has_is_no_moment(text: str) -> None:
    with pytest.raises(FilterError, match="is no moment") as output:
        moments.parse(text, 1_700_000_000_000_000)
    assert len(str(output.value)) < 400, "and it is not repeated at length"


@pytest.mark.parametrize(
    "text",
    [
        "9999-12-31T23:59:59",
        "0001-01-01",
        "9999-12-31T23:59:59-14:00",
        "253402300799",
        "-999",
        "1d",
        "2026-01-31T12:00Z",
    ],
)
def test_a_distant_name_gives_one_suggestion(text: str) -> None:
    moments.parse(text, 1_700_000_000_000_000)


@pytest.mark.parametrize(
    "arguments",
    [
        *(("replay", "log", "--from", text) for text in ("9" * 30, "99999-01-01", "9" * 5000)),
        ("replay", "at", "9" * 30),
        ("replay", "diff", "1", "9" * 30),
        ("replay", "diff", "9" * 400 + "d", "head"),
        ("replay", "diff", "-" + "9" * 30, "head"),
        ("replay", "why-not", "web", "--node", "n1", "--at", "9" * 30),
        ("replay", "whatif", "--to", "9" * 30),
        ("log", "export", "--out", "/proc/x", "--to", "9" * 30),
        ("replay", "at", "9999-12-31T23:59:59", "--node", "nobody"),
        ("replay", "diff", "1", "head", "--node", "nobody"),
        ("log", "skip", "9" * 30, "--reason", "x"),
        ("log", "skip", "9223372036854775807", "--reason", "x"),
        ("log", "skip", "-1", "--reason", "x"),
    ],
    ids=lambda arguments: " ".join(arguments)[:40],
)
def test_it_is_wrong_usage_of_every_verb(topolog: Run, arguments: tuple[str, ...]) -> None:  # noqa: F811, RUF100
    code, _, err = topolog(*arguments)
    if "9223372036854775807" in arguments:
        assert (code, "the log has no position" in err) == (1, True)
    else:
        assert code == 2, err
    assert (err.count("topolog: "), err.count("  try: "), "unexpected error" in err) == (
        1,
        1,
        False,
    ), err


def test_a_node_that_one_of_two_histories_knew_may_be_asked_for(
    topolog: Run, tmp_path: Path
) -> None:
    file = str(tmp_path / "x.topolog.gz")
    topolog("log", "export", "--out", file)
    assert topolog("replay", "diff", f"{file}@head", "head", "--node", "n1")[0] == 0
    code, _, err = topolog("replay", "diff", file, "head", "--node", "n2")
    assert (code, "no node 'n2' in either history" in err, "did you mean n1?" in err) == (
        2,
        True,
        True,
    )
    assert (
        "no node 'n2' in the history" in topolog("replay", "diff", "2", "head", "--node", "n2")[2]
    )


async def test_following_a_file_waits_without_spinning(tmp_path: Path) -> None:
    await export(await a_log(), tmp_path / "x.topolog.gz", 1, FACTS)
    result, printed = FileLog.open(tmp_path / "x.topolog.gz"), list[object]()
    following = asyncio.create_task(
        list_events(result, Listing(Filter(), follow=True), printed.append)
    )
    await asyncio.sleep(0.5)
    earlier = time.process_time()
    await asyncio.sleep(1.0)
    assert time.process_time() - earlier < 0.3
    assert len(printed) == FACTS
    following.cancel()
