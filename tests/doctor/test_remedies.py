"""What doctor and the services advise can be typed: the command is there, and its text has what the
command asks for.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import typer

from services.cli.main import app

ROOT = Path(__file__).resolve().parents[2]
SPEAKING = (
    *sorted((ROOT / "services" / "doctor").glob("*.py")),
    ROOT / "shared" / "eventlog" / "postgres_logins.py",
)
ADVICE = re.compile(
    r"(?<!`)topolog ((?:database|log|replay|nats|node|exporter|admit|doctor)\b[^;`\"()]*)"
)
"""In quotes of documentation a command may stand without what it needs."""


def advised() -> list[str]:
    return sorted({found for path in SPEAKING for found in ADVICE.findall(path.read_text())})


@pytest.mark.parametrize("text", advised())
def test_the_command_has_what_it_needs(text: str) -> None:
    command: Any = typer.main.get_command(app)
    words = re.split(r"[\s:,]+", text)
    while hasattr(command, "get_command"):
        command = command.get_command(None, words.pop(0))
        assert command is not None, f"topolog {text}: no such command"
    for needed in (one for one in command.params if one.required):
        if needed.param_type_name == "option":
            assert set(needed.opts) & set(words), f"topolog {text}: needs {needed.opts[0]}"
        else:
            assert words[:1] not in ([], [""]), f"topolog {text}: needs {needed.name}"


def test_there_is_advice() -> None:
    assert len(advised()) >= 4
