"""Options and arguments that name files and folders. A path on the command line is relative to the
folder where the command was typed; it becomes absolute here, before any process is started.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import typer

STDIN = "-"
ARCHIVE = "TOPOLOG_ARCHIVE"


def path_option(*flags: str, help: str, **rest: Any) -> Any:
    """Declare an option with a Path."""
    return typer.Option(*flags, parser=absolute_path, metavar="PATH", help=help, **rest)


def path_argument(help: str) -> Any:
    """Declare an argument with a Path."""
    return typer.Argument(parser=absolute_path, metavar="PATH", help=help)


def kubeconfig_option(help: str) -> Any:
    """Declare `--kubeconfig`, a file or the URL of an API server."""
    return typer.Option(
        "--kubeconfig",
        envvar="TOPOLOG_KUBECONFIG",
        parser=file_or_url,
        metavar="FILE|URL",
        help=help,
    )


def archive_option(help: str) -> Any:
    """Declare `--to`, the folder or bucket of the archive's files."""
    return typer.Option(
        "--to", envvar=ARCHIVE, parser=file_or_url, metavar="PATH|s3://BUCKET/PREFIX", help=help
    )


def archive_here() -> str:
    """Return the archive that TOPOLOG_ARCHIVE names, "" for the place in the log."""
    return file_or_url(os.environ.get(ARCHIVE, ""))


def absolute_path(text: str | Path) -> Path:
    """Return the path as an absolute one, `~` expanded and links kept. `-` means standard input."""
    if str(text) == STDIN:
        return Path(STDIN)
    path = Path(text)
    with suppress(RuntimeError):  # the `~name` of an unknown user is an ordinary file name
        path = path.expanduser()
    return Path(os.path.abspath(path))


def file_or_url(text: str) -> str:
    """Return a URL as it is, a file as an absolute path, and "" as ""."""
    return str(absolute_path(text)) if text and "://" not in text else text
