"""How to reach Postgres: single connections and a pool, and the part of a URL that may be logged.
An address that is a file is read at every connection, so that its password can be rotated without a
restart.

asyncpg makes connections from the URL itself, so that every libpq form works (unix sockets,
sslmode, pgpass). Services must not import SQLAlchemy: only migrations need it, and it takes a third
of a service's start.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import asyncpg

from shared.domain.secret_url import POSTGRES, Address, database_trouble, shown, text_of
from shared.eventlog.errors import LogUnavailable
from shared.telemetry.reasons import plain

# Errors after which the same statement may be sent again on a new connection. A missing database is
# being restored, a rejected login is being created or gets another password, a server that takes no
# writes is no longer primary, or not yet.
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

SERVER_SETTINGS = {
    "application_name": "topolog",
    "jit": "off",
    "lock_timeout": "5s",
    "statement_timeout": "60s",
    "idle_in_transaction_session_timeout": "10s",
}

# Milliseconds without an acknowledgement by the peer's kernel, seconds, seconds, count.
_PROBES = {"TCP_USER_TIMEOUT": 5_000, "TCP_KEEPIDLE": 5, "TCP_KEEPINTVL": 2, "TCP_KEEPCNT": 2}

# Roles of services and of readers (migration 0001). A process with the owner's URL uses one, too.
WRITER, READER, PRUNER = "topolog_writer", "topolog_reader", "topolog_pruner"

_STEP_DOWN = (
    "SELECT set_config('role', rolname, false) FROM pg_roles"
    " WHERE rolname = $1 AND pg_has_role(oid, 'MEMBER')"
)


class Watchful(asyncpg.Connection):  # type: ignore[misc]
    """A connection that notices a dead peer. A dead machine sends nothing, and its
    statement would wait for its full timeout although another server is primary by then. A slow
    server is waited for."""

    def __init__(self, protocol: Any, transport: Any, *rest: Any) -> None:
        super().__init__(protocol, transport, *rest)
        self._socket = transport
        connected = transport.get_extra_info("socket")
        if connected.family in (socket.AF_INET, socket.AF_INET6):
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for name, value in _PROBES.items():
                if hasattr(socket, name):
                    connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)

    def pause_reading(self, pause_s: float) -> None:
        """Read nothing for `pause_s`, so that all messages of this time wake the process once."""
        if self._socket.is_reading() and not self._socket.is_closing():
            self._socket.pause_reading()
            asyncio.get_running_loop().call_later(pause_s, self._resume_reading)

    def _resume_reading(self) -> None:
        if not self._socket.is_closing():
            self._socket.resume_reading()


def plain_url(url: str) -> str:
    """Return the URL without an SQLAlchemy driver name, as asyncpg reads it. Raises LogUnavailable
    for a malformed URL."""
    if trouble := database_trouble(url):
        raise LogUnavailable(f"the database URL {trouble}; check TOPOLOG_DATABASE_URL")
    return f"postgresql://{url.partition('://')[2]}"


def masked_url(address: Address) -> str:
    """Return the URL for logs: without user, password and options."""
    try:
        return shown(text_of(address), POSTGRES)
    except OSError as error:
        return f"an unreadable address ({plain(error)})"


def unavailable(address: Address, error: Exception) -> LogUnavailable:
    """Return the error for a lost connection: which database, why, and what to check."""
    standby = isinstance(
        error, asyncpg.ReadOnlySQLTransactionError | asyncpg.TargetServerAttributeNotMatched
    )
    reason = "it accepts no writes, like a standby" if standby else plain(error)
    return LogUnavailable(
        f"Postgres at {masked_url(address)} does not answer ({reason}); "
        "is it up, and does TOPOLOG_DATABASE_URL name it and a valid login?"
    )


async def connect(
    address: Address,
    settings: dict[str, str] | None = None,
    timeout_s: float = 5.0,
    role: str = "",
    command_timeout_s: float | None = 60.0,
) -> Any:
    """Return a raw asyncpg connection outside any pool. It steps down to `role` if that exists and
    the user is a member (the owner is). A writer connects to the first server of the URL that
    accepts writes. Raises what asyncpg raises."""
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
    """Return a pool of at most `size` connections, made on demand. They are returned without a
    reset, because no statement here changes the session. Await the pool before use."""
    if isinstance(address, str):
        plain_url(address)

    async def open_connection(*_: object, **__: object) -> Any:
        return await connect(address, settings, role=role)

    async def without_reset(_connection: Any) -> None:
        pass

    return asyncpg.create_pool(
        connect=open_connection, min_size=0, max_size=size, reset=without_reset
    )
