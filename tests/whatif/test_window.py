"""A window of a history: its effect on the counts is stated, and the result is printed whatever
becomes of the picture.
"""

from __future__ import annotations

import asyncio
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from services.replay.deciding_state import followed_at
from services.scheduler.state import state
from services.whatif import comparing, cut
from services.whatif.playing import Side
from services.whatif.recorded import recorded
from services.whatif.world import Changes, world
from shared.eventlog.memory import MemoryEventLog
from shared.eventlog.port import Place
from shared.eventlog.snapshots import seal
from shared.events.cluster_events import PodEnded, PodObserved, PodRunning
from shared.events.envelope import Envelope
from tests.whatif.conftest import Run
from tests.whatif.histories import dense

# The history claims to have run faster than the clock by this factor.
SPEED = 60
FIRST = 50
_logs: list[MemoryEventLog] = []


@pytest.fixture
def log() -> MemoryEventLog:
    """One history for all tests, which only read it: 80 seconds within 80 / SPEED."""
    if not _logs:
        _logs.append(asyncio.run(dense(80, nodes=4, speed=SPEED)))
    return _logs[0]


@pytest.fixture
def whatif(topolog: Run) -> Run:
    """Run what-if with one change."""
    return partial(topolog, "--set", "strategy=LeastNUMANodes", "--jobs", "1")


def uids(log: MemoryEventLog, first: int, last: int, kind: type) -> set[str]:
    return {row.stream for row in log._events[first - 1 : last] if row.type == kind.__name__}


def notes_of(out: str) -> tuple[list[dict[str, Any]], str]:
    *sides, _, last = map(json.loads, out.splitlines())
    return sides, "\n".join(last["notes"])


def test_a_window_names_earlier_pods_and_those_that_its_end_cuts_off(
    whatif: Run, log: MemoryEventLog
) -> None:
    code, out, err = whatif("--from", str(FIRST), "--json")
    (note, this_side, other_side), notes = notes_of(out)
    assert (code, err) == (0, ""), err
    seen, ran = (
        uids(log, 1, FIRST, PodObserved),
        uids(log, 1, FIRST, PodRunning) - uids(log, 1, FIRST, PodEnded),
    )
    waited = seen - uids(log, 1, FIRST, PodRunning) - uids(log, 1, FIRST, PodEnded)
    assert ran
    assert (
        f"{len(ran)} pods ran when the window begins: they run from its beginning on, and "
        "are in no count"
    ) in notes
    assert (f"{len(waited)} pods waited when the window begins" in notes) == bool(waited)
    assert note["ran"] == note["pods"] == this_side["pods"] > this_side["ran"]
    assert this_side["unplaced"] >= this_side["underway"] > 0
    window_s = (log._events[-1].time_us - log._events[FIRST - 1].time_us) / 1e6
    assert f"when the window ends, after {window_s:.1f} s" in notes
    assert (
        f"0 of 0 (recorded), {this_side['underway']} of {this_side['unplaced']} (as here)" in notes
    )
    assert "ran faster than the clock" in notes
    assert other_side["pods"] == this_side["pods"]
    assert other_side["zones_per_pod"] == this_side["zones_per_pod"] == 1


async def test_a_pod_that_waited_before_the_window_waits_from_its_beginning_in_the_record() -> None:
    slow = await dense(40, nodes=4)
    first_match = next(row for row in slow._events if row.type == PodObserved.__name__)
    runs = next(row for row in slow._events if row.type == PodRunning.__name__)
    history = await recorded(slow, runs.position - 1, await slow.head())
    side = comparing.as_recorded(history)
    uid = runs.stream.removeprefix("pod/")
    assert history.pods[uid].seen_us <= first_match.time_us < history.begin_us < runs.time_us
    assert side.wait_mean_s == round(sum(_waits_s(slow._events, history.begin_us)) / side.ran, 2)
    assert any(
        "1 pods waited when the window begins" in note
        for note in cut.notes(history, world(history, Changes()), [side])
    )


def _waits_s(events: list[Envelope], from_us: int) -> list[float]:
    """Return the waits of pods, from their arrival or from this time until they ran."""
    runs = {row.stream: row.time_us for row in reversed(events) if row.type == PodRunning.__name__}
    seen = {row.stream: row.time_us for row in reversed(events) if row.type == PodObserved.__name__}
    return [
        (at_us - max(seen[stream], from_us)) / 1e6
        for stream, at_us in runs.items()
        if at_us > from_us
    ]


async def test_a_whole_history_without_waiting_pods_needs_no_such_words(
    log: MemoryEventLog,
) -> None:
    side = Side("as here", 3, 3, 0, 0, 0.1, 0.1, 1.0, 0.0)
    history = await recorded(log, 1, await log.head())
    assert cut.notes(history, world(history, Changes()), [side]) == []


def test_an_unwritable_picture_is_reported_before_anything_is_played(
    whatif: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def plays(*_: object) -> None:
        raise AssertionError("played")

    monkeypatch.setattr(comparing, "side_by_side", plays)
    for plot in (tmp_path, tmp_path / "nowhere" / "x.svg"):
        code, out, err = whatif("--plot", str(plot))
        assert (code, out, f"{plot} cannot be written" in err, "  try: --plot" in err) == (
            1,
            "",
            True,
            True,
        ), err


def test_trying_whether_a_picture_can_be_written_leaves_what_is_there(
    whatif: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise comparing.SideFailed("the side ended")

    monkeypatch.setattr(comparing, "side_by_side", fails)
    old, new = tmp_path / "old.svg", tmp_path / "new.svg"
    old.write_text("<svg/>")
    assert [whatif("--plot", str(plot))[0] for plot in (old, new)] == [1, 1]
    assert (old.read_text(), new.exists()) == ("<svg/>", False)


def test_the_result_is_printed_even_if_the_picture_fails_at_last(
    whatif: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    code, out, err = whatif("--plot", str(tmp_path / "x.svg"), "--json")
    assert (code, len(out.splitlines()), "No space left" in err) == (1, 5, True)


async def test_a_window_begins_at_the_nearest_checkpoint_and_reads_nothing_before_it(
    log: MemoryEventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    head, pages, read = await log.head(), list[int](), log.read
    firsts = (head // 2, head * 3 // 4)
    plain = {first: await recorded(log, first, head) for first in firsts}

    async def noted(after: int, limit: int = 1000) -> list[Envelope]:
        pages.extend([after] if limit > 1 else [])
        return list(await read(after, limit))

    monkeypatch.setattr(log, "read", noted)
    for position in (head // 3, head // 2 - 1, head * 2 // 3):
        followed, _ = await followed_at(log, position)
        place = Place(position, (await read(position - 1, 1))[0].chain)
        sealed = seal(state.dump(followed))
        await log.save_snapshot(state.PROJECTION, state.snapshot_key(), place, sealed)
        for first in firsts:
            pages.clear()
            quick = await recorded(log, first, head)
            if position < first:
                assert min(pages) == position
            assert quick.pods == plain[first].pods
            assert list(quick.pods) == list(plain[first].pods)
            assert [event for _, _, event in quick.news] == [e for _, _, e in plain[first].news]
            assert quick.reports == plain[first].reports
            assert world(quick, Changes()) == world(plain[first], Changes())
