"""`topolog certificates`: an authority and a certificate for NATS, if nothing else issues them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from services.cli.output import CommandError, json_line, say
from services.cli.paths import path_option
from services.embedded.errors import DataFolderError

# The names by which clients and routes call the servers of k8s/components/nats and nats-cluster.
IN_A_CLUSTER = (
    *(f"nats{suffix}" for suffix in ("", ".topolog", ".topolog.svc", ".topolog.svc.cluster.local")),
    *(f"nats-{number}.nats-peers" for number in range(3)),
    "localhost",
    "127.0.0.1",
)


def register(app: typer.Typer) -> None:
    app.command("certificates")(certificates_command)


def certificates_command(
    folder: Annotated[Path, path_option("--dir", help="Folder of the files; created if missing.")],
    name: Annotated[
        list[str] | None,
        typer.Option(help="Name of the server, repeatable. Default: the names in k8s/."),
    ] = None,
    client: Annotated[
        list[str] | None,
        typer.Option(
            help="Also create NAME.crt and NAME.key for a client certificate, repeatable."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON line.")] = False,
) -> None:
    """Create an authority and a TLS certificate for NATS.

    A second run keeps the files. It replaces the certificate if the names differ, or if it expires
    within a year.
    """
    from services.embedded.certificates import client as client_files
    from services.embedded.certificates import ensure

    clients = client or []
    try:
        files = ensure(folder, name or IN_A_CLUSTER, clients)
    except DataFolderError as error:
        raise CommandError(error.problem, error.remedy) from error
    pairs = {client_name: client_files(folder, client_name) for client_name in clients}
    if as_json:
        json_line(
            {
                "ca": str(files.ca),
                "certificate": str(files.certificate),
                "key": str(files.key),
                "clients": {
                    client_name: [str(pair.certificate), str(pair.key)]
                    for client_name, pair in pairs.items()
                },
            }
        )
        return
    say(f"authority: {files.ca}")
    say(f"certificate: {files.certificate}")
    say(f"key: {files.key}")
    for client_name, pair in pairs.items():
        say(
            f"client {client_name}: {pair.certificate}, {pair.key} "
            "(in TOPOLOG_NATS_URL: cert=FILE&key=FILE)"
        )
    if name:
        return  # a server with other names has a secret of another name
    parts = " ".join(f"--from-file={file}" for file in (files.ca, files.certificate, files.key))
    say(f"kubectl -n topolog create secret generic topolog-nats-tls {parts}")
