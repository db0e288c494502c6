"""The state of the bus' streams, for operators."""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Iterable
from typing import Any

import msgspec
from nats.js.errors import NotFoundError

from shared.bus import subjects
from shared.bus.jetstream_client import FileAuthClient, split_credentials
from shared.bus.jetstream_tls import context, wanted

PATIENCE_S = 5
# Without the last two options the client retries for two minutes before it reports that no server
# answers.
ONCE: dict[str, Any] = {
    "allow_reconnect": False,
    "max_reconnect_attempts": 1,
    "reconnect_time_wait": 0.2,
}


class StreamState(msgspec.Struct, frozen=True):
    """One stream. `servers` is the size of its cluster (1 without a cluster), `lagging` are peers
    that are behind. `max_bytes` -1: no limit.
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


def size_of(addresses: Iterable[str]) -> int:
    """Return the number of servers in a cluster with these HOST:PORT addresses. A server with two
    address families has two addresses.
    """
    return max(Counter(map(_family, addresses)).values(), default=1)


def _family(address: str) -> int:
    """Return 4 or 6, or 0 for a host name."""
    try:
        return ipaddress.ip_address(address.rpartition(":")[0].strip("[]")).version
    except ValueError:
        return 0


async def describe(url: str) -> list[StreamState]:
    """Query once. Raises what the client raises if no server answers."""
    servers, credential_fields = split_credentials(url)
    credentials: dict[str, Any] = dict(credential_fields)
    client = FileAuthClient(url)
    secured = context(url) if wanted(url) else None
    await client.connect(servers, tls=secured, connect_timeout=PATIENCE_S, **ONCE, **credentials)
    try:
        jetstream = client.jetstream(timeout=PATIENCE_S)
        states = []
        for name in (subjects.REPORT_STREAM, subjects.FACT_STREAM):
            try:
                info = await jetstream.stream_info(name)
            except NotFoundError:
                states.append(StreamState(name, exists=False))
                continue
            peers = (info.cluster.replicas or []) if info.cluster else []
            states.append(
                StreamState(
                    name=name,
                    messages=info.state.messages,
                    bytes=info.state.bytes,
                    max_bytes=info.config.max_bytes or -1,
                    keeps_newest_of_each=info.config.max_msgs_per_subject == 1,
                    replicas=info.config.num_replicas or 1,
                    servers=max(size_of(client.cluster_addresses), len(peers) + 1),
                    lagging=tuple(peer.name for peer in peers if peer.name and not peer.current),
                )
            )
        return states
    finally:
        await client.close()
