"""`topolog replay whatif` on a recorded history: the same rules decide the same, other rules differ
with both reasons.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest

from services.comparison.workloads import SCHEDULER
from services.scheduler.settings import SchedulerSettings, chosen
from services.whatif.machines import machines
from services.whatif.playing import play
from services.whatif.recorded import recorded
from services.whatif.reproducing import CONFIGURATION, NO_POD, UNRECORDED, reproduce
from services.whatif.world import Changes, world
from shared.domain.booking import Owner, Terms, pod_for
from shared.domain.pod import Pod
from shared.eventlog.memory import MemoryEventLog
from shared.eventlog.port import Commit, Draft
from shared.events import streams
from shared.events.catalog import Event
from shared.events.cluster_events import NodeObserved, PodObserved
from shared.events.codec import decode, encode
from shared.events.report_events import NodeReported
from shared.events.scheduling_events import BookingMade, PodReserved
from shared.events.surroundings_events import (
    ClaimObserved,
    SurroundingEnded,
    SurroundingEvent,
    VolumeObserved,
    stream_of,
)
from tests.ledger.given import pod
from tests.whatif.conftest import Run
from tests.whatif.histories import BEGIN_US, as_here, dense, shared_by_two

SECONDS = 80
_logs: list[MemoryEventLog] = []


@pytest.fixture
def log() -> MemoryEventLog:
    """One history for all tests, which only read it."""
    if not _logs:
        _logs.append(asyncio.run(dense(SECONDS, nodes=4)))
    return _logs[0]


def test_the_same_rules_make_every_recorded_decision_again(topolog: Run) -> None:
    code, out, _ = topolog("--json")
    last = json.loads(out.splitlines()[-1])
    assert (code, last["differs"], last["same"]) == (0, 0, last["decisions"])
    assert last["decisions"] > 10


async def test_what_two_schedulers_decided_side_by_side_is_decided_again_each_on_its_share() -> (
    None
):
    log = await shared_by_two(pods=24)
    head = await log.head()
    reproduced = await reproduce(log, as_here(), 1, head)
    assert (reproduced.decisions, reproduced.same, reproduced.why) == (24, 24, {})
    assert (
        len(
            {
                envelope.role
                for envelope in await log.read(0, 1000)
                if envelope.type == "PodReserved"
            }
        )
        == 2
    )
    altered = await reproduce(_with_one_decision_altered(log), as_here(), 1, head)
    assert altered.why == {UNRECORDED: 1}, "who shares has the same configuration"


async def test_that_one_scheduler_plays_for_several_is_noted(log: MemoryEventLog) -> None:
    head, note = await log.head(), "2 schedulers shared the pods: on each side one decides them all"
    for history, noted in ((log, False), (_with_one_decision_altered(log, config="c/0,1"), True)):
        assert (note in world(await recorded(history, 1, head), Changes()).notes) is noted


async def test_every_difference_has_its_cause(log: MemoryEventLog) -> None:
    head = await log.head()
    reproduced = await reproduce(log, as_here(strategy="LeastNUMANodes"), 1, head)
    assert reproduced.why == {CONFIGURATION: reproduced.differs}
    assert reproduced.differs > 0
    altered = _with_one_decision_altered(log)
    reproduced = await reproduce(altered, as_here(), 1, head)
    assert (reproduced.differs, reproduced.why) == (1, {UNRECORDED: 1})
    assert reproduced.differing[0].recorded.endswith("score 101")


def _with_one_decision_altered(log: MemoryEventLog, **changes: object) -> MemoryEventLog:
    altered = MemoryEventLog("altered")
    altered._events, altered._heads = list(log._events), log._heads
    row_number, row = next(
        (index, row) for index, row in enumerate(altered._events) if row.type == "PodReserved"
    )
    event = msgspec.json.decode(row.payload, type=PodReserved)
    altered._events[row_number] = msgspec.structs.replace(
        row, payload=encode(msgspec.structs.replace(event, **changes or {"score": 101}))
    )
    return altered


async def test_a_decision_about_a_pod_that_the_history_lacks_is_counted_so(
    log: MemoryEventLog,
) -> None:
    lacking = MemoryEventLog("lacking")
    lacking._heads = log._heads
    uid = next(row.stream for row in log._events if row.type == "PodReserved")
    unread = [
        row
        if (row.stream, row.type) != (uid, "PodObserved")
        else msgspec.structs.replace(row, payload=b"{")
        for row in log._events
    ]
    lacking._events = unread
    reproduced = await reproduce(lacking, as_here(), 1, await log.head())
    assert reproduced.why[NO_POD] == 1


def test_other_rules_are_played_side_by_side_and_the_first_difference_is_shown(
    topolog: Run, tmp_path: Path
) -> None:
    plot = tmp_path / "x.svg"
    code, out, _ = topolog(
        "--set", "strategy=LeastNUMANodes", "--to", "150", "--json", "--plot", str(plot)
    )
    recorded_side, this_side, other_side, first, last = map(json.loads, out.splitlines())
    assert code == 0
    assert [side["name"] for side in (recorded_side, this_side, other_side)] == [
        "recorded",
        "as here",
        "strategy=LeastNUMANodes",
    ]
    assert this_side["rejected"] == 0
    assert this_side["ran"] + this_side["unplaced"] == this_side["pods"] == recorded_side["pods"]
    assert last["differs"] > 0
    difference = first["first_difference"]
    assert difference["before"] != difference["after"]
    assert all(
        "here" in line or "miss" in line
        for line in (difference["before_of_other"][0], difference["after_of_other"][0])
    )
    assert len(ElementTree.fromstring(plot.read_text()).findall(".//{*}polyline")) == 8


def test_rules_that_change_nothing_differ_in_nothing(topolog: Run) -> None:
    code, out, _ = topolog("--set", "strategy=KeepRoom", "--jobs", "1", "--json")
    _, this_side, other_side, first, last = map(json.loads, out.splitlines())
    assert (code, first["first_difference"], last["differs"]) == (0, None, 0)
    assert {key: value for key, value in this_side.items() if key not in ("name", "cpu_s")} == {
        key: value for key, value in other_side.items() if key not in ("name", "cpu_s")
    }


def test_an_upstream_cache_and_another_cluster_are_played_too(topolog: Run) -> None:
    code, out, err = topolog(
        "--set", "cache=overreserve", "--set", "policy=restricted", "--nodes", "+2", "--jobs", "1"
    )
    assert (code, err) == (0, "")
    assert "cache=overreserve policy=restricted nodes=+2" in out
    assert "the first different decision is" in out


async def test_machines_come_from_reports_as_they_are(log: MemoryEventLog) -> None:
    history = await recorded(log, 1, await log.head())
    made = machines(history.reports, {})
    assert ([node.name for node in made.nodes], made.guessed, made.left_out) == (
        sorted(history.reports),
        (),
        {},
    )
    bare = {
        name: msgspec.structs.replace(report, cpus=None, devices=None)
        for name, report in history.reports.items()
    }
    guessed = machines(bare, {}, policy="restricted")
    assert guessed.guessed == tuple(sorted(bare))
    for exact, laid_out in zip(made.nodes, guessed.nodes, strict=True):
        assert [zone.memory_bytes for zone in laid_out.machine.zones] == [
            zone.memory_bytes for zone in exact.machine.zones
        ]
        assert sorted(cpu.numa for cpu in laid_out.machine.cpus) == sorted(
            cpu.numa for cpu in exact.machine.cpus
        )
        assert {name: len(ids) for name, ids in laid_out.devices.items()} == {
            name: len(ids) for name, ids in exact.devices.items()
        }
        assert laid_out.kubelet.topology_policy == "restricted"


async def test_a_later_beginning_finds_the_running_pods_where_they_ran(log: MemoryEventLog) -> None:
    head = await log.head()
    history = await recorded(log, head // 2, head)
    made = world(history, Changes())
    assert made.load.running
    assert all(task.node for task in made.load.running)  # type: ignore[attr-defined]
    assert len(made.load.running) + len(made.load.arrivals) == len(history.pods)
    fewer = world(history, Changes(nodes=-1))
    assert len(fewer.nodes) == len(made.nodes) - 1


async def test_cluster_objects_are_played_as_they_were_at_the_beginning(
    log: MemoryEventLog,
) -> None:
    """Without the objects a pod with a claim would wait without an end in every what-if."""
    event_log = MemoryEventLog("with claims")
    claim_before, claim_after = ClaimObserved("ns/a", "v"), ClaimObserved("ns/b", "v")
    events = [
        claim_before,
        VolumeObserved("v"),
        SurroundingEnded("volume", "v"),
        *[decode(e) for e in await log.read(0, 50)],
        claim_after,
    ]
    for number, event in enumerate(events):
        stream = stream_of(event) if isinstance(event, SurroundingEvent) else streams.node("x")
        await event_log.append(
            [Commit(str(number), "r", 0, 10**6 * number, (Draft(stream, event),))]
        )
    history = await recorded(event_log, 5, len(events))
    played = [
        (at_s, event)
        for at_s, _, event in world(history, Changes()).load.news
        if isinstance(event, SurroundingEvent)
    ]
    assert [event for _, event in played] == [claim_before, claim_after], (
        "what had ended by then is not played"
    )
    assert played[0][0] == 0.0
    assert played[1][0] > 0.0


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--set", "strategie=x"), "did you mean strategy?"),
        (("--set", "strategy=Best"), "no scheduler would start"),
        (("--set", "cache"), "is no KEY=VALUE"),
        (("--set", "cache=ledger", "--set", "cache=overreserve"), "--set cache is given twice"),
        (("--set", "scope=pod", "--set", "scope=container"), "--set scope is given twice"),
        (("--data-dir", "x", "--history", "y.topolog.gz"), "both name a log"),
        (("--set", "policy=strict"), "must be one of none, best-effort"),
        (("--nodes", "two"), "must be a signed number of nodes"),
        (("--nodes", "-9"), "leaves no node"),
        (("--reports", "7"), "--reports must be one of"),
        (("--from", "soon"), "is no moment"),
        (("--from", "9", "--to", "3"), "lies behind"),
        (("--plot", "x.svg"), "without a change there is only one"),
    ],
)
def test_contradicting_options_are_rejected_with_a_remedy(
    topolog: Run, arguments: tuple[str, ...], problem: str
) -> None:
    code, _, err = topolog(*arguments)
    assert (code, problem in err, "  try: " in err) == (2, True, True), err


async def test_a_booking_keeps_its_room_in_a_played_history_too() -> None:
    """A pod that came first waits, because the only room is kept for one that came later."""
    history = [decode(envelope) for envelope in await (await dense(1, nodes=1)).read(0, 10_000)]
    node = next(event for event in history if isinstance(event, NodeObserved))
    machine = next(event for event in history if isinstance(event, NodeReported)).report
    like = Pod("", "", "", "Guaranteed", scheduler_name=SCHEDULER)
    terms = Terms((Owner(name="mine"),))
    seen: list[tuple[int, str, Event]] = [
        (0, streams.node(node.name), node),
        (0, streams.report(node.name), NodeReported(machine)),
    ]
    for offered in machine.zones:
        cpus, uid = {"cpu": offered.resources["cpu"].allocatable}, f"b{offered.id}"
        seen.append((0, streams.pod(uid), BookingMade(uid, pod_for(uid, uid, cpus, like), terms)))
    for second, name in ((5, "first"), (10, "mine")):
        made = msgspec.structs.replace(pod(name, cpus=6), scheduler_name=SCHEDULER)
        seen.append((second, streams.pod(made.uid), PodObserved(made)))
    seen.append((20, streams.node(node.name), node))
    log = MemoryEventLog("booked")
    for number, (second, stream, event) in enumerate(seen):
        time_us = BEGIN_US + second * 1_000_000
        await log.append([Commit(f"c{number}", "t", 0, time_us, (Draft(stream, event),))])
    played = world(await recorded(log, 1, await log.head()), Changes())
    choice = chosen(SchedulerSettings(database_url="", scheduler_name=SCHEDULER))
    side = play("same", played, choice, 1, "1", lambda _share: None, (-1, ""))
    nodes = {decision.uid.partition("/")[0]: decision.node for decision in side.decisions}
    assert nodes == {"uid-first": "", "uid-mine": node.name}
