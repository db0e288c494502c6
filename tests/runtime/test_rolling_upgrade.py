"""Two releases of one service on one log: upgrade and rollback while both are alive, in both
orders, on a real Postgres.

The releases fold differently (the newer one also counts) and so in their snapshots. The second
release folds with its own code, takes no snapshot of the other's, takes the role when the first one
ends, and fences the first one's late writes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import msgspec
import pytest

from shared.domain.state_hash import state_hash
from shared.eventlog.errors import LogNotMigrated
from shared.eventlog.migrate import upgrade
from shared.eventlog.port import Appended, Commit, Draft, EventLog, Fenced, Lease, Outcome
from shared.eventlog.postgres import PostgresEventLog
from shared.eventlog.postgres_connection import connect
from shared.events import streams
from shared.events.catalog import Event
from shared.events.cluster_events import NodeObserved
from shared.events.envelope import Envelope
from shared.ledger import fold
from shared.ledger.promises import promises, weight
from shared.ledger.state import Ledger
from shared.runtime import marks
from shared.runtime.health import Health
from shared.runtime.leadership import Leadership
from shared.runtime.marks import Promises
from shared.runtime.projector import Fold, Projector
from tests.runtime.helpers import QUICK, running, until

ROLE = "observer"


class Folded(msgspec.Struct):
    """The ledger, and a value that only the newer release keeps."""

    ledger: Ledger = msgspec.field(default_factory=Ledger)
    counted: int = 0


def release(name: str) -> Fold[Folded]:
    """Return the fold of a release, which has snapshots under its own key."""

    def evolve(state: Folded, envelope: Envelope, event: Event) -> None:
        fold.evolve(state.ledger, envelope, event)
        state.counted += name == "new"

    def load(data: bytes) -> Folded:
        return msgspec.json.decode(data, type=Folded)

    promised = Promises[Folded](
        lambda state: promises(state.ledger), lambda state: weight(state.ledger)
    )
    return Fold(
        Folded, evolve, fingerprint=name, dump=msgspec.json.encode, load=load, promises=promised
    )


class Replica:
    """One process of a release: a fold, and its part in the role. `lease` is its present or last
    lease.
    """

    def __init__(self, name: str, log: EventLog) -> None:
        self.name = name
        self.log = log
        self.health = Health()
        self.projector = Projector(
            "observer", log, release(name), health=self.health, options=QUICK
        )
        self.leadership = Leadership(log, ROLE, f"{name}/{id(self)}", ttl_s=2.0)
        self.lease: Lease | None = None

    async def lead(self, lease: Lease) -> None:
        self.lease = lease
        await asyncio.Event().wait()

    async def tell(self, number: int) -> Outcome:
        """Append one event under the lease. A second try by the other release must not append it
        twice.
        """
        assert self.lease is not None
        event = NodeObserved(f"n{number}", f"uid-{number}", str(number))
        draft = Draft(streams.node(event.name), event)
        (outcome,) = await self.log.append(
            [Commit(f"kube/{number}", ROLE, self.lease.epoch, 0, (draft,))]
        )
        return outcome

    async def reaches(self, position: int) -> str:
        """Wait for a position, and return the hash of the ledger there."""
        assert await self.projector.wait_for(position, 60)
        return state_hash(self.projector.state.ledger)


@asynccontextmanager
async def alive(name: str, url: str) -> AsyncIterator[Replica]:
    """Yield a replica that runs and follows the log."""
    log = await PostgresEventLog.open(url)
    replica = Replica(name, log)
    try:
        async with running(replica.projector.run(), replica.leadership.run(replica.lead)):
            yield replica
    finally:
        await log.close()


def leads(replica: Replica) -> Callable[[], bool]:
    return lambda: replica.lease is not None and replica.leadership.lease == replica.lease


def works(replica: Replica) -> Callable[[], bool]:
    """Return whether a replica leads and folds live. Only a live fold begins marks of its own."""
    return lambda: leads(replica)() and replica.projector.live


@pytest.mark.parametrize(("first", "second"), [("old", "new"), ("new", "old")])
async def test_releases_follow_each_other_on_one_log_and_back(
    database_url: str, first: str, second: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(marks, "EVERY_FACTS", 2)
    await upgrade(database_url)
    async with AsyncExitStack() as stack, AsyncExitStack() as early:
        earlier = await early.enter_async_context(alive(first, database_url))
        await until(works(earlier))
        for number in range(1, 6):
            assert isinstance(await earlier.tell(number), Appended)
        await earlier.reaches(5)
        await earlier.projector.save()

        later = await stack.enter_async_context(alive(second, database_url))
        assert await later.reaches(5) == await earlier.reaches(5), (
            "another release, the same ledger"
        )
        assert later.projector.state.counted == (5 if second == "new" else 0), (
            "folded by its own code, not from the other's snapshot"
        )
        assert later.leadership.lease is None, "the first one still leads"
        compared = await later.log.marks("observer")
        assert {
            mark.fingerprint: mark.digest for mark in compared if mark.place.position == 4
        }.keys() == {"old/", "new/"}
        await until(lambda: later.health.status().ready)

        await early.aclose()
        await until(leads(later))
        late = await PostgresEventLog.open(database_url)
        earlier.log = late
        assert isinstance(await earlier.tell(6), Fenced), (
            "what was on its way when the role changed hands"
        )
        await late.close()
        assert isinstance(await later.tell(6), Appended)
        assert not isinstance(await later.tell(5), Appended), "told by the other release already"
        await later.reaches(6)
        await later.projector.save()

        back = await stack.enter_async_context(alive(first, database_url))
        assert await back.reaches(6) == await later.reaches(6), (
            "rolled back: its own snapshot of position 5, and what came since"
        )
        assert back.projector.state.counted == (6 if first == "new" else 0)
        events = await back.log.read(0)
        assert [event.position for event in events] == [1, 2, 3, 4, 5, 6]


async def test_a_release_that_charges_pods_otherwise_does_not_take_the_place_of_the_one_at_work(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(marks, "EVERY_FACTS", 2)
    await upgrade(database_url)
    async with AsyncExitStack() as stack:
        earlier = await stack.enter_async_context(alive("old", database_url))
        await until(works(earlier))
        for number in range(1, 6):
            assert isinstance(await earlier.tell(number), Appended)
        await earlier.reaches(5)
        monkeypatch.setattr(
            "tests.runtime.test_rolling_upgrade.promises", lambda _ledger: iter([b"otherwise"])
        )
        later = await stack.enter_async_context(alive("new", database_url))
        await later.reaches(5)
        assert "TOPOLOG_FOLD_DIFFERS=go" in str(later.health.status().waiting)
        assert earlier.health.status().ready
        assert earlier.leadership.lease is not None


async def test_this_release_starts_and_stays_on_a_newer_schema_that_allows_it(
    database_url: str,
) -> None:
    """A replica of the release before starts again, and a rollback finds a log to work on; until a
    migration says otherwise.
    """
    await upgrade(database_url)
    connection = await connect(database_url, timeout_s=10.0)
    try:
        await connection.execute("UPDATE alembic_version SET version_num = '9000'")
        assert not await upgrade(database_url)
        async with alive("old", database_url) as replica:
            await until(leads(replica))
            assert isinstance(await replica.tell(1), Appended)
        await connection.execute("UPDATE schema_works_from SET revision = '8999'")
        with pytest.raises(LogNotMigrated, match="run a newer release"):
            await upgrade(database_url)
        with pytest.raises(LogNotMigrated, match="run the newer release"):
            await PostgresEventLog.open(database_url)
    finally:
        await connection.close()
