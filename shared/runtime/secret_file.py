"""Secrets in files, and URLs in files, read again at every connection.

To rotate a password, write the file; a mounted Secret is replaced the same way.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from shared.file_signature import signature
from shared.telemetry.reasons import plain

MAX_BYTES = 65_536
# Suffix of a variable that names the file of a secret: TOPOLOG_X_FILE.
ENDING = "_FILE"

SECRETS = ("TOPOLOG_DATABASE_URL", "TOPOLOG_NATS_URL", "TOPOLOG_HTTP_TOKEN")

# A token, or a function that returns the current one.
Token = str | Callable[[], str]


class SecretUnreadable(OSError):
    """The file is unreadable or holds no usable value. The message names file and remedy, never the
    content. An OSError, because the next read may succeed: the file may be half written."""


class UrlFile:
    """An `Address` (`shared.domain.secret_url`). `trouble` returns the problem of a URL."""

    def __init__(self, path: str, trouble: Callable[[str], str]) -> None:
        self._path, self._trouble = path, trouble

    def __call__(self) -> str:
        """Return the current URL. Raises SecretUnreadable."""
        url = read(self._path)
        if trouble := self._trouble(url):
            raise SecretUnreadable(f"the URL in {self._path} {trouble}")
        return url

    def __repr__(self) -> str:
        return f"UrlFile({self._path!r})"


class SecretFile:
    """A secret in a file, read again when the file changes. While it is unreadable, which it was
    not at the start, the previous value stays in use: never an empty one."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._seen = signature(self._path)
        self._text = read(path)

    def __call__(self) -> str:
        """Return the current secret."""
        current = signature(self._path)
        if current != self._seen:
            with suppress(SecretUnreadable):
                self._text = read(self._path)
                self._seen = current
        return self._text

    def __repr__(self) -> str:
        return f"SecretFile({self._path!r})"


def read(path: str) -> str:
    """Return the stripped text. Raises SecretUnreadable."""
    try:
        with Path(path).open("rb") as opened:
            text = opened.read(MAX_BYTES).decode().strip()
    except OSError as error:
        raise SecretUnreadable(
            f"{path} cannot be read ({plain(error)}); name a readable file that holds the value"
        ) from None
    except UnicodeDecodeError:
        raise SecretUnreadable(f"{path} is not text; write only the value into it") from None
    if not text:
        raise SecretUnreadable(f"{path} is empty; write the value into it")
    return text


@contextmanager
def withheld() -> Iterator[None]:
    """Remove secrets from the environment while processes start that do not need them."""
    removed = {name: os.environ.pop(name) for name in SECRETS if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(removed)


def value_or_file(environment: Mapping[str, str], variable: str) -> str:
    """Return a variable's value, else the content of the file that `variable`_FILE names, else "".
    Raises SecretUnreadable.
    """
    file = environment.get(variable + ENDING, "")
    return environment.get(variable) or (read(file) if file else "")
