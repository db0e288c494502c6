"""The follower's rates are those of the log, not of the fold (issue 42, D4); `top --json`."""

from __future__ import annotations

import asyncio
import json

import msgspec
import pytest

from services.top.follow import ALL_EVENTS, Follower
from services.top.once import snapshot
from services.top.rates import Rates
from shared.eventlog.memory import MemoryEventLog
from shared.eventlog.port import Commit, Draft
from shared.events.binding_events import PodBound
from shared.events.cluster_events import PodEnded, PodObserved
from tests.ledger.given import pod

SECOND_US = 1_000_000


async def busy_log(seconds: int, per_second: int) -> MemoryEventLog:
    """Return a log in which this many pods are bound each second."""
    log = MemoryEventLog()
    for second in range(seconds):
        for number in range(per_second):
            uid = f"{second}-{number}"
            stream = f"pod/{uid}"
            events = (
                Draft(stream, PodObserved(msgspec.structs.replace(pod("web", cpus=1), uid=uid))),
                Draft(stream, PodBound(uid, "n1")),
                Draft(stream, PodEnded(uid, "succeeded")),
            )
            await log.append([Commit(uid, "test", 0, second * SECOND_US, events)])
    return log


async def folded(log: MemoryEventLog) -> Follower:
    follower = Follower(log)
    await follower.at_head()
    return follower


async def test_the_rates_are_those_of_the_log_however_fast_it_is_folded() -> None:
    follower = await folded(await busy_log(seconds=60, per_second=3))
    rates = follower.rates()
    assert rates["bound"] == pytest.approx(3, abs=0.5)
    assert rates[ALL_EVENTS] == pytest.approx(9, abs=1.5)


async def test_the_rates_fall_when_nothing_happens() -> None:
    follower = await folded(await busy_log(seconds=20, per_second=3))
    follower._folded_s -= 60  # a minute passes
    assert follower.rates() == {}


def test_a_young_log_is_measured_over_its_life() -> None:
    rates = Rates()
    assert rates.per_second(0) == {}
    for number in range(8):
        rates.add("bound", number * SECOND_US // 2)
    assert rates.per_second(4 * SECOND_US)["bound"] == pytest.approx(2)


async def test_the_snapshot_is_json_with_nodes_pods_and_rates() -> None:
    document = json.loads(msgspec.json.encode(snapshot(await folded(await busy_log(12, 2)))))
    assert set(document) >= {"position", "stages", "rates_per_s", "nodes", "queue", "pods"}
    assert document["position"] == document["head"] == 72
    assert document["rates_per_s"]["bound"] == pytest.approx(2, abs=0.3)


def test_the_follower_needs_no_running_loop() -> None:
    assert asyncio.run(busy_log(1, 1)) is not None
