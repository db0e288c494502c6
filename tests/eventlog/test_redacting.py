"""Pods of one name, one after the other as a StatefulSet's are: redacted together they fold as
before, one alone is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial

import msgspec
import pytest

from services.replay.commands import verify
from services.replay.reading import ledger_at
from services.upkeep.errors import UpkeepRefused
from services.upkeep.redacting import Redacted, redact
from shared.domain.state_hash import canonical
from shared.eventlog.memory import MemoryEventLog
from shared.eventlog.port import Commit, Draft
from shared.eventlog.redactions import redactions
from shared.events.binding_events import BindIntended, PodBound
from shared.events.catalog import Event
from shared.events.cluster_events import NodeObserved, PodEnded, PodObserved, PodRunning
from shared.events.report_events import NodeReportChanged, NodeReported
from shared.events.scheduling_events import NodeCharged, PodReserved
from tests.ledger.given import held, pod, report, zone

Told = list[list[tuple[str, Event]]]


def life(uid: str, name: str, index_at: int) -> Told:
    """Return the events of a pod that is reserved, runs, is confirmed and ends, with reports from
    `index_at` on.
    """
    pod_spec = pod(name, uid=uid, cpus=2)
    changed = partial(NodeReportChanged, "n1", "boot-1")
    return [
        [(f"pod/{uid}", PodObserved(pod_spec))],
        [
            (f"pod/{uid}", PodReserved(uid, "n1", 1)),
            ("node/n1", NodeCharged("n1", uid, {0: {"cpu": 2000}})),
        ],
        [(f"pod/{uid}", BindIntended(uid, "ns", name, "n1", 1))],
        [(f"pod/{uid}", PodBound(uid, "n1"))],
        [
            (
                "report/n1",
                changed(index_at, available={0: {"cpu": 6000}}, listed=(held(name, 0, 2),)),
            )
        ],
        [(f"pod/{uid}", PodRunning(uid, "n1"))],
        [(f"pod/{uid}", PodEnded(uid, "succeeded", "n1"))],
        [
            (
                "report/n1",
                changed(index_at + 1, available={0: {"cpu": 8000}}, unlisted=(f"ns/{name}",)),
            )
        ],
        [("report/n1", changed(index_at + 2, available={1: {"cpu": 8000}}))],
    ]


def later(index_at: int) -> Told:
    """Return reports until the ledger forgets every pod that ended before them."""
    return [
        [
            (
                "report/n1",
                NodeReportChanged("n1", "boot-1", index_at + n, available={0: {"cpu": 8000 - n}}),
            )
        ]
        for n in range(3)
    ]


HISTORY: Told = [
    [("node/n1", NodeObserved("n1", "uid-n1", allocatable={"cpu": 16_000}))],
    [("report/n1", NodeReported(report(zone(0, 8), zone(1, 8))))],
    *life("u1", "web-0", 10),
    *life("u3", "web-00", 20),
    *life("u2", "web-0", 30),
    *later(40),
]


async def a_log(received: Told = HISTORY) -> MemoryEventLog:
    log = MemoryEventLog("log-1")
    for number, drafts in enumerate(received):
        await log.append(
            [Commit(f"c{number}", "test", 0, number, tuple(Draft(*item) for item in drafts))]
        )
    return log


async def redacted(log: MemoryEventLog, name: str) -> list[Redacted]:
    async def mask(positions: Collection[int], masked: Callable[[str, bytes], bytes | None]) -> int:
        for position in positions:
            row = log._events[position - 1]
            log._events[position - 1] = msgspec.structs.replace(
                row, payload=masked(row.stream, row.payload) or row.payload
            )
        return len(positions)

    return await redact(log, name, "me", "asked", 1, mask)


async def folds(log: MemoryEventLog, head: int) -> list[bytes]:
    return [canonical(await ledger_at(log, position)) for position in range(1, head + 1)]


def named(state: bytes, done: Redacted) -> bytes:
    """Return the state with the redacted names of these pods."""
    return state.replace(b'"ns/web-0"', f'"{done.pod}"'.encode()).replace(
        b'"web-0"', f'"{done.name}"'.encode()
    )


async def test_pods_of_one_name_are_redacted_together_and_every_position_folds_as_before() -> None:
    log = await a_log()
    head = await log.head()
    earlier = await folds(log, head)
    (done,) = await redacted(log, "ns/web-0")
    assert done.uids == ["u1", "u2"]
    assert await folds(log, head) == [named(state, done) for state in earlier]
    assert [row.position for row in log._events if b'web-0"' in row.payload] == []
    assert any(b"web-00" in row.payload for row in log._events)
    result = await verify(log, [])
    assert (result.ok, result.violations) == (True, [])
    received = {row.payload for row in log._events[head:]}
    assert len(received) == 2, "a fact for each pod"
    assert len(await redactions(log)) == done.rows
    (again,) = await redacted(log, done.pod)
    assert (again.rows, again.name, await log.head()) == (0, done.name, head + 2)


@pytest.mark.parametrize(("uid", "another_one"), [("u1", "u2"), ("u2", "u1")])
async def test_one_of_several_pods_of_a_name_is_not_redacted_alone(
    uid: str, another_one: str
) -> None:
    log = await a_log()
    earlier = list(log._events)
    with pytest.raises(
        UpkeepRefused,
        match=rf"name ns/web-0, too \(pod {another_one}\).*topolog log redact ns/web-0 --reason",
    ):
        await redacted(log, uid)
    assert log._events == earlier


async def test_a_namesake_that_lives_keeps_all_of_them_from_being_redacted() -> None:
    alive = HISTORY[: 2 + 9 + 9 + 6]
    log = await a_log(alive)
    with pytest.raises(UpkeepRefused, match="pod u2 has not ended"):
        await redacted(log, "web-0")
    with pytest.raises(UpkeepRefused, match=r"\(pod u2\).*once all have ended"):
        await redacted(log, "u1")


async def test_a_new_pod_with_a_redacted_name_keeps_it_and_can_be_redacted_too() -> None:
    log = await a_log([*HISTORY[: 2 + 9], *later(20)])
    (first,) = await redacted(log, "web-0")
    for number, drafts in enumerate([*life("u2", "web-0", 30), *later(40)]):
        await log.append(
            [Commit(f"d{number}", "test", 0, number, tuple(Draft(*item) for item in drafts))]
        )
    head = await log.head()
    earlier = await folds(log, head)
    (second,) = await redacted(log, "u2")
    assert second.name != first.name
    assert await folds(log, head) == [named(state, second) for state in earlier]
    assert (await verify(log, [])).ok
