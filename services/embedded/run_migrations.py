"""`python -m services.embedded.run_migrations`: bring the database of TOPOLOG_DATABASE_URL to the newest revision, and end.

Harmless when there is nothing to do, and when several run at once: a lock in the database lets one work. With
TOPOLOG_SERVICE_PASSWORD the services' own login (topolog_service) is made too, or gets that password. Each may stand in a file
instead, which NAME_FILE names.
"""

import asyncio
import sys

from services.embedded.container import main, required, secret
from services.embedded.errors import EmbeddedError
from shared.eventlog.errors import LoginTooWeak
from shared.eventlog.migrate import upgrade
from shared.eventlog.postgres_logins import SERVICE, make_login


async def serve() -> None:
    """Migrate. Raises EmbeddedError with the database's words."""
    (url,) = required("TOPOLOG_DATABASE_URL")
    try:
        changed = await upgrade(url)
    except Exception as error:  # whatever the driver raises, the reader needs its words and the variable's name
        raise EmbeddedError(f"the database could not be migrated: {error}", "Check TOPOLOG_DATABASE_URL") from error
    print("migrated to the newest revision" if changed else "already at the newest revision")
    password = secret("TOPOLOG_SERVICE_PASSWORD", optional=True)
    if password:
        try:
            await make_login(url, SERVICE, password)
        except LoginTooWeak as error:
            raise EmbeddedError(str(error), "Or make it by `topolog database roles`, and give no password here") from error
        print(f"the login of services is {SERVICE}")


if __name__ == "__main__":
    sys.exit(main(lambda: asyncio.wait_for(serve(), timeout=300)))
