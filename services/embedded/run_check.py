"""`python -m services.embedded.run_check nats|postgres`: check the server in this container. Exit
code 0, or 1 with the reason.

It runs every few seconds, so it imports nothing that only serving needs. Environment: as `run_nats`
and `run_postgres`.
"""

import http.client
import sys

from services.embedded.binaries import find_postgres
from services.embedded.child import PlainIdentity
from services.embedded.container import data_dir_setting, monitor_port, postgres_port
from services.embedded.postgres import DATABASE, socket_dir_for
from services.embedded.spawn import run_tool

TIMEOUT_S = 5


def nats() -> None:
    """Return if the server reports that it is healthy, else raise."""
    connection = http.client.HTTPConnection("127.0.0.1", monitor_port(), timeout=TIMEOUT_S)
    connection.request("GET", "/healthz")
    answer = connection.getresponse()
    if answer.status != http.HTTPStatus.OK:
        raise ConnectionError(f"HTTP {answer.status}: {answer.read(200)!r}")


def postgres() -> None:
    """Return if the database answers on its socket, else raise."""
    socket_dir = str(socket_dir_for(data_dir_setting()))
    where = ("-h", socket_dir, "-p", str(postgres_port()), "-U", "postgres", "-d", DATABASE)
    run_tool(
        (find_postgres().tool("psql"), "-X", "-q", *where, "-c", "select 1"),
        PlainIdentity(),
        timeout_s=TIMEOUT_S,
    )


CHECKS = {"nats": nats, "postgres": postgres}


def main(arguments: list[str]) -> int:
    """Check the server that the arguments name."""
    if len(arguments) != 1 or arguments[0] not in CHECKS:
        print(f"error: name one of {', '.join(CHECKS)}", file=sys.stderr)
        return 2
    try:
        CHECKS[arguments[0]]()
    except Exception as error:  # a health check says no to whatever went wrong
        print(f"not ready: {getattr(error, 'output', None) or error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
