"""Memory and Postgres, given any sequence of operations, answer alike."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from shared.eventlog import postgres_append
from shared.eventlog.memory import MemoryEventLog
from shared.eventlog.port import ANY_VERSION, Commit, Draft, EventLog
from shared.eventlog.postgres import PostgresEventLog
from shared.events.cluster_events import PodRunning
from tests.eventlog.conftest import migrated_database
from tests.eventlog.words import place
from tests.fixtures.examples import examples
from tests.fixtures.servers import PostgresServer

names = st.sampled_from(["a", "b", "pod/ü"])
drafts = st.builds(
    Draft,
    names,
    st.builds(PodRunning, names, st.text('x\x00"\\é', max_size=3)),
    st.sampled_from([ANY_VERSION, 0, 1, 2, 3]),
)
commits = st.builds(
    Commit,
    commit_id=st.sampled_from([f"c{i}" for i in range(12)]),
    role=st.sampled_from(["x", "y"]),
    epoch=st.integers(0, 3),
    time_us=st.integers(0, 10),
    drafts=st.lists(drafts, min_size=1, max_size=3).map(tuple),
    correlation=names,
    causation=st.integers(0, 5),
    trace=st.just("t"),
    follows=st.sampled_from(["", "", *(f"c{i}" for i in range(12))]),
)


singles = st.builds(
    Commit,
    commit_id=st.sampled_from([f"single {i}" for i in range(10)]),
    role=st.sampled_from(["x", "y"]),
    epoch=st.sampled_from([3, 3, 3, 2]),
    time_us=st.integers(0, 10),
    drafts=st.tuples(drafts),
    correlation=names,
)


class Twins(RuleBasedStateMachine):
    """Compares the answers of both logs in every rule."""

    server: PostgresServer

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.url = migrated_database(self.server)
        self.postgres = self.run(PostgresEventLog.open(self.url))
        self.memory = MemoryEventLog()

    def run(self, work: Any) -> Any:
        return self.loop.run_until_complete(work)

    def both(self, ask: Any) -> None:
        assert self.run(ask(self.postgres)) == self.run(ask(self.memory))

    @rule(batch=st.lists(commits, min_size=1, max_size=6))
    def append(self, batch: list[Commit]) -> None:
        self.both(lambda log: log.append(batch))

    @rule(alone=st.lists(singles, min_size=4, max_size=8), back=st.integers(-1, 3))
    def append_alone(self, alone: list[Commit], back: int) -> None:
        """Append commits of one event, which Postgres has a function for, one after the other.
        They were decided at no place (`back` 0), at one of this history, or of another (-1)."""
        for commit in alone:
            where = self.run(place(self.memory, max(0, self.run(self.memory.head()) - abs(back))))
            if back < 0:
                where = msgspec.structs.replace(where, chain=b"another")
            decided = msgspec.structs.replace(commit, seen=where if back else None)
            self.both(lambda log, decided=decided: log.append([decided]))

    @rule(stream=names, later=st.integers(0, 4), limit=st.integers(0, 3))
    def read_stream(self, stream: str, later: int, limit: int) -> None:
        self.both(lambda log: log.read_stream(stream, later, limit))

    @rule(consumer=names, position=st.integers(0, 5), expected=st.integers(0, 5))
    def checkpoint(self, consumer: str, position: int, expected: int) -> None:
        self.both(lambda log: log.save_checkpoint(consumer, position, expected))
        self.both(lambda log: log.load_checkpoint(consumer))

    @rule(
        projection=names,
        position=st.integers(0, 9),
        fingerprint=st.sampled_from(["f", "g"]),
        state=st.binary(max_size=3),
    )
    def snapshot(self, projection: str, position: int, fingerprint: str, state: bytes) -> None:
        index_at = self.run(place(self.memory, min(position, self.run(self.memory.head()))))
        self.both(lambda log: log.save_snapshot(projection, fingerprint, index_at, state))
        self.both(lambda log: log.load_snapshot(projection, fingerprint))

    @rule(role=st.sampled_from(["x", "y"]), holder=names, kept=st.booleans())
    def lease(self, role: str, holder: str, kept: bool) -> None:
        async def work(log: EventLog) -> Any:
            lease = await log.acquire(role, holder, 100)
            if lease is not None and not kept:
                await log.release(lease)
            return lease

        self.both(work)

    @invariant()
    def hold_the_same(self) -> None:
        self.both(lambda log: log.read(0, 1000))
        self.both(lambda log: log.versions(["a", "b", "pod/ü"]))
        self.both(lambda log: log.head())

    def teardown(self) -> None:
        self.run(self.postgres.close())
        self.loop.close()
        self.server.drop(self.url)


@pytest.mark.parametrize("share_above_s", [postgres_append.SHARE_ABOVE_S, -1.0])
def test_memory_and_postgres_answer_alike(
    postgres_server: PostgresServer, share_above_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_append, "SHARE_ABOVE_S", share_above_s)
    machine = type("TwinsHere", (Twins,), {"server": postgres_server})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples(6),
            stateful_step_count=15,
            suppress_health_check=list(HealthCheck),
        ),
    )
