"""`replay log` reads only the streams that a filter names, and shows what a read of the whole log
would.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.replay import listing, of_node, reading
from services.replay.filters import Filter
from services.replay.listing import Listing, list_events
from services.scheduler.state import state as scheduler
from shared.eventlog.checkpoints import Checkpoint, save_checkpoint
from shared.eventlog.memory import MemoryEventLog
from shared.eventlog.port import Commit, Draft, Place, PodNames
from shared.events.catalog import Event
from shared.events.cluster_events import NodeObserved, PodEnded, PodObserved, PodRunning
from shared.events.codec import decode
from shared.events.scheduling_events import (
    HoldBegun,
    HoldEnded,
    NodeCharged,
    PodReserved,
    PodVerdictChanged,
    ReservationWithdrawn,
)
from shared.events.surroundings_events import NodeVolumesLimited, NominationObserved
from tests.ledger.given import pod


async def a_log() -> MemoryEventLog:
    log = MemoryEventLog()
    for number in range(6):
        pod_spec = pod(f"web-{number % 3}", cpus=1)
        uid, stream = f"u{number}", f"pod/u{number}"
        events: list[Event] = [
            PodObserved(pod_spec),
            PodRunning(uid, "n1"),
            PodEnded(uid, "succeeded", "n1"),
        ]
        drafts = tuple(Draft(stream, event) for event in events)
        await log.append([Commit(f"c{number}", "test", 0, number, drafts)])
    return log


async def listed(log: MemoryEventLog, asked: Listing) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    await list_events(log, asked, rows.append)
    return rows


@pytest.mark.parametrize("first", [1, 5])
@pytest.mark.parametrize("last", [None, 14])
@pytest.mark.parametrize("limit", [2, 100])
@pytest.mark.parametrize(
    "wanted",
    [
        Filter(stream="pod/u3"),
        Filter(stream="pod/u3", type="Pod[RE]*"),
        Filter(uids=frozenset({"u1", "u4"})),
        Filter(uids=frozenset({"u1", "u4"}), stream="pod/u?"),
        Filter(stream="pod/no"),
    ],
)
async def test_named_streams_are_read_instead_of_the_log_and_show_the_same(
    wanted: Filter, first: int, last: int | None, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await a_log()
    asked = Listing(wanted, first, last, limit=limit)
    monkeypatch.setattr(Filter, "streams", lambda _: None)
    whole = await listed(log, asked)
    monkeypatch.undo()
    monkeypatch.setattr(reading, "envelopes", _must_not_be_read)
    assert await listed(log, asked) == whole


async def _must_not_be_read(*_: object) -> None:
    raise AssertionError("the whole log was read")


async def test_following_one_stream_shows_what_comes_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = await a_log()
    monkeypatch.setattr(listing, "FOLLOW_WAIT_S", 0.01)
    positions: list[int] = []

    class Enough(Exception):
        pass

    async def append_once(after: int, timeout_s: float) -> bool:
        if len(positions) == 4:
            raise Enough
        await log.append(
            [Commit("later", "test", 0, 9, (Draft("pod/u3", PodRunning("u3", "n2")),))]
        )
        return True

    monkeypatch.setattr(log, "wait", append_once)
    asked = Listing(Filter(stream="pod/u3"), follow=True)
    with pytest.raises(Enough):
        await list_events(log, asked, lambda row: positions.append(row["position"]))
    assert positions == [10, 11, 12, 19]


class Indexed(MemoryEventLog):
    """Lists pods by node as migration 0016 does in Postgres, from position `since` on."""

    since = 0

    async def pods_on(self, node: str) -> PodNames:
        positions = [
            envelope.position
            for envelope in await self.read(0)
            if envelope.type in ("PodObserved", "HoldBegun", "NominationObserved")
            and decode(envelope).about.node == node
        ]
        return PodNames([position for position in positions if position > self.since], self.since)


def life(kind: str, uid: str, node: str) -> list[list[tuple[str, Event]]]:
    """Return the commits of a pod that has to do with the node."""
    stream, spec = f"pod/{uid}", pod(uid, uid=uid, cpus=1)
    seen: list[tuple[str, Event]] = [(stream, PodObserved(spec))]
    waits: list[tuple[str, Event]] = [(stream, PodVerdictChanged(uid, "no", {}, ({"node": node},)))]
    charged = (f"node/{node}", NodeCharged(node, uid, {0: {"cpu": 1000}}))
    reserved: list[tuple[str, Event]] = [(stream, PodReserved(uid, node, 1)), charged]
    bound: list[tuple[str, Event]] = [(stream, PodObserved(spec, node=node))]
    run: list[tuple[str, Event]] = [(stream, PodRunning(uid, node))]
    withdrawn: list[tuple[str, Event]] = [(stream, ReservationWithdrawn(uid, node, "unasked"))]
    end: list[tuple[str, Event]] = [(stream, PodEnded(uid, "succeeded", node))]
    lives: dict[str, list[list[tuple[str, Event]]]] = {
        "own": [seen, waits, reserved, run, end],
        "lives": [seen, reserved, run],
        "withdrawn": [seen, reserved, withdrawn, waits],
        "foreign": [seen, waits, bound, run, end],
        "found": [bound, run],
        "waiting": [seen, waits],
        "held": [
            seen,
            [(f"hold/{uid}", HoldBegun(uid, node, f"ns/{uid}"))],
            [(f"hold/{uid}", HoldEnded(uid, node, "placed"))],
        ],
        "nominated": [[(f"nomination/{uid}", NominationObserved(uid, f"ns/{uid}", node))]],
        "limits": [[(f"csinode/{node}", NodeVolumesLimited(node, limits={"csi": 1}))]],
    }
    return lives[kind]


KINDS = [
    *("own", "lives", "withdrawn", "foreign", "found", "waiting", "held"),
    "nominated",
    "limits",
]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(KINDS), st.sampled_from(["n1", "n2"])), min_size=2, max_size=12
    ),
    st.randoms(use_true_random=False),
)
async def test_a_node_is_read_by_its_streams_and_shows_the_same(
    lives: list[tuple[str, str]], order: random.Random
) -> None:
    log, commits = Indexed(), list[list[list[tuple[str, Event]]]]()
    for number, (kind, node) in enumerate(lives):
        commits.append(life(kind, f"u{number}", node))
    happened: list[list[tuple[str, Event]]] = [
        [(f"node/{name}", NodeObserved(name, f"uid-{name}"))] for name in ("n1", "n2")
    ]
    while any(commits):
        # Some commits have events of several pods, as those of gangs: first all of pods.
        unfinished = [commit for commit in commits if commit]
        together = order.sample(unfinished, min(len(unfinished), 1 + (order.random() < 0.4)))
        events = [event for of_pod in together for event in of_pod.pop(0)]
        happened.append(sorted(events, key=lambda event: event[0].startswith("node/")))
    for number, drafts in enumerate(happened):
        draft = tuple(Draft(stream, event) for stream, event in drafts)
        await log.append([Commit(f"c{number}", "test", 0, number, draft)])
    head = await log.head()
    made_at, first, log.since = (
        order.randint(0, head),
        order.randint(1, head),
        order.choice([0, 0, head // 3]),
    )
    state = scheduler.SchedulerState()
    for envelope in (await log.read(0))[:made_at]:
        scheduler.evolve(state, envelope, decode(envelope))
        place = Place(envelope.position, envelope.chain)
    if made_at:
        kept = Checkpoint(place, "", scheduler.dump(state))
        await save_checkpoint(log, scheduler.PROJECTION, scheduler.FORM, kept)
    asked = Listing(Filter(node="n1"), first, order.randint(first, head))
    with pytest.MonkeyPatch.context() as changed:
        whole = await listed(log, asked)
        changed.setattr(listing, "SHORT", 0)
        changed.setattr(of_node, "PART", order.choice([1, 3, 50]))
        assert await listed(log, asked) == whole
