"""The options `--database-url`, `--nats-url` and `--data-dir`: from the command line, a variable,
or the file that a variable names.

A URL that cannot be read as it was meant is refused before it is parsed, and no part of it is
shown, because a misread password would end up in the message.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import typer

from services.cli.output import EXIT_USAGE, CommandError
from services.cli.paths import path_option
from shared.domain.secret_url import bus_trouble, database_trouble, looks_like_url
from shared.runtime.secret_file import ENDING, SecretUnreadable, read

DATABASE, BUS, TOKEN = "TOPOLOG_DATABASE_URL", "TOPOLOG_NATS_URL", "TOPOLOG_HTTP_TOKEN"
FILE = "file://"

# How `--data-dir` relates to an address option. "instead": it replaces the address and beats the
# environment. "combined": both may be given. "unrelated": it is ignored here.
DataDirUse = Literal["instead", "combined", "unrelated"]


def database_option(
    help: str = "URL of the log's Postgres, or a file of `topolog log export`.",
    data_dir: DataDirUse = "instead",
) -> Any:
    """Declare `--database-url`. `log_source` says where it may name an exported history."""
    return _option("--database-url", DATABASE, check_database, help, data_dir)


def bus_option(help: str = "URL of NATS.", data_dir: DataDirUse = "combined") -> Any:
    """Declare `--nats-url`."""
    return _option("--nats-url", BUS, check_bus, help, data_dir)


def data_dir_option(
    help: str = "Data folder of `topolog up`, running or stopped. Overrides the environment.",
) -> Any:
    """Declare `--data-dir` of a verb that has an address option, too. It is read first."""
    return path_option("--data-dir", is_eager=True, help=help)


def _option(
    flag: str, variable: str, check: Callable[[str, str], None], help: str, data_dir: DataDirUse
) -> Any:
    return typer.Option(
        flag, envvar=variable, callback=_reader(flag, variable, check, data_dir), help=help
    )


def check_database(text: str, source: str = f"--database-url ({DATABASE})") -> None:
    """Raise CommandError if the text is neither a database URL nor the path of a file."""
    if looks_like_url(text.removeprefix(FILE)) and not exists(path_of(text)):
        _refuse(source, database_trouble(text))


def path_of(text: str) -> Path:
    """Return the file that is named in place of a URL."""
    path = Path(text.removeprefix(FILE))
    try:
        return path.expanduser()
    except RuntimeError:  # the `~name` of an unknown user is an ordinary file name
        return path


def exists(path: Path) -> bool:
    """Return whether there is such a file or folder; False if the system does not answer."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def check_bus(text: str, source: str = f"--nats-url ({BUS})") -> None:
    """Raise CommandError if the text is no NATS URL."""
    _refuse(source, bus_trouble(text))


def http_token() -> str:
    """Return the token for the services' HTTP ports, from TOPOLOG_HTTP_TOKEN or the file that
    TOPOLOG_HTTP_TOKEN_FILE names; "" if neither is set.
    """
    token = os.environ.get(TOKEN)
    file = os.environ.get(TOKEN + ENDING, "")
    return token or (_text(TOKEN + ENDING, file) if file else "")


def file_of(variable: str, text: str) -> str:
    """Return the file that holds the URL `text`, if its variable names one and no other URL was
    given; else "".
    """
    file = os.environ.get(variable + ENDING, "")
    if not file or not text or os.environ.get(variable):
        return ""
    return file if _text(variable + ENDING, file) == text else ""


def _reader(
    flag: str, variable: str, check: Callable[[str, str], None], data_dir: DataDirUse
) -> Callable[..., str]:
    def read_option(ctx: typer.Context, param: typer.CallbackParam, value: str) -> str:
        source = getattr(ctx.get_parameter_source(param.name or ""), "name", "")
        on_command_line = bool(value) and str(source) == "COMMANDLINE"
        if data_dir != "unrelated" and ctx.params.get("data_dir") is not None:
            if not on_command_line:
                return ""
            if data_dir == "instead":
                raise CommandError(
                    f"--data-dir and {flag} both name a log",
                    f"give one of them; see {ctx.command_path} --help",
                    EXIT_USAGE,
                )
        file = "" if value else os.environ.get(variable + ENDING, "")
        text = _text(variable + ENDING, file) if file else value
        if text:
            check(text, variable + ENDING if file else f"{flag} ({variable})")
        return text

    return read_option


def _text(variable: str, file: str) -> str:
    try:
        return read(file)
    except SecretUnreadable as error:
        problem, _, remedy = str(error).partition("; ")
        raise CommandError(f"{variable}: {problem}", remedy, EXIT_USAGE) from None


def _refuse(source: str, trouble: str) -> None:
    if trouble:
        problem, _, remedy = trouble.partition("; ")
        raise CommandError(f"{source} {problem}", remedy, EXIT_USAGE)
