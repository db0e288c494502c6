"""A role that many processes hold at once, each under a lease (`role/0`, `role/1`, ...) and an
epoch of its own.

Members watch each other: the next check fences a member that is gone or silent for longer than its
lease, and the log then rejects its appends. Two members may briefly see different members; versions
of streams resolve conflicts. Must not know the shared work.

During a rolling update, members of two releases run side by side. A member that meets events it
cannot read is behind. If another member's release knows more events, it yields its share and stands
by until that member is gone. Among members that know the same events none yields, because a share
that is done in part is better than a share that is not done. A process with a fold that disagrees
with the running release (`shared.runtime.marks`) takes no place until that release is gone or an
operator confirms the change.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from shared.eventlog.errors import LogUnavailable
from shared.eventlog.port import EventLog, Lease
from shared.runtime.leadership import Leadership, LeaseLost, Work, stopped
from shared.telemetry import names
from shared.telemetry.instruments import set_gauge

# Maximum number of members.
PLACES = 64
# Seconds between two checks of the members.
LOOK_S = 0.25

Changed = Callable[[tuple[str, ...], str], None]
# In a holder's name, followed by the number of event schemas that its release knows. Older releases
# do not have it and know fewer.
_EXTENT = "#facts="


class Membership(Leadership):
    """One member. `members` are the roles of the live ones, including this one. `changed` is called
    at every change with members and own role, and without members while this process is none.
    `extent` is how many event schemas this release knows, `behind` whether the log holds events
    that it could not read, `disagrees` whether its fold differs from that of the running release.
    Otherwise like `Leadership`."""

    def __init__(
        self,
        log: EventLog,
        role: str,
        holder: str,
        *,
        changed: Changed | None = None,
        extent: int = 0,
        behind: Callable[[], bool] = lambda: False,
        disagrees: Callable[[], bool] = lambda: False,
        **leading: Any,
    ) -> None:
        super().__init__(log, role, f"{holder}{_EXTENT}{extent}" if extent else holder, **leading)
        self.members: tuple[str, ...] = ()
        self._shared = role
        self._changed = changed
        self._extent = extent
        self._behind = behind
        self._disagrees = disagrees
        self._yielded_to = ""

    def details(self) -> dict[str, object]:
        """For health: this process' place ("" if none), all taken places, and the member of another
        release to which the share is yielded."""
        yielded = {"left_to": self._yielded_to} if self._yielded_to else {}
        return {
            "member": self.lease.role if self.lease is not None else "",
            "members": list(self.members),
            **yielded,
        }

    async def run(self, work: Work) -> None:
        """Be a member until cancelled; `work(lease)` begins when the other members are known."""
        await super().run(lambda lease: self._among_others(work, lease))

    async def _claim(self) -> Lease | None:
        """Acquire the first free place. None while a newer release serves what this one cannot
        read, or while a member works with which this one disagrees. A member with a place keeps it,
        because two that disagree would yield to each other."""
        members = await self._log.members(self._shared)
        if self._yields_to(members) or self._waits_for_agreement(members):
            return None
        taken = {lease.role for lease in members}
        for place in range(PLACES):
            self.role = f"{self._shared}/{place}"
            if self.role not in taken:
                lease = await self._log.acquire(self.role, self._holder, self._ttl_s)
                if lease is not None:
                    return lease
        return None

    async def _among_others(self, work: Work, lease: Lease) -> None:
        while not await self._look(lease):
            await self._clock.sleep(LOOK_S)
        running = asyncio.ensure_future(work(lease))
        looking = asyncio.ensure_future(self._look_after_others(lease))
        try:
            done, _ = await asyncio.wait({running, looking}, return_when=asyncio.FIRST_COMPLETED)
            await done.pop()
        finally:
            await stopped(looking)
            await stopped(running)
            self._note_members((), "")

    async def _look_after_others(self, lease: Lease) -> None:
        while True:
            await self._clock.sleep(LOOK_S)
            await self._look(lease)

    async def _look(self, lease: Lease) -> bool:
        """Read the members; return False if the log does not answer. Raises LeaseLost if the own
        lease is not among them."""
        try:
            members = await self._log.members(self._shared)
        except LogUnavailable as error:
            self._note_log(str(error))
            return False
        self._note_log("")
        if lease not in members:
            raise LeaseLost(f"{lease.role}: fenced by another member")
        if self._yields_to(members):
            raise LeaseLost(f"{lease.role}: yielded to {self._yielded_to}, of a newer release")
        self._note_members(tuple(each.role for each in members), lease.role)
        return True

    def _yields_to(self, members: list[Lease]) -> str:
        """Return the member of a newer release to which this one, being behind, yields; "" if
        none."""
        newer = (
            [member.role for member in members if extent_of(member.holder) > self._extent]
            if self._behind()
            else []
        )
        self._yielded_to = newer[0] if newer else ""
        return self._yielded_to

    def _waits_for_agreement(self, members: list[Lease]) -> bool:
        working = (
            [member.role for member in members if member.holder != self._holder]
            if self._disagrees()
            else []
        )
        self._yielded_to = working[0] if working else ""
        return bool(working)

    def _note_members(self, members: tuple[str, ...], own_role: str) -> None:
        if members == self.members:
            return
        self._out.info(
            names.MEMBERS_CHANGED,
            role=own_role or self.role,
            members=list(members),
            before=list(self.members),
        )
        self.members = members
        set_gauge(names.MEMBERS, len(members), role=self._shared)
        if self._changed is not None:
            self._changed(members, own_role)


def extent_of(holder: str) -> int:
    """Return how many event schemas the release of a lease's holder knows."""
    details = holder.rpartition(_EXTENT)[2]
    return int(details) if _EXTENT in holder and details.isascii() and details.isdigit() else 0
