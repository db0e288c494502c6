"""`topolog nats`: who may say what on the bus. Exporters' credentials, each for its own nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from services.cli.output import CommandError, json_line
from services.embedded.errors import DataFolderError

app = typer.Typer(
    help="Credentials of exporters on NATS.", no_args_is_help=True, rich_markup_mode=None
)


def register(parent: typer.Typer) -> None:
    """Mount the verbs."""
    parent.add_typer(app, name="nats")


@app.callback()
def _group() -> None:
    """Credentials of exporters on NATS."""


@app.command("credentials")
def credentials_command(
    folder: Annotated[
        Path, typer.Option("--dir", help="Where credentials are kept; made where it is not.")
    ],
    node: Annotated[
        list[str] | None,
        typer.Option(help="A node that gets a credential of its own; may be repeated."),
    ] = None,
    nodes_file: Annotated[
        list[Path] | None,
        typer.Option(
            help="Nodes as in the exporter's --nodes-file: JSON [{name, ...}]; may be repeated."
        ),
    ] = None,
    together: Annotated[
        str,
        typer.Option(
            help="One credential of this name for all nodes given: one exporter serves them."
        ),
    ] = "",
    renew: Annotated[
        bool, typer.Option("--renew", help="New seeds for the nodes given, in the place of theirs.")
    ] = False,
    withdraw: Annotated[
        list[str] | None,
        typer.Option(help="A credential (its node) that holds no more; may be repeated."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="A JSON line instead of sentences.")
    ] = False,
) -> None:
    """Make credentials by which an exporter publishes the reports of its own nodes, and nothing
    else.

    Seeds are in DIR/seeds/NAME.nk, each for its exporter alone; DIR/credentials.json and
    DIR/users.conf are for NATS: they hold public keys. Run again it keeps what is there and adds
    what is new.
    """
    from services.embedded.nats_credentials import SEEDS, USERS, keep, seed_file

    nodes = [*(node or ()), *(name for path in nodes_file or () for name in _names(path))]
    wanted = [(together, nodes)] if together else [(name, [name]) for name in nodes]
    if not nodes and not withdraw:
        raise CommandError(
            "no node is named", "Name them: --node NAME, --nodes-file FILE, or --withdraw NAME"
        )
    try:
        held = keep(folder, wanted, renew=renew, drop=withdraw or ())
    except DataFolderError as error:
        raise CommandError(error.problem, error.remedy) from error
    if as_json:
        rows = [
            {**msgspec.to_builtins(each), "seed": str(seed_file(folder, each.name))}
            for each in held
        ]
        json_line({"users": str(folder / USERS), "credentials": rows})
        return
    print(
        f"{len(held)} credentials in {folder}; seeds in {folder / SEEDS}, for NATS {folder / USERS}"
    )
    print(
        f"exporter: --nats-url 'tls://HOST:4222?ca=FILE&seed={seed_file(folder, held[0].name if held else 'NODE')}'"
    )
    print(
        "in a cluster (k8s/README.md):\n"
        f"  kubectl -n topolog create secret generic topolog-nats-users --from-file={folder / USERS} "
        f"--from-file={folder / 'credentials.json'} --dry-run=client -o yaml | kubectl apply -f -\n"
        f"  kubectl -n topolog create secret generic topolog-nats-exporters --from-file={folder / SEEDS} "
        "--dry-run=client -o yaml | kubectl apply --server-side -f -"
    )


def _names(path: Path) -> list[str]:
    from services.embedded.nats_credentials import names_in

    try:
        return names_in(path)
    except (OSError, msgspec.MsgspecError) as error:
        raise CommandError(
            f"{path}: {error}", "Give a JSON list of objects with name, as for the exporter"
        ) from error
