"""`python -m services.embedded.run_migrations`: migrate the database of TOPOLOG_DATABASE_URL to the
newest revision.

Safe to repeat and to run several times at once, because a lock in the database serializes the runs.
TOPOLOG_SERVICE_PASSWORD also creates the login of the services (topolog_service), or changes its
password; TOPOLOG_KEEPER_PASSWORD does so for the archive's (topolog_keeper). NAME_FILE may name a
file with the value instead. A database that does not answer yet, as at a first start, is retried
for TOPOLOG_DATABASE_WAIT_S (60) seconds.
"""

import asyncio
import sys

import stamina
from stamina.instrumentation import RetryDetails, set_on_retry_hooks

from services.embedded.container import main, number, required, secret
from services.embedded.errors import EmbeddedError
from shared.eventlog.errors import LoginTooWeak, LogNotMigrated
from shared.eventlog.migrate import upgrade
from shared.eventlog.postgres_connection import LOST_CONNECTION
from shared.eventlog.postgres_logins import KEEPER, SERVICE, make_login
from shared.telemetry.scrubbing import scrub_text

WAIT_S = 60


async def serve() -> None:
    """Migrate. Raises EmbeddedError with the database's message."""
    (url,) = required("TOPOLOG_DATABASE_URL")
    wait_s = number("TOPOLOG_DATABASE_WAIT_S", WAIT_S, 0, 240)
    try:
        changed = await _upgraded(url, wait_s)
    except (
        Exception
    ) as error:  # any error of the driver: a person needs its message and the name of the variable
        raise EmbeddedError(
            f"the database could not be migrated: {error}", "Check TOPOLOG_DATABASE_URL"
        ) from error
    print("migrated to the newest revision" if changed else "already at the newest revision")
    for login, variable, user in (
        (SERVICE, "TOPOLOG_SERVICE_PASSWORD", "services"),
        (KEEPER, "TOPOLOG_KEEPER_PASSWORD", "the archive"),
    ):
        password = secret(variable, optional=True)
        if not password:
            continue
        try:
            await make_login(url, login, password)
        except (LoginTooWeak, LogNotMigrated) as error:
            raise EmbeddedError(
                str(error), "Or run `topolog database roles`, and set no password here"
            ) from error
        print(f"the login of {user} is {login}")


async def _upgraded(url: str, wait_s: int) -> bool:
    """Migrate, and retry while the server does not answer. Raises the driver's exceptions."""
    set_on_retry_hooks([_report_first_retry])
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


def _report_first_retry(details: RetryDetails) -> None:
    """Report the first retry only."""
    if details.retry_num == 1:
        print(
            scrub_text(f"waiting for the database: {details.caused_by}"),
            file=sys.stderr,
            flush=True,
        )


if __name__ == "__main__":
    sys.exit(main(lambda: asyncio.wait_for(serve(), timeout=300)))
