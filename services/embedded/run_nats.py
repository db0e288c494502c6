"""`python -m services.embedded.run_nats`: NATS with JetStream in a container, on TCP with
passwords. Environment:

TOPOLOG_NATS_PASSWORD is for the user topolog. Exporters use one of: TOPOLOG_NATS_CREDENTIALS_DIR, a
folder of `topolog nats credentials`, in which each exporter has a key for its own nodes; or
TOPOLOG_NATS_EXPORTER_PASSWORD, for the user exporter, which may publish reports of any node while
that folder is empty. A password may be in a file, TOPOLOG_NATS_..._FILE. Folder and files are read
again when they change.

TOPOLOG_DATA_DIR; TOPOLOG_NATS_PORT (4222); TOPOLOG_NATS_MONITOR_PORT (8222, `/healthz`) on
TOPOLOG_NATS_MONITOR_HOST (127.0.0.1, because it has no password and lists every connection; probes
of Kubernetes need 0.0.0.0).

TOPOLOG_NATS_LOGINS, the service account of exporters (system:serviceaccount:NAMESPACE:NAME),
accepts pods by the tokens of their kubelets, each for its node. The Kubernetes API reviews them
(TOPOLOG_KUBECONFIG, else as this pod).

TLS: TOPOLOG_NATS_TLS_DIR, a folder with tls.crt and tls.key; or TOPOLOG_NATS_TLS_NAMES, the names
of this server, for a certificate in the data folder, whose authority is written to
TOPOLOG_NATS_CA_DIR as ca.crt for clients. TOPOLOG_NATS_TLS_VERIFY=true requires client certificates
of the ca.crt in TOPOLOG_NATS_TLS_DIR.
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
    """Start the server and wait for the signal to stop."""
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
        raise EmbeddedError(
            "TOPOLOG_NATS_LOGINS and TOPOLOG_NATS_TLS_VERIFY=true exclude each other: "
            "a login by token has no client certificate",
            "Unset one of them",
        )
    if settings.tls is None and not settings.tls_names:
        print(
            "nats: TLS is off; see TOPOLOG_NATS_TLS_DIR and TOPOLOG_NATS_TLS_NAMES",
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
    """Return the decider of token logins. Its Kubernetes client is imported only if it is needed.
    Raises EmbeddedError.
    """
    if not user:
        return None
    from services.embedded.logins import Logins

    return Logins(user)


async def follow_files(servers: EmbeddedServers, folder: str) -> None:
    """Reload the server when keys or passwords change. Damaged files are reported, and the old ones
    stay.
    """
    password_files = [os.environ.get(f"{name}_FILE", "") for name in PASSWORDS]
    paths = list(filter(None, [os.path.join(folder, REGISTER) if folder else "", *password_files]))
    loaded = [signature(path) for path in paths]
    while paths:
        await asyncio.sleep(CREDENTIALS_EVERY_S)
        newest = [signature(path) for path in paths]
        if newest != loaded:
            loaded = newest
            try:
                if servers.nats is not None and any(password_files):
                    servers.nats.take_passwords(
                        required(PASSWORDS[0])[0], secret(PASSWORDS[1], optional=True)
                    )
                await servers.reload_nats()
            except EmbeddedError as error:
                print(f"nats: the old credentials stay: {error}", file=sys.stderr, flush=True)
            else:
                exporters = len(load(Path(folder))) if folder else 0
                print(
                    f"nats: credentials reloaded, {exporters} exporters",
                    file=sys.stderr,
                    flush=True,
                )


def given_tls(folder: str, clients_too: bool = False) -> TlsFiles | None:
    """Return the certificate in a folder; None without a folder, or for an empty one (a missing
    Secret). `clients_too` requires client certificates of the folder's ca.crt. Raises
    EmbeddedError.
    """
    files = [Path(folder) / name for name in ("tls.crt", "tls.key")] if folder else []
    existing = [file for file in files if file.exists()]
    if not existing:
        return None
    if len(existing) < len(files):
        raise EmbeddedError(
            f"TOPOLOG_NATS_TLS_DIR={folder} contains only {existing[0].name}",
            "Put tls.crt and tls.key there",
        )
    ca = Path(folder) / "ca.crt"
    if clients_too and not ca.exists():
        raise EmbeddedError(
            f"TOPOLOG_NATS_TLS_VERIFY=true, and {folder} has no ca.crt",
            "Put the authority of client certificates there",
        )
    return TlsFiles(str(files[0]), str(files[1]), str(ca) if clients_too else "", clients_too)


def publish(ca: str, folder: str) -> None:
    """Copy the authority to the folder that clients read. Raises EmbeddedError."""
    if not (ca and folder):
        return
    try:
        draft = Path(folder) / "ca.crt.new"
        draft.write_bytes(Path(ca).read_bytes())
        draft.replace(Path(folder) / "ca.crt")
    except OSError as error:
        raise EmbeddedError(
            f"TOPOLOG_NATS_CA_DIR={folder} cannot be written: {error}", "Use a writable folder"
        ) from error


if __name__ == "__main__":
    sys.exit(run_check.main(["nats"]) if sys.argv[1:] == ["--check"] else main(serve))
