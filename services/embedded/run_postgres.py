"""`python -m services.embedded.run_postgres`: Postgres in a container, reachable by TCP with a password.

Environment: TOPOLOG_POSTGRES_PASSWORD (required), TOPOLOG_DATA_DIR, TOPOLOG_POSTGRES_SHARED_BUFFERS_MB,
TOPOLOG_POSTGRES_PORT. `--check` asks the running server one question and exits 0 or 1, for health checks.
"""

import asyncio
import sys

from services.embedded.binaries import find_postgres
from services.embedded.child import PlainIdentity
from services.embedded.container import data_dir_setting, main, number, print_event, required, run_until_stopped
from services.embedded.postgres import DATABASE, PORT, PostgresSettings, socket_dir_for
from services.embedded.servers import EmbeddedServers
from services.embedded.spawn import run_tool


async def serve() -> None:
    """Start the server, set the password, wait for the signal to stop."""
    servers = EmbeddedServers(data_dir_setting(), want_nats=False, postgres_settings=settings(), on_event=print_event)
    async with servers:
        if servers.postgres is not None:
            await asyncio.to_thread(servers.postgres.apply_password)
        await run_until_stopped(servers.supervisor)


def settings() -> PostgresSettings:
    """Settings from the environment. Raises EmbeddedError."""
    (password,) = required("TOPOLOG_POSTGRES_PASSWORD")
    buffers_mb = number("TOPOLOG_POSTGRES_SHARED_BUFFERS_MB", 256, 1, 1_048_576)
    return PostgresSettings(shared_buffers_mb=buffers_mb, listen_addresses="*", password=password, port=port())


def port() -> int:
    """The TCP port, which also names the socket."""
    return number("TOPOLOG_POSTGRES_PORT", PORT, 1, 65_535)


def check() -> int:
    """0 when the database answers on its socket."""
    socket_dir = str(socket_dir_for(data_dir_setting()))
    where = ("-h", socket_dir, "-p", str(port()), "-U", "postgres", "-d", DATABASE)
    try:
        run_tool((find_postgres().tool("psql"), "-X", "-q", *where, "-c", "select 1"), PlainIdentity(), timeout_s=5)
    except Exception as error:  # a health check says no to whatever went wrong
        print(f"not ready: {getattr(error, 'output', None) or error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(check() if sys.argv[1:] == ["--check"] else main(serve))
