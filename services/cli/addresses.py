"""The options that name servers, `--database-url` and `--nats-url`: from the command line, a
variable, or the file that a variable names. One that cannot be read as it was meant is refused
before anybody takes it apart, and nothing of it is shown."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import typer

from services.cli.output import EXIT_USAGE, CommandError
from shared.domain.secret_url import bus_trouble, database_trouble, looks_like_url
from shared.runtime.secret_file import ENDING, SecretUnreadable, read

DATABASE, BUS, TOKEN = "TOPOLOG_DATABASE_URL", "TOPOLOG_NATS_URL", "TOPOLOG_HTTP_TOKEN"
FILE = "file://"


DataDirIs = Literal["instead", "beside", "another matter"]
"""What `--data-dir` is to an address: it is named instead of it, and beats the environment; the same, but both may be written; or
it has nothing to do with it."""


def database_option(help: str = "The log's Postgres.", data_dir: DataDirIs = "instead") -> Any:
    """`--database-url`. It may name an exported history instead; `log_source` says where."""
    return _option("--database-url", DATABASE, check_database, help, data_dir)


def bus_option(help: str = "The bus.", data_dir: DataDirIs = "beside") -> Any:
    """`--nats-url`."""
    return _option("--nats-url", BUS, check_bus, help, data_dir)


def data_dir_option(
    help: str = "A data folder of `topolog up`, running or stopped; beats the environment.",
) -> Any:
    """`--data-dir` of a verb that has an address too: looked at first."""
    return typer.Option("--data-dir", is_eager=True, help=help)


def _option(
    flag: str, variable: str, check: Callable[[str, str], None], help: str, data_dir: DataDirIs
) -> Any:
    return typer.Option(
        flag, envvar=variable, callback=_asked(flag, variable, check, data_dir), help=help
    )


def check_database(text: str, named: str = f"--database-url ({DATABASE})") -> None:
    """Refuse what is neither a database's URL nor the path of a file. Raises CommandError."""
    if looks_like_url(text.removeprefix(FILE)) and not is_there(path_of(text)):
        _refuse(named, database_trouble(text))


def path_of(text: str) -> Path:
    """The file that is named where a URL may be."""
    path = Path(text.removeprefix(FILE))
    try:
        return path.expanduser()
    except RuntimeError:  # of a user that nobody knows: a name as any other
        return path


def is_there(path: Path) -> bool:
    """Whether there is such a file or folder, as far as one may know."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def check_bus(text: str, named: str = f"--nats-url ({BUS})") -> None:
    """Refuse what is no URL of NATS. Raises CommandError."""
    _refuse(named, bus_trouble(text))


def http_token() -> str:
    """What services are asked with, from TOPOLOG_HTTP_TOKEN or the file that
    TOPOLOG_HTTP_TOKEN_FILE names; "" for none.
    """
    return os.environ.get(TOKEN) or (
        _text(TOKEN + ENDING, file) if (file := os.environ.get(TOKEN + ENDING, "")) else ""
    )


def file_of(variable: str, text: str) -> str:
    """The file that a URL stands in, where its variable names one and no other URL was given; ""
    else.
    """
    file = os.environ.get(variable + ENDING, "")
    return (
        file
        if file and text and not os.environ.get(variable) and _text(variable + ENDING, file) == text
        else ""
    )


def _asked(
    flag: str, variable: str, check: Callable[[str, str], None], data_dir: DataDirIs
) -> Callable[..., str]:
    def found(ctx: typer.Context, param: typer.CallbackParam, value: str) -> str:
        written = (
            value
            and str(getattr(ctx.get_parameter_source(param.name or ""), "name", ""))
            == "COMMANDLINE"
        )
        if data_dir != "another matter" and ctx.params.get("data_dir") is not None:
            if not written:
                return ""
            if data_dir == "instead":
                remedy = f"one of them: {ctx.command_path} --help"
                raise CommandError(f"--data-dir and {flag} each name a log", remedy, EXIT_USAGE)
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
