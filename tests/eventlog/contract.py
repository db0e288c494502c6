"""The promises of every event log. Each adapter subclasses these tests and has a fixture `log` that
is empty.
"""

from __future__ import annotations

import asyncio

import pytest

from shared.eventlog.chain import BEGINNING, linked
from shared.eventlog.errors import CommitInvalid
from shared.eventlog.limits import MAX_FACT_BYTES, MAX_PAGE_BYTES
from shared.eventlog.port import (
    ANY_VERSION,
    Appended,
    Commit,
    Conflict,
    Draft,
    Duplicate,
    EventLog,
    Fenced,
    Mark,
    Place,
)
from shared.events.catalog import CATALOG
from shared.events.cluster_events import PodEnded, PodObserved, PodRunning
from shared.events.codec import decode
from shared.events.scheduling_events import HoldBegun
from tests.eventlog.timelines import TimelineContract
from tests.eventlog.words import commit, draft, given, place, places, seen
from tests.ledger.given import pod


class AppendingContract:
    """The outcomes of an append."""

    async def test_an_empty_log_has_head_0_and_no_events(self, log: EventLog) -> None:
        assert await log.head() == 0
        assert await log.read(0) == []
        assert await log.versions(["s"]) == {"s": 0}

    async def test_a_log_grows(self, log: EventLog) -> None:
        earlier = await log.size_bytes()
        await given(log, *(f"stream-{number}" for number in range(100)))
        assert await log.size_bytes() > earlier

    async def test_positions_are_global_and_versions_per_stream(self, log: EventLog) -> None:
        await given(log, "a", "b", "a")
        assert await places(log) == [(1, "a", 1), (2, "b", 1), (3, "a", 2)]
        assert await log.versions(["a", "b", "c"]) == {"a": 2, "b": 1, "c": 0}

    async def test_an_appended_commit_returns_positions_and_new_versions(
        self, log: EventLog
    ) -> None:
        await given(log, "a")
        outcome = await log.append([commit("c", draft("a", 1), draft("b", 0), draft("a"))])
        assert outcome == [Appended(2, 4, {"a": 3, "b": 1})]

    async def test_appended_events_are_read_unchanged(self, log: EventLog) -> None:
        event = PodEnded("uid", "failed", "n", "Evicted", "ü \x01 \U0001f600")
        sent = Commit(
            "c", "scheduler", 7, 123_456, (Draft("pod/uid", event),), "uid", 0, "00-ab-cd-01"
        )
        await log.append([sent])
        (read,) = await log.read(0)
        assert decode(read) == event
        assert (read.role, read.epoch, read.time_us, read.commit_id) == (
            "scheduler",
            7,
            123_456,
            "c",
        )
        assert (read.correlation, read.causation, read.trace) == ("uid", 0, "00-ab-cd-01")
        assert (read.type, read.schema) == ("PodEnded", CATALOG["PodEnded"].schema)

    async def test_a_conflict_returns_the_actual_version_and_appends_nothing_of_its_commit(
        self, log: EventLog
    ) -> None:
        await given(log, "a")
        outcome = await log.append(
            [commit("c", draft("b", 0), draft("a", 0)), commit("d", draft("b", 0))]
        )
        assert outcome == [Conflict("a", 0, 1), Appended(2, 2, {"b": 1})]

    async def test_expecting_a_version_of_a_stream_that_does_not_exist_is_a_conflict(
        self, log: EventLog
    ) -> None:
        assert await log.append([commit("c", draft("a", 3))]) == [Conflict("a", 3, 0)]

    async def test_commits_of_one_batch_are_chained(self, log: EventLog) -> None:
        batch = [commit(f"c{i}", draft("node", i), draft(f"pod{i}", 0)) for i in range(3)]
        assert await log.append(batch) == [
            Appended(2 * i + 1, 2 * i + 2, {"node": i + 1, f"pod{i}": 1}) for i in range(3)
        ]

    async def test_a_conflict_in_a_batch_leaves_the_version_for_the_next_commit(
        self, log: EventLog
    ) -> None:
        batch = [
            commit("a", draft("node", 0)),
            commit("b", draft("node", 0)),
            commit("c", draft("node", 1)),
        ]
        assert await log.append(batch) == [
            Appended(1, 1, {"node": 1}),
            Conflict("node", 0, 1),
            Appended(2, 2, {"node": 2}),
        ]

    async def test_what_follows_a_commit_is_appended_with_it(self, log: EventLog) -> None:
        batch = [
            commit("a", draft("node", 0)),
            commit("b", draft("node", 1), follows="a"),
            commit("c", follows="b"),
        ]
        assert await log.append(batch) == [
            Appended(1, 1, {"node": 1}),
            Appended(2, 2, {"node": 2}),
            Appended(3, 3, {"s": 1}),
        ]

    async def test_what_follows_a_refused_commit_is_refused_though_anothers_event_made_its_version(
        self, log: EventLog
    ) -> None:
        await given(log, "node")
        batch = [
            commit("a", draft("node", 0)),
            commit("b", draft("node", 1), follows="a"),
            commit("c", draft("s", 0), follows="b"),
        ]
        assert await log.append(batch) == [
            Conflict("node", 0, 1),
            Conflict("node", 1, 1),
            Conflict("s", 0, 0),
        ]

    async def test_nothing_follows_what_was_appended_by_another_call(self, log: EventLog) -> None:
        first = commit("a", draft("node", 0))
        await log.append([first])
        lone, second = (
            commit("b", draft("node", 1), follows="a"),
            commit("c", draft("node", 1), follows="a"),
        )
        assert await log.append([lone]) == [Conflict("node", 1, 1)]
        assert await log.append([first, second]) == [Duplicate(1, 1), Conflict("node", 1, 1)]

    async def test_a_batch_sent_again_gets_the_same_answer_in_any_order(
        self, log: EventLog
    ) -> None:
        batch = [commit("a", draft("node", 0)), commit("b", draft("node", 1), follows="a")]
        await log.append(batch)
        assert await log.append(batch) == [Duplicate(1, 1), Duplicate(2, 2)]

    async def test_a_commit_sent_again_is_a_duplicate_with_its_positions(
        self, log: EventLog
    ) -> None:
        await log.append([commit("c", draft("a", 0), draft("b", 0))])
        assert await log.append([commit("c", draft("a", 0), draft("b", 0))]) == [Duplicate(1, 2)]
        assert await log.head() == 2

    async def test_a_commit_twice_in_one_batch_is_appended_once(self, log: EventLog) -> None:
        outcome = await log.append([commit("c"), commit("c")])
        assert outcome == [Appended(1, 1, {"s": 1}), Duplicate(1, 1)]

    async def test_the_id_of_a_refused_commit_may_be_used_again(self, log: EventLog) -> None:
        assert await log.append([commit("c", draft("a", 5)), commit("c", draft("a", 0))]) == [
            Conflict("a", 5, 0),
            Appended(1, 1, {"a": 1}),
        ]

    async def test_any_version_never_conflicts(self, log: EventLog) -> None:
        await given(log, "a", "a")
        assert await log.append([commit("c", draft("a", ANY_VERSION))]) == [
            Appended(3, 3, {"a": 3})
        ]

    async def test_an_older_epoch_of_a_role_is_fenced_and_other_roles_are_not(
        self, log: EventLog
    ) -> None:
        await log.append([commit("new", role="binder", epoch=5)])
        outcome = await log.append(
            [commit("old", role="binder", epoch=4), commit("other", role="relay", epoch=1)]
        )
        assert outcome == [Fenced("binder", 4, 5), Appended(2, 2, {"s": 2})]

    async def test_an_epoch_raised_in_a_batch_fences_the_rest_of_it(self, log: EventLog) -> None:
        batch = [
            commit("a", role="x", epoch=1),
            commit("b", role="x", epoch=3),
            commit("c", role="x", epoch=2),
        ]
        assert (await log.append(batch))[2] == Fenced("x", 2, 3)

    async def test_a_refused_commit_does_not_raise_the_epoch(self, log: EventLog) -> None:
        await log.append([commit("a", draft("s", 9), role="x", epoch=8)])
        assert isinstance((await log.append([commit("b", role="x", epoch=1)]))[0], Appended)

    async def test_a_retry_of_a_fenced_writer_still_learns_that_it_was_appended(
        self, log: EventLog
    ) -> None:
        await log.append([commit("mine", role="x", epoch=1), commit("theirs", role="x", epoch=2)])
        assert await log.append([commit("mine", role="x", epoch=1)]) == [Duplicate(1, 1)]

    async def test_epoch_0_is_not_fenced(self, log: EventLog) -> None:
        await log.append([commit("a", role="x", epoch=2)])
        assert isinstance((await log.append([commit("b", role="x", epoch=0)]))[0], Appended)

    @pytest.mark.parametrize(
        "wrong",
        [
            Commit("c", "r", 0, 1, ()),
            Commit("", "r", 0, 1, (draft("s"),)),
            Commit("c", "", 0, 1, (draft("s"),)),
            Commit("c", "r", -1, 1, (draft("s"),)),
            Commit("c", "r", 0, 1, (draft(""),)),
            Commit("c", "r", 0, 1, (draft("a\x00b"),)),
            Commit("c", "r", 0, 1, (draft("s", -2),)),
            Commit("c", "r", 0, 1, (Draft("s", PodRunning("u", "x" * MAX_FACT_BYTES)),)),
        ],
    )
    async def test_an_impossible_commit_is_refused_before_anything_of_its_batch_is_sent(
        self, log: EventLog, wrong: Commit
    ) -> None:
        with pytest.raises(CommitInvalid, match="commit"):
            await log.append([commit("fine"), wrong])
        assert await log.head() == 0

    async def test_a_batch_larger_than_one_statement_keeps_its_order(self, log: EventLog) -> None:
        outcomes = await log.append([commit(f"c{i}", draft("s", i)) for i in range(1203)])
        assert outcomes == [Appended(i + 1, i + 1, {"s": i + 1}) for i in range(1203)]

    async def test_concurrent_callers_each_get_their_own_outcomes(self, log: EventLog) -> None:
        calls = [
            log.append([commit(f"{i}.{j}", draft(f"s{i}", j)) for j in range(3)]) for i in range(40)
        ]
        for i, outcomes in enumerate(await asyncio.gather(*calls)):
            assert [outcome.versions for outcome in outcomes if isinstance(outcome, Appended)] == [
                {f"s{i}": version} for version in (1, 2, 3)
            ]
        assert [position for position, _, _ in await places(log)] == list(range(1, 121))


