"""Lend a lease to loops that outlive it: when it is lost they keep running, but append nothing
until there is a new lease.

The loops keep their memory that way. Safety comes from the epoch, not from stopping the loop.
"""

from __future__ import annotations

import asyncio

from shared.eventlog.port import Lease
from shared.runtime.leadership import LeaseLost


class LentLease:
    """`keep` is the work of a `Leadership` or `Membership`. An initial `lease` may be lent at
    once.
    """

    def __init__(self, lease: Lease | None = None) -> None:
        self._lease = lease
        self._available = asyncio.Event()
        self._refused = asyncio.Event()

    async def keep(self, lease: Lease) -> None:
        """Lend the lease until it is lost."""
        self._lease = lease
        self._refused.clear()
        self._available.set()
        try:
            await self._refused.wait()
        finally:
            self._lease = None
            self._available.clear()
        raise LeaseLost(f"{lease.role}: a newer epoch than {lease.epoch} holds the role")

    async def lease(self) -> Lease:
        """Wait for a lease and return it."""
        while self._lease is None:
            await self._available.wait()
        return self._lease

    def refused(self, lease: Lease) -> None:
        """Note that the log rejected this lease."""
        if lease == self._lease:
            self._lease = None
            self._available.clear()
            self._refused.set()
