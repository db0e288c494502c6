"""`topolog --version` and `topolog completion SHELL`."""

from __future__ import annotations

from typing import Annotated

import typer
from typer import completion as scripts

from services.cli.output import EXIT_USAGE, CommandError, say, say_verbatim
from services.scheduler.snapshot import kernel
from shared.domain.version import VERSION

SHELLS = ("bash", "zsh", "fish")


def register(app: typer.Typer) -> None:
    """Mount the option and the verb."""
    app.callback()(_options)
    app.command("completion")(completion)


def _version(requested: bool) -> None:
    if requested:
        say(f"topolog {VERSION} ({kernel.description()})")
        raise typer.Exit


def _options(
    show_version: Annotated[
        bool,
        typer.Option(
            "--version", "-V", help="Print the version and exit.", is_eager=True, callback=_version
        ),
    ] = False,
) -> None:
    """Topolog schedules pods onto NUMA zones and keeps an event log.

    Start with: topolog up
    """


def completion(shell: Annotated[str, typer.Argument(help="bash, zsh or fish.")]) -> None:
    """Print the completion script of a shell.

    For bash: source <(topolog completion bash)
    """
    if shell not in SHELLS:
        raise CommandError(
            f"there is no completion for {shell!r}, only for {', '.join(SHELLS)}",
            "topolog completion bash",
            EXIT_USAGE,
        )
    script = scripts.get_completion_script(  # type: ignore[attr-defined]
        prog_name="topolog", complete_var="_TOPOLOG_COMPLETE", shell=shell
    )
    say_verbatim(script)
