"""How to reach Postgres: a connection, or a pool of them a process, and what a URL may show of
itself in a log line. An address that is a file of a URL is read at every connection, so that a
password in it is rotated without a restart.

Connections are made from the URL by asyncpg itself, so that every libpq form works (unix sockets,
sslmode, pgpass). What services run on: must not import SQLAlchemy, whose engine only migrations
need and which takes a third of a service's start.
"""

from __future__ import annotations

import socket
from typing import Any

import asyncpg

from shared.domain.secret_url import POSTGRES, Address, database_trouble, shown, text_of
from shared.eventlog.errors import LogUnavailable
from shared.telemetry.reasons import plain

LOST_CONNECTION: tuple[type[Exception], ...] = (
    OSError,
    TimeoutError,
    asyncpg.InterfaceError,
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.LockNotAvailableError,
    asyncpg.DeadlockDetectedError,
    asyncpg.InternalClientError,
    asyncpg.InvalidCatalogNameError,
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.ReadOnlySQLTransactionError,
)
"""Errors after which the same statement may be sent again on a new connection; a database that is not there is being restored, a
login that is refused is being made or gets another password, a server that takes no writes is primary no more, or not yet."""

SERVER_SETTINGS = {
    "application_name": "topolog",
    "jit": "off",
    "lock_timeout": "5s",
    "statement_timeout": "60s",
    "idle_in_transaction_session_timeout": "10s",
}

_PROBES = {"TCP_USER_TIMEOUT": 5_000, "TCP_KEEPIDLE": 5, "TCP_KEEPINTVL": 2, "TCP_KEEPCNT": 2}
"""Milliseconds without an acknowledgement by the other side's kernel, seconds, seconds, how often."""

WRITER, READER = "topolog_writer", "topolog_reader"
"""What services and what readers of the log need (migration 0001): a process with the owner's URL keeps no more than that."""

_STEP_DOWN = "SELECT set_config('role', rolname, false) FROM pg_roles WHERE rolname = $1 AND pg_has_role(oid, 'MEMBER')"


class Watchful(asyncpg.Connection):  # type: ignore[misc]
    """Lost as soon as nobody is there: a server whose machine died says nothing, and its statement
    would be waited for as long as a statement may take, while another server is primary long since.
    A server that is only slow is waited for."""

    def __init__(self, protocol: Any, transport: Any, *rest: Any) -> None:
        super().__init__(protocol, transport, *rest)
        used = transport.get_extra_info("socket")
        if used.family in (socket.AF_INET, socket.AF_INET6):
            used.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for name, value in _PROBES.items():
                if hasattr(socket, name):
                    used.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def plain_url(url: str) -> str:
    """The URL without an SQLAlchemy driver name, as asyncpg reads it. Raises LogUnavailable for one
    that cannot be read as it was meant."""
    if trouble := database_trouble(url):
        raise LogUnavailable(f"the database URL {trouble}; check TOPOLOG_DATABASE_URL")
    return f"postgresql://{url.partition('://')[2]}"


def masked_url(address: Address) -> str:
    """The URL as it may be logged: without user, password and options."""
    try:
        return shown(text_of(address), POSTGRES)
    except OSError as error:
        return f"an address that cannot be had ({plain(error)})"


def unavailable(address: Address, error: Exception) -> LogUnavailable:
    """What a lost connection is told as: which database, why, and what to look at."""
    standby = isinstance(
        error, asyncpg.ReadOnlySQLTransactionError | asyncpg.TargetServerAttributeNotMatched
    )
    reason = "it takes no writes, as a standby does" if standby else plain(error)
    return LogUnavailable(
        f"Postgres at {masked_url(address)} does not answer ({reason}); "
        "is it up, and does TOPOLOG_DATABASE_URL name it and a login of its?"
    )


async def connect(
    address: Address,
    settings: dict[str, str] | None = None,
    timeout_s: float = 5.0,
    role: str = "",
    command_timeout_s: float | None = 60.0,
) -> Any:
    """A raw asyncpg connection outside any pool, which steps down to `role` where that exists and
    the user belongs to it (the owner does). A writer's is to the first server of the URL that takes
    writes. Raises what asyncpg raises."""
    connection = await asyncpg.connect(
        plain_url(text_of(address)),
        timeout=timeout_s,
        command_timeout=command_timeout_s,
        server_settings=SERVER_SETTINGS | (settings or {}),
        connection_class=Watchful,
        target_session_attrs="read-write" if role == WRITER else None,
    )
    if role:
        await connection.fetchval(_STEP_DOWN, role)
    return connection


def make_pool(
    address: Address, size: int, settings: dict[str, str] | None = None, role: str = ""
) -> Any:
    """At most `size` connections, made when they are needed and given back as they are: nothing
    that runs on them changes its session. To be awaited before it is used."""
    if isinstance(address, str):
        plain_url(address)

    async def made(*_: object, **__: object) -> Any:
        return await connect(address, settings, role=role)

    async def as_it_is(_connection: Any) -> None:
        pass

    return asyncpg.create_pool(connect=made, min_size=0, max_size=size, reset=as_it_is)
