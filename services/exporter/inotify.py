"""The kernel's inotify through the C library: watches on folders, events as values. Nothing of it
is in Python's own library.

Must not know what is watched, nor why. Source: Linux inotify(7).
"""

from __future__ import annotations

import ctypes
import os
import struct
from typing import NamedTuple

ATTRIB, CLOSE_WRITE, MOVED_FROM, MOVED_TO, CREATE, DELETE = 0x4, 0x8, 0x40, 0x80, 0x100, 0x200
OVERFLOW, IGNORED = 0x4000, 0x8000
ONLY_FOLDERS = 0x0100_0000
CHANGES = ATTRIB | CLOSE_WRITE | MOVED_FROM | MOVED_TO | CREATE | DELETE
READ_BYTES = 64 * 1024
_HEADER = struct.Struct("iIII")


class Event(NamedTuple):
    """`watch` is what `Inotify.add` returned (-1 for an overflow), `name` the folder's entry as the
    kernel has it, empty for the folder itself."""

    watch: int
    mask: int
    name: bytes


class Inotify:
    """One queue of events. Raises OSError where the kernel or a sandbox has none to give."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(None, use_errno=True)
        if not hasattr(self._library, "inotify_init1"):
            raise OSError("this C library has no inotify")
        self.descriptor: int = self._library.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self.descriptor < 0:
            raise self._error("inotify_init1")

    def add(self, folder: str) -> int:
        """Watch a folder; the same folder has the same number. Raises OSError."""
        watch: int = self._library.inotify_add_watch(
            self.descriptor, os.fsencode(folder), CHANGES | ONLY_FOLDERS
        )
        if watch < 0:
            raise self._error(folder)
        return watch

    def read(self) -> list[Event]:
        """What happened since the last call; empty when nothing did."""
        try:
            data = os.read(self.descriptor, READ_BYTES)
        except BlockingIOError:
            return []
        events, at = [], 0
        while at < len(data):
            watch, mask, _, size = _HEADER.unpack_from(data, at)
            at += _HEADER.size
            events.append(Event(watch, mask, data[at : at + size].rstrip(b"\0")))
            at += size
        return events

    def close(self) -> None:
        """Let go of the queue and its watches."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    @staticmethod
    def _error(what: str) -> OSError:
        number = ctypes.get_errno()
        return OSError(number, os.strerror(number), what)
