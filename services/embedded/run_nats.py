"""`python -m services.embedded.run_nats`: NATS with JetStream in a container, reachable by TCP with passwords.

Environment: TOPOLOG_NATS_PASSWORD (user topolog) and TOPOLOG_NATS_EXPORTER_PASSWORD (user exporter, who may publish
reports only), both required; TOPOLOG_DATA_DIR; TOPOLOG_NATS_PORT (4222), TOPOLOG_NATS_MONITOR_PORT (8222, `/healthz`).
"""

import asyncio
import sys

from services.embedded.child import HttpReady
from services.embedded.container import data_dir_setting, main, number, print_event, required, run_until_stopped
from services.embedded.nats import NatsSettings
from services.embedded.probes import is_ready
from services.embedded.servers import EmbeddedServers

PORT = 4222
MONITOR_PORT = 8222
EVERYWHERE = "0.0.0.0"


async def serve() -> None:
    """Start the server, wait for the signal to stop."""
    password, exporter_password = required("TOPOLOG_NATS_PASSWORD", "TOPOLOG_NATS_EXPORTER_PASSWORD")
    settings = NatsSettings(
        port=number("TOPOLOG_NATS_PORT", PORT, 1, 65_535),
        monitor_port=monitor_port(),
        password=password,
        host=EVERYWHERE,
        exporter_password=exporter_password,
    )
    async with EmbeddedServers(data_dir_setting(), want_postgres=False, nats_settings=settings, on_event=print_event) as servers:
        await run_until_stopped(servers.supervisor)


def monitor_port() -> int:
    """The port of the monitoring pages."""
    return number("TOPOLOG_NATS_MONITOR_PORT", MONITOR_PORT, 1, 65_535)


def check() -> int:
    """0 when the server says that it is healthy."""
    return 0 if asyncio.run(is_ready(HttpReady(f"http://127.0.0.1:{monitor_port()}/healthz"), 0)) else 1


if __name__ == "__main__":
    sys.exit(check() if sys.argv[1:] == ["--check"] else main(serve))
