"""The `topolog` command. Each verb lives in its own file and registers itself; exit codes are
declared in `output`.
"""

from __future__ import annotations

import typer

from services.cli import about
from services.cli.verbs import Verbs
from services.cli.voice import spoken
from shared.runtime import lean

app = typer.Typer(
    name="topolog",
    cls=Verbs,
    help="Place pods onto NUMA zones, and remember. Start with: topolog up",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
about.register(app)


def main() -> None:
    """Entry point. Whatever goes wrong becomes one problem, one remedy and an exit code."""
    lean.collect_seldom()
    spoken(app)


if __name__ == "__main__":
    main()
