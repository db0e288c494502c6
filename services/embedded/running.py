"""Who runs on a data folder: names, pids and HTTP ports of the services, left as a note for other
commands.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

_NOTE = "services.json"


class RunningService(msgspec.Struct, frozen=True):
    """One service of `topolog up`."""

    name: str
    http_port: int

    def url(self, path: str) -> str:
        """An address on the loopback interface."""
        return f"http://127.0.0.1:{self.http_port}{path}"


def write_services(folder: Path, services: Sequence[RunningService]) -> None:
    """Replace the note."""
    temporary = folder / f".{_NOTE}.new"
    temporary.write_bytes(msgspec.json.encode(list(services)))
    temporary.replace(folder / _NOTE)


def forget_services(folder: Path) -> None:
    """Nobody runs any more; also told where the disk is full."""
    (folder / _NOTE).unlink(missing_ok=True)


def read_services(folder: Path) -> list[RunningService]:
    """The services of the last `topolog up`; empty when there is no readable note."""
    try:
        return msgspec.json.decode((folder / _NOTE).read_bytes(), type=list[RunningService])
    except (OSError, msgspec.MsgspecError):
        return []
