"""The bus on NATS JetStream. Works around three habits of the nats client:

it gives up after 60 reconnects (here: never), buffers while the server is away (here: bounded, and
every message has an id, so that sending it again is harmless), and prints tracebacks (here: log
lines without the credentials of the URL).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, cast

from nats.errors import Error as NatsError
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy, PubAck, StreamConfig
from nats.js.errors import APIError, BadRequestError, NoStreamResponseError, NotFoundError

from shared.bus import subjects
from shared.bus.buffers import Doorbell, LatestReports, position_in
from shared.bus.jetstream_client import FileAuthClient, inbox_prefix, split_credentials
from shared.bus.jetstream_receipts import ReportReceipts, barrier
from shared.bus.jetstream_streams import heal, stream_configs
from shared.bus.jetstream_subscription import (
    HEARTBEAT_S,
    Subscription,
    stored_at,
)
from shared.bus.jetstream_tls import context, wanted
from shared.bus.port import BusUnavailable, Message, StreamLimits
from shared.cancellation import pass_on_cancellation
from shared.domain.secret_url import Address, text_of
from shared.telemetry import logs, names
from shared.telemetry.instruments import count, set_gauge
from shared.telemetry.reasons import plain

WINDOW_MESSAGES = 256
WINDOW_BYTES = 1 << 20
PENDING_BYTES = 8 << 20
ECHO_EVERY_S = 1.0
# Echoes that do not come back before the report stream is checked: a new subscription needs one.
ECHOES_UNTIL_HEALED = 2
# A hanging server or a dead machine is noticed after two pings without an answer, and
# replaced by another server of the URL.
PING_EVERY_S = 3
_TROUBLE = (NatsError, OSError, asyncio.TimeoutError)
_DEFAULT_LIMITS = StreamLimits()
_SUBJECTS = {"reports": subjects.REPORT_SUBJECTS, "facts": subjects.FACT_SUBJECTS}


class JetStreamBus:
    """A Bus. It connects in the background from the first use on and never gives up; `patience_s`
    bounds the wait of a caller. `keeps_streams`: this user may create streams, and recreates
    streams that a full disk has broken."""

    def __init__(
        self,
        address: Address,
        *,
        name: str = "topolog",
        patience_s: float = 5.0,
        limits: StreamLimits = _DEFAULT_LIMITS,
        heartbeat_s: float = HEARTBEAT_S,
        keeps_streams: bool = True,
    ) -> None:
        self._address = address
        self._servers: list[str] = [] if callable(address) else split_credentials(address)[0]
        self._name = name
        self._patience_s = patience_s
        self._limits = limits
        self._heartbeat_s = heartbeat_s
        self._client = FileAuthClient(address)
        self._js: JetStreamContext = self._client.jetstream()
        self._connecting: asyncio.Task[None] | None = None
        self._ended = asyncio.Event()
        self._running: dict[asyncio.Task[None], Subscription] = {}
        self._receipts = ReportReceipts()
        self._endings: list[LatestReports | Doorbell] = []
        self._publishing = asyncio.Lock()
        self._keeps_streams = keeps_streams
        self._echoing: asyncio.Task[None] | None = None
        self._echoed_s: float | None = None
        self._trouble = ""
        self._logged = set[str]()
        self._out = logs.get("bus")

    # -- publishing --------------------------------------------------------------------------------

    async def publish(self, subject: str, data: bytes, headers: Mapping[str, str]) -> None:
        await self.publish_many([Message(subject, data, headers)])

    async def publish_many(self, messages: list[Message]) -> None:
        """Publish in order. After an error, everything from the first unconfirmed message is sent
        again; message ids prevent duplicate events."""
        deadline_s = asyncio.get_running_loop().time() + self._patience_s
        async with self._publishing:
            done = 0
            while done < len(messages):
                window = _window(messages, done)
                if await self._sent(window, deadline_s):
                    done += len(window)
                    deadline_s = asyncio.get_running_loop().time() + self._patience_s

    async def _sent(self, window: list[Message], deadline_s: float) -> bool:
        """Send a window and wait for its acknowledgements; return False to send it again. Raises
        BusUnavailable.
        """
        stream = "reports" if window[0].subject.startswith("topolog.report.") else "facts"
        try:
            await self._ready(deadline_s)
            if stream == "reports":
                await self._confirmed(window)
            elif not await self._all_stored(window):
                await self._acknowledged(window)
        except _TROUBLE as error:
            pass_on_cancellation()
            if asyncio.get_running_loop().time() >= deadline_s:
                raise self._unavailable(window[0].subject, error) from error
            await self._repair(error, stream)
            count(names.BUS_RETRIES, stream=stream)
            return False
        count(names.BUS_PUBLISHED, len(window), stream=stream)
        return True

    async def _confirmed(self, window: list[Message]) -> None:
        """Publish reports and wait until the stream has stored them (`jetstream_receipts`). They
        carry no message id: in one stream for all nodes, an id of one node could suppress another's
        report.
        """
        receipts = self._receipts
        async with asyncio.timeout(self._answer_limit_s()):
            await receipts.subscribe(self._client, {message.subject for message in window})
        futures = []
        for message in window:
            headers = dict(message.headers)
            headers.pop(subjects.MSG_ID, None)
            reply, future = receipts.expect(headers)
            futures.append(future)
            await self._client.publish(message.subject, message.data, reply=reply, headers=headers)
        try:
            async with asyncio.timeout(self._answer_limit_s()):
                if not receipts.are_allowed:
                    await barrier(self._client)
                for future in futures:
                    if receipts.are_allowed or future.done():
                        await future
        finally:
            receipts.forget()

    async def _all_stored(self, window: list[Message]) -> bool:
        """Publish events and return whether the stream stored all of them. Only the first and the
        last are acknowledged. One relay writes the stream, so if their sequences are as far apart
        as in the window, everything between them was stored, too. If not, the window is sent
        again."""
        if len(window) < 2:
            return False
        first, *between, last = window
        futures = [await self._published(first)]
        for message in between:
            await self._client.publish(message.subject, message.data, headers=dict(message.headers))
        futures.append(await self._published(last))
        first_ack, last_ack = await self._answers(futures)
        return bool(last_ack.seq - first_ack.seq == len(window) - 1)

    async def _acknowledged(self, window: list[Message]) -> None:
        """Publish with an acknowledgement for each message."""
        await self._answers([await self._published(message) for message in window])

    async def _published(self, message: Message) -> asyncio.Future[PubAck]:
        return await self._js.publish_async(
            message.subject, message.data, headers=dict(message.headers)
        )

    async def _answers(self, futures: Sequence[asyncio.Future[PubAck]]) -> list[PubAck]:
        async with asyncio.timeout(self._answer_limit_s()):
            return await asyncio.gather(*futures)

    def _answer_limit_s(self) -> float:
        # Shorter than the caller's patience: a message that is cut off with its connection is never
        # answered.
        return min(max(self._patience_s / 4, 0.2), 2.0)

    async def _repair(self, error: BaseException, stream: str) -> None:
        """Create the streams again after a wipe or a full disk (after a full disk a stream never
        accepts messages again). A context whose publication failed half-way is replaced."""
        await asyncio.sleep(0.1)
        self._js = self._client.jetstream()
        if not self._keeps_streams or not self._client.is_connected:
            return
        with contextlib.suppress(*_TROUBLE, BusUnavailable):
            if isinstance(error, NoStreamResponseError | NotFoundError):
                await self.ensure_streams()
            elif isinstance(error, asyncio.TimeoutError | APIError):
                await self._heal(stream)

    async def _heal(self, stream: str) -> None:
        config = next(
            config
            for config in stream_configs(self._limits)
            if config.subjects == [_SUBJECTS[stream]]
        )
        if problem := await heal(self._js, config):
            count(names.BUS_STREAMS_RECREATED, stream=stream)
            self._out.warning(names.BUS_STREAM_RECREATED, stream=config.name, problem=problem)

    # -- streams -----------------------------------------------------------------------------------

    async def ensure_streams(self) -> None:
        """Create or update the streams. Raises BusUnavailable."""
        deadline_s = asyncio.get_running_loop().time() + self._patience_s
        for config in stream_configs(self._limits):
            try:
                await self._ready(deadline_s)
                await self._ensure(config)
            except _TROUBLE as error:
                raise self._unavailable(f"stream {config.name}", error) from error

    async def _ensure(self, config: StreamConfig) -> None:
        try:
            await self._js.add_stream(config)
        except BadRequestError:
            # It exists with another configuration. If a field cannot be changed, the error names
            # the stream.
            await self._js.update_stream(config)

    # -- reading -----------------------------------------------------------------------------------

    def reports(self) -> AsyncIterator[list[Message]]:
        buffer = LatestReports()
        self._follow(
            "reports",
            subjects.REPORT_STREAM,
            lambda _again: ConsumerConfig(
                deliver_policy=DeliverPolicy.LAST_PER_SUBJECT,
                filter_subject=subjects.REPORT_SUBJECTS,
            ),
            lambda message: (
                self._echo_received()
                if message.subject == subjects.ECHO
                else buffer.put(_message(message))
            ),
        )
        self._endings.append(buffer)
        if self._keeps_streams and self._echoing is None:
            self._echoing = asyncio.create_task(self._echo(), name="bus echo")
        return buffer.batches()

    async def _echo(self) -> None:
        """Send through the report stream periodically: an echo that comes back proves the whole
        path, and a stream without echoes is checked and healed.
        """
        silent = 0
        while True:
            sent_s = asyncio.get_running_loop().time()
            with contextlib.suppress(BusUnavailable):
                await self.publish(subjects.ECHO, b"", {})
            pass_on_cancellation()
            await asyncio.sleep(ECHO_EVERY_S)
            silent = 0 if (self._echoed_s or 0.0) >= sent_s else silent + 1
            if silent >= ECHOES_UNTIL_HEALED and self._client.is_connected:
                with contextlib.suppress(*_TROUBLE):
                    await self._heal("reports")
                pass_on_cancellation()

    def _echo_received(self) -> None:
        self._echoed_s = asyncio.get_running_loop().time()

    def since_echo_s(self) -> float:
        return (
            float("inf")
            if self._echoed_s is None
            else asyncio.get_running_loop().time() - self._echoed_s
        )

    def events(self) -> AsyncIterator[int]:
        bell = Doorbell()
        self._follow(
            "facts",
            subjects.FACT_STREAM,
            # After an interruption the newest event rings for everything that was missed.
            lambda again: ConsumerConfig(
                deliver_policy=DeliverPolicy.LAST if again else DeliverPolicy.NEW, headers_only=True
            ),
            lambda message: bell.ring(
                position_in((message.headers or {}).get(subjects.POSITION, ""))
            ),
        )
        self._endings.append(bell)
        return bell.positions()

    def _follow(
        self,
        label: str,
        stream: str,
        config: Callable[[bool], ConsumerConfig],
        deliver: Callable[[Any], None],
    ) -> None:
        async def source(
            cb: Callable[[Any], Awaitable[None]], again: bool
        ) -> Callable[[], Awaitable[None]]:
            await self._ready(asyncio.get_running_loop().time() + 60.0)
            return await self._subscribe(stream, config(again), cb)

        subscription = Subscription(label, source, deliver, self._heartbeat_s)
        task = asyncio.create_task(subscription.run(), name=f"bus {label}")
        self._running[task] = subscription
        task.add_done_callback(lambda ended: self._running.pop(ended, None))

    async def _subscribe(
        self, stream: str, config: ConsumerConfig, cb: Callable[[Any], Awaitable[None]]
    ) -> Callable[[], Awaitable[None]]:
        inbox = self._client.new_inbox()
        subscribed = await self._client.subscribe(
            inbox, cb=cb, pending_msgs_limit=65_536, pending_bytes_limit=64 << 20
        )
        config.deliver_subject = inbox
        config.ack_policy = AckPolicy.NONE
        config.idle_heartbeat = self._heartbeat_s
        config.mem_storage = True
        config.inactive_threshold = 30.0
        try:
            info = await self._js.add_consumer(stream, config)
        except NotFoundError:
            await subscribed.unsubscribe()
            await self.ensure_streams()
            raise
        except _TROUBLE:
            await subscribed.unsubscribe()
            raise

        async def end() -> None:
            await subscribed.unsubscribe()
            await self._js.delete_consumer(stream, info.name)

        return end

    # -- connection --------------------------------------------------------------------------------

    async def connected(self) -> bool:
        self._start()
        return bool(self._client.is_connected)

    async def close(self) -> None:
        tasks = [
            *self._running,
            *(task for task in (self._connecting, self._echoing) if task is not None),
        ]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=2.0)
        for ending in self._endings:
            ending.close()
        # Draining raises if the server is gone, which is not an error here.
        with contextlib.suppress(Exception):
            async with asyncio.timeout(2.0):
                await (self._client.drain() if self._client.is_connected else self._client.close())
        with contextlib.suppress(Exception):
            async with asyncio.timeout(1.0):
                await self._client.close()

    def _start(self) -> None:
        if self._connecting is None:
            self._connecting = asyncio.create_task(self._connect(), name="bus connect")

    async def _connect(self) -> None:
        """Keep a connection. The client reconnects by itself, but closes for good if the server
        evicts it, for example because its key was revoked: then a new client replaces it."""
        while True:
            self._ended.clear()
            try:
                url = text_of(self._address)
                self._servers, credentials = split_credentials(url)
                await self._client.connect(
                    self._servers,
                    tls=context(url) if wanted(url) else None,
                    name=self._name,
                    connect_timeout=2,
                    reconnect_time_wait=0.2,  # type: ignore[arg-type]
                    max_reconnect_attempts=-1,
                    ping_interval=PING_EVERY_S,
                    max_outstanding_pings=2,
                    pending_size=PENDING_BYTES,
                    inbox_prefix=inbox_prefix(url, credentials.get("user", "")),
                    error_cb=self._on_error,
                    disconnected_cb=self._on_disconnected,
                    reconnected_cb=self._on_reconnected,
                    closed_cb=self._on_ended,
                    **cast(dict[str, Any], credentials),
                )
            except (*_TROUBLE, BusUnavailable) as error:
                await self._on_error(error)
            else:
                await self._on_reconnected()
                await self._ended.wait()
                self._client = FileAuthClient(self._address)
                self._js = self._client.jetstream()
            await asyncio.sleep(1.0)

    async def _on_ended(self) -> None:
        self._ended.set()

    async def _ready(self, deadline_s: float) -> None:
        """Return once connected. Raises TimeoutError at the deadline."""
        self._start()
        while not self._client.is_connected:
            if asyncio.get_running_loop().time() >= deadline_s:
                raise TimeoutError("not connected")
            await asyncio.sleep(0.02)

    async def _on_error(self, error: BaseException) -> None:
        """Log each problem once per connection state, because the client retries several times a
        second."""
        self._trouble = plain(error)
        self._receipts.note_error(str(error))
        if self._trouble not in self._logged:
            self._logged.add(self._trouble)
            self._out.warning(names.BUS_TROUBLE, problem=self._trouble)

    async def _on_disconnected(self) -> None:
        self._logged.clear()
        set_gauge(names.BUS_CONNECTED, 0)
        self._out.warning(names.BUS_DOWN, servers=self._servers)

    async def _on_reconnected(self) -> None:
        self._logged.clear()
        set_gauge(names.BUS_CONNECTED, 1)
        self._out.info(names.BUS_UP, servers=self._servers)
        for subscription in self._running.values():
            subscription.break_off("reconnect")

    def _unavailable(self, subject: str, error: BaseException) -> BusUnavailable:
        servers = ", ".join(self._servers) or "an address that is not known yet"
        if isinstance(error, NoStreamResponseError):
            return BusUnavailable(
                f"NATS at {servers} has no stream for {subject}; topology-store creates it at its "
                "start: is it running?"
            )
        reason = self._trouble if self._trouble and not self._client.is_connected else plain(error)
        return BusUnavailable(
            f"NATS at {servers} did not acknowledge {subject} within {self._patience_s:g} s "
            f"({reason}); is it up, with JetStream? Check TOPOLOG_NATS_URL."
        )


def _window(messages: list[Message], start: int) -> list[Message]:
    """Return the next messages that may be unacknowledged together; at least one."""
    size_bytes, end = 0, start
    while end < len(messages) and end - start < WINDOW_MESSAGES:
        size_bytes += len(messages[end].data)
        if size_bytes > WINDOW_BYTES and end > start:
            break
        end += 1
    return messages[start:end]


def _message(message: Any) -> Message:
    return Message(message.subject, message.data, message.headers or {}, *stored_at(message.reply))