class ReadingContract:
    """Reading, waiting, and the state that the log keeps for its readers."""

    async def test_read_pages_continue_where_the_last_ended(self, log: EventLog) -> None:
        await given(log, *"abcdefg")
        assert [event.position for event in await log.read(0, 3)] == [1, 2, 3]
        assert [event.position for event in await log.read(3, 3)] == [4, 5, 6]
        assert [event.position for event in await log.read(6, 3)] == [7]
        assert await log.read(7, 3) == []

    async def test_a_stream_is_read_in_version_order(self, log: EventLog) -> None:
        await given(log, "a", "b", "a", "a")
        assert [event.version for event in await log.read_stream("a", 1)] == [2, 3]
        assert [event.version for event in await log.read_stream("a", 0, 1)] == [1]
        assert await log.read_stream("none") == []

    async def test_a_pod_is_listed_by_its_name_or_is_among_the_unlisted_events(
        self, log: EventLog
    ) -> None:
        observed = [Draft(f"pod/uid-{name}", PodObserved(pod(name, cpus=1))) for name in ("a", "b")]
        await log.append([commit("pods", *observed)])
        for position, name in enumerate(("a", "b"), start=1):
            names = await log.pods_named(name)
            assert position in names.positions or position <= names.unlisted
        assert (await log.pods_named("c")).positions == []

    async def test_a_pod_is_listed_by_its_node_or_is_among_the_unlisted_events(
        self, log: EventLog
    ) -> None:
        named, stream = pod("a", cpus=1, annotations={"a": '"node":"n2"'}), "pod/uid-a"
        waiting = [Draft(stream, PodObserved(named))] * 4
        await log.append([commit("pod", *waiting, Draft(stream, PodObserved(named, node="n1")))])
        await log.append([commit("hold", Draft("hold/u", HoldBegun("u", "n1", "ns/u")))])
        on_node = await log.pods_on("n1")
        assert on_node.positions == [5, 6] or on_node.unlisted >= 6
        assert (await log.pods_on("n2")).positions == []
        assert (await log.pods_named("n1")).positions == []

    async def test_a_page_of_large_events_is_short_and_the_next_goes_on(
        self, log: EventLog
    ) -> None:
        for number in range(7):
            await log.append(
                [commit(f"c{number}", Draft("s", PodRunning("u", "x" * (MAX_FACT_BYTES - 100))))]
            )
        first = await log.read(0)
        assert [event.position for event in first] == [1, 2, 3, 4, 5]
        assert [event.version for event in await log.read_stream("s")] == [1, 2, 3, 4, 5]
        assert sum(len(event.payload) for event in first) < MAX_PAGE_BYTES + MAX_FACT_BYTES
        assert [event.position for event in await log.read(4)] == [5, 6, 7]
        assert [event.version for event in await log.read_stream("s", 5)] == [6, 7]

    async def test_wait_ends_at_once_when_there_is_more(self, log: EventLog) -> None:
        await given(log, "a")
        assert await log.wait(0, 5.0)

    async def test_wait_ends_false_when_nothing_comes(self, log: EventLog) -> None:
        assert not await log.wait(0, 0.05)

    async def test_wait_is_woken_by_an_append(self, log: EventLog) -> None:
        waiting = asyncio.create_task(log.wait(0, 30.0))
        await asyncio.sleep(0.05)
        await given(log, "a")
        assert await waiting

    async def test_a_checkpoint_moves_by_compare_and_set(self, log: EventLog) -> None:
        assert await log.load_checkpoint("relay") == 0
        assert not await log.save_checkpoint("relay", 5, expected=3)
        assert await log.save_checkpoint("relay", 5, expected=0)
        assert not await log.save_checkpoint("relay", 6, expected=0)
        assert await log.save_checkpoint("relay", 9, expected=5)
        assert await log.load_checkpoint("relay") == 9
        assert await log.load_checkpoint("other") == 0

    async def test_a_snapshot_is_found_by_projection_and_fingerprint_only(
        self, log: EventLog
    ) -> None:
        await given(log, "a", "b", "c")
        two = await place(log, 2)
        await log.save_snapshot("ledger", "f1", two, b"two")
        assert await log.load_snapshot("ledger", "f1") == (two, b"two")
        assert await log.load_snapshot("ledger", "f2") is None
        assert await log.load_snapshot("other", "f1") is None

    async def test_the_newest_snapshot_is_kept(self, log: EventLog) -> None:
        await given(log, "a", "b", "c")
        await log.save_snapshot("ledger", "f", await place(log, 3), b"three")
        await log.save_snapshot("ledger", "f", await place(log, 2), b"two")
        assert await log.load_snapshot("ledger", "f") == (await place(log, 3), b"three")

    async def test_a_question_about_the_past_gets_the_nearest_snapshot_before_it(
        self, log: EventLog
    ) -> None:
        await given(log, "a", "b", "c", "d")
        for number in (1, 3, 4):
            await log.save_snapshot("ledger", "f", await place(log, number), b"%d" % number)
        assert await log.load_snapshot("ledger", "f", 3) == (await place(log, 3), b"3")
        assert await log.load_snapshot("ledger", "f", 2) == (await place(log, 1), b"1")
        assert await log.load_snapshot("ledger", "f", 0) is None
        assert await log.load_snapshot("ledger", "f") == (await place(log, 4), b"4")

    async def test_a_snapshot_beyond_the_head_is_not_given(self, log: EventLog) -> None:
        await log.save_snapshot("ledger", "f", Place(1, b""), b"one")
        assert await log.load_snapshot("ledger", "f") is None

    async def test_a_snapshot_of_another_history_is_not_given_and_gives_way(
        self, log: EventLog
    ) -> None:
        await given(log, "a", "b", "c")
        await log.save_snapshot("ledger", "f", Place(3, b"another"), b"three")
        assert await log.load_snapshot("ledger", "f") is None
        await log.save_snapshot("ledger", "f", await place(log, 2), b"two")
        assert await log.load_snapshot("ledger", "f") == (await place(log, 2), b"two")

    async def test_marks_are_kept_by_code_and_place_the_newest_first(self, log: EventLog) -> None:
        await given(log, *"abcdefgh")
        places = {number: await place(log, number) for number in range(1, 9)}
        for number in range(1, 8):
            await log.save_mark("ledger", Mark("f1", places[number], f"d{number}"))
        await log.save_mark("ledger", Mark("f2", places[2], "other"))
        await log.save_mark("another", Mark("f1", places[8], "elsewhere"))
        kept = await log.marks("ledger")
        assert [mark for mark in kept if mark.fingerprint == "f1"] == [
            Mark("f1", places[number], f"d{number}") for number in (7, 6, 5, 4, 3)
        ]
        assert [mark for mark in kept if mark.fingerprint == "f2"] == [
            Mark("f2", places[2], "other")
        ]

    async def test_the_first_mark_of_a_code_at_a_place_stays(self, log: EventLog) -> None:
        await given(log, "a")
        first_one = await place(log, 1)
        await log.save_mark("ledger", Mark("f", first_one, "first"))
        await log.save_mark("ledger", Mark("f", first_one, "second"))
        assert await log.marks("ledger") == [Mark("f", first_one, "first")]

    async def test_a_mark_of_another_history_is_not_given_and_gives_way(
        self, log: EventLog
    ) -> None:
        await given(log, "a", "b")
        await log.save_mark("ledger", Mark("f", Place(2, b"another"), "d"))
        assert await log.marks("ledger") == []
        await log.save_mark("ledger", Mark("f", await place(log, 2), "e"))
        assert await log.marks("ledger") == [Mark("f", await place(log, 2), "e")]


