"""Members of a shared role: each its own place, each sees the others, a lost one is fenced,
and its place is taken again.
"""

from __future__ import annotations

import asyncio

from shared.eventlog.memory import MemoryEventLog
from shared.eventlog.port import Fenced, Lease
from shared.runtime.lent_lease import LentLease
from shared.runtime.membership import LOOK_S, Membership
from tests.eventlog.words import commit
from tests.runtime.helpers import running, until


class Member:
    """One process: its membership, the lease that it lends, and the changes that it received."""

    def __init__(self, log: MemoryEventLog, name: str, ttl_s: float = 1.0) -> None:
        self.held, self.changes = LentLease(), list[tuple[tuple[str, ...], str]]()
        self.membership = Membership(
            log, "role", name, ttl_s=ttl_s, changed=lambda *change: self.changes.append(change)
        )

    async def run(self) -> None:
        await self.membership.run(self.held.keep)

    @property
    def members(self) -> tuple[str, ...]:
        return self.membership.members


async def test_every_member_has_a_place_of_its_own_and_hears_of_the_others() -> None:
    log = MemoryEventLog()
    members = [Member(log, name) for name in "abc"]
    async with running(*(member.run() for member in members)) as tasks:
        await until(
            lambda: all(member.members == ("role/0", "role/1", "role/2") for member in members)
        )
        assert {member.changes[-1][1] for member in members} == {"role/0", "role/1", "role/2"}
        gone = members[1].changes[-1][1]
        tasks[1].cancel()
        remaining = tuple(role for role in ("role/0", "role/1", "role/2") if role != gone)
        await until(lambda: members[0].members == members[2].members == remaining)
        assert members[1].changes[-1] == ((), ""), "it knows that it is none any more"


async def test_a_paused_member_is_counted_out_and_writes_nothing_more() -> None:
    log = MemoryEventLog()
    paused = await log.acquire("role/0", "paused", 0.05)
    assert paused is not None
    alive = Member(log, "alive")
    async with running(alive.run()):
        await until(lambda: len(alive.members) == 1)
        sent = [commit("late", role=paused.role, epoch=paused.epoch)]
        await until(lambda: log._epochs[paused.role] > paused.epoch)
        (outcome,) = await log.append(sent)
        assert isinstance(outcome, Fenced)


async def test_a_member_that_the_log_refused_gives_its_place_up_and_rejoins() -> None:
    log = MemoryEventLog()
    member = Member(log, "a")
    async with running(member.run()):
        first = await member.held.lease()
        member.held.refused(first)
        second = await asyncio.wait_for(member.held.lease(), 10)
        assert second.epoch > first.epoch
        member.held.refused(first)
        assert await member.held.lease() == second, (
            "an old refusal says nothing about the new lease"
        )


async def test_a_member_that_was_counted_out_stops_before_its_next_renewal() -> None:
    log = MemoryEventLog()
    member = Member(log, "a", ttl_s=3000)
    async with running(member.run()):
        first = await member.held.lease()
        log._leases[first.role] = (Lease(first.role, "", first.epoch), 0.0, 0.0)
        log._epochs[first.role] += 1
        await until(lambda: member.held._lease not in (None, first), 20)


class Release(Member):
    """A process of a release with its own set of events; `behind` once the log holds events that it
    cannot read, `disagrees` if its fold differs from that of the earlier release.
    """

    def __init__(
        self, log: MemoryEventLog, name: str, extent: int, disagrees: bool = False
    ) -> None:
        super().__init__(log, name)
        self.behind, self.disagrees = False, disagrees
        self.membership = Membership(
            log,
            "role",
            name,
            ttl_s=1.0,
            changed=lambda *change: self.changes.append(change),
            extent=extent,
            behind=lambda: self.behind,
            disagrees=lambda: self.disagrees,
        )


async def test_a_member_that_is_behind_leaves_its_share_to_a_newer_release_until_that_ends() -> (
    None
):
    log = MemoryEventLog()
    old, new = Release(log, "old", 10), Release(log, "new", 11)
    async with running(old.run()):
        await until(lambda: old.members == ("role/0",))
        async with running(new.run()):
            await until(lambda: old.members == new.members == ("role/0", "role/1"))
            old.behind = True
            await until(lambda: new.members == ("role/1",))
            assert old.members == ()
            assert old.membership.details() == {"member": "", "members": [], "left_to": "role/1"}
        await until(lambda: len(old.members) == 1)
        assert "left_to" not in old.membership.details()


async def test_a_member_that_charges_differently_waits_for_the_release_at_work() -> None:
    log = MemoryEventLog()
    blue, green = Release(log, "blue", 10), Release(log, "green", 10, disagrees=True)
    async with running(blue.run()):
        await until(lambda: blue.members == ("role/0",))
        async with running(green.run()):
            await until(
                lambda: (
                    green.membership.details() == {"member": "", "members": [], "left_to": "role/0"}
                )
            )
            await asyncio.sleep(3 * LOOK_S)
            assert (blue.members, green.changes) == (("role/0",), []), (
                "the release at work decides alone"
            )
            green.disagrees = False
            await until(lambda: blue.members == green.members == ("role/0", "role/1"))
            green.disagrees = True
            await asyncio.sleep(3 * LOOK_S)
            assert green.members == ("role/0", "role/1"), "who is at work stays there"


async def test_a_member_that_disagrees_takes_the_place_of_a_release_that_is_gone() -> None:
    log = MemoryEventLog()
    blue, green = Release(log, "blue", 10), Release(log, "green", 10, disagrees=True)
    async with running(blue.run()) as (work,):
        await until(lambda: blue.members == ("role/0",))
        async with running(green.run()):
            await until(lambda: "left_to" in green.membership.details())
            work.cancel()
            await until(
                lambda: green.membership.details() == {"member": "role/0", "members": ["role/0"]}
            )


async def test_members_that_are_behind_and_of_one_release_keep_their_shares() -> None:
    log = MemoryEventLog()
    members = [Release(log, name, 10) for name in "ab"]
    earlier = await log.acquire(
        "role/2", "of a release before, which says nothing of what it knows", 3000
    )
    assert earlier is not None
    for member in members:
        member.behind = True
    async with running(*(member.run() for member in members)):
        await until(
            lambda: all(member.members == ("role/0", "role/1", "role/2") for member in members)
        )
        changes = [len(member.changes) for member in members]
        await asyncio.sleep(3 * LOOK_S)
        assert [len(member.changes) for member in members] == changes
