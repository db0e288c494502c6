"""`topolog reset`: delete the contents of a data folder, after a question."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from services.cli.output import EXIT_USAGE, CommandError, say
from services.cli.paths import path_option


def register(app: typer.Typer) -> None:
    app.command("reset")(reset)


def reset(
    data_dir: Annotated[
        Path | None, path_option(help="Data folder. Default: ~/.local/state/topolog.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
) -> None:
    """Delete the event log and the simulated cluster of a data folder.

    The next topolog up starts from scratch.
    """
    from services.embedded.data_dir import DataDir, default_data_dir

    folder = data_dir or default_data_dir()
    if not (folder / "VERSION").exists():
        raise CommandError(
            f"no Topolog data folder at {folder}", "name it with --data-dir", EXIT_USAGE
        )
    if not yes:
        if not sys.stdin.isatty():
            raise CommandError(
                f"refusing to delete {folder} without a terminal to ask for confirmation",
                "topolog reset --yes",
                EXIT_USAGE,
            )
        if not typer.confirm(f"Delete the event log and the simulated cluster in {folder}?"):
            say("nothing was deleted")
            return
    with DataDir(folder, fresh=True):
        pass
    say(f"{folder} is empty; the next topolog up starts from scratch")
