"""A lease for loops that are not its work: they go on when it is lost, but append nothing before
there is a new one.

Without it a loop would be torn down in the middle of what it remembers. The epoch, not the loop, is
what makes this safe.
"""

from __future__ import annotations

import asyncio

from shared.eventlog.port import Lease
from shared.runtime.leadership import LeaseLost


class Held:
    """`keep` is the work of a `Leadership` or `Membership`; who has a `lease` already may lend it
    out from the start.
    """

    def __init__(self, lease: Lease | None = None) -> None:
        self._lease = lease
        self._given = asyncio.Event()
        self._refused = asyncio.Event()

    async def keep(self, lease: Lease) -> None:
        """Lend the lease out until it is lost."""
        self._lease = lease
        self._refused.clear()
        self._given.set()
        try:
            await self._refused.wait()
        finally:
            self._lease = None
            self._given.clear()
        raise LeaseLost(f"{lease.role}: a newer epoch than {lease.epoch} leads")

    async def lease(self) -> Lease:
        """The lease, as soon as there is one."""
        while self._lease is None:
            await self._given.wait()
        return self._lease

    def refused(self, lease: Lease) -> None:
        """The log took nothing under this lease: it is lost."""
        if lease == self._lease:
            self._lease = None
            self._given.clear()
            self._refused.set()
