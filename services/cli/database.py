"""`topolog database ...`: options in, rows out. `services.upkeep` changes the database."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from services.cli.addresses import database_option
from services.cli.output import EXIT_USAGE, CommandError, json_line, say
from services.cli.paths import path_option
from services.cli.verbs import group
from services.upkeep.errors import UpkeepRefused

database_app = group("Manage the logins of the log's database.")


def register(app: typer.Typer) -> None:
    app.add_typer(database_app, name="database")


@database_app.callback()
def _group() -> None:
    """Manage the logins of the log's database."""


@database_app.command("roles")
def roles_command(
    password_dir: Annotated[
        Path, path_option(help="Folder with one password file per login; created if missing.")
    ],
    database_url: Annotated[str, database_option("URL with the owner's login.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON line.")] = False,
) -> None:
    """Create separate logins for services, readers, and `topolog log archive` and `prune`.

    Services (topolog_service) can append, hold leases and keep snapshots, and nothing more; readers
    (topolog_viewer) can only read; topolog_keeper can read, and archive and prune what everything
    has passed.
    To rotate a password, change its file and run this again.
    """
    from services.upkeep.logins import make_logins

    if not database_url:
        raise CommandError(
            "no database is given",
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
        say(f"{login}: password in {file}")
    say(
        "use topolog_service in the TOPOLOG_DATABASE_URL of services, topolog_viewer for readers, "
        "topolog_keeper for topolog log archive and prune"
    )
