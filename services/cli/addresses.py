"""The options that name servers, `--database-url` and `--nats-url`: from the command line, a variable, or the file that a
variable names. One that cannot be read as it was meant is refused before anybody takes it apart, and nothing of it is shown."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer

from services.cli.output import EXIT_USAGE, CommandError
from shared.domain.secret_url import bus_trouble, database_trouble, looks_like_url
from shared.runtime.secret_file import ENDING, SecretUnreadable, read

DATABASE, BUS, TOKEN = "TOPOLOG_DATABASE_URL", "TOPOLOG_NATS_URL", "TOPOLOG_HTTP_TOKEN"
FILE = "file://"


def database_option(help: str = "The log's Postgres.") -> Any:
    """`--database-url`. It may name an exported history instead; `log_source` says where."""
    return typer.Option("--database-url", envvar=DATABASE, callback=_asked("--database-url", DATABASE, check_database), help=help)


def bus_option(help: str = "The bus.") -> Any:
    """`--nats-url`."""
    return typer.Option("--nats-url", envvar=BUS, callback=_asked("--nats-url", BUS, check_bus), help=help)


def check_database(text: str, named: str = f"--database-url ({DATABASE})") -> None:
    """Refuse what is neither a database's URL nor the path of a file. Raises CommandError."""
    path = text.removeprefix(FILE)
    if looks_like_url(path) and not Path(path).expanduser().exists():
        _refuse(named, database_trouble(text))


def check_bus(text: str, named: str = f"--nats-url ({BUS})") -> None:
    """Refuse what is no URL of NATS. Raises CommandError."""
    _refuse(named, bus_trouble(text))


def http_token() -> str:
    """What services are asked with, from TOPOLOG_HTTP_TOKEN or the file that TOPOLOG_HTTP_TOKEN_FILE names; "" for none."""
    return os.environ.get(TOKEN) or (_text(TOKEN + ENDING, file) if (file := os.environ.get(TOKEN + ENDING, "")) else "")


def file_of(variable: str, text: str) -> str:
    """The file that a URL stands in, where its variable names one and no other URL was given; "" else."""
    file = os.environ.get(variable + ENDING, "")
    return file if file and text and not os.environ.get(variable) and _text(variable + ENDING, file) == text else ""


def _asked(flag: str, variable: str, check: Callable[[str, str], None]) -> Callable[[str], str]:
    def found(value: str) -> str:
        file = "" if value else os.environ.get(variable + ENDING, "")
        text = _text(variable + ENDING, file) if file else value
        if text:
            check(text, variable + ENDING if file else f"{flag} ({variable})")
        return text

    return found


def _text(variable: str, file: str) -> str:
    try:
        return read(file)
    except SecretUnreadable as error:
        problem, _, remedy = str(error).partition("; ")
        raise CommandError(f"{variable}: {problem}", remedy, EXIT_USAGE) from None


def _refuse(named: str, trouble: str) -> None:
    if trouble:
        problem, _, remedy = trouble.partition("; ")
        raise CommandError(f"{named} {problem}", remedy, EXIT_USAGE)
