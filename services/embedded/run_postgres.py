"""`python -m services.embedded.run_postgres`: Postgres in a container, on TCP with a password.

Environment: TOPOLOG_POSTGRES_PASSWORD (required), TOPOLOG_DATA_DIR,
TOPOLOG_POSTGRES_SHARED_BUFFERS_MB, TOPOLOG_POSTGRES_PORT. `--check` is `run_check postgres`, for
old manifests: a probe must not start a server.
"""

import asyncio
import sys

from services.embedded import run_check
from services.embedded.container import (
    data_dir_setting,
    main,
    number,
    postgres_port,
    print_event,
    required,
    run_until_stopped,
)
from services.embedded.postgres import PostgresSettings
from services.embedded.servers import EmbeddedServers


async def serve() -> None:
    """Start the server, set the password, wait for the signal to stop."""
    servers = EmbeddedServers(
        data_dir_setting(), want_nats=False, postgres_settings=settings(), on_event=print_event
    )
    async with servers:
        if servers.postgres is not None:
            await asyncio.to_thread(servers.postgres.apply_password)
        await run_until_stopped(servers.supervisor)


def settings() -> PostgresSettings:
    """Return the settings from the environment. Raises EmbeddedError."""
    (password,) = required("TOPOLOG_POSTGRES_PASSWORD")
    buffers_mb = number("TOPOLOG_POSTGRES_SHARED_BUFFERS_MB", 256, 1, 1_048_576)
    return PostgresSettings(
        shared_buffers_mb=buffers_mb, listen_addresses="*", password=password, port=postgres_port()
    )


if __name__ == "__main__":
    sys.exit(run_check.main(["postgres"]) if sys.argv[1:] == ["--check"] else main(serve))
