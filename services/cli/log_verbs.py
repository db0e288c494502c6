"""The verbs of `topolog log`, from the files that they are in: what each does with its options it
must not know.
"""

from __future__ import annotations

import typer

from services.cli import log_life
from services.cli.log import log_app

PARTS = (log_life,)
"""Files that add their verbs to those of `log` when they are imported."""


def register(app: typer.Typer) -> None:
    """Mount the verbs."""
    app.add_typer(log_app, name="log")
