"""`python -m services.embedded.run_nats`: NATS with JetStream in a container, reachable by TCP with
passwords.

Environment: TOPOLOG_NATS_PASSWORD (user topolog), and for exporters one of
TOPOLOG_NATS_CREDENTIALS_DIR (a folder made by `topolog nats credentials`: each exporter speaks for
its own nodes; read again when it changes) and TOPOLOG_NATS_EXPORTER_PASSWORD (user exporter, who
may publish reports of any node, as long as that folder is empty); each password may stand in a
file, TOPOLOG_NATS_..._FILE, and is taken up anew when that changes; TOPOLOG_DATA_DIR;
TOPOLOG_NATS_PORT (4222), TOPOLOG_NATS_MONITOR_PORT (8222, `/healthz`) on TOPOLOG_NATS_MONITOR_HOST
(127.0.0.1, as it asks for no password and shows every connection; probes of Kubernetes need
0.0.0.0). TOPOLOG_NATS_LOGINS, the service account of exporters
(system:serviceaccount:NAMESPACE:NAME), lets pods of it in by the tokens that their kubelets gave
them, each for its node; the Kubernetes API judges them (TOPOLOG_KUBECONFIG, else as this pod). TLS:
TOPOLOG_NATS_TLS_DIR, a folder with tls.crt and tls.key; or TOPOLOG_NATS_TLS_NAMES, what clients
call this server, for a certificate made in the data folder, whose authority is put into
TOPOLOG_NATS_CA_DIR as ca.crt for clients to read. TOPOLOG_NATS_TLS_VERIFY=true asks clients for
certificates of the ca.crt in TOPOLOG_NATS_TLS_DIR.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from services.embedded import run_check
from services.embedded.container import (
    data_dir_setting,
    main,
    monitor_port,
    number,
    print_event,
    required,
    run_until_stopped,
    secret,
)
from services.embedded.errors import EmbeddedError
from services.embedded.nats import NatsSettings, TlsFiles
from services.embedded.nats_credentials import REGISTER, load
from services.embedded.servers import EmbeddedServers
from shared.file_signature import signature

if TYPE_CHECKING:
    from services.embedded.logins import Logins

PORT = 4222
EVERYWHERE = "0.0.0.0"
PASSWORDS = ("TOPOLOG_NATS_PASSWORD", "TOPOLOG_NATS_EXPORTER_PASSWORD")
CREDENTIALS_EVERY_S = 0.5


async def serve() -> None:
    """Start the server, wait for the signal to stop."""
    credentials = os.environ.get("TOPOLOG_NATS_CREDENTIALS_DIR", "")
    user = os.environ.get("TOPOLOG_NATS_LOGINS", "")
    needed = PASSWORDS[:1] if credentials or user else PASSWORDS
    password = required(*needed)[0]
    logins = _logins(user)
    settings = NatsSettings(
        port=number("TOPOLOG_NATS_PORT", PORT, 1, 65_535),
        monitor_port=monitor_port(),
        password=password,
        host=EVERYWHERE,
        monitor_host=os.environ.get("TOPOLOG_NATS_MONITOR_HOST", "127.0.0.1"),
        exporter_password=secret(PASSWORDS[1], optional=True),
        credentials=credentials,
        tls=given_tls(
            os.environ.get("TOPOLOG_NATS_TLS_DIR", ""),
            os.environ.get("TOPOLOG_NATS_TLS_VERIFY") == "true",
        ),
        tls_names=tuple(filter(None, os.environ.get("TOPOLOG_NATS_TLS_NAMES", "").split(","))),
        callout=logins.callout if logins else None,
    )
    if logins is not None and settings.tls is not None and settings.tls.clients_too:
        told = "TOPOLOG_NATS_LOGINS and TOPOLOG_NATS_TLS_VERIFY=true"
        raise EmbeddedError(
            f"{told} are set, and tokens go without client certificates", "Leave one out"
        )
    if settings.tls is None and not settings.tls_names:
        print(
            "nats: without TLS; see TOPOLOG_NATS_TLS_DIR and TOPOLOG_NATS_TLS_NAMES",
            file=sys.stderr,
            flush=True,
        )
    async with EmbeddedServers(
        data_dir_setting(), want_postgres=False, nats_settings=settings, on_event=print_event
    ) as servers:
        if servers.nats is not None and servers.nats.tls is not None:
            publish(servers.nats.tls.ca, os.environ.get("TOPOLOG_NATS_CA_DIR", ""))
        tasks = [asyncio.create_task(follow_files(servers, credentials))]
        if logins is not None and servers.nats is not None:
            tasks.append(asyncio.create_task(logins.run(servers.nats)))
        await run_until_stopped(servers.supervisor)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _logins(user: str) -> Logins | None:
    """Whoever lets that service account's pods in; its client of the Kubernetes API is not even
    loaded without. Raises EmbeddedError."""
    if not user:
        return None
    from services.embedded.logins import Logins

    return Logins(user)


async def follow_files(servers: EmbeddedServers, folder: str) -> None:
    """Have the server take up keys and passwords that were made, replaced or withdrawn, for ever;
    damaged ones are told and wait for better ones."""
    named = [os.environ.get(f"{name}_FILE", "") for name in PASSWORDS]
    paths = list(filter(None, [os.path.join(folder, REGISTER) if folder else "", *named]))
    seen = [signature(path) for path in paths]
    while paths:
        await asyncio.sleep(CREDENTIALS_EVERY_S)
        found = [signature(path) for path in paths]
        if found != seen:
            seen = found
            try:
                if servers.nats is not None and any(named):
                    servers.nats.take_passwords(
                        required(PASSWORDS[0])[0], secret(PASSWORDS[1], optional=True)
                    )
                await servers.reload_nats()
            except EmbeddedError as error:
                print(
                    f"nats: the credentials stay as they were: {error}", file=sys.stderr, flush=True
                )
            else:
                exporters = len(load(Path(folder))) if folder else 0
                print(
                    f"nats: credentials taken up anew, of {exporters} exporters",
                    file=sys.stderr,
                    flush=True,
                )


def given_tls(folder: str, clients_too: bool = False) -> TlsFiles | None:
    """The certificate in a folder; None for no folder, or an empty one (a Secret that is not
    there). `clients_too` asks clients for certificates of the folder's ca.crt. Raises
    EmbeddedError."""
    files = [Path(folder) / name for name in ("tls.crt", "tls.key")] if folder else []
    there = [file for file in files if file.exists()]
    if not there:
        return None
    if len(there) < len(files):
        raise EmbeddedError(
            f"TOPOLOG_NATS_TLS_DIR={folder} holds {there[0].name} alone",
            "Put tls.crt and tls.key there",
        )
    ca = Path(folder) / "ca.crt"
    if clients_too and not ca.exists():
        raise EmbeddedError(
            f"TOPOLOG_NATS_TLS_VERIFY=true, and {folder} holds no ca.crt",
            "Put the authority of clients there",
        )
    return TlsFiles(str(files[0]), str(files[1]), str(ca) if clients_too else "", clients_too)


def publish(ca: str, folder: str) -> None:
    """Put the authority where clients read it. Raises EmbeddedError."""
    if not (ca and folder):
        return
    try:
        draft = Path(folder) / "ca.crt.new"
        draft.write_bytes(Path(ca).read_bytes())
        draft.replace(Path(folder) / "ca.crt")
    except OSError as error:
        raise EmbeddedError(
            f"TOPOLOG_NATS_CA_DIR={folder} cannot be written: {error}", "Name a folder that can"
        ) from error


if __name__ == "__main__":
    sys.exit(run_check.main(["nats"]) if sys.argv[1:] == ["--check"] else main(serve))
