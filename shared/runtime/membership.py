"""A role that many processes hold at once: each under a lease of its own (`role/0`, `role/1`, ...),
with an epoch of its own.

Members look after each other: who is gone or silent for longer than its lease is counted out by
whoever looks next, and from then on the log refuses what it still sends. Two members may see
different members for a moment: versions of streams settle what they both do. Must not know what is
shared.

Members of two releases live beside each other while services are replaced. One that meets facts
which it cannot read is behind; where a member knows more of facts, it leaves its share to that one,
and stands by until that one is gone. Among members that know as much as each other nobody leaves: a
share that is done in part is better than one that nobody does. One whose fold promises pods
something else than that of the release at work (`shared.runtime.marks`) takes no place beside it,
as one that waits for a lease takes none, until that release is gone or an operator says that the
change is meant.
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

PLACES = 64
"""Members that a role may have."""
LOOK_S = 0.25
"""How often a member looks after the others."""

Heard = Callable[[tuple[str, ...], str], None]
_EXTENT = "#facts="
"""In a holder's name, before how much of facts its release knows. Holders of releases that did not say so know less."""


class Membership(Leadership):
    """One member. `members` are the live ones by their leases' roles, the own one included; `heard`
    is told of every change: the members and the own one, no members while this process is none.
    `extent` is how much of facts this release knows, `behind` says whether the log holds facts that
    it could not read, `disagrees` whether its fold differs from that of the release at work.
    Otherwise as `Leadership`."""

    def __init__(
        self,
        log: EventLog,
        role: str,
        holder: str,
        *,
        heard: Heard | None = None,
        extent: int = 0,
        behind: Callable[[], bool] = lambda: False,
        disagrees: Callable[[], bool] = lambda: False,
        **leading: Any,
    ) -> None:
        super().__init__(log, role, f"{holder}{_EXTENT}{extent}" if extent else holder, **leading)
        self.members: tuple[str, ...] = ()
        self._shared = role
        self._heard = heard
        self._extent = extent
        self._behind = behind
        self._disagrees = disagrees
        self._left_to = ""

    def said(self) -> dict[str, object]:
        """For health: the own place (empty: none), all that are taken, and to whom of another
        release the share is left.
        """
        left = {"left_to": self._left_to} if self._left_to else {}
        return {
            "member": self.lease.role if self.lease is not None else "",
            "members": list(self.members),
            **left,
        }

    async def run(self, work: Work) -> None:
        """Be a member for ever; `work(lease)` runs while this process is one, and begins when the
        others are known.
        """
        await super().run(lambda lease: self._among_others(work, lease))

    async def _claim(self) -> Lease | None:
        """The first place that is free; none while a newer release does what this one is behind
        with, or any member is at work that this one disagrees with. Who has a place keeps it: two
        that disagree would give theirs up to each other."""
        members = await self._log.members(self._shared)
        if self._leaves_to(members) or self._stands_back(members):
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
            self._hear((), "")

    async def _look_after_others(self, lease: Lease) -> None:
        while True:
            await self._clock.sleep(LOOK_S)
            await self._look(lease)

    async def _look(self, lease: Lease) -> bool:
        """Hear who is there; False while the log does not say. Raises LeaseLost where the own lease
        is not among them.
        """
        try:
            members = await self._log.members(self._shared)
        except LogUnavailable as error:
            self._hear_of_log(str(error))
            return False
        self._hear_of_log("")
        if lease not in members:
            raise LeaseLost(f"{lease.role}: counted out by another member")
        if self._leaves_to(members):
            raise LeaseLost(f"{lease.role}: left to {self._left_to}, of a newer release")
        self._hear(tuple(each.role for each in members), lease.role)
        return True

    def _leaves_to(self, members: list[Lease]) -> str:
        """The member of a newer release that this one, being behind, leaves its share to; empty
        where it keeps it.
        """
        newer = (
            [each.role for each in members if extent_of(each.holder) > self._extent]
            if self._behind()
            else []
        )
        self._left_to = newer[0] if newer else ""
        return self._left_to

    def _stands_back(self, members: list[Lease]) -> bool:
        others = (
            [each.role for each in members if each.holder != self._holder]
            if self._disagrees()
            else []
        )
        self._left_to = others[0] if others else ""
        return bool(others)

    def _hear(self, members: tuple[str, ...], own: str) -> None:
        if members == self.members:
            return
        self._out.info(
            names.MEMBERS_CHANGED,
            role=own or self.role,
            members=list(members),
            before=list(self.members),
        )
        self.members = members
        set_gauge(names.MEMBERS, len(members), role=self._shared)
        if self._heard is not None:
            self._heard(members, own)


def extent_of(holder: str) -> int:
    """How much of facts the release of a lease's holder knows."""
    said = holder.rpartition(_EXTENT)[2]
    return int(said) if _EXTENT in holder and said.isascii() and said.isdigit() else 0