class HistoryContract:
    """The hash chain over events, and commits that name the history on which they were decided."""

    async def test_every_event_carries_the_chain_over_it_and_all_before_it(
        self, log: EventLog
    ) -> None:
        await given(log, "a", "b", "a")
        await log.append([Commit("é", "ü", 3, 4, (draft("p"), draft("q", 0)), "corr", 2, "trace")])
        chain = BEGINNING
        for envelope in await log.read(0):
            chain = linked(chain, envelope)
            assert envelope.chain == chain
        assert len(chain) == 32

    async def test_a_commit_decided_on_this_history_is_appended(self, log: EventLog) -> None:
        await given(log, "a", "b")
        sent = [seen(f"at {index_at}", await place(log, index_at)) for index_at in (0, 1, 2)]
        assert all(isinstance(outcome, Appended) for outcome in await log.append(sent))

    async def test_a_commit_decided_on_another_history_is_a_conflict_and_harms_no_other(
        self, log: EventLog
    ) -> None:
        await given(log, "a", "b")
        wrong = [seen("longer", Place(9, b"x")), seen("other", Place(2, b"x"))]
        outcomes = await log.append([*wrong, seen("right", await place(log, 2)), commit("none")])
        assert outcomes[:2] == [Conflict("log", 9, 2), Conflict("log", 2, 2)]
        assert all(isinstance(outcome, Appended) for outcome in outcomes[2:])


