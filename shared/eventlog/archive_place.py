"""Where the archive's files are: a folder, or a bucket with the interface of S3 (TOPOLOG_ARCHIVE).

`s3://BUCKET/PREFIX` takes credentials, region and endpoint from the standard variables AWS_* or
from the identity of the pod. A file of a bucket is read from a copy in a temporary folder, which
holds the few files used last. Errors of a bucket are OSErrors, as those of a folder.
"""

from __future__ import annotations

import errno
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol, TypeVar

T = TypeVar("T")

S3 = "s3://"
# Copies of a bucket's files, of 140 MB each.
COPIES = 3
# A bucket is listed again after this time, or if it lacks a file.
LISTED_FOR_S = 60.0


class Place(Protocol):
    """Files by name. Each method raises OSError."""

    def names(self, again: bool = False) -> list[str]:
        """Return the names of all files; `again` asks for those of this moment."""

    def path(self, name: str) -> Path:
        """Return a local file with the content of `name`, which is valid until the next call."""

    @contextmanager
    def writing(self, name: str) -> Iterator[Path]:
        """Yield a path. The file that is written there becomes `name` at the end."""

    def remove(self, name: str) -> None:
        """Delete a file."""


class Folder:
    """A folder. It is created when a file is written."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.resolve()

    def __str__(self) -> str:
        return str(self._folder)

    def names(self, again: bool = False) -> list[str]:
        return [path.name for path in self._folder.iterdir()] if self._folder.exists() else []

    def path(self, name: str) -> Path:
        return self._folder / name

    @contextmanager
    def writing(self, name: str) -> Iterator[Path]:
        yield self._folder / name

    def remove(self, name: str) -> None:
        self.path(name).unlink(missing_ok=True)


class Bucket:
    """The objects of a bucket that begin with a prefix."""

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")
        self._bucket, _, self._prefix = self._url.removeprefix(S3).partition("/")
        self._folder = tempfile.TemporaryDirectory(prefix="topolog-archive-")
        self._copies: list[str] = []
        self._names: list[str] = []
        self._listed_s = -LISTED_FOR_S
        self._store: Any = None

    def __str__(self) -> str:
        return self._url

    def names(self, again: bool = False) -> list[str]:
        if again or time.monotonic() - self._listed_s > LISTED_FOR_S:
            self._names = self._asked(
                lambda obstore, store: [
                    item["path"] for page in obstore.list(store) for item in page
                ]
            )
            self._listed_s = time.monotonic()
        return self._names

    def path(self, name: str) -> Path:
        copy = Path(self._folder.name, name)
        if name in self._copies:
            self._copies.remove(name)
        else:
            self._asked(lambda obstore, store: _download(obstore, store, name, copy))
        self._copies.append(name)
        while len(self._copies) > COPIES:
            Path(self._folder.name, self._copies.pop(0)).unlink(missing_ok=True)
        return copy

    @contextmanager
    def writing(self, name: str) -> Iterator[Path]:
        file = Path(self._folder.name, f"{name}.new")
        try:
            yield file
            # An object appears as a whole.
            self._asked(lambda obstore, store: obstore.put(store, name, file))
        finally:
            file.unlink(missing_ok=True)
            self._forget(name)

    def remove(self, name: str) -> None:
        self._asked(lambda obstore, store: obstore.delete(store, name))
        self._forget(name)

    def _forget(self, name: str) -> None:
        self._listed_s = -LISTED_FOR_S
        if name in self._copies:
            self._copies.remove(name)

    def _asked(self, use: Callable[[Any, Any], T]) -> T:
        import obstore
        from obstore.exceptions import BaseError
        from obstore.store import S3Store

        try:
            if self._store is None:
                self._store = S3Store(
                    self._bucket,
                    prefix=self._prefix or None,
                    client_options={"allow_http": True, "connect_timeout": "5s", "timeout": "300s"},
                    retry_config={"max_retries": 3, "retry_timeout": timedelta(seconds=30)},
                )
            return use(obstore, self._store)
        except (BaseError, ValueError) as error:
            problem = str(error).partition("\n")[0]
            raise OSError(errno.EIO, problem, self._url) from error


def _download(obstore: Any, store: Any, name: str, to: Path) -> None:
    partial = to.with_suffix(".partial")
    with partial.open("wb") as file:
        for chunk in obstore.get(store, name).stream():
            file.write(chunk)
    os.replace(partial, to)


def place_of(location: str) -> Place:
    """Return the place that a setting or the log names: the URL of a bucket, or a folder."""
    return Bucket(location) if location.startswith(S3) else Folder(Path(location))


def trouble(location: str) -> str:
    """Return why the text is no place of an archive, "" if it is one."""
    if "://" in location and not location.removeprefix(S3).strip("/"):
        return "names no bucket; give s3://BUCKET/PREFIX"
    if "://" in location and not location.startswith(S3):
        return "must be a folder or s3://BUCKET/PREFIX"
    return ""
