"""Which file each verb of `topolog` is in. A verb is imported when it is asked for: `topolog
replay` does not wait for what `topolog doctor` needs. Help and near misses name all of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_group

FILES = (
    "up", "top", "reset", "replay", "log", "database", "certificates", "nats", "admit", "exporter", "node", "compare", "doctor",
)  # fmt: skip
"""Verbs in the order of help; each is a file of this room with `register(app)`."""
TOGETHER = {"replay": "replay_verbs", "log": "log_verbs"}
"""Verbs of several files, and the one that mounts them."""


class Verbs(TyperGroup):
    """The group of all verbs; those that the app itself holds come last."""

    def list_commands(self, ctx: Any) -> list[str]:
        """All names, loaded or not."""
        return [*FILES, *(name for name in self.commands if name not in FILES)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The verb, imported now if it has not been; None for a stranger, for whom all are: one may
        be a near miss.
        """
        known = cmd_name in FILES or cmd_name in self.commands
        for name in [cmd_name] if known else FILES:
            if name not in self.commands:
                self.add_command(_loaded(name))
        return super().get_command(ctx, cmd_name)


def _loaded(name: str) -> Any:
    app = typer.Typer(rich_markup_mode=None, callback=lambda: None)
    import_module(f"services.cli.{TOGETHER.get(name, name)}").register(app)
    return get_group(app).commands[name]