class LeasingContract:
    """A role has one holder, and its epoch rises."""

    async def test_a_lease_is_held_renewed_and_refused_to_others(self, log: EventLog) -> None:
        lease = await log.acquire("role", "me", 30)
        assert lease is not None
        assert lease.epoch >= 1
        assert await log.acquire("role", "me", 30) == lease
        assert await log.acquire("role", "you", 30) is None
        assert await log.acquire("other", "you", 30) is not None

    async def test_an_expired_lease_goes_to_another_with_a_higher_epoch_that_fences_the_old(
        self, log: EventLog
    ) -> None:
        old = await log.acquire("role", "me", 0.02)
        await asyncio.sleep(0.05)
        new = await log.acquire("role", "you", 30)
        assert old is not None
        assert new is not None
        assert new.epoch > old.epoch
        outcomes = await log.append(
            [commit("a", role="role", epoch=old.epoch), commit("b", role="role", epoch=new.epoch)]
        )
        assert outcomes == [Fenced("role", old.epoch, new.epoch), Appended(1, 1, {"s": 1})]
        assert await log.acquire("role", "me", 30) is None

    async def test_an_expired_lease_that_was_not_taken_is_renewed_with_its_epoch(
        self, log: EventLog
    ) -> None:
        lease = await log.acquire("role", "me", 0.01)
        await asyncio.sleep(0.03)
        assert await log.acquire("role", "me", 30) == lease

    async def test_a_released_lease_is_free_at_once(self, log: EventLog) -> None:
        first = await log.acquire("role", "me", 30)
        assert first is not None
        await log.release(first)
        second = await log.acquire("role", "you", 30)
        assert second is not None
        assert second.epoch > first.epoch

    async def test_releasing_a_lost_lease_does_no_harm(self, log: EventLog) -> None:
        old = await log.acquire("role", "me", 0.01)
        await asyncio.sleep(0.03)
        new = await log.acquire("role", "you", 30)
        assert old is not None
        await log.release(old)
        assert await log.acquire("role", "third", 30) is None
        assert await log.acquire("role", "you", 30) == new

    async def test_the_epoch_of_a_new_holder_is_above_any_that_wrote(self, log: EventLog) -> None:
        await log.append([commit("a", role="role", epoch=41)])
        lease = await log.acquire("role", "me", 30)
        assert lease is not None
        assert lease.epoch == 42


