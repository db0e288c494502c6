"""The log is the outbox: one relay mirrors it to the bus, from a checkpoint that moves by
compare-and-set.

A crash between publishing and moving the checkpoint publishes again; the bus drops duplicates by
message id.
"""

from __future__ import annotations

from collections.abc import Sequence

from shared.bus import subjects
from shared.bus.port import Bus, BusUnavailable, Message
from shared.eventlog.port import EventLog, Lease, LogIdentity
from shared.events.catalog import CATALOG
from shared.events.envelope import Envelope
from shared.runtime.clock import SYSTEM_CLOCK, Clock
from shared.runtime.consumer import Consumer, ConsumerOptions, Overtaken
from shared.runtime.health import Health
from shared.runtime.leadership import Leadership, LeaseLost
from shared.telemetry import logs, names
from shared.telemetry.instruments import count, set_gauge
from shared.telemetry.propagation import HEADER, UNRECORDED

CONSUMER = "relay"
# A larger event is published without its body (a server accepts 1 MiB per message): readers fetch
# it from the log.
MAX_BODY_BYTES = 900_000

# No service waits for the relay, and each page costs a checkpoint.
_OPTIONS = ConsumerOptions(page_events=500, linger_s=0.25)


class Relay:
    """Runs under the lease of role `relay`; any number of processes may start it."""

    def __init__(
        self,
        log: EventLog,
        bus: Bus,
        holder: str,
        *,
        health: Health | None = None,
        clock: Clock = SYSTEM_CLOCK,
        ttl_s: float = 10.0,
        options: ConsumerOptions = _OPTIONS,
        cell: str = "",
    ) -> None:
        self._log = log
        self._cell = cell
        self._bus = bus
        self._health = health or Health()
        self._clock = clock
        self._options = options
        self._identity = LogIdentity("", 0)
        self._leadership = Leadership(
            log, CONSUMER, holder, ttl_s=ttl_s, clock=clock, health=health
        )
        self._out = logs.get("relay")

    async def run(self) -> None:
        await self._leadership.run(self._lead)

    async def _lead(self, _lease: Lease) -> None:
        self._identity = await self._log.identity()
        consumer = Consumer(
            CONSUMER,
            self._log,
            self._publish,
            checkpoint=True,
            on_reset=self._reset,
            health=self._health,
            gates_readiness=False,
            clock=self._clock,
            options=self._options,
        )
        try:
            await consumer.run()
        except Overtaken as error:
            self._out.warning(names.RELAY_OVERTAKEN, problem=str(error))
            raise LeaseLost(str(error)) from error

    async def _reset(self, _cause: str) -> None:
        self._identity = await self._log.identity()

    async def _publish(self, page: Sequence[Envelope]) -> None:
        messages = [message_of(self._identity, envelope, self._cell) for envelope in page]
        while True:
            try:
                await self._bus.publish_many(messages)
            except BusUnavailable as error:
                self._out.warning(names.BUS_TROUBLE, problem=str(error))
                await self._clock.sleep(1.0)
            else:
                break
        set_gauge(names.RELAY_POSITION, page[-1].position)
        count(names.RELAYED, len(page))


def message_of(identity: LogIdentity, envelope: Envelope, cell: str = "") -> Message:
    """Return the message that announces an event."""
    entry = CATALOG.get(envelope.type)
    chain = envelope.chain.hex()
    headers = {
        subjects.MSG_ID: subjects.message_id(
            identity.log_id, identity.timeline, envelope.position, chain
        ),
        subjects.POSITION: str(envelope.position),
        subjects.CHAIN: chain,
    }
    if envelope.trace not in ("", UNRECORDED):
        headers[HEADER] = envelope.trace
    body = envelope.payload if len(envelope.payload) <= MAX_BODY_BYTES else b""
    area = entry.area if entry else "unknown"
    return Message(subjects.event(area, envelope.type, cell), body, headers)
