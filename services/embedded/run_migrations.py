"""`python -m services.embedded.run_migrations`: bring the database of TOPOLOG_DATABASE_URL to the
newest revision, and end.

Harmless when there is nothing to do, and when several run at once: a lock in the database lets one
work. With TOPOLOG_SERVICE_PASSWORD the services' own login (topolog_service) is made too, or gets
that password. Each may stand in a file instead, which NAME_FILE names. A database that does not
answer yet, as at a first start, is waited for: TOPOLOG_DATABASE_WAIT_S (60) at most.
"""

import asyncio
import sys

import stamina
from stamina.instrumentation import RetryDetails, set_on_retry_hooks

from services.embedded.container import main, number, required, secret
from services.embedded.errors import EmbeddedError
from shared.eventlog.errors import LoginTooWeak
from shared.eventlog.migrate import upgrade
from shared.eventlog.postgres_connection import LOST_CONNECTION
from shared.eventlog.postgres_logins import SERVICE, make_login
from shared.telemetry.logs import scrub_text

WAIT_S = 60


async def serve() -> None:
    """Migrate. Raises EmbeddedError with the database's words."""
    (url,) = required("TOPOLOG_DATABASE_URL")
    wait_s = number("TOPOLOG_DATABASE_WAIT_S", WAIT_S, 0, 240)
    try:
        changed = await _upgraded(url, wait_s)
    except (
        Exception
    ) as error:  # whatever the driver raises, the reader needs its words and the variable's name
        raise EmbeddedError(
            f"the database could not be migrated: {error}", "Check TOPOLOG_DATABASE_URL"
        ) from error
    print("migrated to the newest revision" if changed else "already at the newest revision")
    password = secret("TOPOLOG_SERVICE_PASSWORD", optional=True)
    if password:
        try:
            await make_login(url, SERVICE, password)
        except LoginTooWeak as error:
            raise EmbeddedError(
                str(error), "Or make it by `topolog database roles`, and give no password here"
            ) from error
        print(f"the login of services is {SERVICE}")


async def _upgraded(url: str, wait_s: int) -> bool:
    """Raises what the driver does, of a server that may come once it was waited for."""
    set_on_retry_hooks([_tell])
    async for attempt in stamina.retry_context(
        on=LOST_CONNECTION,
        attempts=None if wait_s else 1,
        timeout=wait_s or None,
        wait_initial=0.2,
        wait_max=2.0,
    ):
        with attempt:
            return await upgrade(url)
    raise AssertionError("a retry context ends by return or raise")


def _tell(details: RetryDetails) -> None:
    """Once what is waited for."""
    if details.retry_num == 1:
        print(
            scrub_text(f"waiting for the database: {details.caused_by}"),
            file=sys.stderr,
            flush=True,
        )


if __name__ == "__main__":
    sys.exit(main(lambda: asyncio.wait_for(serve(), timeout=300)))
