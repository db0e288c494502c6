"""`python -m services.embedded.run_nats`: NATS with JetStream in a container, reachable by TCP with passwords.

Environment: TOPOLOG_NATS_PASSWORD (user topolog) and TOPOLOG_NATS_EXPORTER_PASSWORD (user exporter, who may publish
reports only), both required; TOPOLOG_DATA_DIR; TOPOLOG_NATS_PORT (4222), TOPOLOG_NATS_MONITOR_PORT (8222, `/healthz`).
TLS: TOPOLOG_NATS_TLS_DIR, a folder with tls.crt and tls.key; or TOPOLOG_NATS_TLS_NAMES, what clients call this server, for a
certificate made in the data folder, whose authority is put into TOPOLOG_NATS_CA_DIR as ca.crt for clients to read.
"""

import asyncio
import os
import sys
from pathlib import Path

from services.embedded.child import HttpReady
from services.embedded.container import data_dir_setting, main, number, print_event, required, run_until_stopped
from services.embedded.errors import EmbeddedError
from services.embedded.nats import NatsSettings, TlsFiles
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
        tls=given_tls(os.environ.get("TOPOLOG_NATS_TLS_DIR", "")),
        tls_names=tuple(filter(None, os.environ.get("TOPOLOG_NATS_TLS_NAMES", "").split(","))),
    )
    if settings.tls is None and not settings.tls_names:
        print("nats: without TLS; see TOPOLOG_NATS_TLS_DIR and TOPOLOG_NATS_TLS_NAMES", file=sys.stderr, flush=True)
    async with EmbeddedServers(data_dir_setting(), want_postgres=False, nats_settings=settings, on_event=print_event) as servers:
        if servers.nats is not None and servers.nats.tls is not None:
            publish(servers.nats.tls.ca, os.environ.get("TOPOLOG_NATS_CA_DIR", ""))
        await run_until_stopped(servers.supervisor)


def given_tls(folder: str) -> TlsFiles | None:
    """The certificate in a folder; None for no folder, or an empty one (a Secret that is not there). Raises EmbeddedError."""
    files = [Path(folder) / name for name in ("tls.crt", "tls.key")] if folder else []
    there = [file for file in files if file.exists()]
    if not there:
        return None
    if len(there) < len(files):
        raise EmbeddedError(f"TOPOLOG_NATS_TLS_DIR={folder} holds {there[0].name} alone", "Put tls.crt and tls.key there")
    return TlsFiles(*map(str, files))


def publish(ca: str, folder: str) -> None:
    """Put the authority where clients read it. Raises EmbeddedError."""
    if not (ca and folder):
        return
    try:
        draft = Path(folder) / "ca.crt.new"
        draft.write_bytes(Path(ca).read_bytes())
        draft.replace(Path(folder) / "ca.crt")
    except OSError as error:
        raise EmbeddedError(f"TOPOLOG_NATS_CA_DIR={folder} cannot be written: {error}", "Name a folder that can") from error


def monitor_port() -> int:
    """The port of the monitoring pages."""
    return number("TOPOLOG_NATS_MONITOR_PORT", MONITOR_PORT, 1, 65_535)


def check() -> int:
    """0 when the server says that it is healthy."""
    return 0 if asyncio.run(is_ready(HttpReady(f"http://127.0.0.1:{monitor_port()}/healthz"), 0)) else 1


if __name__ == "__main__":
    sys.exit(check() if sys.argv[1:] == ["--check"] else main(serve))
