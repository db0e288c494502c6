"""`topolog reset`: delete what `topolog up` keeps, after asking. Must not know what is in a data
folder.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from services.cli.output import EXIT_USAGE, CommandError


def register(app: typer.Typer) -> None:
    """Mount the verb."""
    app.command("reset")(reset)


def reset(
    data_dir: Annotated[
        Path | None, typer.Option(help="The data folder. Default: ~/.local/state/topolog.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Delete the event log and the simulated cluster of a data folder; the next topolog up begins
    anew.
    """
    from services.embedded.data_dir import DataDir, default_data_dir

    folder = data_dir or default_data_dir()
    if not (folder.expanduser() / "VERSION").exists():
        raise CommandError(
            f"no Topolog data folder at {folder}", "name it with --data-dir", EXIT_USAGE
        )
    if not yes:
        if not sys.stdin.isatty():
            raise CommandError(
                f"{folder} would be deleted, and nobody is there to ask",
                "topolog reset --yes",
                EXIT_USAGE,
            )
        if not typer.confirm(f"Delete the event log and the simulated cluster in {folder}?"):
            typer.echo("nothing was deleted")
            return
    with DataDir(folder, fresh=True):
        pass
    typer.echo(f"{folder} is empty; topolog up begins anew")
