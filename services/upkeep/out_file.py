"""A file that is replaced completely or not at all, and that one process writes at a time: written
next to the target, then renamed.

Only a regular file is replaced. A symbolic link stays, and its target is replaced.
"""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from services.upkeep.errors import UpkeepRefused
from shared.eventlog.history_file import SUFFIX
from shared.telemetry.reasons import plain

ENDING = ".partial"
_OTHERS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


@contextmanager
def replacing(out: Path) -> Iterator[BinaryIO]:
    """Open a file that replaces `out` at the end; after an exception `out` is unchanged. Only a
    killed process leaves OUT.partial, which the next one overwrites. Raises UpkeepRefused."""
    try:
        target = Path(os.path.realpath(out))
        _require_regular(out, target)
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_name(target.name + ENDING)
        with _locked(out, partial) as file:
            try:
                if target.exists():
                    os.fchmod(file.fileno(), stat.S_IMODE(target.stat().st_mode))
                yield file
                file.flush()
                os.fsync(file.fileno())
                _require_regular(out, target)
                partial.replace(target)
            except BaseException:
                partial.unlink(missing_ok=True)
                raise
        _sync(target.parent)
    except OSError as error:
        why = error.strerror or plain(error)
        raise UpkeepRefused(
            f"{out} cannot be written: {why}", "name another file with --out"
        ) from error


def _require_regular(out: Path, target: Path) -> None:
    try:
        mode = stat.S_IFMT(target.stat().st_mode)
    except FileNotFoundError:
        return
    if mode == stat.S_IFDIR:
        raise UpkeepRefused(
            f"{out} is a folder", f"name a file in it: --out {out / ('backup' + SUFFIX)}"
        )
    if mode != stat.S_IFREG:
        raise UpkeepRefused(
            f"{out} is {_OTHERS.get(mode, 'not a regular file')}",
            f"name a file: --out backup{SUFFIX}",
        )


@contextmanager
def _locked(out: Path, partial: Path) -> Iterator[BinaryIO]:
    """Open the partial file, empty and locked. The lock ends with its process."""
    descriptor = os.open(
        partial, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666
    )
    with os.fdopen(descriptor, "wb") as file:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The previous holder may have renamed the file after it was opened here.
            free = os.path.samestat(os.fstat(descriptor), os.stat(partial))
        except (BlockingIOError, FileNotFoundError):
            free = False
        if not free:
            raise UpkeepRefused(
                f"another export is writing {out}",
                "wait for it, or name another file with --out",
            )
        os.ftruncate(descriptor, 0)
        yield file


def _sync(folder: Path) -> None:
    # Makes the new name durable.
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
