"""A Postgres that refuses connections, whatever the reason, is unavailable, and never the end of a
service.
"""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest

from shared.eventlog import postgres_connection
from shared.eventlog.errors import LogUnavailable
from shared.eventlog.postgres import PostgresEventLog


@pytest.mark.parametrize(
    "refusal",
    [
        asyncpg.CannotConnectNowError("the database system is starting up"),
        asyncpg.TooManyConnectionsError("sorry, too many clients already"),
        asyncpg.AdminShutdownError("terminating connection"),
        asyncpg.InvalidCatalogNameError('database "topolog" does not exist'),
        asyncpg.InvalidPasswordError('password authentication failed for user "topolog_service"'),
        asyncpg.InvalidAuthorizationSpecificationError('role "topolog_service" does not exist'),
        ConnectionRefusedError("nobody listens"),
        TimeoutError(),
    ],
    ids=lambda refusal: type(refusal).__name__,
)
async def test_a_refused_connection_is_an_unavailable_log(
    monkeypatch: pytest.MonkeyPatch, refusal: Exception
) -> None:
    async def refuse(*_: Any, **__: Any) -> Any:
        raise refusal

    monkeypatch.setattr(postgres_connection, "connect", refuse)
    log = PostgresEventLog("postgresql+asyncpg://u:p@127.0.0.1:1/none", retry_for_s=0.05)
    with pytest.raises(LogUnavailable):
        await log.head()
    with pytest.raises(LogUnavailable):
        await log.read(0)
    await log.close()
