"""Reads what the node's agent says it enforces (`shared.domain.statement`).

A file counts only while an agent holds the lock beside it.
"""

from __future__ import annotations

import fcntl
import os

import msgspec

from services.exporter import folders
from shared.domain.statement import LOCK_FILE, STATEMENT_FILE, Statement
from shared.file_signature import ABSENT, Signature, signature

# No agent lives.
NOBODY = Statement(enforcer="")
_decoder = msgspec.json.Decoder(Statement)


class StatementReader:
    """Reads the file of one folder again if it changed."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._kept: tuple[Signature, Statement] = ABSENT, NOBODY

    def read(self) -> Statement | None:
        """Return the statement of a live agent, `NOBODY` without one; None without a folder."""
        if not self._folder:
            return None
        if not _is_locked(f"{self._folder}/{LOCK_FILE}"):
            return NOBODY
        path = f"{self._folder}/{STATEMENT_FILE}"
        current = signature(path)
        if current != self._kept[0]:
            self._kept = current, _decoded(folders.read_bounded(path))
        return self._kept[1]


def _decoded(data: bytes | None) -> Statement:
    try:
        return _decoder.decode(data) if data else NOBODY
    except msgspec.MsgspecError:
        return NOBODY


def _is_locked(path: str) -> bool:
    """Return whether another process holds the lock."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False
