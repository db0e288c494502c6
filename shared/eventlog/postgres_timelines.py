"""Begin a timeline in Postgres together with its first event, in one transaction."""

from __future__ import annotations

import asyncpg
import msgspec

from shared.domain.secret_url import Address
from shared.eventlog.errors import LoginTooWeak
from shared.eventlog.opening import opening
from shared.eventlog.port import LogIdentity, Lost
from shared.eventlog.postgres_batch import APPEND, arguments, encode_commit
from shared.eventlog.postgres_connection import LOST_CONNECTION, WRITER, connect, unavailable

_BEGIN = "SELECT topolog_begin_timeline()"
_LOST = "SELECT topolog_history_lost($1, $2, $3, $4, $5)"


async def begin_timeline(
    address: Address, settings: dict[str, str] | None, now_us: int, lost: Lost | None
) -> None:
    """Begin a timeline for the owner, or for a reader that `lost` what it had read (does nothing if
    the log still holds that). Raises LoginTooWeak, LogUnavailable."""
    try:
        connection = await connect(address, settings, role=WRITER if lost is not None else "")
        try:
            async with connection.transaction():
                query = (_BEGIN,) if lost is None else (_LOST, *msgspec.structs.astuple(lost))
                timeline = await connection.fetchval(*query)
                if timeline is None:
                    return
                identity = LogIdentity(
                    await connection.fetchval("SELECT log_id FROM counter"), timeline
                )
                await connection.fetchrow(
                    APPEND, *arguments([encode_commit(opening(identity, now_us, lost))])
                )
        finally:
            await connection.close()
    except asyncpg.InsufficientPrivilegeError as error:
        login = "the owner's login" if lost is None else "the login topolog_service"
        raise LoginTooWeak(
            f"this login may not begin a timeline; give --database-url with {login}"
        ) from error
    except LOST_CONNECTION as error:
        raise unavailable(address, error) from error
