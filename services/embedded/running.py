"""Notes in the data folder for other commands: names and HTTP ports of running services, and the
databases of cells."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from services.embedded.files import write
from shared.domain import yaml_text

_NOTE = "services.json"
CELLS_FILE = "cells.json"


class RunningService(msgspec.Struct, frozen=True):
    """One service of `topolog up`, and its cell if there are several."""

    name: str
    http_port: int
    cell: str = ""

    def url(self, path: str) -> str:
        """Return a URL on loopback."""
        return f"http://127.0.0.1:{self.http_port}{path}"


def write_services(folder: Path, services: Sequence[RunningService]) -> None:
    """Replace the note."""
    temporary = folder / f".{_NOTE}.new"
    temporary.write_bytes(msgspec.json.encode(list(services)))
    temporary.replace(folder / _NOTE)


def forget_services(folder: Path) -> None:
    """Remove the note, which works on a full disk, too."""
    (folder / _NOTE).unlink(missing_ok=True)


def read_services(folder: Path) -> list[RunningService]:
    """Return the services of the last `topolog up`; empty without a readable note."""
    try:
        return msgspec.json.decode((folder / _NOTE).read_bytes(), type=list[RunningService])
    except (OSError, msgspec.MsgspecError):
        return []


def write_cells(folder: Path, database_urls: dict[str, str]) -> None:
    """Note the database of each cell, with mode 0600; no note without cells."""
    (folder / CELLS_FILE).unlink(missing_ok=True)
    if database_urls:
        write(folder / CELLS_FILE, msgspec.json.encode(database_urls), 0o600)


def read_cells(path: Path) -> dict[str, str]:
    """Return the database URL of each cell; also of a file that an operator wrote, with lines
    CELL: URL. Raises ValueError."""
    try:
        return msgspec.convert(yaml_text.document(path.read_text()), dict[str, str])
    except (OSError, yaml_text.YAMLError, msgspec.ValidationError, ValueError) as error:
        raise ValueError(f"the cells in {path} cannot be read: {error}") from error
