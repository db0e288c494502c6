"""The `topolog` command. Each verb lives in its own file and registers itself; exit codes are declared in `output`."""

from __future__ import annotations

import sys

import typer

from services.cli import admit, exporter, replay, up
from services.cli.output import EXIT_USAGE, CommandError, complain

app = typer.Typer(
    name="topolog",
    help="Place pods onto NUMA zones, and remember. Start with: topolog up",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for room in (up, replay, admit, exporter):
    room.register(app)


def main() -> None:
    """Entry point. A CommandError becomes one clear line and its exit code."""
    try:
        app()
    except CommandError as error:
        complain(error)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(EXIT_USAGE + 128)


if __name__ == "__main__":
    main()
