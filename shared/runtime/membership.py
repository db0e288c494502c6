"""A role that many processes hold at once: each under a lease of its own (`role/0`, `role/1`, ...), with an epoch of its own.

Members look after each other: who is gone or silent for longer than its lease is counted out by whoever looks next, and from then
on the log refuses what it still sends. Two members may see different members for a moment: versions of streams settle what they
both do. Must not know what is shared.
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


class Membership(Leadership):
    """One member. `members` are the live ones by their leases' roles, the own one included; `heard` is told of every change: the
    members and the own one, no members while this process is none. Otherwise as `Leadership`."""

    def __init__(self, log: EventLog, role: str, holder: str, *, heard: Heard | None = None, **leading: Any) -> None:
        super().__init__(log, role, holder, **leading)
        self.members: tuple[str, ...] = ()
        self._shared = role
        self._heard = heard

    def said(self) -> dict[str, object]:
        """For health: the own place, empty while there is none, and all that are taken."""
        return {"member": self.lease.role if self.lease is not None else "", "members": list(self.members)}

    async def run(self, work: Work) -> None:
        """Be a member for ever; `work(lease)` runs while this process is one, and begins when the others are known."""
        await super().run(lambda lease: self._among_others(work, lease))

    async def _claim(self) -> Lease | None:
        """The first place that is free."""
        taken = {lease.role for lease in await self._log.members(self._shared)}
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
        """Hear who is there; False while the log does not say. Raises LeaseLost where the own lease is not among them."""
        try:
            members = await self._log.members(self._shared)
        except LogUnavailable as error:
            self._out.warning(names.LOG_UNAVAILABLE, problem=str(error))
            return False
        if lease not in members:
            raise LeaseLost(f"{lease.role}: counted out by another member")
        self._hear(tuple(each.role for each in members), lease.role)
        return True

    def _hear(self, members: tuple[str, ...], own: str) -> None:
        if members == self.members:
            return
        self._out.info(names.MEMBERS_CHANGED, role=own or self.role, members=list(members), before=list(self.members))
        self.members = members
        set_gauge(names.MEMBERS, len(members), role=self._shared)
        if self._heard is not None:
            self._heard(members, own)
