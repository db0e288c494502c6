"""Every command that takes a window accepts the same names, positions and times for it, and shows
no event outside of it.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from services.cli.main import main
from services.upkeep.exporting import export
from shared.eventlog.memory import MemoryEventLog
from shared.eventlog.port import Commit, Draft
from tests.cli.test_replay import HISTORY

POSITIONS = list(range(1, 12))
# How long before the test each event was written.
AGES_S = [1000, 900, 800, 700, 700, 600, 500, 400, 300, 200, 100]

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
async def history(tmp_path: Path) -> Path:
    """Eleven events of the last minutes, in a file."""
    log, now_us = MemoryEventLog("windows"), time.time_ns() // 1000
    for number, drafts in enumerate(HISTORY):
        at_us = now_us - (1000 - 100 * number) * 1_000_000
        await log.append(
            [
                Commit(
                    f"c{number}",
                    "test",
                    0,
                    at_us,
                    tuple(Draft(stream, event) for stream, event in drafts),
                )
            ]
        )
    file = tmp_path / "h.topolog.gz"
    await export(log, file, 1, await log.head())
    return file


@pytest.fixture
def topolog(
    history: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Run:
    """Run `topolog ...`; return exit code, stdout and stderr."""

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["topolog", *arguments, "--database-url", str(history)])
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr()
        return int(ended.value.code or 0), printed.out, printed.err

    return run


def listed(topolog: Run, *arguments: str) -> list[int]:
    code, out, err = topolog("replay", "log", "--json", *arguments)
    assert code == 0, err
    return [json.loads(line)["position"] for line in out.splitlines()]


def between(youngest_s: float, oldest_s: float) -> list[int]:
    return [
        position
        for position, age_s in zip(POSITIONS, AGES_S, strict=True)
        if youngest_s <= age_s <= oldest_s
    ]


def test_a_window_takes_positions_and_times_under_every_name(topolog: Run) -> None:
    for begin in ("--from", "--since"):
        assert listed(topolog, begin, "5") == POSITIONS[4:]
        assert listed(topolog, begin, "head") == [11]
        assert listed(topolog, begin, "-3") == [8, 9, 10, 11]
        assert (
            listed(topolog, begin, "350s") == listed(topolog, begin, "350s ago") == between(0, 350)
        )
    for end in ("--to", "--until"):
        assert listed(topolog, end, "5") == POSITIONS[:5]
        assert listed(topolog, end, "350s ago") == between(350, 2000)
        assert listed(topolog, "--since", "650s", end, "350s") == between(350, 650)


def test_both_ends_of_a_window_take_a_event_of_that_very_moment(topolog: Run) -> None:
    event = json.loads(topolog("replay", "log", "--json", "--from", "9", "--limit", "1")[1])
    assert listed(topolog, "--from", event["time"]) == [9, 10, 11]
    assert listed(topolog, "--to", event["time"]) == POSITIONS[:9]
    assert listed(topolog, "--from", event["time"], "--to", event["time"]) == [9]


def test_of_several_beginnings_the_latest_counts_and_of_several_ends_the_earliest(
    topolog: Run,
) -> None:
    assert listed(topolog, "--from", "9", "--since", "650s", "--to", "350s", "--until", "10") == []
    assert listed(topolog, "--from", "9", "--since", "650s", "--to", "head", "--until", "10") == [
        9,
        10,
    ]


def test_a_range_of_times_is_exported_and_no_event_more(topolog: Run, tmp_path: Path) -> None:
    out = str(tmp_path / "range.topolog.gz")
    code, output, err = topolog(
        "log", "export", "--out", out, "--since", "650s ago", "--until", "350s ago", "--json"
    )
    assert (code, err) == (0, "")
    assert list(range(json.loads(output)["first"], json.loads(output)["last"] + 1)) == between(
        350, 650
    )


def test_what_begins_before_the_log_begins_with_its_first_event_and_says_so(
    topolog: Run, tmp_path: Path
) -> None:
    code, out, err = topolog("replay", "log", "--from", "2h ago", "--json")
    assert (code, len(out.splitlines())) == (0, 11)
    assert "note: --from 2h ago lies before the log begins" in err
    out = str(tmp_path / "all.topolog.gz")
    code, output, err = topolog("log", "export", "--out", out, "--from", "2h", "--json")
    assert (code, json.loads(output)["first"], "before the log begins" in err) == (0, 1, True)
    assert topolog("replay", "log", "--from", "2h", "--since", "9")[2] == "", (
        "the later beginning counts"
    )


@pytest.mark.parametrize(
    ("arguments", "remedy"),
    [
        (("replay", "at", "2h ago"), "topolog replay at head, or at 1"),
        (("replay", "diff", "2h ago", "7"), "topolog replay diff 1 7"),
        (("replay", "diff", "7", "2h ago"), "topolog replay diff 7 head"),
        (("replay", "diff", "{file}@2h ago", "7"), "topolog replay diff {file}@1 7"),
        (("replay", "log", "--to", "2h ago"), "--to head"),
        (("log", "export", "--out", "{file}.part", "--to", "2h ago"), "--to head"),
    ],
)
def test_a_state_or_an_end_before_the_log_is_refused_with_a_remedy_of_that_verb(
    topolog: Run, history: Path, arguments: tuple[str, ...], remedy: str
) -> None:
    code, _, err = topolog(*(item.format(file=history) for item in arguments))
    assert (code, "lies before the log begins" in err) == (2, True)
    assert f"  try: {remedy.format(file=history)}\n" in err


def test_a_window_without_a_event_shows_none_and_says_why_and_nothing_is_made_of_it(
    topolog: Run, tmp_path: Path
) -> None:
    code, out, err = topolog("replay", "log", "--since", "10s")
    assert (code, out, "note: no event is as late as --from 10s: the last one is of" in err) == (
        0,
        "",
        True,
    )
    code, out, err = topolog("replay", "log", "--from", "380s", "--to", "320s")
    assert (code, out, "no event lies between --from 380s and --to 320s" in err) == (0, "", True)
    for window in (("--since", "10s"), ("--from", "380s", "--to", "320s")):
        for verb in (("log", "export", "--out", str(tmp_path / "x")), ("replay", "whatif")):
            code, out, err = topolog(*verb, *window)
            assert (code, out, "no event" in err, "  try: " in err) == (2, "", True, True), err
    for window in (
        ("--from", "9", "--to", "3"),
        ("--from", "350s", "--to", "650s"),
        ("--from", "4", "--to", "3"),
    ):
        code, _, err = topolog("replay", "log", *window)
        assert (code, "lies behind --to" in err) == (2, True)


def test_following_begins_where_it_was_asked_to_and_has_no_end(topolog: Run) -> None:
    assert listed(topolog, "--follow", "--since", "350s", "--limit", "3") == [9, 10, 11]
    code, _, err = topolog("replay", "log", "--follow", "--to", "5")
    assert (code, "--follow has no end" in err) == (2, True)


@pytest.mark.parametrize("text", ["550.5", "1e3", "nan", "²", "-", "10 parsecs ago"])
def test_other_text_is_no_moment(topolog: Run, text: str) -> None:
    for verb in (("replay", "log"), ("replay", "whatif"), ("log", "export", "--out", "x")):
        for name in ("--since", "--until"):
            code, _, err = topolog(*verb, name, text)
            assert (code, "is no moment" in err, f"topolog {' '.join(verb[:2])} --help" in err) == (
                2,
                True,
                True,
            )


def test_unix_seconds_are_a_time(topolog: Run) -> None:
    event = json.loads(topolog("replay", "log", "--json", "--from", "9", "--limit", "1")[1])
    seconds = datetime.fromisoformat(event["time"]).astimezone(UTC).timestamp()
    assert listed(topolog, "--since", f"{seconds - 1:.3f}") == [9, 10, 11]
