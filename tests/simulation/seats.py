"""A member's lease in the simulation: taken when it is first needed, and again as soon as the log
refused it. It is renewed only by looking at the other members: a member that has not looked for
longer than its lease may be counted out without knowing it.
"""

from __future__ import annotations

from collections.abc import Callable

from shared.eventlog.port import Lease
from shared.runtime.membership import PLACES
from tests.simulation.log import SimLog

TTL_S = 5.0


class Seat:
    """Stands in for `shared.runtime.lent_lease.LentLease` in the loops."""

    def __init__(
        self, log: SimLog, role: str, holder: Callable[[], str], mark: Callable[[str], None]
    ) -> None:
        self._log, self._role, self._holder, self._mark = log, role, holder, mark
        self._lease: Lease | None = None

    async def lease(self) -> Lease:
        """The lease that the process believes to hold."""
        return self.taken()

    def taken(self) -> Lease:
        """The lease that the process has taken."""
        if self._lease is None:
            taken = {lease.role for lease in self._log.members_now(self._role)}
            role = next(
                role for place in range(PLACES) if (role := f"{self._role}/{place}") not in taken
            )
            self._lease = self._log.acquire_now(role, self._holder(), TTL_S)
            assert self._lease is not None
        return self._lease

    def look(self) -> tuple[str, ...]:
        """Renew, and return the members; none for a member that was counted out, which goes on with
        its old belief.
        """
        lease = self.taken()
        if not self._log.renew_now(lease, TTL_S):
            return ()
        return tuple(each.role for each in self._log.members_now(self._role))

    def renew(self) -> None:
        """Renew, or find that one was counted out, and come again."""
        if self._lease is not None and not self._log.renew_now(self._lease, TTL_S):
            self._lease = None

    def forget(self) -> None:
        """Take a lease of the new log."""
        self._lease = None

    def refused(self, lease: Lease) -> None:
        """Note that the log refused an append under this lease."""
        self._mark(f"fenced {self._role.partition('/')[0]}")
        if lease == self._lease:
            self._lease = None
