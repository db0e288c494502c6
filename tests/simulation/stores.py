"""The topology-store's processes and the bus before them: reports that are lost, doubled, late and
out of order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import msgspec

from services.topology_store import following
from services.topology_store.handlers import Reports
from services.topology_store.silence import ROLE, Silence
from shared.bus import subjects
from shared.bus.memory import MemoryBus
from shared.bus.port import Message
from shared.domain.report import Report
from shared.events.codec import decode
from shared.runtime.health import Health
from shared.runtime.leadership import LeaseLost
from tests.simulation.fibers import Fiber
from tests.simulation.log import SimClock, SimLog
from tests.simulation.node import Add
from tests.simulation.process import Folded, Process
from tests.simulation.seats import TTL_S, Seat

MAX_AGE_S = 60.0
UNDER_WAY = 30


class Network:
    """Messages under way, oldest first. They may be lost, doubled and late, but the bus keeps the
    order of a node's boots: a subscription is in order, so that an earlier boot comes after a later
    one only as a repeat, never for the first time. With a `clock` it records when it took a
    message, as JetStream does, and keeps the newest of a node: an earlier boot is not repeated.
    """

    def __init__(self, clock: SimClock | None = None) -> None:
        self.clock = clock
        self.messages: list[Message] = []
        self._boots: dict[int, tuple[str, str]] = {}
        self._came: set[tuple[str, str]] = set()

    def publish(self, report: Report) -> None:
        """Publish a report. If too many are under way, the oldest are lost."""
        number = len(self._boots) + 1
        self._boots[number] = (report.node, report.boot_id)
        time_us = self.clock.now_us() if self.clock is not None else 0
        self.messages.append(
            Message(
                subjects.report(report.node),
                msgspec.json.encode(report),
                {},
                number,
                time_us=time_us,
            )
        )
        del self.messages[:-UNDER_WAY]

    def deliver(self, at: int, keep: bool) -> Message:
        """Hand out the message at `at`; `keep` leaves it under way to come again."""
        message = self.messages[at] if keep else self.messages.pop(at)
        self._came.add(self._boots[message.sequence])
        self.messages = [other for other in self.messages if not self._overtaken(other, message)]
        return message

    def _overtaken(self, other: Message, newer: Message) -> bool:
        boot = self._boots[other.sequence]
        earlier = other.subject == newer.subject and other.sequence < newer.sequence
        again = boot in self._came and (self.clock is None or boot == self._boots[newer.sequence])
        return earlier and not again


class StoreProcess(Process):
    """A replica. It folds its streams itself, at start and after a lost race, or it `follows` the
    log.
    """

    def __init__(
        self,
        name: str,
        log: SimLog,
        clock: SimClock,
        network: Network,
        mark: Callable[[str], None],
        follows: bool = False,
        cell: str = "",
    ) -> None:
        self.cell = cell
        super().__init__(name, log, mark)
        self.clock, self.network, self.follows = clock, network, follows
        self.begin()

    def begin(self) -> None:
        self.seat = Seat(self.log, "topology-store", lambda: self.holder, self.mark)
        self.reports = Reports(
            cast(Any, self.log),
            cast(Any, self.seat),
            MemoryBus(),
            cast(Any, self.clock),
            cell=self.cell,
        )
        if self.follows:
            self.state = {}
            self.reports.follows(cast(Any, self))
        else:
            self._read()
        self.silence = Silence(
            self.reports,
            cast(Any, self.log),
            MemoryBus(),
            MAX_AGE_S,
            cast(Any, self.clock),
            Health(),
        )

    def _read(self) -> None:
        position = 0
        while page := self.log.read_now(position):
            position = page[-1].position
            for envelope in page:
                following.evolve(self.reports.nodes, envelope, decode(envelope))
        self.reports.reset(self.reports.nodes)

    def reset(self) -> None:
        self.state = {}
        self.seat.forget()
        self.reports.reset(self.state)

    def evolve(self, envelope: Any, event: Any) -> None:
        following.evolve(self.state, envelope, event)

    def folded(self, folded: Folded) -> None:
        self.reports.folded(self.state, folded)

    def offer(self, add: Add) -> None:
        """Everything that this process could do next."""
        if not self.runs("take"):
            for index, message in enumerate(self.network.messages):
                what = f"{self.name} {message.subject} #{index}"
                add("deliver", what, lambda at=index: self.take(at, False))  # type: ignore[misc]
                add("duplicate", what, lambda at=index: self.take(at, True))  # type: ignore[misc]
        if not self.runs("expire"):
            add("expire", self.name, self._expire)

    def take(self, at: int, keep: bool) -> str:
        """Handle one message. With `keep` the bus delivers it again."""
        self.spawn("take", self.reports.take([self.network.deliver(at, keep)]))
        return ""

    def _expire(self) -> str:
        """Let nodes expire that were silent while the bus was connected. The process checks that
        every second, as `Silence.hear` does.
        """
        for _ in range(int(MAX_AGE_S / 2)):
            self.clock.now_ms += 1000
            self.silence.account()
        return self.watch()

    def watch(self) -> str:
        """Name silent nodes, as the leading store."""
        lease = self.log.acquire_now(ROLE, self.holder, TTL_S)
        if lease is None:
            return "another leads"
        self.spawn("expire", self.silence.expire(lease))
        return ""

    def failed(self, fiber: Fiber, error: Exception) -> None:
        if isinstance(error, LeaseLost):
            self.mark("fenced silence")
        else:
            super().failed(fiber, error)
