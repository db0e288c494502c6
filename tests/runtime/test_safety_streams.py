"""An unreadable event on a stream with safety events stops every decision until it is skipped."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from services.binder import core as binder
from services.scheduler.core import CoreConfig, SchedulerCore
from services.scheduler.handlers import fold_of
from services.upkeep.errors import UpkeepRefused
from services.upkeep.skipping import skip
from shared.domain.version import VERSION
from shared.eventlog.port import Commit, Draft
from shared.events import streams
from shared.events.catalog import Event
from shared.events.cluster_events import ClusterListed
from shared.events.envelope import Envelope
from shared.events.log_events import LogOpened
from shared.runtime.health import Health
from shared.runtime.projector import Fold, Projector
from tests.runtime.helpers import QUICK, FaultyLog, running, until

SAFETY = [streams.LOG, streams.listing("pods"), streams.listing("nodes"), "nomination/uid-1"]
Damage = dict[int, str]


def damaged(damage: Damage) -> Any:
    """Make events unreadable, by position: an unknown type, a newer schema or a broken payload."""

    def change(event: Envelope) -> Envelope:
        match damage.get(event.position):
            case "type":
                return msgspec.structs.replace(event, type="Fence")
            case "schema":
                return msgspec.structs.replace(event, schema=99)
            case "payload":
                return msgspec.structs.replace(event, payload=b'{"type":"')
            case _:
                return event

    return lambda page: [change(event) for event in page]


async def append(log: FaultyLog, number: int, stream: str, event: Event) -> None:
    await log.append([Commit(f"c{number}", "test", 0, 1, (Draft(stream, event),))])


def bindings() -> Fold[binder.BinderState]:
    return Fold(
        binder.BinderState, binder.evolve, pass_over=binder.pass_over, set_aside=binder.quarantine
    )


@contextlib.asynccontextmanager
async def followed(log: FaultyLog) -> AsyncIterator[SimpleNamespace]:
    """Yield the folds of scheduler and binder, which follow the log."""
    health = Health()
    deciding: Projector[SchedulerCore] = Projector(
        "scheduler", log, fold_of(CoreConfig()), health=health, options=QUICK
    )
    binding = Projector("binder", log, bindings(), health=health, options=QUICK)
    async with running(deciding.run(), binding.run()):

        def problems() -> list[str]:
            return [
                deciding.state.folded.listings.problem(),
                binding.state.listings.problem(),
            ]

        async def caught_up() -> None:
            head = await log.head()
            await until(lambda: min(deciding.position, binding.position) >= head)

        yield SimpleNamespace(problems=problems, caught_up=caught_up, health=health)


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(
        st.tuples(st.sampled_from(SAFETY), st.sampled_from(["", "type", "schema", "payload"])),
        min_size=1,
        max_size=6,
    ).filter(lambda events: any(kind for _, kind in events))
)
async def test_nothing_is_decided_until_every_unreadable_safety_event_is_skipped(
    events: list[tuple[str, str]],
) -> None:
    log = FaultyLog()
    for number, (stream, _) in enumerate(events):
        await append(log, number, stream, ClusterListed("pods", 0))
    unreadable = {index_at: kind for index_at, (_, kind) in enumerate(events, 1) if kind}
    log.damage = damaged(unreadable)
    async with followed(log) as services:
        await services.caught_up()
        for position in unreadable:
            assert all(services.problems()), "an event that restricts decisions may be missing"
            assert not services.health.status().ready
            await skip(log, position, "me", "test", 1)
            await services.caught_up()
        await until(lambda: not any(services.problems()))
        assert services.health.status().healthy


async def test_a_restore_is_noticed_after_an_unknown_event_of_the_log() -> None:
    """The reported case: the event came first, then `topolog log begin-timeline`."""
    log = FaultyLog()
    await append(log, 0, streams.LOG, LogOpened("log", 1))
    log.damage = damaged({1: "type"})
    await append(log, 1, streams.LOG, LogOpened("log", 2))
    async with followed(log) as services:
        await services.caught_up()
        (red, _) = services.health.status().red.values()
        assert "Fence schema 1 on log" in red
        assert (
            f"by role test, epoch 0, of Topolog {VERSION}, a release with schema 1 of Fence" in red
        )
        assert "topolog log skip 1" in red
        await skip(log, 1, "me", "a rollback", 1)
        await services.caught_up()
        await until(lambda: services.health.status().healthy)
        assert all("not listed yet on timeline 2" in problem for problem in services.problems())


async def test_a_readable_event_of_the_log_is_never_skipped() -> None:
    log = FaultyLog()
    await append(log, 0, streams.LOG, LogOpened("log", 2))
    with pytest.raises(UpkeepRefused, match="never skipped"):
        await skip(log, 1, "me", "test", 1, force=True)
