"""A timeline begins in Postgres, and its first fact with it: one transaction, so that nobody sees
the one without the other.
"""

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
    """By the owner's word, or by that of a reader that `lost` what it had (nothing, where the log
    does not think so). Raises LoginTooWeak, LogUnavailable."""
    try:
        connection = await connect(address, settings, role=WRITER if lost is not None else "")
        try:
            async with connection.transaction():
                asked = (_BEGIN,) if lost is None else (_LOST, *msgspec.structs.astuple(lost))
                begun = await connection.fetchval(*asked)
                if begun is None:
                    return
                identity = LogIdentity(
                    await connection.fetchval("SELECT log_id FROM counter"), begun
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
