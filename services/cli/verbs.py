"""The verbs of `topolog`, and the file of each. A verb is imported when it is used, so that
`topolog replay` does not wait for the imports of `topolog doctor`.
"""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_group

# In the order of help. Each is a file of this room with `register(app)`.
FILES = (
    "up", "top", "console", "reset", "replay", "log", "database", "certificates", "nats", "admit",
    "exporter", "node", "cells", "reserve", "plan", "compare", "doctor",
)  # fmt: skip
# Files that add verbs to those of another file when they are imported.
FURTHER = {"replay": ("replay_asking", "whatif"), "log": ("log_life",)}
_SENTENCE = re.compile(r"(?<=[.!?])\s")


class HelpGroup(TyperGroup):
    """A group with the whole first sentence of each verb in its help. Click cuts it at 45
    characters."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write a row per verb."""
        rows = []
        for name in self.list_commands(ctx):
            command = self.get_command(ctx, name)
            if command is not None and not command.hidden:
                rows.append((name, first_sentence(command.help or "")))
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)


class Verbs(HelpGroup):
    """The group of all verbs; those of the app itself come last."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return all names, whether imported or not."""
        return [*FILES, *(name for name in self.commands if name not in FILES)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the verb, imported if necessary. An unknown name imports all verbs, because the
        error message suggests similar ones.
        """
        is_verb = cmd_name in FILES or cmd_name in self.commands
        for name in [cmd_name] if is_verb else FILES:
            if name not in self.commands:
                self.add_command(_loaded(name))
        return super().get_command(ctx, cmd_name)


def group(help: str) -> typer.Typer:
    """Return an app for a group of verbs."""
    return typer.Typer(help=help, cls=HelpGroup, no_args_is_help=True, rich_markup_mode=None)


def first_sentence(text: str) -> str:
    """Return the first sentence of a help text on one line."""
    paragraph = " ".join(text.strip().split("\n\n")[0].split())
    return _SENTENCE.split(paragraph, maxsplit=1)[0]


def _loaded(name: str) -> Any:
    app = typer.Typer(rich_markup_mode=None, callback=lambda: None)
    module = import_module(f"services.cli.{name}")
    for further in FURTHER.get(name, ()):
        import_module(f"services.cli.{further}")
    module.register(app)
    return get_group(app).commands[name]
