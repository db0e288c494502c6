"""What the bus says of its two streams, for people who look after it."""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Iterable
from typing import Any

import msgspec
from nats.js.errors import NotFoundError

from shared.bus import subjects
from shared.bus.jetstream_client import Insistent, split_credentials
from shared.bus.jetstream_tls import context, wanted

PATIENCE_S = 5
ONCE: dict[str, Any] = {
    "allow_reconnect": False,
    "max_reconnect_attempts": 1,
    "reconnect_time_wait": 0.2,
}
"""Without the second and third the client tries for two minutes before it says that nobody answers."""


class StreamState(msgspec.Struct, frozen=True):
    """One stream; `servers` of its cluster (1 without one), `lagging` are peers that are behind.
    `max_bytes` -1: no limit.
    """

    name: str
    exists: bool = True
    messages: int = 0
    bytes: int = 0
    max_bytes: int = -1
    keeps_newest_of_each: bool = False
    replicas: int = 1
    servers: int = 1
    lagging: tuple[str, ...] = ()


def size_of(told: Iterable[str]) -> int:
    """How many servers a cluster has that told these HOST:PORT; a server of two address families is
    there with both.
    """
    return max(Counter(map(_family, told)).values(), default=1)


def _family(address: str) -> int:
    """4 or 6; 0 of a name."""
    try:
        return ipaddress.ip_address(address.rpartition(":")[0].strip("[]")).version
    except ValueError:
        return 0


async def describe(url: str) -> list[StreamState]:
    """Ask once. Raises what the client raises when nobody answers."""
    servers, found_credentials = split_credentials(url)
    credentials: dict[str, Any] = dict(found_credentials)
    client = Insistent(url)
    secured = context(url) if wanted(url) else None
    await client.connect(servers, tls=secured, connect_timeout=PATIENCE_S, **ONCE, **credentials)
    try:
        jetstream = client.jetstream(timeout=PATIENCE_S)
        found = []
        for name in (subjects.REPORT_STREAM, subjects.FACT_STREAM):
            try:
                info = await jetstream.stream_info(name)
            except NotFoundError:
                found.append(StreamState(name, exists=False))
                continue
            peers = (info.cluster.replicas or []) if info.cluster else []
            found.append(
                StreamState(
                    name=name,
                    messages=info.state.messages,
                    bytes=info.state.bytes,
                    max_bytes=info.config.max_bytes or -1,
                    keeps_newest_of_each=info.config.max_msgs_per_subject == 1,
                    replicas=info.config.num_replicas or 1,
                    servers=max(size_of(client.servers_told), len(peers) + 1),
                    lagging=tuple(peer.name for peer in peers if peer.name and not peer.current),
                )
            )
        return found
    finally:
        await client.close()
