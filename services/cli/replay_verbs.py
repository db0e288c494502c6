"""The verbs of `topolog replay`, from the files that they are in: what each does with its options
it must not know.
"""

from __future__ import annotations

import typer

from services.cli import replay_asking, whatif
from services.cli.replay import replay_app

PARTS = (replay_asking, whatif)
"""Files that add their verbs to those of `replay` when they are imported."""


def register(app: typer.Typer) -> None:
    """Mount the verbs."""
    app.add_typer(replay_app, name="replay")
