"""Commands in remedies of doctor and the services exist, with all required parameters."""

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
# A command in backquotes is documentation and may lack parameters.
ADVICE = re.compile(
    r"(?<!`)topolog ((?:database|log|replay|nats|node|exporter|admit|doctor)\b[^;`\"()]*)"
)


def advised() -> list[str]:
    return sorted({command for path in SPEAKING for command in ADVICE.findall(path.read_text())})


@pytest.mark.parametrize("text", advised())
def test_an_advised_command_has_its_parameters(text: str) -> None:
    command: Any = typer.main.get_command(app)
    words = re.split(r"[\s:,]+", text)
    while hasattr(command, "get_command"):
        command = command.get_command(None, words.pop(0))
        assert command is not None, f"topolog {text}: no such command"
    for needed in (param for param in command.params if param.required):
        if needed.param_type_name == "option":
            assert set(needed.opts) & set(words), f"topolog {text}: needs {needed.opts[0]}"
        else:
            assert words[:1] not in ([], [""]), f"topolog {text}: needs {needed.name}"


def test_there_is_advice() -> None:
    assert len(advised()) >= 4
