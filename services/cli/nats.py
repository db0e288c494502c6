"""`topolog nats`: NATS credentials of exporters, each for its own nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from services.cli.output import CommandError, json_line, say
from services.cli.paths import path_option
from services.cli.verbs import group
from services.embedded.errors import DataFolderError

app = group("Manage the NATS credentials of exporters.")


def register(parent: typer.Typer) -> None:
    parent.add_typer(app, name="nats")


@app.callback()
def _group() -> None:
    """Manage the NATS credentials of exporters."""


@app.command("credentials")
def credentials_command(
    folder: Annotated[
        Path, path_option("--dir", help="Folder of the credentials; created if missing.")
    ],
    node: Annotated[
        list[str] | None,
        typer.Option(help="Node that gets a credential, repeatable."),
    ] = None,
    nodes_file: Annotated[
        list[Path] | None,
        path_option(help="JSON file [{name, ...}], as the exporter's --nodes-file; repeatable."),
    ] = None,
    together: Annotated[
        str,
        typer.Option(help="Create one credential of this name for one exporter of all the nodes."),
    ] = "",
    renew: Annotated[
        bool, typer.Option("--renew", help="Replace the seeds of the given nodes.")
    ] = False,
    withdraw: Annotated[
        list[str] | None,
        typer.Option(help="Name of a credential to revoke, repeatable."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON line.")] = False,
) -> None:
    """Create credentials with which an exporter can publish the reports of its own nodes only.

    DIR/seeds/NAME.nk is the secret of one exporter. DIR/credentials.json and DIR/users.conf are for
    NATS and hold public keys. A second run keeps the seeds and adds new nodes.
    """
    from services.embedded.nats_credentials import USERS, keep, seed_file

    nodes = [*(node or ())]
    for path in nodes_file or ():
        nodes += _names(path)
    wanted = [(together, nodes)] if together else [(name, [name]) for name in nodes]
    if not nodes and not withdraw:
        raise CommandError("no node is given", "--node NAME, --nodes-file FILE, or --withdraw NAME")
    try:
        credentials = keep(folder, wanted, renew=renew, drop=withdraw or ())
    except DataFolderError as error:
        raise CommandError(error.problem, error.remedy) from error
    if as_json:
        rows = [
            {**msgspec.to_builtins(credential), "seed": str(seed_file(folder, credential.name))}
            for credential in credentials
        ]
        json_line({"users": str(folder / USERS), "credentials": rows})
        return
    _print_instructions(folder, [credential.name for credential in credentials])


def _print_instructions(folder: Path, names: list[str]) -> None:
    from services.embedded.nats_credentials import SEEDS, USERS, seed_file

    say(
        f"{len(names)} credentials in {folder}; "
        f"seeds in {folder / SEEDS}, users for NATS in {folder / USERS}"
    )
    seed = seed_file(folder, names[0] if names else "NODE")
    say(f"exporter: --nats-url 'tls://HOST:4222?ca=FILE&seed={seed}'")
    say("in a cluster (k8s/README.md):")
    say(
        "  kubectl -n topolog create secret generic topolog-nats-users "
        f"--from-file={folder / USERS} --from-file={folder / 'credentials.json'} "
        "--dry-run=client -o yaml | kubectl apply -f -"
    )
    say(
        "  kubectl -n topolog create secret generic topolog-nats-exporters "
        f"--from-file={folder / SEEDS} "
        "--dry-run=client -o yaml | kubectl apply --server-side -f -"
    )


def _names(path: Path) -> list[str]:
    from services.embedded.nats_credentials import names_in

    try:
        return names_in(path)
    except (OSError, msgspec.MsgspecError) as error:
        raise CommandError(
            f"{path}: {error}", "a JSON list of objects with `name`, as for the exporter"
        ) from error
