"""The `topolog` command. Each verb lives in its own file and registers itself; exit codes are declared in `output`."""

from __future__ import annotations

import typer

from services.cli import about, admit, certificates, compare, database, doctor, exporter, log, nats, node, replay, reset, top, up
from services.cli.voice import spoken

app = typer.Typer(
    name="topolog",
    help="Place pods onto NUMA zones, and remember. Start with: topolog up",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for room in (
    up,
    top,
    reset,
    replay,
    log,
    database,
    certificates,
    nats,
    admit,
    exporter,
    node,
    compare,
    doctor,
    about,
):
    room.register(app)


def main() -> None:
    """Entry point. Whatever goes wrong becomes one problem, one remedy and an exit code."""
    spoken(app)


if __name__ == "__main__":
    main()
