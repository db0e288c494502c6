"""The file that lets a cluster outlive its process: every write appended, compacted at start. Must
not know kinds or HTTP.

Not fsynced: a power cut may lose the tail, a killed process loses nothing. A torn last line is
dropped. Lines: `V<TAB>version`, `P<TAB>storage<TAB>json`,
`D<TAB>storage<TAB>namespace<TAB>name<TAB>version`.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from services.simulator.api.core.store import Change, Store

COMPACT_FACTOR = 4
COMPACT_FLOOR_BYTES = 64 * 1024 * 1024


class JournalError(RuntimeError):
    """The journal cannot be read."""


class Journal:
    """An append-only file of a Store's changes. `restore` first, then `append` for each change."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = -1
        self._lock = -1
        self._written = 0
        self._compact_at = COMPACT_FLOOR_BYTES

    def restore(self, store: Store) -> None:
        """Fill an empty store from the file, then rewrite the file as one snapshot and keep it
        open.
        """
        self._take()
        try:
            self._read(store)
            self.compact(store)
        except BaseException:
            self.close()
            raise

    def _read(self, store: Store) -> None:
        if self.path.exists():
            for number, line in enumerate(_complete_lines(self.path.read_bytes()), start=1):
                self._replay(store, line, number)

    def _take(self) -> None:
        """Lock the file against a second process. The lock ends with this process, however
        it ends.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        lock = os.open(self.path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(lock)
            remedy = "stop that cluster first, or use another data folder"
            raise JournalError(
                f"{self.path}: another process has this cluster open; {remedy}"
            ) from error
        self._lock = lock

    def _replay(self, store: Store, line: bytes, number: int) -> None:
        mark, _, rest = line.partition(b"\t")
        try:
            if mark == b"P":
                shelf, _, body = rest.partition(b"\t")
                store.load(shelf.decode(), msgspec.json.decode(body))
            elif mark == b"D":
                storage, namespace, name, version = rest.decode().split("\t")
                store.unload(storage, (namespace, name), int(version))
            elif mark == b"V":
                store.version = max(store.version, int(rest))
            else:
                raise ValueError(f"unknown mark {mark!r}")
        except (ValueError, KeyError, TypeError, msgspec.DecodeError) as error:
            remedy = "restore the file from a copy, or remove it to start with an empty cluster"
            raise JournalError(
                f"{self.path}: line {number} cannot be read ({error}); {remedy}"
            ) from error

    def compact(self, store: Store) -> None:
        """Replace the file by the live objects."""
        self._close_file()
        fresh = self.path.with_suffix(".new")
        with fresh.open("wb") as out:
            out.write(b"V\t%d\n" % store.version)
            for storage, entry in store.everything():
                out.write(b"P\t" + storage.encode() + b"\t" + entry.body + b"\n")
        fresh.replace(self.path)
        self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND)
        self._written = self.path.stat().st_size
        self._compact_at = max(COMPACT_FLOOR_BYTES, COMPACT_FACTOR * self._written)

    def append(self, storage: str, change: Change) -> None:
        """Write one change."""
        if change.kind == "DELETED":
            namespace, name = change.entry.key
            line = f"D\t{storage}\t{namespace}\t{name}\t{change.version}\n".encode()
        else:
            line = b"P\t" + storage.encode() + b"\t" + change.entry.body + b"\n"
        os.write(self._file, line)
        self._written += len(line)

    @property
    def due(self) -> bool:
        """Whether the file has grown so much that it should be compacted."""
        return self._written > self._compact_at

    def close(self) -> None:
        """Close the file and release its lock. `append` is not allowed afterwards."""
        self._close_file()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _close_file(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def _complete_lines(data: bytes) -> Iterator[bytes]:
    """Return the lines that end in a newline. A last line without one is incomplete and
    left out.
    """
    end = data.rfind(b"\n")
    return iter(data[:end].split(b"\n") if end > 0 else [])
