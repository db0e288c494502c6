"""The data folder: its path, its lock, its version. Knows nothing of its contents."""

import fcntl
import os
import shutil
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from services.embedded.errors import DataFolderError
from shared.telemetry.reasons import plain

# Increased by an incompatible change of the files in a data folder.
LAYOUT_VERSION = 1

_STAMP, _LOCK, _ADDRESSES = "VERSION", "lock", "addresses.json"


class VersionStamp(msgspec.Struct, frozen=True):
    """The layout of a data folder, and the major version of its Postgres (None: none yet)."""

    layout: int
    postgres: int | None = None


class ServerAddresses(msgspec.Struct, frozen=True):
    """The last addresses of the servers of a data folder. Written with mode 0600, because the URLs
    contain passwords.
    """

    database_url: str | None = None
    nats_url: str | None = None


def default_data_dir() -> Path:
    """Return `$XDG_STATE_HOME/topolog`, or `~/.local/state/topolog` (XDG Base Directory
    Specification).
    """
    state_home = os.environ.get("XDG_STATE_HOME", "")
    base = Path(state_home) if os.path.isabs(state_home) else Path.home() / ".local" / "state"
    return base / "topolog"


class DataDir:
    """A data folder, locked against a second supervisor while it is open. Use it as a context
    manager.

    `fresh` deletes the contents first. `resumed` says, once open, whether there were any. Raises
    DataFolderError if the folder cannot be made, is locked, or has another layout.
    """

    def __init__(self, path: Path, fresh: bool = False) -> None:
        self.path = Path(os.path.abspath(path.expanduser()))
        self.resumed = False
        self._fresh = fresh
        self._lock_fd: int | None = None

    @property
    def logs(self) -> Path:
        """The folder of the children's logs."""
        return self.path / "logs"

    def folder(self, name: str) -> Path:
        """Return a subfolder, created with mode 0700 if missing."""
        made = self.path / name
        _make_private(made)
        return made

    def open(self) -> Self:
        """Create, lock and check the folder."""
        _refuse_foreign(self.path)
        _make_private(self.path)
        self._lock_fd = _lock(self.path / _LOCK, self.path)
        try:
            if self._fresh:
                self._wipe()
            self.resumed = (self.path / _STAMP).exists()
            self._check_layout()
            self.folder("logs")
        except BaseException:
            self.close()
            raise
        return self

    def close(self) -> None:
        """Release the lock. Safe to call twice."""
        if self._lock_fd is not None:
            os.close(self._lock_fd)
            self._lock_fd = None

    @property
    def is_open(self) -> bool:
        """True if this object holds the lock."""
        return self._lock_fd is not None

    def claim_postgres(self, major: int) -> None:
        """Record the major version of the folder's database. Raises DataFolderError if it is
        another version.
        """
        stamp = self._read_stamp() or VersionStamp(LAYOUT_VERSION)
        if stamp.postgres not in (None, major):
            raise DataFolderError(
                f"the data folder {self.path} has a Postgres {stamp.postgres} database, "
                f"and the installed Postgres is {major}",
                f"Install Postgres {stamp.postgres}, choose another --data-dir, or move this one: "
                f"mv {self.path} {self.path}.pg{stamp.postgres}",
            )
        self._write(_STAMP, msgspec.json.encode(VersionStamp(LAYOUT_VERSION, major)))

    def write_addresses(self, addresses: ServerAddresses) -> None:
        """Write the addresses for other programs (see `read_addresses`)."""
        self._write(_ADDRESSES, msgspec.json.encode(addresses))

    def _wipe(self) -> None:
        """Delete all but the lock, the stamp last, so that an interrupted wipe is still recognized
        as a data folder.
        """
        stamp = self.path / _STAMP
        try:
            for entry in sorted(self.path.iterdir()):
                if entry.name in (_LOCK, _STAMP):
                    continue
                if entry.is_dir() and not entry.is_symlink():
                    shutil.rmtree(entry)
                else:
                    entry.unlink()
            stamp.unlink(missing_ok=True)
        except OSError as error:
            raise DataFolderError(
                f"the data folder {self.path} cannot be emptied ({plain(error)})",
                "Delete it as the user that made it, or choose another one with --data-dir",
            ) from error

    def _check_layout(self) -> None:
        stamp = self._read_stamp()
        if stamp is None:
            self._write(_STAMP, msgspec.json.encode(VersionStamp(LAYOUT_VERSION)))
        elif stamp.layout != LAYOUT_VERSION:
            raise DataFolderError(
                f"the data folder {self.path} has layout {stamp.layout}, "
                f"and this Topolog reads layout {LAYOUT_VERSION}",
                "Run the Topolog that made it, choose another folder with --data-dir, or move it: "
                f"mv {self.path} {self.path}.layout{stamp.layout}",
            )

    def _read_stamp(self) -> VersionStamp | None:
        path = self.path / _STAMP
        try:
            return msgspec.json.decode(path.read_bytes(), type=VersionStamp)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.DecodeError) as error:
            raise DataFolderError(
                f"the file {path} cannot be read as a version stamp ({plain(error)})",
                "Choose another folder with --data-dir, or move this one",
            ) from error

    def _write(self, name: str, content: bytes) -> None:
        temporary = self.path / f".{name}.new"
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content + b"\n")
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self.path / name)

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self.close()


def read_addresses(path: Path) -> ServerAddresses:
    """Return the addresses that the last supervisor wrote; empty if there are none."""
    try:
        return msgspec.json.decode((path / _ADDRESSES).read_bytes(), type=ServerAddresses)
    except (OSError, msgspec.DecodeError):
        return ServerAddresses()


def _refuse_foreign(path: Path) -> None:
    """Refuse a folder with other contents: `--data-dir /tmp` must not change the mode of /tmp."""
    try:
        names = {entry.name for entry in path.iterdir()} if path.is_dir() else set()
    except OSError:
        return
    if names - {_LOCK, f".{_STAMP}.new"} and _STAMP not in names:
        raise DataFolderError(
            f"the folder {path} has other contents ({sorted(names)[0]}) and no Topolog data",
            f"Choose a separate folder with --data-dir, for example {path / 'topolog'}",
        )


def _make_private(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not path.is_dir() or not os.access(path, os.R_OK | os.W_OK | os.X_OK):
            raise PermissionError(f"no right to write in {path}")
        if path.stat().st_mode & 0o066:
            path.chmod(0o700)
    except OSError as error:
        raise DataFolderError(
            f"the data folder {path} cannot be used ({plain(error)})",
            "Choose another one with --data-dir",
        ) from error


def _lock(lock_file: Path, data_dir: Path) -> int:
    descriptor = os.open(lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        holder = os.read(descriptor, 32).decode("ascii", "replace").strip() or "unknown"
        os.close(descriptor)
        raise DataFolderError(
            f"the data folder {data_dir} is in use by another Topolog (process {holder})",
            "Stop that one first, or choose another folder with --data-dir",
        ) from error
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode("ascii"), 0)
    return descriptor