class MembersContract:
    """Roles with several members, each with its own lease."""

    async def test_members_are_the_live_leases_under_the_role(self, log: EventLog) -> None:
        mine, yours = await log.acquire("role/0", "me", 30), await log.acquire("role/1", "you", 30)
        await log.acquire("role", "leader", 30)
        await log.acquire("roles/0", "stranger", 30)
        assert await log.members("role") == [mine, yours]
        assert yours is not None
        await log.release(yours)
        assert await log.members("role") == [mine]
        assert await log.members("nobody") == []

    async def test_a_silent_member_is_counted_out_once_for_good(self, log: EventLog) -> None:
        old = await log.acquire("role/0", "paused", 0.02)
        assert old is not None
        assert await log.append([commit("a", role="role/0", epoch=old.epoch)]) == [
            Appended(1, 1, {"s": 1})
        ]
        await asyncio.sleep(0.05)
        assert await log.members("role") == []
        assert await log.members("role") == []
        assert await log.append([commit("b", role="role/0", epoch=old.epoch)]) == [
            Fenced("role/0", old.epoch, old.epoch + 1)
        ]
        new = await log.acquire("role/0", "paused", 30)
        assert new is not None
        assert new.epoch == old.epoch + 2
        assert await log.members("role") == [new]


class EventLogContract(
    AppendingContract,
    ReadingContract,
    HistoryContract,
    TimelineContract,
    LeasingContract,
    MembersContract,
):
    """The whole contract."""
