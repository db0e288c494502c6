"""Write the status of Reservation objects that Topolog keeps as bookings: phase, node, owners.

Off unless Topolog is asked to fulfil them. A status is written when it differs from the last that
this process wrote, so a new leader writes each once. Creates and deletes no Reservation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shared.kube.port import Answer, Kube, Lost
from shared.kube.reservation_objects import status_of
from shared.ledger.state import Ledger
from shared.runtime.clock import Clock
from shared.telemetry import logs, names

TICK_S = 1.0
# At most so many objects in a tick.
AT_ONCE = 50
# Written, gone, or refused for good, as if another object has the name (422, its uid is immutable).
FINAL = (200, 404, 409, 422)


class Reservations:
    """`ledger` returns the fold, or None while it has not caught up."""

    def __init__(self, kube: Kube, clock: Clock, ledger: Callable[[], Ledger | None]) -> None:
        self._kube, self._clock, self._ledger = kube, clock, ledger
        self._written: dict[str, dict[str, Any]] = {}
        self._out = logs.get("reservations")

    async def run(self) -> None:
        self._written.clear()  # Another leader may have written since.
        while True:
            await self._clock.sleep(TICK_S)
            await self.sweep()

    async def sweep(self) -> None:
        ledger = self._ledger()
        if ledger is None:
            return
        wanted = {
            uid: (entry.pod.name, status_of(ledger, entry))
            for uid, entry in ledger.pods.items()
            if entry.booking is not None and entry.resource_version
        }
        self._written = {uid: last for uid, last in self._written.items() if uid in wanted}
        due = [uid for uid, (_, status) in wanted.items() if self._written.get(uid) != status]
        for uid in due[:AT_ONCE]:
            name, status = wanted[uid]
            patch = {"metadata": {"uid": uid}, "status": status}
            answer = await self._kube.patch_reservation_status(name, patch)
            if isinstance(answer, Answer) and answer.status in FINAL:
                self._written[uid] = status
            if isinstance(answer, Answer) and (answer.ok or answer.status == 404):
                continue
            problem = answer.message or "no answer"
            if isinstance(answer, Answer):
                problem = f"HTTP {answer.status} {problem}"
            self._out.warning(names.RESERVATION_NOT_WRITTEN, reservation=name, problem=problem)
            if isinstance(answer, Lost) or answer.status not in FINAL:
                return  # A missing right, or a server that is away, fails for the others, too.
