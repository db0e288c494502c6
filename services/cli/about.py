"""`topolog --version` and `topolog completion SHELL`: what the command says of itself."""

from __future__ import annotations

from typing import Annotated

import typer
from typer import completion as scripts

from services.cli.output import EXIT_USAGE, CommandError
from shared.domain.version import VERSION

SHELLS = ("bash", "zsh", "fish")


def register(app: typer.Typer) -> None:
    """Mount the option and the verb."""
    app.callback()(_options)
    app.command("completion")(completion)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"topolog {VERSION}")
        raise typer.Exit


def _options(
    show_version: Annotated[
        bool,
        typer.Option(
            "--version", "-V", help="Print the version and exit.", is_eager=True, callback=_version
        ),
    ] = False,
) -> None:
    """Place pods onto NUMA zones, and remember. Start with: topolog up"""


def completion(shell: Annotated[str, typer.Argument(help="bash, zsh or fish.")]) -> None:
    """Print the completion script of a shell. For bash: source <(topolog completion bash)."""
    if shell not in SHELLS:
        raise CommandError(
            f"no completion for {shell!r}: there are {', '.join(SHELLS)}",
            "topolog completion bash",
            EXIT_USAGE,
        )
    script = scripts.get_completion_script(  # type: ignore[attr-defined]
        prog_name="topolog", complete_var="_TOPOLOG_COMPLETE", shell=shell
    )
    typer.echo(script)
