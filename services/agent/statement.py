"""Writes the agent's statement for the exporter, and holds the lock of the running agent."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import msgspec

from shared.domain.report import Placement
from shared.domain.statement import LOCK_FILE, STATEMENT_FILE, Statement


class StatementFile:
    """The statement's file in a folder. Only one agent of a node has the lock."""

    def __init__(self, folder: str) -> None:
        self._path = Path(folder) / STATEMENT_FILE
        self._lock_path = Path(folder) / LOCK_FILE
        self._descriptor: int | None = None
        self._written: bytes | None = None

    def lock(self) -> bool:
        """Take the lock; return False if another agent has it. Raises OSError."""
        if self._descriptor is not None:
            return True
        self._path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        descriptor = os.open(self._lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            return False
        self._descriptor = descriptor
        return True

    def write(self, containers: tuple[Placement, ...]) -> None:
        """Replace the file if its content changed. Raises OSError."""
        data = msgspec.json.encode(Statement(containers=containers))
        if data != self._written:
            temporary = self._path.with_suffix(".new")
            temporary.write_bytes(data)
            temporary.replace(self._path)
            self._written = data

    def withdraw(self) -> None:
        """Remove the file: nothing is enforced now."""
        self._path.unlink(missing_ok=True)
        self._written = None

    def close(self) -> None:
        """Withdraw the statement and release the lock."""
        if self._descriptor is not None:
            self.withdraw()
            os.close(self._descriptor)
            self._descriptor = None
