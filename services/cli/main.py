"""The `topolog` command. Each verb lives in its own file and registers itself; exit codes are
declared in `output`.
"""

from __future__ import annotations

import typer

from services.cli import about
from services.cli.verbs import Verbs
from services.cli.voice import run_app
from shared.runtime import lean

app = typer.Typer(
    name="topolog",
    cls=Verbs,
    help="Topolog schedules pods onto NUMA zones and keeps an event log.\n\nStart with: topolog up",
    epilog='Use "topolog COMMAND --help" for more information about a command.',
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
about.register(app)


def main() -> None:
    """Run the command and exit. An error becomes a problem, a remedy and an exit code."""
    lean.collect_seldom()
    run_app(app)


if __name__ == "__main__":
    main()
