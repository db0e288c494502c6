"""`topolog certificates`: an authority and a certificate for NATS, where nobody else issues them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from services.cli.output import CommandError, json_line
from services.embedded.errors import DataFolderError

IN_A_CLUSTER = (
    *(f"nats{suffix}" for suffix in ("", ".topolog", ".topolog.svc", ".topolog.svc.cluster.local")),
    *(f"nats-{number}.nats-peers" for number in range(3)),
    "localhost",
    "127.0.0.1",
)
"""What clients and routes call the servers of k8s/components/nats and nats-cluster."""


def register(app: typer.Typer) -> None:
    """Mount the verb."""
    app.command("certificates")(certificates_command)


def certificates_command(
    folder: Annotated[
        Path, typer.Option("--dir", help="Where the files are kept; made where they are not.")
    ],
    name: Annotated[
        list[str] | None,
        typer.Option(help="What clients call the server; may be repeated. Default: as in k8s/."),
    ] = None,
    client: Annotated[
        list[str] | None,
        typer.Option(
            help="Make NAME.crt and NAME.key too, for a client that NATS asks for one; repeatable."
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="A JSON line instead of sentences.")
    ] = False,
) -> None:
    """Make an authority and a certificate of it for NATS, with which clients and servers talk by
    TLS.

    Run again it keeps what is there, and makes the certificate anew for other names or when less
    than a year of it is left.
    """
    from services.embedded.certificates import client as client_files
    from services.embedded.certificates import ensure

    wanted = client or []
    try:
        files = ensure(folder, name or IN_A_CLUSTER, wanted)
    except DataFolderError as error:
        raise CommandError(error.problem, error.remedy) from error
    made = {each: client_files(folder, each) for each in wanted}
    if as_json:
        clients = {each: [str(own.certificate), str(own.key)] for each, own in made.items()}
        json_line(
            {
                "ca": str(files.ca),
                "certificate": str(files.certificate),
                "key": str(files.key),
                "clients": clients,
            }
        )
        return
    print(f"authority: {files.ca}\ncertificate: {files.certificate}\nkey: {files.key}")
    for each, own in made.items():
        print(
            f"client {each}: {own.certificate}, {own.key} (in TOPOLOG_NATS_URL: cert=FILE&key=FILE)"
        )
    if name:
        return  # of another server, whose secret has a name of its own
    parts = " ".join(f"--from-file={file}" for file in (files.ca, files.certificate, files.key))
    print(f"kubectl -n topolog create secret generic topolog-nats-tls {parts}")
