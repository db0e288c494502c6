"""`topolog database ...`: options in, rows out. What is done to the database lives in
`services.upkeep`.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from services.cli.addresses import database_option
from services.cli.output import EXIT_USAGE, CommandError, json_line
from services.upkeep.errors import UpkeepRefused

database_app = typer.Typer(
    help="Look after the database of the log, as its owner.", no_args_is_help=True
)


def register(app: typer.Typer) -> None:
    """Mount the verbs."""
    app.add_typer(database_app, name="database")


@database_app.callback()
def _group() -> None:
    """Look after the database of the log, as its owner."""


@database_app.command("roles")
def roles_command(
    password_dir: Annotated[
        Path,
        typer.Option(help="Folder of the passwords, a file each; made where they are not there."),
    ],
    database_url: Annotated[str, database_option("The owner's URL.")] = "",
    as_json: Annotated[
        bool, typer.Option("--json", help="A JSON line instead of sentences.")
    ] = False,
) -> None:
    """Make logins of their own for services (topolog_service) and readers (topolog_viewer).

    Services need no more than to append, to lease and to keep snapshots; readers only read. Write
    another password into a file and run this again to rotate it.
    """
    from services.upkeep.logins import make_logins

    if not database_url:
        raise CommandError(
            "no database is named",
            "--database-url postgresql://OWNER:PASSWORD@HOST/DATABASE",
            EXIT_USAGE,
        )
    try:
        files = asyncio.run(make_logins(database_url, password_dir))
    except UpkeepRefused as refused:
        raise CommandError(refused.problem, refused.remedy) from refused
    if as_json:
        json_line({login: str(file) for login, file in files.items()})
        return
    for login, file in files.items():
        print(f"{login}: password in {file}")
    print(
        "give services TOPOLOG_DATABASE_URL with topolog_service, readers one with topolog_viewer"
    )
